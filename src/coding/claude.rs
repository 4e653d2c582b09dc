//! Events of Claude Code.
//!
//! Sources: <https://code.claude.com/docs/en/headless> and the message types in
//! <https://platform.claude.com/docs/en/agent-sdk/typescript>. The messages are those of the
//! Messages API, so the calls are blocks of an answer, and their results are blocks of the next
//! input.

use serde::Deserialize;

use crate::doubts::is_denial;
use crate::fields::{Amount, Failure, Flag, List, Number, Object, Stats, Text};
use crate::run::{Args, Run};
use crate::text::one_line;

/// Whether an event is skipped without parsing: the pieces of messages which follow as a whole.
pub(crate) fn is_skipped(line: &[u8]) -> bool {
    line.starts_with(br#"{"type":"stream_event""#)
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Event<'a> {
    r#type: Text<'a>,
    subtype: Text<'a>,
    session_id: Text<'a>,
    cwd: Text<'a>,
    model: Text<'a>,
    message: Object<Message<'a>>,
    attempt: Number,
    is_error: Flag,
    duration_ms: Number,
    result: Text<'a>,
    errors: List<Text<'a>>,
    usage: Stats,
    total_cost_usd: Amount,
    /// Of a result: why the model's last answer ended, and why the run did.
    stop_reason: Text<'a>,
    terminal_reason: Text<'a>,
    permission_denials: List<Object<Detail<'a>>>,
    /// Of a system event: a hook's outcome, a tool that was not allowed, a message.
    hook_name: Text<'a>,
    outcome: Text<'a>,
    tool_name: Text<'a>,
    level: Text<'a>,
    content: Text<'a>,
    #[serde(alias = "preventedContinuation")]
    prevented_continuation: Flag,
    #[serde(alias = "stopReason", alias = "reason")]
    why: Text<'a>,
    rate_limit_info: Object<Detail<'a>>,
    error: Failure,
}

/// A denied call, or a rate limit.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Detail<'a> {
    tool_name: Text<'a>,
    status: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Message<'a> {
    content: List<Block<'a>>,
    stop_reason: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Block<'a> {
    r#type: Text<'a>,
    text: Text<'a>,
    id: Text<'a>,
    name: Text<'a>,
    input: Args<'a>,
    tool_use_id: Text<'a>,
    is_error: Flag,
}

