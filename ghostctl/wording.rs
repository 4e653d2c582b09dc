//! Refusals in the words of the command line: the daemon names a field of the wire, the person typed an option or an
//! argument.

use ghost_record::names::{about, renamed};
use serde_json::Value;

use crate::failure::Failure;

/// A field of the wire, the options that set it, and the argument that does where none of them was typed.
const FIELDS: &[(&str, &[&str], &str)] = &[
    ("after_ms", &["--in"], ""),
    ("after_seq", &["--after"], ""),
    ("agent_id", &["--agent", "--id"], "AGENT_ID"),
    ("arguments_json", &[], "JSON"),
    ("as_agent", &["--as"], ""),
    ("at_ms", &["--at"], ""),
    ("attachments", &["--attach"], ""),
    ("before_seq", &["--before"], ""),
    ("body", &[], "TEXT"),
    ("content", &["--file"], "TEXT"),
    ("conversation_id", &["--conversation"], "CONVERSATION_ID"),
    ("dead_letter_id", &[], "DEAD_LETTER_ID"),
    ("debounce_ms", &["--debounce-ms"], ""),
    ("depends_on", &["--depends-on"], ""),
    ("description", &["--description"], ""),
    ("due_at_ms", &["--due-in"], ""),
    ("entry_id", &[], "ENTRY_ID"),
    ("every_ms", &["--every"], ""),
    ("expected_version", &["--expect"], ""),
    ("goal", &["--goal"], ""),
    ("grace_ms", &["--grace"], ""),
    ("kinds", &["--kind"], ""),
    ("limit", &["--limit"], ""),
    ("limit_micros", &["--usd"], ""),
    ("limit_tokens", &["--tokens"], ""),
    ("members", &["--members"], ""),
    ("message", &["--message"], ""),
    ("missed", &["--missed"], ""),
    ("name", &["--name"], "NAME"),
    ("note", &["--note"], ""),
    ("owner", &["--owner", "--agent"], ""),
    ("parent_id", &["--parent"], ""),
    ("query", &["--query"], ""),
    ("reason", &["--reason"], ""),
    ("reply_to", &["--reply-to"], ""),
    ("request_id", &[], "request"),
    ("result", &["--result"], ""),
    ("root_id", &["--root"], "ROOT_ID"),
    ("schedule_id", &[], "ID"),
    ("since_at_ms", &["--since"], ""),
    ("skip_creator", &["--skip-creator"], ""),
    ("sort", &["--scope"], ""),
    ("status", &["--status"], ""),
    ("subject", &["--subject"], ""),
    ("tag", &["--tag"], ""),
    ("task_id", &[], "TASK_ID"),
    ("timeout_ms", &["--timeout"], ""),
    ("title", &["--title"], "TITLE"),
    ("topic", &["--topic"], ""),
    ("turn_id", &["--turn"], "TURN_ID"),
    ("value_json", &[], "JSON"),
    ("zone", &["--zone"], ""),
];

/// The failure with every field called what it is called in `args`.
pub fn as_typed(failure: Failure, args: &[String]) -> Failure {
    let name = |word: &str| typed(word, args);
    // Only these are nobody's ordinary words.
    let unusual = |word: &str| if word.contains('_') { name(word) } else { None };
    let field = failure.details.as_ref().and_then(|details| details.get("field")).and_then(Value::as_str);
    let message = about(&failure.message, field, name);
    Failure {
        message: renamed(&message, unusual),
        hint: failure.hint.as_deref().map(|hint| renamed(hint, unusual)),
        ..failure
    }
}

fn typed(field: &str, args: &[String]) -> Option<String> {
    let (_, options, argument) = FIELDS.iter().find(|(known, ..)| *known == field)?;
    let was_typed = |option: &&&str| {
        args.iter().any(|arg| arg.strip_prefix(**option).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
    };
    let option = options.iter().find(was_typed);
    // What was not typed at all is called what it would have been typed as.
    let name = option.copied().unwrap_or(if argument.is_empty() { options.first().copied()? } else { argument });
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(message: &str, hint: &str, field: Option<&str>, line: &str) -> (String, String) {
        let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let failure = Failure {
            details: field.map(|field| json!({ "field": field })),
            ..Failure::new("invalid_arguments", message).hint(hint)
        };
        let failure = as_typed(failure, &args);
        (failure.message, failure.hint.unwrap())
    }

    #[test]
    fn a_refusal_names_what_was_typed() {
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
            ("agent_id: `A B` is no id", "x", Some("agent_id"), "send A", ("AGENT_ID: `A B` is no id", "x")),
            (
                "content is empty",
                "say something in content",
                Some("content"),
                "chat send r",
                ("TEXT is empty", "say something in content"),
            ),
            (
                "content of `value_json`",
                "a fresh request_id",
                None,
                "state set",
                ("content of `value_json`", "a fresh request"),
            ),
        ] {
            assert_eq!(told(message, hint, field, line), (wanted.0.to_owned(), wanted.1.to_owned()), "{line}");
        }
    }

    #[test]
    fn the_table_is_sorted_and_its_options_exist() {
        assert!(FIELDS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let options = crate::cli::every_option();
        for (field, names, argument) in FIELDS {
            assert!(!names.is_empty() || !argument.is_empty(), "{field}");
            for name in *names {
                assert!(options.contains(&name.trim_start_matches('-').to_owned()), "{field}: {name}");
            }
        }
    }
}
