//! Rewrites refusals for the command line. The daemon names fields of the wire format; the user typed options and
//! arguments.

use ghost_record::names::{about, renamed};
use serde_json::Value;

use crate::failure::Failure;
use crate::line::Line;

/// Each field of the wire format with the options or arguments that set it. A command has one of them.
const FIELDS: &[(&str, &[&str])] = &[
    ("after_ms", &["--in"]),
    ("after_seq", &["--after"]),
    ("agent_id", &["--agent", "--id", "AGENT_ID", "AGENT"]),
    ("archetype", &["--archetype", "ARCHETYPE"]),
    ("arguments_json", &["JSON"]),
    ("as_agent", &["--as"]),
    ("at", &["--at"]),
    ("at_ms", &["--at"]),
    ("attachments", &["--attach"]),
    ("before_seq", &["--before"]),
    ("body", &["TEXT"]),
    ("changes", &["--changes"]),
    ("channel", &["--channel", "CHANNEL"]),
    ("clear_micros", &["--usd"]),
    ("clear_tokens", &["--tokens"]),
    ("content", &["--file", "TEXT"]),
    ("conversation_id", &["--conversation", "CONVERSATION_ID"]),
    ("cron", &["--cron"]),
    ("dead_letter_id", &["DEAD_LETTER_ID"]),
    ("debounce_ms", &["--debounce-ms"]),
    ("deleted", &["--deleted"]),
    ("deliver", &["--deliver"]),
    ("depends_on", &["--depends-on"]),
    ("description", &["--description"]),
    ("dry_run", &["--dry-run"]),
    ("due_at_ms", &["--due-in"]),
    ("entry_id", &["ENTRY_ID"]),
    ("ephemeral", &["--ephemeral"]),
    ("every_ms", &["--every"]),
    ("expected_version", &["--expect"]),
    ("follow", &["--follow"]),
    ("fresh", &["--fresh"]),
    ("gated", &["--gated"]),
    ("goal", &["--goal"]),
    ("grace_ms", &["--grace"]),
    ("key", &["KEY"]),
    ("kinds", &["--kind"]),
    ("limit", &["--limit"]),
    ("limit_micros", &["--usd"]),
    ("limit_tokens", &["--tokens"]),
    ("max_rounds", &["--max-rounds"]),
    ("members", &["--members"]),
    ("message", &["--message"]),
    ("missed", &["--missed"]),
    ("model", &["--model"]),
    ("name", &["--name", "NAME"]),
    ("note", &["--note"]),
    ("owner", &["--owner", "--agent"]),
    ("parent_id", &["--parent"]),
    ("path", &["PATH"]),
    ("payload", &["--payload"]),
    ("prefix", &["PREFIX"]),
    ("priority", &["--priority"]),
    ("query", &["--query"]),
    ("readers", &["--readers"]),
    ("reason", &["--reason"]),
    ("recursive", &["--recursive"]),
    ("reopen", &["--reopen"]),
    ("reply_to", &["--reply-to"]),
    ("result", &["--result"]),
    ("root_id", &["--root"]),
    ("schedule_id", &["ID"]),
    ("scope", &["SCOPE"]),
    ("seq", &["SEQ"]),
    ("session", &["--session"]),
    ("since_at_ms", &["--since"]),
    ("skip_creator", &["--skip-creator"]),
    ("sort", &["--scope"]),
    ("status", &["--status"]),
    ("subject", &["--subject"]),
    ("tag", &["--tag"]),
    ("tags", &["--tags"]),
    ("task_id", &["TASK_ID"]),
    ("timeout_ms", &["--timeout"]),
    ("timeout_seconds", &["--run-timeout"]),
    ("title", &["--title", "TITLE"]),
    ("to", &["--to"]),
    ("tool", &["--tool", "TOOL"]),
    ("topic", &["--topic"]),
    ("turn_id", &["--turn", "TURN_ID"]),
    ("value_json", &["JSON"]),
    ("versions", &["--versions"]),
    ("wake", &["--wake"]),
    ("writers", &["--writers"]),
    ("zone", &["--zone"]),
];

/// Fields whose names are ordinary words, with their values. They count as fields only before one of these values.
const PAIRS: &[(&str, &[&str])] = &[
    ("session", &["main", "isolated"]),
    ("payload", &["systemEvent", "agentTurn"]),
    ("wake", &["now", "next-heartbeat"]),
    ("deliver", &["none", "announce", "webhook"]),
];