/// Adds the event in `line`. Returns `false` if it is not JSON.
pub(crate) fn read(line: &[u8], run: &mut Run) -> bool {
    let Ok(event) = serde_json::from_slice::<Event<'_>>(line) else { return false };
    let subtype = event.subtype.as_str();
    match event.r#type.as_str() {
        "system" => match subtype {
            "init" => {
                run.done.below(event.cwd.as_str());
                run.note(&format!("started {}", event.model.as_str()));
            }
            "api_retry" => run.note(&format!("retry, attempt {}", event.attempt.0.unwrap_or(1))),
            "permission_denied" | "tool_denied" => run.denied(event.tool_name.as_str()),
            _ => {
                let said = event.content.get().or(event.why.get()).unwrap_or_default();
                if event.prevented_continuation.0 || is_denial(event.outcome.as_str()) {
                    run.doubts.stopped(&format!("stopped by a hook {} {said}", event.hook_name.as_str()));
                } else if matches!(event.level.as_str(), "warning" | "warn" | "error") && !said.is_empty() {
                    run.warn(said);
                } else if event.outcome.as_str() == "error" {
                    run.warn(&format!("the hook {} failed", event.hook_name.as_str()));
                }
            }
        },
        "assistant" => {
            let mut said = String::new();
            let message = event.message.0.unwrap_or_default();
            if let Some(stop) = message.stop_reason.get() {
                run.last_stop = Some(one_line(stop, 60));
            }
            if let Some(error) = &event.error.0 {
                run.warn(error);
            }
            for block in message.content.0 {
                match block.r#type.as_str() {
                    "text" => said.push_str(block.text.as_str()),
                    "tool_use" => run.call(&block.id, block.name.as_str(), &block.input),
                    _ => {}
                }
            }
            run.say(&said);
        }
        "user" => {
            for block in event.message.0.unwrap_or_default().content.0 {
                if block.r#type.as_str() == "tool_result" {
                    run.ended(&block.tool_use_id, block.is_error.0);
                }
            }
        }
        "result" => {
            run.stats(&event.usage);
            run.duration_ms = event.duration_ms.0.or(run.duration_ms);
            run.cost_usd = event.total_cost_usd.0.or(run.cost_usd);
            let failed = event.is_error.0 || subtype.starts_with("error");
            let errors: Vec<&str> = event.errors.0.iter().filter_map(Text::get).collect();
            let errors = Some(errors.join("\n")).filter(|errors| !errors.is_empty());
            let reason = subtype.strip_prefix("error_").map(|reason| reason.replace('_', " "));
            if !failed {
                run.doubts.ended(subtype);
            }
            let last_stop = run.last_stop.take();
            run.doubts.ended(event.terminal_reason.as_str());
            run.doubts.ended(event.stop_reason.get().or(last_stop.as_deref()).unwrap_or_default());
            for denial in event.permission_denials.0.iter().filter_map(|denial| denial.0.as_ref()) {
                run.doubts.denied(denial.tool_name.as_str());
            }
            run.end(failed, reason.as_deref(), event.result.get().or(errors.as_deref()));
        }
        "rate_limit_event" => {
            let status = event.rate_limit_info.0.unwrap_or_default().status;
            if !matches!(status.as_str(), "" | "allowed") {
                run.warn(&format!("rate limit: {}", status.as_str()));
            }
        }
        "stream_event" => {}
        _ => return true,
    }
    run.known = true;
    run.session(&event.session_id);
    true
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::{stream, summary, summary_with};
    use crate::{Format, Usage};

    fn assistant(blocks: Value) -> Value {
        json!({ "type": "assistant", "message": { "role": "assistant", "content": blocks }, "session_id": "c-1" })
    }

    fn tool(id: &str, name: &str, input: Value) -> Value {
        json!({ "type": "tool_use", "id": id, "name": name, "input": input })
    }

    #[test]
    fn a_run_that_succeeds() {
        let (compact, notes) = summary(
            Format::Claude,
            &[
                json!({ "type": "system", "subtype": "init", "cwd": "/real/repo", "session_id": "c-1", "tools": ["Bash"], "model": "m" }),
                json!({ "type": "stream_event", "event": { "type": "content_block_delta" }, "session_id": "c-1" }),
                assistant(json!([{ "type": "thinking", "thinking": "hm" }])),
                assistant(
                    json!([{ "type": "text", "text": "I begin." }, tool("t1", "Read", json!({ "file_path": "/real/repo/src/a.rs" }))]),
                ),
                json!({ "type": "user", "message": { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": "x" }] } }),
                assistant(json!([tool(
                    "t2",
                    "Edit",
                    json!({ "file_path": "/real/repo/src/a.rs", "old_string": "b" })
                )])),
                assistant(json!([tool("t3", "Write", json!({ "file_path": "/work/repo/no.rs", "content": "c" }))])),
                json!({ "type": "user", "message": { "content": [
                    { "tool_use_id": "t3", "type": "tool_result", "content": "not allowed", "is_error": true }] } }),
                assistant(json!([tool("t4", "Bash", json!({ "command": "cargo test", "description": "Run tests" }))])),
                assistant(json!([
                    tool("t5", "Grep", json!({ "pattern": "x.*" })),
                    tool("t6", "Task", json!({ "description": "Look" }))
                ])),
                json!({ "type": "user", "message": { "content": "a text" } }),
                json!({ "type": "system", "subtype": "api_retry", "attempt": 3 }),
                json!({ "type": "result", "subtype": "success", "is_error": false, "duration_ms": 2_950, "num_turns": 4, "result": "All done.",
                    "session_id": "c-1", "total_cost_usd": 0.01, "usage": { "input_tokens": 4, "cache_creation_input_tokens": 30,
                    "cache_read_input_tokens": 20, "output_tokens": 90, "server_tool_use": { "web_search_requests": 0 } },
                    "permission_denials": [{ "tool_name": "Write" }] }),
            ],
        );
        assert_eq!(
            compact.text,
            "Claude agent: incomplete (denied: Write), 3.0 s, 90 output tokens\nFiles written: src/a.rs\nCommands:\n- cargo test\n\
             Result:\nAll done."
        );
        assert_eq!(compact.usage, Some(Usage { input: 4, output: 90, cache_read: 20, cache_write: 30 }));
        assert_eq!((compact.failed, compact.session_id.as_deref()), (true, Some("c-1")));
        assert_eq!(compact.cost_usd, Some(0.01));
        let expected = ["started m", "read src/a.rs", "I begin.", "write src/a.rs", "write no.rs", "run cargo test"];
        assert_eq!(notes[..6], expected);
        assert_eq!(notes[6..], ["Grep x.*", "Task Look", "retry, attempt 3", "incomplete"]);
    }

    #[test]
    fn a_run_that_was_stopped_or_denied_something_is_not_done() {
        let success = |fields: Value| {
            let mut result = json!({ "type": "result", "subtype": "success", "is_error": false, "result": "Fine." });
            for (key, value) in fields.as_object().unwrap() {
                result[key] = value.clone();
            }
            result
        };
        let system = |subtype: &str, fields: Value| {
            let mut event = json!({ "type": "system", "subtype": subtype });
            for (key, value) in fields.as_object().unwrap() {
                event[key] = value.clone();
            }
            event
        };
        let refused = json!({ "type": "assistant", "message": { "content": [], "stop_reason": "refusal" } });
        for (events, reason) in [
            (vec![success(json!({ "terminal_reason": "hook_stopped" }))], "hook stopped"),
            (vec![success(json!({ "terminal_reason": "max_turns", "stop_reason": "tool_use" }))], "max turns"),
            (vec![success(json!({ "stop_reason": "refusal" }))], "refusal"),
            (vec![success(json!({ "subtype": "budget_exceeded" }))], "budget exceeded"),
            (vec![refused, success(json!({}))], "refusal"),
            (
                vec![success(
                    json!({ "permission_denials": [{ "tool_name": "Bash" }, { "tool_name": "Edit" }, { "tool_name": "Bash" }] }),
                )],
                "denied: Bash, Edit",
            ),
            (
                vec![system("permission_denied", json!({ "tool_name": "WebFetch" })), success(json!({}))],
                "denied: WebFetch",
            ),
            (
                vec![
                    system("stop_hook_summary", json!({ "preventedContinuation": true, "stopReason": "tests fail" })),
                    success(json!({})),
                ],
                "stopped by a hook tests fail",
            ),
            (
                vec![
                    system("hook_response", json!({ "hook_name": "PreToolUse:Bash", "outcome": "blocked" })),
                    success(json!({})),
                ],
                "stopped by a hook PreToolUse:Bash",
            ),
        ] {
            let (compact, notes) = summary(Format::Claude, &events);
            assert_eq!(compact.text, format!("Claude agent: incomplete ({reason})\nResult:\nFine."));
            assert!(compact.failed && notes.last().unwrap() == "incomplete", "{notes:?}");
        }
        for fields in
            [json!({}), json!({ "terminal_reason": "completed", "stop_reason": "end_turn", "permission_denials": [] })]
        {
            let (compact, _) = summary(Format::Claude, &[success(fields)]);
            assert_eq!((compact.text.as_str(), compact.failed), ("Claude agent: done\nResult:\nFine.", false));
        }
        let warned = system("informational", json!({ "level": "warning", "content": "The context is nearly full" }));
        let limit = json!({ "type": "rate_limit_event", "rate_limit_info": { "status": "allowed_warning" } });
        let (compact, _) = summary(Format::Claude, &[warned, limit, success(json!({}))]);
        let text = "Claude agent: done\nWarnings:\n- The context is nearly full\n- rate limit: allowed_warning\nResult:\nFine.";
        assert_eq!((compact.text.as_str(), compact.failed), (text, false));
    }

    #[test]
    fn a_run_that_fails_says_why() {
        let (compact, _) = summary(
            Format::Claude,
            &[
                assistant(json!([{ "type": "text", "text": "Still working." }])),
                json!({ "type": "result", "subtype": "error_max_turns", "is_error": true, "duration_ms": 100, "errors": ["limit", "reached"] }),
            ],
        );
        assert_eq!(compact.text, "Claude agent: failed (max turns), 0.1 s\nResult:\nlimit\nreached");
        let (compact, _) = summary(
            Format::Claude,
            &[
                assistant(json!([{ "type": "text", "text": "Still working." }])),
                json!({ "type": "result", "subtype": "error_during_execution" }),
            ],
        );
        assert_eq!(compact.text, "Claude agent: failed (during execution)\nResult:\nStill working.");
        assert!(compact.failed);
    }

    #[test]
    fn a_run_without_a_result_shows_its_last_message() {
        let lines = stream(&[assistant(json!([{ "type": "text", "text": "I will now edit." }]))]);
        let (compact, _) = summary_with(Format::Claude, lines.as_bytes(), 143, "");
        assert_eq!(compact.unwrap().text, "Claude agent: no result, exit code 143\nLast message:\nI will now edit.");
        assert_eq!(summary_with(Format::Claude, b"Just text.\n", 1, "oops").0, None, "output that is text");
    }
}
