//! Events of Claude Code.
//!
//! Sources: <https://code.claude.com/docs/en/headless> and the message types in
//! <https://platform.claude.com/docs/en/agent-sdk/typescript>. The messages are those of the
//! Messages API, so the calls are blocks of an answer, and their results are blocks of the next
//! input.

use serde::Deserialize;

use crate::fields::{Amount, Flag, List, Number, Object, Text};
use crate::run::Run;
use crate::tools::Args;
use crate::usage::Stats;

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
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Message<'a> {
    content: List<Block<'a>>,
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
            _ => {}
        },
        "assistant" => {
            let mut said = String::new();
            for block in event.message.0.unwrap_or_default().content.0 {
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
            run.end(failed, reason.as_deref(), event.result.get().or(errors.as_deref()));
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
            "Claude agent: done, 3.0 s, 90 output tokens\nFiles written: src/a.rs\nCommands:\n- cargo test\n\
             Result:\nAll done."
        );
        assert_eq!(compact.usage, Some(Usage { input: 4, output: 90, cache_read: 20, cache_write: 30 }));
        assert_eq!((compact.failed, compact.session_id.as_deref()), (false, Some("c-1")));
        assert_eq!(compact.cost_usd, Some(0.01));
        let expected = ["started m", "read src/a.rs", "I begin.", "write src/a.rs", "write no.rs", "run cargo test"];
        assert_eq!(notes[..6], expected);
        assert_eq!(notes[6..], ["Grep x.*", "Task Look", "retry, attempt 3", "done"]);
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
