//! What the definition of the command line says to people: the layout of help texts, with the commands in groups and the
//! common options listed once; and the names of options and arguments in refusals. The daemon names fields of the wire
//! format. The id of each option and argument is the name of the field that it sets.

use clap::builder::Resettable;
use clap::{Arg, ArgMatches, Command};
use ghost_proto::renamed;
use serde_json::Value;

use crate::failure::Failure;

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
    command.mut_subcommands(|command| {
        let mut command = command.help_template(SUBCOMMAND_TEMPLATE);
        // What a comment says after its first paragraph, such as examples, comes last.
        let whole = command.get_long_about().map(ToString::to_string).unwrap_or_default();
        if let Some((_, rest)) = whole.split_once("\n\n") {
            command = command.long_about(Resettable::Reset).after_help(rest.to_owned());
        }
        with_subcommand_template(command)
    })
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

/// The failure with each field name replaced by the option or argument of the command that was run.
pub fn as_typed(failure: Failure, command: &Command, matches: &ArgMatches) -> Failure {
    // These problems concern fields inside the typed JSON, which have the same names there.
    if failure.details.as_ref().is_some_and(|details| details.get("problems").is_some()) {
        return failure;
    }
    let arguments = arguments(command, matches);
    let typed = |field: &str| arguments.iter().find(|arg| arg.get_id() == field).and_then(|arg| name(arg));
    // Other words may be ordinary words, even if an argument has the same id.
    let in_text = |word: &str| if word.contains('_') { typed(word) } else { None };
    let field = failure.details.as_ref().and_then(|details| details.get("field")).and_then(Value::as_str);
    // A message of the form `field: problem` also names a field.
    let field = field.or_else(|| failure.message.split_once(": ").map(|(field, _)| field));
    let first = field.and_then(|field| {
        let rest = failure.message.strip_prefix(field)?;
        Some((typed(field)?, rest)).filter(|_| rest.starts_with([' ', ':']))
    });
    let message = match first {
        Some((name, rest)) => format!("{name}{}", renamed(rest, in_text)),
        None => renamed(&failure.message, in_text),
    };
    Failure { message, hint: failure.hint.as_deref().map(|hint| renamed(hint, in_text)), ..failure }
}

/// The options and arguments that the command accepts, those of every command included.
fn arguments<'c>(command: &'c Command, matches: &ArgMatches) -> Vec<&'c Arg> {
    let mut arguments: Vec<&Arg> = command.get_arguments().collect();
    if let Some((name, below)) = matches.subcommand()
        && let Some(command) = command.find_subcommand(name)
    {
        arguments.extend(self::arguments(command, below));
    }
    arguments
}

/// The name of an option or argument, as help shows it.
fn name(arg: &Arg) -> Option<String> {
    if let Some(long) = arg.get_long() {
        return Some(format!("--{long}"));
    }
    match arg.get_value_names() {
        Some(names) => names.first().map(ToString::to_string),
        None => Some(arg.get_id().as_str().to_uppercase()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message;
    use prost_types::FileDescriptorSet;
    use serde_json::json;

    use super::*;
    use crate::cli::command;

    /// Fields that no option sets. The daemon returns the cursor; the command itself sets the others.
    const NEVER_TYPED: [&str; 10] = [
        "request_id",
        "cursor",
        "kind",
        "clear",
        "clear_tokens",
        "clear_micros",
        "enabled",
        "overrides_json",
        "approve",
        "digest",
    ];

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
            assert!(!help.contains("Examples: "), "{path} needs verbatim_doc_comment: {help}");
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

    fn rewritten(failure: Failure, line: &str) -> Failure {
        let matches = command().try_get_matches_from(format!("ghostctl {line}").split(' '));
        as_typed(failure, &command(), &matches.unwrap_or_else(|error| panic!("{line}: {error}")))
    }

    #[test]
    fn a_refusal_names_what_was_typed() {
        let cron = "cron add ada j --every 1h --message x --session main --deliver none";
        for (message, field, line, wanted) in [
            (
                "after_seq is 9, read on with before_seq",
                "after_seq",
                "chat history room",
                "--after is 9, read on with --before",
            ),
            ("agent_id: `A B` is no id", "", "turn list --agent=A", "--agent: `A B` is no id"),
            ("agent_id: `A B` is no id", "", "send A hi", "AGENT_ID: `A B` is no id"),
            ("agent_id: `A B` is no id", "", cron, "AGENT: `A B` is no id"),
            ("owner: bad", "owner", "conversation list", "--agent: bad"),
            ("timeout_seconds is 0", "timeout_seconds", cron, "--run-timeout is 0"),
            ("not within timeout_ms", "", "status", "not within --timeout"),
            // An ordinary word is a field only at the beginning of the message.
            ("content is empty", "content", "chat send r hi", "TEXT is empty"),
            ("the content is empty", "content", "chat send r hi", "the content is empty"),
            (
                "session isolated does not go with payload x",
                "session",
                cron,
                "--session isolated does not go with payload x",
            ),
            // A field that the command lacks, and text in backticks, stay as they are.
            ("to: read on with before_seq", "", "chat watch room", "to: read on with before_seq"),
            ("content of `value_json`", "", "state set k 1", "content of `value_json`"),
        ] {
            let details = Some(json!({ "field": field })).filter(|_| !field.is_empty());
            let failure = Failure { details, ..Failure::new("invalid_arguments", message).hint("see after_seq") };
            let failure = rewritten(failure, line);
            assert_eq!(failure.message, wanted, "{line}");
            let hint = if line.starts_with("chat history") || line.starts_with("chat watch") {
                "see --after"
            } else {
                "see after_seq"
            };
            assert_eq!(failure.hint.as_deref(), Some(hint), "{line}");
        }
    }

    #[test]
    fn fields_inside_typed_json_keep_their_names() {
        let line = "tool call ada syscall.agent.get {}";
        let failure = Failure {
            details: Some(json!({ "problems": [{ "field": "agent_id", "problem": "it is required" }] })),
            ..Failure::new("invalid_arguments", "syscall.agent.get: agent_id: it is required").hint("write agent_id")
        };
        assert_eq!(rewritten(failure.clone(), line), failure);
        let ours = Failure::new("invalid_arguments", "arguments_json is not a JSON object");
        assert_eq!(rewritten(ours, line).message, "JSON is not a JSON object");
    }

    #[test]
    fn every_request_field_has_an_option_or_argument() {
        fn collect(command: &Command, ids: &mut BTreeSet<String>) {
            ids.extend(command.get_arguments().map(|arg| arg.get_id().to_string()));
            command.get_subcommands().for_each(|below| collect(below, ids));
        }
        let mut ids = BTreeSet::new();
        collect(&command(), &mut ids);
        let set = FileDescriptorSet::decode(ghost_proto::FILE_DESCRIPTOR_SET).unwrap();
        let messages = set.file.iter().filter(|file| file.package() == "ghost.v1").flat_map(|file| &file.message_type);
        for message in messages.filter(|message| message.name().ends_with("Request")) {
            for field in message.field.iter().map(|field| field.name()) {
                let known = ids.contains(field) || NEVER_TYPED.contains(&field);
                assert!(known, "{}.{field}: no argument has this id", message.name());
            }
        }
    }
}
