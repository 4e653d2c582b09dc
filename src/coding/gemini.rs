//! Events of Gemini CLI.
//!
//! Sources: <https://geminicli.com/docs/cli/headless/>, and in
//! <https://github.com/google-gemini/gemini-cli> the files `packages/core/src/output/types.ts`
//! (events), `packages/cli/src/nonInteractiveCli.ts` (their order) and
//! `packages/core/src/tools/definitions/base-declarations.ts` (names of tools and parameters).
//! Its result has no text: the result is the message after the last call.

use serde::Deserialize;

use crate::doubts::is_denial;
use crate::fields::{Failure, Flag, Object, Stats, Text};
use crate::run::{Args, Run};

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Event<'a> {
    r#type: Text<'a>,
    session_id: Text<'a>,
    model: Text<'a>,
    role: Text<'a>,
    content: Text<'a>,
    delta: Flag,
    tool_name: Text<'a>,
    tool_id: Text<'a>,
    parameters: Args<'a>,
    status: Text<'a>,
    severity: Text<'a>,
    message: Text<'a>,
    error: Failure,
    stats: Stats,
}

/// The kind of the error of a call. The message is read as a [`Failure`].
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Refusal<'a> {
    error: Object<Kind<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Kind<'a> {
    r#type: Text<'a>,
}

