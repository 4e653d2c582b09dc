//! Completions: what could stand where the cursor is, from the command line's own definition and from the running daemon.
//!
//! Must never: keep a shell waiting, say anything when something fails, change anything, or offer a word that a shell would
//! read as more than a word.

mod candidate;
mod cursor;
mod live;
mod scripts;

use std::ffi::OsString;
use std::time::Duration;

use clap::Command;

use crate::connection::Client;
use crate::discovery::{ConnectionOptions, Environment, find};
use crate::output::Output;
use crate::view::View;
use crate::wait::Deadline;

pub use scripts::script;

use candidate::Candidate;
use cursor::{Cursor, Wanted};

/// The word that scripts begin with, which no command is called.
pub const WORD: &str = "__complete";
/// A shell waits no longer for the daemon.
const PATIENCE: Duration = Duration::from_millis(500);
/// The words behind [`WORD`], if that is what is asked for: those of the line up to the cursor, the last as far as it is
/// written.
pub fn asked(args: &[OsString]) -> Option<Vec<String>> {
    let word = args.get(1).is_some_and(|word| word == WORD);
    word.then(|| args.iter().skip(2).map(|word| word.to_string_lossy().into_owned()).collect())
}

/// Prints the candidates, one a line, with a tab before what each is. Gives the exit code, which is always that of success.
pub async fn run(command: &Command, words: &[String], environment: &Environment, out: &mut Output) -> u8 {
    let cursor = Cursor::of(command, words);
    let candidates = match cursor.wanted {
        Wanted::Words(candidates) => candidates,
        Wanted::Nothing => Vec::new(),
        Wanted::Worlds => crate::discovery::known_worlds(environment)
            .into_iter()
            .map(|world| Candidate::new(world, "world"))
            .collect(),
        Wanted::Live(kind) => {
            let mut found = live(&cursor.options, environment, &kind).await.unwrap_or_default();
            // A name that looks like an option would be taken for one.
            found.retain(|candidate| !candidate.value.starts_with('-'));
            found
        }
    };
    let fits = |candidate: &Candidate| candidate.value.starts_with(&cursor.typed) && candidate.is_harmless();
    for Candidate { value, about } in candidates.into_iter().filter(fits) {
        let line = match about.is_empty() {
            true => format!("{}{value}\n", cursor.before),
            false => format!("{}{value}\t{about}\n", cursor.before),
        };
        // A shell that reads no more has what it wanted.
        if out.text(&line).is_err() {
            break;
        }
    }
    drop(out.flush());
    0
}

async fn live(options: &ConnectionOptions, environment: &Environment, kind: &live::Live) -> Option<Vec<Candidate>> {
    let target = find(options, environment).ok()?;
    let client = Client::new(target, &environment.tls, PATIENCE, View::default(), Box::new(|_| {})).ok()?;
    Deadline::after(PATIENCE).within(live::candidates(&client, kind)).await?.ok()
}

#[cfg(test)]
mod tests;
