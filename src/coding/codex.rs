//! Events of OpenAI Codex.
//!
//! Sources: <https://github.com/openai/codex/blob/main/codex-rs/exec/src/exec_events.rs> and
//! <https://github.com/openai/codex/blob/main/docs/exec.md>. Before October 2025 the type of an item
//! was in `item_type`, and a message was an `assistant_message`.

use serde::Deserialize;

use crate::collector::Effect;
use crate::doubts::is_denial;
use crate::fields::{Failure, List, Object, Stats, Text};
use crate::run::{Run, in_shell};

/// Whether an event is skipped without parsing: items of which the end matters.
pub(crate) fn is_skipped(line: &[u8]) -> bool {
    line.starts_with(br#"{"type":"item.updated""#)
        || line.starts_with(br#"{"type":"item.plan.delta""#)
        || line.starts_with(br#"{"type":"turn.started""#)
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Event<'a> {
    r#type: Text<'a>,
    thread_id: Text<'a>,
    item: Object<Item<'a>>,
    usage: Stats,
    error: Failure,
    message: Text<'a>,
    status: Text<'a>,
    reason: Text<'a>,
    stop_reason: Text<'a>,
    turn: Object<Turn<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Turn<'a> {
    status: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Item<'a> {
    r#type: Text<'a>,
    item_type: Text<'a>,
    status: Text<'a>,
    text: Text<'a>,
    command: Text<'a>,
    changes: List<Object<Change<'a>>>,
    server: Text<'a>,
    tool: Text<'a>,
    query: Text<'a>,
    message: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Change<'a> {
    path: Text<'a>,
    kind: Text<'a>,
}

/// Adds the event in `line`. Returns `false` if it is not JSON.
pub(crate) fn read(line: &[u8], run: &mut Run) -> bool {
    let Ok(event) = serde_json::from_slice::<Event<'_>>(line) else { return false };
    match event.r#type.as_str() {
        "thread.started" => {
            run.session(&event.thread_id);
            run.note("started");
        }
        "item.started" => started(&event.item.0.unwrap_or_default(), run),
        "item.completed" => completed(&event.item.0.unwrap_or_default(), run),
        "turn.completed" => {
            run.stats(&event.usage);
            let turn = event.turn.0.unwrap_or_default();
            for word in [&event.status, &event.reason, &event.stop_reason, &turn.status] {
                run.doubts.ended(word.as_str());
            }
            run.end(false, None, None);
        }
        "turn.aborted" | "turn.interrupted" | "turn.cancelled" => {
            let reason = event.reason.get().unwrap_or("interrupted").replace('_', " ");
            run.end(true, Some(&reason), event.message.get());
        }
        "warning" => run.warn(event.message.as_str()),
        "turn.failed" => {
            let error = event.error.0.or(run.error.take());
            run.end(true, None, error.as_deref());
        }
        // It is fatal only if no turn is completed after it: Codex also reports lost connections
        // this way.
        "error" => {
            run.trouble(event.message.as_str());
            run.end(true, None, event.message.get());
        }
        "item.updated" | "item.plan.delta" | "turn.started" => {}
        _ => return true,
    }
    run.known = true;
    true
}

fn kind<'a>(item: &'a Item<'_>) -> &'a str {
    item.r#type.get().unwrap_or(item.item_type.as_str())
}

fn started(item: &Item<'_>, run: &mut Run) {
    match kind(item) {
        "command_execution" => run.command(item.command.as_str()),
        "mcp_tool_call" => run.note(&format!("{}.{}", item.server.as_str(), item.tool.as_str())),
        _ => {}
    }
}

fn completed(item: &Item<'_>, run: &mut Run) {
    if is_denial(item.status.as_str()) {
        let files = item.changes.0.iter().filter_map(|change| change.0.as_ref()?.path.get());
        let what = item.command.get().map(in_shell).or(item.tool.get()).or(files.into_iter().next());
        run.denied(what.unwrap_or(kind(item)));
        return;
    }
    match kind(item) {
        "agent_message" | "assistant_message" => run.say(item.text.as_str()),
        // The event of its start may be missing.
        "command_execution" => run.done.add(Effect::Run, None, in_shell(item.command.as_str())),
        "file_change" if item.status.as_str() != "failed" => {
            for change in item.changes.0.iter().filter_map(|change| change.0.as_ref()) {
                let effect = if change.kind.as_str() == "delete" { Effect::Delete } else { Effect::Write };
                run.file(effect, None, change.path.as_str());
            }
        }
        "web_search" => run.note(&format!("web search {}", item.query.as_str())),
        "error" => run.trouble(item.message.as_str()),
        // Codex runs hooks, too, and can be refused by a reviewer.
        kind if kind.contains("hook") && matches!(item.status.as_str(), "failed" | "stopped") => {
            run.doubts.stopped(&format!("{kind} {} {}", item.status.as_str(), item.message.as_str()));
        }
        "warning" => run.warn(item.message.as_str()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::testing::{stream, summary, summary_with};
    use crate::{Format, Usage};

    fn item(event: &str, item: Value) -> Value {
        json!({ "type": format!("item.{event}"), "item": item })
    }

    fn start() -> Value {
        json!({ "type": "thread.started", "thread_id": "t-1" })
    }

    #[test]
    fn a_run_that_was_stopped_or_denied_something_is_not_done() {
        let done = || json!({ "type": "turn.completed", "usage": { "output_tokens": 3 } });
        let with = |key: &str, value: &str| {
            let mut event = done();
            event[key] = json!(value);
            event
        };
        for (events, reason) in [
            (
                vec![
                    item(
                        "completed",
                        json!({ "type": "command_execution", "command": "bash -lc 'rm -r x'", "status": "declined" }),
                    ),
                    done(),
                ],
                "denied: rm -r x",
            ),
            (
                vec![
                    item(
                        "completed",
                        json!({ "type": "file_change", "changes": [{ "path": "a.rs", "kind": "add" }], "status": "rejected" }),
                    ),
                    done(),
                ],
                "denied: a.rs",
            ),
            (
                vec![
                    item(
                        "completed",
                        json!({ "type": "mcp_tool_call", "server": "s", "tool": "t", "status": "blocked" }),
                    ),
                    done(),
                ],
                "denied: t",
            ),
            (
                vec![item("completed", json!({ "type": "hook_run", "status": "stopped", "message": "no" })), done()],
                "hook_run stopped no",
            ),
            (vec![with("status", "interrupted")], "interrupted"),
            (vec![with("stop_reason", "budget_limited")], "budget limited"),
            (vec![json!({ "type": "warning", "message": "Turn limit reached" }), done()], "Turn limit reached"),
        ] {
            let (compact, _) = summary(Format::Codex, &events);
            assert_eq!(compact.text, format!("Codex agent: incomplete ({reason}), 3 output tokens"));
            assert!(compact.failed);
        }
        let (compact, _) = summary(Format::Codex, &[json!({ "type": "turn.aborted", "reason": "budget_limited" })]);
        assert_eq!((compact.text.as_str(), compact.failed), ("Codex agent: failed (budget limited)", true));
        let warning = json!({ "type": "warning", "message": "An option is deprecated" });
        let (compact, _) = summary(Format::Codex, &[warning, with("status", "completed")]);
        let text = "Codex agent: done, 3 output tokens\nWarnings:\n- An option is deprecated";
        assert_eq!((compact.text.as_str(), compact.failed), (text, false));
    }

    #[test]
    fn a_run_that_succeeds() {
        let list = json!({ "id": "1", "type": "command_execution", "command": "bash -lc ls", "aggregated_output": "", "status": "in_progress" });
        let changes = json!([{ "path": "/work/repo/a.rs", "kind": "add" }, { "path": "b.rs", "kind": "delete" }, 7]);
        let (compact, notes) = summary(
            Format::Codex,
            &[
                start(),
                json!({ "type": "turn.started" }),
                item("completed", json!({ "id": "0", "type": "reasoning", "text": "**Thinking**" })),
                item("started", list.clone()),
                item("completed", list),
                item(
                    "completed",
                    json!({ "type": "command_execution", "command": "/bin/bash -lc 'cargo fmt'", "exit_code": 0 }),
                ),
                item("completed", json!({ "type": "file_change", "changes": changes, "status": "completed" })),
                item(
                    "completed",
                    json!({ "type": "file_change", "changes": [{ "path": "no", "kind": "add" }], "status": "failed" }),
                ),
                item("started", json!({ "type": "mcp_tool_call", "server": "github", "tool": "search" })),
                item("completed", json!({ "type": "web_search", "query": "rust" })),
                item("updated", json!({ "type": "todo_list", "items": [] })),
                item("completed", json!({ "type": "agent_message", "text": "First." })),
                item("completed", json!({ "type": "agent_message", "text": "Last." })),
                json!({ "type": "turn.completed", "usage": { "input_tokens": 24_763, "cached_input_tokens": 24_448, "output_tokens": 122 } }),
            ],
        );
        assert_eq!(
            compact.text,
            "Codex agent: done, 122 output tokens\nFiles written: a.rs, b.rs (deleted)\nCommands:\n- ls\n- cargo fmt\n\
             Result:\nLast."
        );
        assert_eq!(compact.usage, Some(Usage { input: 24_763, output: 122, cache_read: 24_448, cache_write: 0 }));
        assert_eq!((compact.failed, compact.session_id.as_deref()), (false, Some("t-1")));
        let expected = ["started", "run ls", "write a.rs", "delete b.rs", "github.search", "web search rust", "First."];
        assert_eq!(notes[..7], expected);
    }

    #[test]
    fn a_run_that_fails_and_one_that_recovers() {
        let error = json!({ "type": "error", "message": "Reconnecting... 1/5" });
        let failed = json!({ "type": "turn.failed", "error": { "message": "no quota" } });
        let (compact, _) = summary(Format::Codex, &[start(), error.clone(), failed]);
        assert_eq!((compact.text.as_str(), compact.failed), ("Codex agent: failed\nResult:\nno quota", true));
        let said = item("completed", json!({ "item_type": "assistant_message", "text": "Fine." }));
        let (compact, _) = summary(Format::Codex, &[start(), error.clone(), said, json!({ "type": "turn.completed" })]);
        assert_eq!((compact.text.as_str(), compact.failed), ("Codex agent: done\nResult:\nFine.", false));
        let (compact, notes) = summary(Format::Codex, &[error]);
        assert_eq!(
            (compact.text.as_str(), compact.failed),
            ("Codex agent: failed\nResult:\nReconnecting... 1/5", true)
        );
        assert_eq!(notes, ["error: Reconnecting... 1/5", "failed"]);
    }

    #[test]
    fn a_run_without_a_result() {
        let lines = stream(&[start(), item("started", json!({ "type": "command_execution", "command": "make" }))]);
        let (compact, _) = summary_with(Format::Codex, lines.as_bytes(), 2, "panic");
        assert_eq!(compact.unwrap().text, "Codex agent: no result, exit code 2\nCommands:\n- make\nErrors:\npanic");
    }
}
