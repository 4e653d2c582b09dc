//! The command line as typed: handling of negative numbers, and the names of options and arguments of a command.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command};

/// Rewrites `--option -5` as `--option=-5`, if the option takes a value. Otherwise clap would report `-5` as an unknown
/// option, and the option's own parser could not say that the number must not be negative.
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
        let is_negative =
            word.to_str().and_then(|word| word.strip_prefix('-')).is_some_and(|rest| rest.starts_with(is_digit));
        match line.last_mut() {
            Some(option) if is_negative && takes_value.iter().any(|known| *option == **known) => {
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

/// The long names of an option with its aliases; empty for a positional argument.
fn options(arg: &Arg) -> Vec<String> {
    let aliases = arg.get_all_aliases().unwrap_or_default();
    arg.get_long().into_iter().chain(aliases).map(|name| format!("--{name}")).collect()
}

/// A command line, with the names of the options and arguments that its command accepts.
pub struct Line {
    typed: Vec<String>,
    names: Vec<String>,
}

impl Line {
    /// The line `args`, which clap parsed as `matches`.
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

    /// Whether the command has this option or argument.
    pub fn takes(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// The first of these names that was typed, else the first that the command accepts.
    pub fn name<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        let was_typed = |name: &&&str| {
            self.typed
                .iter()
                .any(|arg| arg.strip_prefix(**name).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
        };
        let mut taken = names.iter().filter(|name| self.takes(name));
        // The name of a positional argument is never typed. If the command has it, it counts as typed.
        let typed = taken.clone().find(|name| !name.starts_with('-') || was_typed(name));
        typed.or_else(|| taken.next()).copied()
    }
}

/// The names of an option with its aliases, or of a positional argument, as help shows them.
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
    fn a_negative_number_is_joined_to_its_option() {
        for (line, wanted) in [
            ("ghostctl events --after -1", "ghostctl events --after=-1"),
            ("ghostctl --timeout -1s status", "ghostctl --timeout=-1s status"),
            ("ghostctl usage --since -1h --json", "ghostctl usage --since=-1h --json"),
            // These numbers do not follow an option with a value.
            ("ghostctl send ada -5", "ghostctl send ada -5"),
            ("ghostctl --json -5", "ghostctl --json -5"),
            ("ghostctl send ada -- --subject -5", "ghostctl send ada -- --subject -5"),
            ("ghostctl events --after -x", "ghostctl events --after -x"),
        ] {
            assert_eq!(joined(&command(), &words(line)), words(wanted), "{line}");
        }
    }

    #[test]
    fn every_option_parses_a_negative_number_as_its_value() {
        fn each(command: &Command, path: &str, seen: &mut usize) {
            for arg in command.get_arguments().filter(|arg| arg.get_action().takes_values() && !arg.is_positional()) {
                let line = format!("{path} --{} -1h", arg.get_long().unwrap());
                let args = joined(&crate::cli::command(), &words(&line));
                let error = crate::cli::command().try_get_matches_from(args).err().map(|error| error.to_string());
                assert!(!error.is_some_and(|error| error.contains("unexpected argument '-1")), "{line}");
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
