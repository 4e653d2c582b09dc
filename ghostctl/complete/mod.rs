//! Shell completion, from the definition of the command line and from the running daemon.
//!
//! Completion must never block a shell for long, print errors, change anything, or offer a word
//! that a shell would interpret.

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

/// The hidden first argument with which the shell scripts call this program.
pub const WORD: &str = "__complete";
/// Time limit for requests to the daemon.
const DAEMON_TIMEOUT: Duration = Duration::from_millis(500);

/// The words after [`WORD`], if the arguments are a completion request: the words of the line up to the cursor.
pub fn asked(args: &[OsString]) -> Option<Vec<String>> {
    let word = args.get(1).is_some_and(|word| word == WORD);
    word.then(|| args.iter().skip(2).map(|word| word.to_string_lossy().into_owned()).collect())
}

/// Prints the candidates, one on each line, as `value<TAB>description`. Always returns exit code 0.
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
            // A name that starts with `-` would be read as an option.
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
        // The shell has stopped reading.
        if out.text(&line).is_err() {
            break;
        }
    }
    drop(out.flush());
    0
}

async fn live(options: &ConnectionOptions, environment: &Environment, kind: &live::Live) -> Option<Vec<Candidate>> {
    let target = find(options, environment).ok()?;
    let client = Client::new(target, &environment.tls, DAEMON_TIMEOUT, View::default(), Box::new(|_| {})).ok()?;
    Deadline::after(DAEMON_TIMEOUT).within(live::candidates(&client, kind)).await?.ok()
}

#[cfg(test)]
mod tests;