/// The failure with each field name replaced by the option or argument of the command that was run.
pub fn as_typed(failure: Failure, line: &Line) -> Failure {
    // These problems concern fields inside the typed JSON, which have the same names there.
    if failure.details.as_ref().is_some_and(|details| details.get("problems").is_some()) {
        return failure;
    }
    let name = |word: &str| typed(word, line);
    // Names with an underscore are no ordinary words. They are always replaced, even if the command lacks the option.
    let unusual = |word: &str| {
        let elsewhere = || names(word)?.first().map(ToString::to_string);
        if word.contains('_') { name(word).or_else(elsewhere) } else { None }
    };
    let field = failure.details.as_ref().and_then(|details| details.get("field")).and_then(Value::as_str);
    // A message of the form `name: problem` also names a field.
    let field = field.or_else(|| failure.message.split_once(": ").map(|(field, _)| field));
    let message = about(&failure.message, field, name);
    Failure {
        message: replace_in_context(&renamed(&message, unusual), line),
        hint: failure.hint.as_deref().map(|hint| replace_in_context(&renamed(hint, unusual), line)),
        ..failure
    }
}

fn typed(field: &str, line: &Line) -> Option<String> {
    if field == "request_id" {
        return Some("request".to_owned());
    }
    line.name(names(field)?).map(str::to_owned)
}

fn names(field: &str) -> Option<&'static [&'static str]> {
    FIELDS.iter().find(|(known, _)| *known == field).map(|(_, names)| *names)
}