/// Adds the event in `line`. Returns `false` if it is not JSON.
pub(crate) fn read(line: &[u8], run: &mut Run) -> bool {
    let Ok(event) = serde_json::from_slice::<Event<'_>>(line) else { return false };
    let failed = event.status.as_str() == "error";
    match event.r#type.as_str() {
        "init" => {
            run.session(&event.session_id);
            run.note(&format!("started {}", event.model.as_str()));
        }
        "message" if event.role.as_str() == "assistant" => match event.delta.0 {
            true => run.say_part(event.content.as_str()),
            false => {
                run.said();
                run.say(event.content.as_str());
            }
        },
        "message" => {}
        "tool_use" => {
            run.said();
            run.call(&event.tool_id, event.tool_name.as_str(), &event.parameters);
        }
        "tool_result" => {
            run.ended(&event.tool_id, failed);
            let kind = serde_json::from_slice::<Refusal<'_>>(line).unwrap_or_default().error.0.unwrap_or_default();
            let words = [kind.r#type.as_str(), event.error.0.as_deref().unwrap_or_default()];
            if failed && words.into_iter().any(is_denial) || is_denial(event.status.as_str()) {
                run.doubts.call_denied(event.tool_id.as_str());
            }
        }
        "error" if event.severity.as_str() == "warning" => run.warn(event.message.as_str()),
        "error" => {
            // Some errors are overcome. One that says that the run was stopped is not.
            run.doubts.failed_as(event.message.as_str());
            run.trouble(event.message.as_str());
        }
        "result" => {
            run.stats(&event.stats);
            if !failed {
                run.doubts.ended(event.status.as_str());
            }
            let error = event.error.0.or(run.error.take()).filter(|_| failed);
            run.end(failed, None, error.as_deref());
        }
        _ => return true,
    }
    run.known = true;
    true
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::{stream, summary, summary_with};
    use crate::{Compactor, Exit, Format, Usage};

    fn part(text: &str) -> Value {
        json!({ "type": "message", "timestamp": "2026-01-01T00:00:00Z", "role": "assistant", "content": text, "delta": true })
    }

    fn tool(id: &str, name: &str, parameters: Value) -> Value {
        json!({ "type": "tool_use", "tool_name": name, "tool_id": id, "parameters": parameters })
    }

    #[test]
    fn a_run_that_succeeds() {
        let (compact, notes) = summary(
            Format::Gemini,
            &[
                json!({ "type": "init", "session_id": "g-1", "model": "gemini" }),
                json!({ "type": "message", "role": "user", "content": "Do it." }),
                part("I read "),
                part("the file."),
                tool("1", "read_file", json!({ "file_path": "a.ts", "start_line": 1 })),
                json!({ "type": "tool_result", "tool_id": "1", "status": "success", "output": "x" }),
                tool("2", "replace", json!({ "file_path": "/work/repo/b.ts", "old_string": "x" })),
                json!({ "type": "tool_result", "tool_id": "2", "status": "error", "error": { "type": "x", "message": "no match" } }),
                tool("3", "write_file", json!({ "file_path": "/work/repo/c.ts", "content": "y" })),
                tool("4", "run_shell_command", json!({ "command": "npm test" })),
                tool("5", "list_directory", json!({ "dir_path": "src" })),
                json!({ "type": "error", "severity": "warning", "message": "Loop" }),
                part("\n"),
                part("It is "),
                part("done."),
                json!({ "type": "result", "status": "success", "stats": { "total_tokens": 120, "input_tokens": 100,
                    "output_tokens": 20, "cached": 60, "input": 40, "duration_ms": 5_049, "tool_calls": 4,
                    "models": { "gemini": { "input_tokens": 1 } } } }),
            ],
        );
        assert_eq!(
            compact.text,
            "Gemini agent: done, 5.0 s, 20 output tokens\nFiles read: a.ts\nFiles written: c.ts\nCommands:\n- npm test\n\
             Warnings:\n- Loop\nResult:\nIt is done."
        );
        assert_eq!(compact.usage, Some(Usage { input: 100, output: 20, cache_read: 60, cache_write: 0 }));
        assert_eq!((compact.failed, compact.session_id.as_deref()), (false, Some("g-1")));
        assert_eq!(notes[..4], ["started gemini", "I read the file.", "read a.ts", "write b.ts"]);
        assert_eq!(notes[4..8], ["write c.ts", "run npm test", "list_directory src", "warning: Loop"]);
        assert_eq!(notes[8..], ["It is done.", "done"]);
    }

    #[test]
    fn a_run_that_fails() {
        let event = json!({ "type": "error", "severity": "error", "message": "Maximum session turns exceeded" });
        let result = json!({ "type": "result", "status": "error", "stats": null });
        let (compact, _) = summary(Format::Gemini, &[event.clone(), result]);
        assert_eq!(compact.text, "Gemini agent: failed\nResult:\nMaximum session turns exceeded");
        assert!(compact.failed);
        let (compact, _) = summary_with(Format::Gemini, stream(&[event]).as_bytes(), 53, "");
        let text = "Gemini agent: no result, exit code 53\nLast message:\nMaximum session turns exceeded";
        assert_eq!(compact.unwrap().text, text);
    }

    #[test]
    fn a_run_that_was_stopped_or_denied_something_is_not_done() {
        let error =
            |severity: &str, message: &str| json!({ "type": "error", "severity": severity, "message": message });
        let refused = |error: Value| {
            vec![
                tool("1", "run_shell_command", json!({ "command": "ls" })),
                json!({ "type": "tool_result", "tool_id": "1", "status": "error", "error": error }),
            ]
        };
        for (events, reason) in [
            (vec![error("warning", "Loop detected, stopping execution")], "Loop detected, stopping execution"),
            (vec![error("warning", "Agent execution blocked: no")], "Agent execution blocked: no"),
            (vec![error("error", "Maximum session turns exceeded")], "Maximum session turns exceeded"),
            (vec![error("error", "Agent execution stopped: by a hook")], "Agent execution stopped: by a hook"),
            (refused(json!({ "type": "policy_violation", "message": "no" })), "denied: run_shell_command"),
            (
                refused(json!({ "type": "x", "message": "Tool execution denied by policy." })),
                "denied: run_shell_command",
            ),
        ] {
            let events: Vec<Value> =
                events.into_iter().chain([part("Fine."), json!({ "type": "result", "status": "success" })]).collect();
            let (compact, _) = summary(Format::Gemini, &events);
            let first = compact.text.lines().next().unwrap();
            assert_eq!((first, compact.failed), (format!("Gemini agent: incomplete ({reason})").as_str(), true));
            assert!(compact.text.ends_with("Result:\nFine."), "{}", compact.text);
        }
        let (compact, _) = summary(Format::Gemini, &[part("x"), json!({ "type": "result", "status": "cancelled" })]);
        assert!(compact.text.starts_with("Gemini agent: incomplete (cancelled)\n"), "{}", compact.text);
    }

    #[test]
    fn a_message_whose_character_comes_in_two_parts_is_whole() {
        let halves = stream(&[part("a ◐"), part("◑ b◐")]).replace('◐', "\\ud83d").replace('◑', "\\ude00");
        let all = halves + &stream(&[json!({ "type": "result", "status": "success" })]);
        let (compact, notes) = summary_with(Format::Gemini, all.as_bytes(), 0, "");
        assert_eq!(compact.unwrap().text, "Gemini agent: done\nResult:\na 😀 b\u{fffd}");
        assert_eq!(notes[0], "a 😀 b\u{fffd}");
    }

    #[test]
    fn a_run_that_recovers_has_a_result() {
        let error = json!({ "type": "error", "severity": "error", "message": "Try again" });
        let (compact, _) =
            summary(Format::Gemini, &[error, part("Fine."), json!({ "type": "result", "status": "success" })]);
        assert_eq!((compact.text.as_str(), compact.failed), ("Gemini agent: done\nResult:\nFine.", false));
    }

    #[test]
    fn a_message_of_megabytes_keeps_its_ends() {
        let words: Vec<_> = (0..2_000).map(|n| part(&format!("word {n} {}\n", "x".repeat(1_000)))).collect();
        let mut compactor = Compactor::new(Format::Gemini, None);
        for word in words {
            compactor.push(stream(&[word]).as_bytes());
            assert!(compactor.held() < 100_000);
        }
        let text = compactor.finish(&Exit::with_code(0), "").unwrap().text;
        assert!(text.starts_with("Gemini agent: no result\nLast message:\nword 0 x"), "{text}");
        assert!(text.contains("word 1999 x") && text.matches("[cut: ").count() == 1, "{text}");
    }

    #[test]
    fn a_message_that_is_not_in_parts_is_whole() {
        let whole = json!({ "type": "message", "role": "assistant", "content": "Whole." });
        let (compact, _) =
            summary(Format::Gemini, &[part("a"), whole, json!({ "type": "result", "status": "success" })]);
        assert_eq!(compact.text, "Gemini agent: done\nResult:\nWhole.");
    }
}
