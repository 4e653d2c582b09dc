//! The layout of help texts: commands in groups by purpose; common options listed once, at the top level.
//!
//! The layout must never change the arguments of a command.

use clap::{Arg, Command};

/// The commands by purpose. A command in no group is listed under [`OTHER_HEADING`].
pub const GROUPS: &[(&str, &[&str])] = &[
    ("The world", &["status", "pause", "resume", "reload", "confirm-clock", "shutdown", "config"]),
    (
        "Agents and work",
        &["agent", "turn", "task", "droid", "tool", "toolbox", "skill", "grant", "artifact", "approval"],
    ),
    ("Messages and conversations", &["ask", "send", "talk", "conversation", "session", "chat"]),
    ("Knowledge and shared state", &["knowledge", "state"]),
    ("Schedules", &["timer", "cron", "watch"]),
    ("Events, costs and failures", &["events", "ledger", "usage", "budget", "dead"]),
    ("ghostctl", &["completions", "help"]),
];
/// The heading of commands in no group.
const OTHER_HEADING: &str = "More";

/// The heading of the options of every command, which only the top level lists.
pub const COMMON: &str = "Options of every command";

/// Help template of all commands below the top level.
const SUBCOMMAND_TEMPLATE: &str = "\
{before-help}{about-with-newline}
{usage-heading} {usage}

{all-args}

`ghostctl --help` lists the options of every command, such as --world, --json and --timeout.{after-help}";

/// Sets the help templates of a command line.
pub fn with_help_layout(command: Command) -> Command {
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
        "  -h, --help        Print help for ghostctl or a command\n  -V, --version     Print the version{after-help}",
    );
    with_subcommand_template(command).help_template(whole)
}

fn with_subcommand_template(command: Command) -> Command {
    command.mut_subcommands(|command| with_subcommand_template(command.help_template(SUBCOMMAND_TEMPLATE)))
}

/// An option as `--name <VALUE>`.
fn option(arg: &Arg) -> String {
    let value = arg.get_value_names().filter(|_| arg.get_action().takes_values()).unwrap_or_default();
    let value: String = value.iter().map(|name| format!(" <{name}>")).collect();
    format!("--{}{value}", arg.get_long().unwrap_or_default())
}

/// Each heading with its commands and their descriptions.
fn groups(command: &Command) -> Vec<(&'static str, Vec<(String, String)>)> {
    let entry = |name: &str| match name {
        // clap adds this command only when it builds the command line.
        "help" => Some(("help".to_owned(), "Print help for ghostctl or a command".to_owned())),
        _ => command
            .find_subcommand(name)
            .filter(|found| !found.is_hide_set())
            .map(|found| (name.to_owned(), found.get_about().map(ToString::to_string).unwrap_or_default())),
    };
    let grouped =
        GROUPS.iter().map(|(heading, names)| (*heading, names.iter().filter_map(|name| entry(name)).collect()));
    let known = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others = command.get_subcommands().map(Command::get_name).filter(|name| !known(name)).filter_map(entry);
    grouped
        .chain([(OTHER_HEADING, others.collect())])
        .filter(|(_, commands): &(_, Vec<_>)| !commands.is_empty())
        .collect()
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
    fn every_command_is_in_exactly_one_group() {
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
    fn common_options_are_listed_once_and_lines_fit() {
        let top = command().render_help().to_string();
        for option in ["--endpoint", "--world", "--token", "--timeout", "--json"] {
            assert_eq!(top.matches(&format!("  {option}")).count(), 1, "{option}\n{top}");
        }
        // Only the lines of the template: clap wraps the others.
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
    fn examples_are_valid_command_lines() {
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

    /// Splits a line into words like a shell; `$ID` stays as it is.
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
