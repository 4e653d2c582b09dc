//! The command line as it was typed: what it says of numbers below zero, and what its command calls its options and
//! arguments.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command};

/// The line with `--option -5` written as `--option=-5`, where that option takes a value. To clap a word that begins with
/// `-` is an option that it does not know; so the option itself says why it takes no such number.
pub fn joined(command: &Command, args: &[OsString]) -> Vec<OsString> {
    let takes_value = options_with_values(command);
    let mut line: Vec<OsString> = Vec::with_capacity(args.len());
    let mut words = args.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            line.push(word.clone());
            line.extend(words.cloned());
            break;
        }
        let below_zero =
            word.to_str().and_then(|word| word.strip_prefix('-')).is_some_and(|rest| rest.starts_with(is_digit));
        match line.last_mut() {
            Some(option) if below_zero && takes_value.iter().any(|known| *option == **known) => {
                option.push("=");
                option.push(word);
            }
            _ => line.push(word.clone()),
        }
    }
    line
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn options_with_values(command: &Command) -> Vec<String> {
    let own = command.get_arguments().filter(|arg| arg.get_action().takes_values()).flat_map(options);
    own.chain(command.get_subcommands().flat_map(options_with_values)).collect()
}

/// The names of an option, its aliases included; none for an argument.
fn options(arg: &Arg) -> Vec<String> {
    let aliases = arg.get_all_aliases().unwrap_or_default();
    arg.get_long().into_iter().chain(aliases).map(|name| format!("--{name}")).collect()
}

/// A command that was run, and what it calls what it takes.
pub struct Line {
    typed: Vec<String>,
    names: Vec<String>,
}

impl Line {
    /// The line that was read as `matches`.
    pub fn new(command: &Command, matches: &ArgMatches, args: &[OsString]) -> Self {
        let typed = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let mut names: Vec<String> = command.get_arguments().flat_map(names_of).collect();
        let (mut command, mut matches) = (command, matches);
        while let Some((name, below)) = matches.subcommand()
            && let Some(found) = command.find_subcommand(name)
        {
            (command, matches) = (found, below);
            names.extend(command.get_arguments().flat_map(names_of));
        }
        Self { typed, names }
    }

    /// Whether the command takes this.
    pub fn takes(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Of these names the one that was typed, else one that could have been.
    pub fn name<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        let was_typed = |name: &&&str| {
            self.typed
                .iter()
                .any(|arg| arg.strip_prefix(**name).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
        };
        let mut taken = names.iter().filter(|name| self.takes(name));
        // An argument is not written with its name, but where there is one it was given.
        let typed = taken.clone().find(|name| !name.starts_with('-') || was_typed(name));
        typed.or_else(|| taken.next()).copied()
    }
}

/// What a person calls an option, with its aliases, or an argument.
pub fn names_of(arg: &Arg) -> Vec<String> {
    if !arg.is_positional() {
        return options(arg);
    }
    match arg.get_value_names() {
        Some(names) => names.iter().map(ToString::to_string).collect(),
        None => vec![arg.get_id().as_str().to_uppercase()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_number_below_zero_stays_with_its_option() {
        for (line, wanted) in [
            ("ghostctl events --after -1", "ghostctl events --after=-1"),
            ("ghostctl --timeout -1s status", "ghostctl --timeout=-1s status"),
            ("ghostctl usage --since -1h --json", "ghostctl usage --since=-1h --json"),
            // No option that takes a value stands before these.
            ("ghostctl send ada -5", "ghostctl send ada -5"),
            ("ghostctl --json -5", "ghostctl --json -5"),
            ("ghostctl send ada -- --subject -5", "ghostctl send ada -- --subject -5"),
            ("ghostctl events --after -x", "ghostctl events --after -x"),
        ] {
            assert_eq!(joined(&command(), &words(line)), words(wanted), "{line}");
        }
    }

    #[test]
    fn every_command_refuses_a_number_below_zero_as_a_value() {
        fn each(command: &Command, path: &str, seen: &mut usize) {
            for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values() && !arg.is_positional()) {
                let line = format!("{path} --{} -1h", arg.get_long().unwrap());
                let args = joined(&crate::cli::command(), &words(&line));
                let told = crate::cli::command().try_get_matches_from(args).err().map(|error| error.to_string());
                assert!(!told.is_some_and(|told| told.contains("unexpected argument '-1")), "{line}");
                *seen += 1;
            }
            for below in command.get_subcommands() {
                each(below, &format!("{path} {}", below.get_name()), seen);
            }
        }
        let mut seen = 0;
        each(&command(), "ghostctl", &mut seen);
        assert!(seen > 60, "{seen}");
    }
}
