//! Shell completion, from the definition of the command line and from the running daemon.
//!
//! Completion blocks a shell only for a moment. It prints no errors, changes nothing, and offers no word that a shell would
//! interpret.

mod words;

use std::ffi::OsString;
use std::time::Duration;

use clap::Command;

use self::words::{Candidate, Cursor, Live, Wanted, candidates};
use crate::connection::Client;
use crate::discovery::{ConnectionOptions, Environment, find};
use crate::output::{Output, View};
use crate::wait::Deadline;

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
            let mut found = live(&cursor.options, environment, kind).await.unwrap_or_default();
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

async fn live(options: &ConnectionOptions, environment: &Environment, kind: Live) -> Option<Vec<Candidate>> {
    let target = find(options, environment).ok()?;
    let client = Client::new(target, &environment.tls, DAEMON_TIMEOUT, View::default(), Box::new(|_| {})).ok()?;
    Deadline::after(DAEMON_TIMEOUT).within(candidates(&client, kind)).await?.ok()
}

/// The completion scripts of the shells. Each calls this program for the candidates at the cursor.
const BASH: &str = r#"# Completions of ghostctl for bash.
_ghostctl() {
    local line value inline=
    COMPREPLY=()
    # bash splits --option=value and expects the value alone.
    if [[ ${COMP_WORDS[COMP_CWORD]} == "=" || ${COMP_WORDS[COMP_CWORD - 1]} == "=" ]]; then
        inline=1
    fi
    while IFS= read -r line; do
        value=${line%%$'\t'*}
        if [[ $inline ]]; then
            value=${value#--*=}
        fi
        # bash inserts the word unchanged, so special characters must be quoted here.
        if [[ $value == *[![:alnum:]._/@:=,+-]* ]]; then
            printf -v value %q "$value"
        fi
        COMPREPLY+=("$value")
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _ghostctl ghostctl
"#;

// zsh and fish quote the offered words themselves, so these scripts must not quote them.
const ZSH: &str = r#"#compdef ghostctl
# Completions of ghostctl for zsh.
_ghostctl() {
    local line
    local -a found
    while IFS= read -r line; do
        if [[ $line == *$'\t'* ]]; then
            found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
        else
            found+=("${line//:/\\:}")
        fi
    done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#found )); then
        _describe -V 'ghostctl' found
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_ghostctl" ]; then
    _ghostctl "$@"
else
    compdef _ghostctl ghostctl
fi
"#;

const FISH: &str = r#"# Completions of ghostctl for fish.
function __ghostctl_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    $words[1] __complete $words[2..-1] "$current" 2>/dev/null
end
complete -c ghostctl -a '(__ghostctl_complete)'
"#;

/// The script for a shell; `None` for an unknown shell.
pub fn script(shell: &str) -> Option<&'static str> {
    match shell {
        "bash" => Some(BASH),
        "zsh" => Some(ZSH),
        "fish" => Some(FISH),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
