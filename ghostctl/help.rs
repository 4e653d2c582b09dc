//! How help looks: commands in groups by purpose, and the options that all of them take told once.
//!
//! Must never: change what a command takes.

use clap::{Arg, Command};

/// The commands by what they are for. One that is in no group is shown under [`ELSE`].
pub const GROUPS: &[(&str, &[&str])] = &[
    ("The world", &["status", "pause", "resume", "reload", "shutdown"]),
    ("Agents and their work", &["agent", "turn", "task", "tool"]),
    ("Talking", &["ask", "send", "talk", "conversation", "chat"]),
    ("What agents know and share", &["knowledge", "state"]),
    ("What happens by itself", &["timer", "cron", "watch"]),
    ("What happened, and what it cost", &["events", "ledger", "usage", "budget", "dead"]),
    ("This program", &["completions", "help"]),
];
/// Where a command stands that is in no group.
const ELSE: &str = "More";

/// Heads the options that every command takes and only the top level shows.
pub const COMMON: &str = "Options of every command";

const BELOW: &str = "\
{before-help}{about-with-newline}
{usage-heading} {usage}

{all-args}

The daemon, JSON and times: see the options of every command in `ghostctl --help`.{after-help}";

/// The command line with help in this form.
pub fn dressed(command: Command) -> Command {
    let mut whole = String::from("{before-help}{about-with-newline}\n{usage-heading} {usage}\n");
    for (heading, commands) in groups(&command) {
        whole.push_str(&format!("\n{heading}:\n"));
        for (name, about) in commands {
            whole.push_str(&format!("  {name:<13} {about}\n"));
        }
    }
    whole.push_str(&format!("\n{COMMON}:\n"));
    for arg in command.get_arguments().filter(|arg| arg.is_global_set()) {
        let about = arg.get_help().map(ToString::to_string).unwrap_or_default();
        whole.push_str(&format!("  {:<17} {about}\n", option(arg)));
    }
    whole.push_str(
        "  -h, --help        Print help, also below every command\n  -V, --version     Print the version{after-help}",
    );
    below(command).help_template(whole)
}

fn below(command: Command) -> Command {
    command.mut_subcommands(|command| below(command.help_template(BELOW)))
}

/// `--name <VALUE>`.
fn option(arg: &Arg) -> String {
    let value = arg.get_value_names().filter(|_| arg.get_action().takes_values()).unwrap_or_default();
    let value: String = value.iter().map(|name| format!(" <{name}>")).collect();
    format!("--{}{value}", arg.get_long().unwrap_or_default())
}

/// Each heading with its commands and what they are about.
fn groups(command: &Command) -> Vec<(&'static str, Vec<(String, String)>)> {
    let entry = |name: &str| match name {
        // It is there once the command line is built.
        "help" => Some(("help".to_owned(), "Print this, or the help of a command".to_owned())),
        _ => command
            .find_subcommand(name)
            .filter(|found| !found.is_hide_set())
            .map(|found| (name.to_owned(), found.get_about().map(ToString::to_string).unwrap_or_default())),
    };
    let grouped =
        GROUPS.iter().map(|(heading, names)| (*heading, names.iter().filter_map(|name| entry(name)).collect()));
    let known = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others = command.get_subcommands().map(Command::get_name).filter(|name| !known(name)).filter_map(entry);
    grouped.chain([(ELSE, others.collect())]).filter(|(_, commands): &(_, Vec<_>)| !commands.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    fn each(command: &Command, path: &str, see: &mut dyn FnMut(&str, &Command)) {
        for below in command.get_subcommands() {
            let path = format!("{path} {}", below.get_name());
            see(&path, below);
            each(below, &path, see);
        }
    }

    #[test]
    fn every_command_stands_in_one_group() {
        let command = command();
        let shown = command.get_subcommands().filter(|below| !below.is_hide_set()).map(Command::get_name);
        for name in shown {
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&name)).count();
            assert_eq!(groups, 1, "{name}: add it to one group of GROUPS");
        }
        for name in GROUPS.iter().flat_map(|(_, names)| *names).filter(|name| **name != "help") {
            assert!(command.find_subcommand(name).is_some(), "{name}");
        }
    }

    #[test]
    fn common_options_are_told_once_and_lines_fit() {
        let top = command().render_help().to_string();
        for option in ["--endpoint", "--world", "--token", "--timeout", "--json"] {
            assert_eq!(top.matches(&format!("  {option}")).count(), 1, "{option}\n{top}");
        }
        // Only the template's own lines: the rest is wrapped.
        let head = top.split("Examples:").next().unwrap();
        for line in head.lines() {
            assert!(line.chars().count() <= 110, "{line}");
        }
        let mut seen = 0;
        each(&command(), "ghostctl", &mut |path, below| {
            let help = below.clone().render_help().to_string();
            assert!(!help.contains("--endpoint"), "{path}: {help}");
            seen += 1;
        });
        assert!(seen > 60, "{seen}");
    }

    #[test]
    fn examples_can_be_used() {
        let mut examples = 0;
        each(&command(), "ghostctl", &mut |path, below| {
            let help = below.get_after_help().map(ToString::to_string).unwrap_or_default();
            for made_up in ["0197", "...", "…"] {
                assert!(!help.contains(made_up), "{path}: {help}");
            }
            for line in help.lines().filter(|line| line.starts_with("  ghostctl ")) {
                let line = line.split(['|', '>']).next().unwrap().split("  #").next().unwrap();
                let words = words(line);
                let read = command().try_get_matches_from(&words);
                assert!(read.is_ok(), "{path}: {line}: {}", read.err().unwrap());
                examples += 1;
            }
        });
        assert!(examples > 70, "{examples}");
    }

    /// The words of a line as a shell takes them, with `$ID` as it is.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
        let mut begun = false;
        for c in line.trim().chars() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '\'' | '"') => (quote, begun) = (Some(c), true),
                (None, ' ') if begun => {
                    words.push(std::mem::take(&mut word));
                    begun = false;
                }
                (None, ' ') => {}
                (_, c) => {
                    word.push(c);
                    begun = true;
                }
            }
        }
        if begun {
            words.push(word);
        }
        words
    }
}