/// Replaces ordinary words that name an option by their context: `payload agentTurn` becomes `--payload agentTurn`,
/// `leave to out` becomes `leave --to out`, `does not go with deliver` becomes `does not go with --deliver`.
fn replace_in_context(text: &str, line: &Line) -> String {
    let words: Vec<&str> = text.split(' ').collect();
    let bare = |at: usize| words.get(at).map_or("", |word| word.trim_end_matches([',', ':', ';', '.']));
    let before = |at: usize, back: usize| at.checked_sub(back).map_or("", bare);
    let option = |at: usize| {
        let word = bare(at);
        let has_value = PAIRS.iter().any(|(field, values)| *field == word && values.contains(&bare(at + 1)));
        let left_out = before(at, 1) == "leave" && bare(at + 1) == "out";
        let goes_with = before(at, 1) == "with" && matches!(before(at, 2), "go" | "goes");
        let name = if has_value || left_out || goes_with { typed(word, line)? } else { return None };
        Some(format!("{name}{}", &words[at][word.len()..]))
    };
    let written: Vec<String> =
        words.iter().enumerate().map(|(at, word)| option(at).unwrap_or_else(|| (*word).to_owned())).collect();
    written.join(" ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ffi::OsString;

    use prost::Message;
    use prost_types::FileDescriptorSet;
    use serde_json::json;

    use super::*;
    use crate::cli::command;
    use crate::line::names_of;

    /// Fields that no option sets. The daemon returns the cursor; the command itself sets the others.
    const NEVER_TYPED: [&str; 5] = ["cursor", "kind", "clear", "enabled", "overrides_json"];

    fn rewritten(message: &str, hint: &str, field: Option<&str>, line: &str) -> (String, String) {
        let args: Vec<OsString> = format!("ghostctl {line}").split(' ').map(OsString::from).collect();
        let matches = command().try_get_matches_from(&args).unwrap_or_else(|error| panic!("{line}: {error}"));
        let failure = Failure {
            details: field.map(|field| json!({ "field": field })),
            ..Failure::new("invalid_arguments", message).hint(hint)
        };
        let failure = as_typed(failure, &Line::new(&command(), &matches, &args));
        (failure.message, failure.hint.unwrap())
    }

    #[test]
    fn a_refusal_names_what_was_typed() {
        let cron = "cron add ada j --every 1h --message x --session main --deliver none";
        for (message, hint, field, line, wanted) in [
            (
                "after_seq is 9, which #room has not reached",
                "read on with before_seq or after_seq",
                Some("after_seq"),
                "chat history room --after 9",
                ("--after is 9, which #room has not reached", "read on with --before or --after"),
            ),
            (
                "agent_id: `A B` is no id",
                "x",
                Some("agent_id"),
                "turn list --agent=A",
                ("--agent: `A B` is no id", "x"),
            ),
            ("agent_id: `A B` is no id", "x", Some("agent_id"), "send A hi", ("AGENT_ID: `A B` is no id", "x")),
            // Another command has another name for the same field.
            ("agent_id: `A B` is no id", "x", Some("agent_id"), cron, ("AGENT: `A B` is no id", "x")),
            ("owner: bad", "x", None, "task list --agent A", ("--agent: bad", "x")),
            ("owner: bad", "x", None, "task list --owner A", ("--owner: bad", "x")),
            ("root_id: bad", "x", None, "turn list", ("--root: bad", "x")),
            (
                "content is empty",
                "say something in content",
                Some("content"),
                "chat send r hi",
                ("TEXT is empty", "say something in content"),
            ),
            (
                "content of `value_json`",
                "a fresh request_id",
                None,
                "state set k 1",
                ("content of `value_json`", "a fresh request"),
            ),
            // A field that the command lacks stays an ordinary word, unless it has an underscore.
            ("to: x", "read on with before_seq", None, "chat watch room", ("to: x", "read on with --before")),
            // Ordinary words are fields at the beginning of a message, or before one of their values.
            ("to: `x` is not a target", "write to it", None, cron, ("--to: `x` is not a target", "write to it")),
            ("timeout_seconds is 0", "x", Some("timeout_seconds"), cron, ("--run-timeout is 0", "x")),
            (
                "session isolated does not go with payload systemEvent: see it",
                "deliver it, or use payload agentTurn, and wake now",
                Some("session"),
                cron,
                (
                    "--session isolated does not go with --payload systemEvent: see it",
                    "deliver it, or use --payload agentTurn, and --wake now",
                ),
            ),
            ("the payload agentTurn of it", "x", None, "status", ("the payload agentTurn of it", "x")),
            (
                "wake next-heartbeat does not go with timeout_seconds: it runs alone",
                "leave wake out, or leave that to me",
                Some("wake"),
                cron,
                (
                    "--wake next-heartbeat does not go with --run-timeout: it runs alone",
                    "leave --wake out, or leave that to me",
                ),
            ),
        ] {
            assert_eq!(rewritten(message, hint, field, line), (wanted.0.to_owned(), wanted.1.to_owned()), "{line}");
        }
    }

    #[test]
    fn fields_inside_typed_json_keep_their_names() {
        let args: Vec<OsString> =
            ["ghostctl", "tool", "call", "ada", "syscall.task.update", "{}"].map(OsString::from).into();
        let matches = command().try_get_matches_from(&args).unwrap();
        let line = Line::new(&command(), &matches, &args);
        for message in [
            "syscall.task.update: task_id: it is required",
            "syscall.agent.get: agent_id: it is required",
            "syscall.message.send: timeout_seconds: -1 is less than the minimum of 1",
        ] {
            let failure = Failure {
                details: Some(json!({ "problems": [{ "field": "task_id", "problem": "it is required" }] })),
                ..Failure::new("invalid_arguments", message).hint("write task_id")
            };
            assert_eq!(as_typed(failure.clone(), &line), failure);
        }
        let ours = Failure {
            details: Some(json!({ "field": "arguments_json" })),
            ..Failure::new("invalid_arguments", "arguments_json is not a JSON object")
        };
        assert_eq!(as_typed(ours, &line).message, "JSON is not a JSON object");
        let waited = Failure::new("timeout", "the call has not ended within timeout_ms");
        assert_eq!(as_typed(waited, &line).message, "the call has not ended within --timeout");
    }

    #[test]
    fn every_request_field_has_an_option_or_argument() {
        assert!(FIELDS.windows(2).all(|pair| pair[0].0 < pair[1].0), "sorted");
        fn collect(command: &clap::Command, names: &mut BTreeSet<String>) {
            names.extend(command.get_arguments().flat_map(names_of));
            command.get_subcommands().for_each(|below| collect(below, names));
        }
        let mut there = BTreeSet::new();
        collect(&command(), &mut there);
        for (field, names) in FIELDS {
            for name in *names {
                assert!(there.contains(*name), "{field}: {name}");
            }
        }
        let set = FileDescriptorSet::decode(ghost_proto::FILE_DESCRIPTOR_SET).unwrap();
        let requests = set.file.iter().filter(|file| file.package() == "ghost.v1").flat_map(|file| &file.message_type);
        for message in requests.filter(|message| message.name().ends_with("Request")) {
            for field in message.field.iter().map(|field| field.name()) {
                let known = field == "request_id" || FIELDS.iter().any(|(known, _)| *known == field);
                assert!(known || NEVER_TYPED.contains(&field), "{}.{field}", message.name());
            }
        }
    }
}
