//! Events of Cursor CLI.
//!
//! Sources: <https://cursor.com/docs/cli/reference/output-format>; for what that page leaves out
//! (thinking, usage, ids with line breaks), the notes in
//! <https://github.com/reifying/cursor-hack/blob/main/docs/stream-json-events.md>.

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};

use crate::doubts::is_denial;
use crate::fields::{Failure, Flag, List, Loose, Number, Object, Present, Stats, Text, read_loosely};
use crate::run::{Args, Run};

/// Whether an event is skipped without parsing. Most lines of a stream are thinking. With another order of keys such an
/// event is parsed, with the same effect.
pub(crate) fn is_skipped(line: &[u8]) -> bool {
    line.starts_with(br#"{"type":"thinking""#) || line.starts_with(br#"{"type":"user""#)
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
    timestamp_ms: Present,
    model_call_id: Present,
    call_id: Text<'a>,
    tool_call: ToolCall<'a>,
    attempt: Number,
    is_error: Flag,
    duration_ms: Number,
    result: Text<'a>,
    error: Failure,
    usage: Stats,
    stop_reason: Text<'a>,
    reason: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Message<'a> {
    content: List<Part<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Part<'a> {
    text: Text<'a>,
}

/// A call. Its tool is the name of its only member.
#[derive(Default)]
struct ToolCall<'a> {
    name: String,
    call: Call<'a>,
}
read_loosely!(ToolCall<'a>);

impl<'de> Loose<'de> for ToolCall<'de> {
    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut found = Self::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            let tool = key.as_str().strip_suffix("ToolCall");
            if !found.name.is_empty() || (tool.is_none() && key.as_str() != "function") {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let call = map.next_value::<Object<Call<'de>>>()?.0.unwrap_or_default();
            found = Self { name: tool.unwrap_or(call.name.as_str()).to_owned(), call };
        }
        Ok(found)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct Call<'a> {
    #[serde(alias = "arguments")]
    args: Args<'a>,
    /// Only in the general form of a call.
    name: Text<'a>,
    result: Outcome,
}

/// Whether a call failed. Its result has one member, which says how it ended.
#[derive(Default)]
struct Outcome {
    failed: bool,
    denied: bool,
}
read_loosely!(Outcome);

impl<'de> Loose<'de> for Outcome {
    fn object<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut outcome = Self::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            outcome.failed |= is_failure(&key);
            outcome.denied |= is_denial(key.as_str());
            map.next_value::<IgnoredAny>()?;
        }
        Ok(outcome)
    }
}

/// Whether the member of a result says that its call failed.
fn is_failure(name: &Text<'_>) -> bool {
    matches!(name.as_str(), "error" | "failure") || is_denial(name.as_str())
}

/// The beginning of the end of a call.
const COMPLETED: &[u8] = br#"{"type":"tool_call","subtype":"completed","#;

/// What the end of a call is read for. Most of a stream is in these events: files that were read, and what was written.
#[derive(Default)]
struct Ended<'a> {
    call_id: Text<'a>,
    failed: Option<bool>,
    denied: bool,
}

/// Goes down to the member of the result, and stops there: what that member holds is not read.
struct Down<'e, 'a> {
    into: &'e mut Ended<'a>,
    depth: u8,
}

impl<'de> DeserializeSeed<'de> for Down<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Down<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { into, depth } = self;
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match (depth, key.as_str()) {
                (0, "call_id") => into.call_id = map.next_value()?,
                (0, "tool_call") | (2, "result") => {
                    map.next_value_seed(Down { into: &mut *into, depth: depth + 1 })?;
                }
                (1, name) if name.ends_with("ToolCall") => {
                    map.next_value_seed(Down { into: &mut *into, depth: depth + 1 })?;
                }
                (1, _) => return Err(A::Error::custom("another form")),
                (3, name) => {
                    into.denied = is_denial(name);
                    into.failed = (name == "success" || is_failure(&key)).then(|| is_failure(&key));
                    return Err(A::Error::custom("enough is read"));
                }
                _ => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(())
    }
}

/// Reads the end of a call. Returns `false` if it has another form than usual.
fn read_end(line: &[u8], run: &mut Run) -> bool {
    let mut ended = Ended::default();
    let mut json = serde_json::Deserializer::from_slice(line);
    // It stops with an error as soon as it knows how the call ended. What it knows by then says whether that is enough.
    let _ = Down { into: &mut ended, depth: 0 }.deserialize(&mut json);
    let (Some(_), Some(failed)) = (ended.call_id.get(), ended.failed) else { return false };
    end_call(&ended.call_id, failed, ended.denied, run);
    run.known = true;
    true
}

fn end_call(id: &Text<'_>, failed: bool, denied: bool, run: &mut Run) {
    run.ended(id, failed);
    if denied {
        run.doubts.call_denied(id.as_str());
    }
}

/// Adds the event in `line`. Returns `false` if it is not JSON.
pub(crate) fn read(line: &[u8], run: &mut Run) -> bool {
    if run.session_id.is_some() && line.starts_with(COMPLETED) && read_end(line, run) {
        return true;
    }
    let Ok(event) = serde_json::from_slice::<Event<'_>>(line) else { return false };
    let subtype = event.subtype.as_str();
    match event.r#type.as_str() {
        "system" => {
            if subtype == "init" {
                run.done.below(event.cwd.as_str());
                run.note(&format!("started {}", event.model.as_str()));
            }
        }
        "assistant" => {
            // Only a fragment has a time and no id of a model call. The whole message follows.
            if !event.timestamp_ms.0 || event.model_call_id.0 {
                let parts = event.message.0.unwrap_or_default().content.0;
                run.say(&parts.iter().map(|part| part.text.as_str()).collect::<String>());
            }
        }
        "tool_call" => {
            let ToolCall { name, call } = &event.tool_call;
            match subtype {
                "started" if !name.is_empty() => run.call(&event.call_id, name, &call.args),
                "completed" => end_call(&event.call_id, call.result.failed, call.result.denied, run),
                _ => {}
            }
        }
        "connection" | "retry" => {
            let attempt = event.attempt.0.map(|attempt| format!(", attempt {attempt}")).unwrap_or_default();
            run.note(&format!("{} {subtype}{attempt}", event.r#type.as_str()));
        }
        "result" => {
            run.stats(&event.usage);
            run.duration_ms = event.duration_ms.0.or(run.duration_ms);
            let failed = event.is_error.0 || subtype.starts_with("error");
            for word in [subtype, event.stop_reason.as_str(), event.reason.as_str()].into_iter().filter(|_| !failed) {
                run.doubts.ended(word);
            }
            run.end(failed, None, event.result.get().or(event.error.0.as_deref()));
        }
        "warning" | "error" => {
            let said = event.error.0.as_deref().or(event.result.get()).or(event.reason.get());
            run.warn(said.unwrap_or(subtype));
        }
        "hook" => {
            if subtype != "started" {
                run.doubts.ended(subtype);
            }
        }
        "thinking" | "user" => {}
        _ => return true,
    }
    run.known = true;
    run.session(&event.session_id);
    true
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::run::Run;
    use crate::testing::{stream, summary, summary_with};
    use crate::{Format, Usage};

    fn call(subtype: &str, id: &str, call: Value) -> Value {
        json!({ "subtype": subtype, "call_id": id, "tool_call": call, "type": "tool_call", "session_id": "s-1" })
    }

    fn init() -> Value {
        json!({ "type": "system", "subtype": "init", "cwd": "/real/repo", "session_id": "s-1", "model": "Auto" })
    }

    // covers: DEV-19, DEV-20
    #[test]
    fn a_run_that_succeeds() {
        let (compact, notes) = summary(
            Format::Cursor,
            &[
                init(),
                json!({ "type": "user", "message": { "content": [{ "text": "prompt" }] } }),
                json!({ "type": "thinking", "subtype": "delta", "text": "hm" }),
                json!({ "type": "assistant", "timestamp_ms": 1, "message": { "content": [{ "text": "Fragm" }] } }),
                json!({ "type": "assistant", "timestamp_ms": 2, "model_call_id": "m",
                    "message": { "content": [{ "type": "text", "text": "I read " }, { "type": "text", "text": "it.\nThen" }] } }),
                call("started", "1\nfc_1", json!({ "readToolCall": { "args": { "path": "/work/repo/a.html" } } })),
                call("started", "2", json!({ "readToolCall": { "args": { "path": "/real/repo/b.html" } } })),
                call("started", "3", json!({ "editToolCall": { "args": { "path": "b.html", "streamContent": "x" } } })),
                call(
                    "started",
                    "4",
                    json!({ "shellToolCall": { "args": { "command": "ls -l\n\tsite", "workingDirectory": "" } } }),
                ),
                call(
                    "started",
                    "5",
                    json!({ "function": { "name": "write_file", "arguments": "{\"path\":\"c.html\"}" } }),
                ),
                call("started", "6", json!({ "grepToolCall": { "args": { "pattern": "TODO", "path": "." } } })),
                call("started", "7", json!({ "updateTodosToolCall": { "args": { "todos": [] } } })),
                call(
                    "completed",
                    "3",
                    json!({ "editToolCall": { "result": { "success": { "diffString": "a\nb" } } } }),
                ),
                json!({ "type": "connection", "subtype": "reconnecting", "attempt": 1 }),
                json!({ "type": "retry", "subtype": "starting", "attempt": "2" }),
                json!({ "type": "result", "subtype": "success", "is_error": false, "duration_ms": 13_449, "result": "Made c.",
                    "session_id": "s-1", "usage": { "inputTokens": 7, "outputTokens": 1_028, "cacheReadTokens": 5 } }),
            ],
        );
        assert_eq!(
            compact.text,
            "Cursor agent: done, 13.4 s, 1028 output tokens\nFiles read: a.html\nFiles written: b.html, c.html\n\
             Commands:\n- ls -l site\nResult:\nMade c."
        );
        assert!(!compact.failed);
        assert_eq!(compact.usage, Some(Usage { input: 7, output: 1_028, cache_read: 5, cache_write: 0 }));
        assert_eq!((compact.session_id.as_deref(), compact.duration_ms), (Some("s-1"), Some(13_449)));
        assert_eq!(
            notes,
            [
                "started Auto",
                "I read it.",
                "read a.html",
                "read b.html",
                "write b.html",
                "run ls -l site",
                "write c.html",
                "grep TODO",
                "updateTodos",
                "connection reconnecting, attempt 1",
                "retry starting, attempt 2",
                "done"
            ]
        );
    }

    // covers: DEV-19
    #[test]
    fn a_run_that_reports_an_error() {
        for (event, text) in [
            (json!({ "type": "result", "subtype": "error", "error": { "message": "no quota" } }), "no quota"),
            (json!({ "type": "result", "subtype": "success", "is_error": "true", "result": "bad" }), "bad"),
        ] {
            let (compact, _) = summary(Format::Cursor, &[init(), event]);
            assert_eq!(compact.text, format!("Cursor agent: failed\nResult:\n{text}"));
            assert!(compact.failed);
        }
    }

    #[test]
    fn a_run_without_a_result_reports_its_exit_and_what_it_did() {
        let begun =
            call("started", "1", json!({ "writeToolCall": { "args": { "path": "/work/repo/a", "fileText": "x" } } }));
        let lines = stream(&[init(), begun]);
        let (compact, _) =
            summary_with(Format::Cursor, lines.as_bytes(), 1, "one\n\u{1b}[31mError: not logged in\u{1b}[0m\n");
        let compact = compact.unwrap();
        assert_eq!(
            compact.text,
            "Cursor agent: no result, exit code 1\nFiles written: a\nErrors:\none\nError: not logged in"
        );
        assert!(compact.failed && compact.usage.is_none());
    }

    // covers: DEV-20
    #[test]
    fn a_call_that_failed_changed_nothing() {
        let (compact, _) = summary(
            Format::Cursor,
            &[
                call("started", "1\n2", json!({ "writeToolCall": { "args": { "path": "a" } } })),
                call(
                    "completed",
                    "1\n2",
                    json!({ "writeToolCall": { "args": {}, "result": { "rejected": { "reason": "" } } } }),
                ),
                call("started", "3", json!({ "deleteToolCall": { "args": { "path": "b" } } })),
                call("completed", "3", json!({ "deleteToolCall": { "result": { "success": {} } } })),
                json!({ "type": "result", "subtype": "success", "result": "ok" }),
            ],
        );
        assert_eq!(compact.text, "Cursor agent: incomplete (denied: write)\nFiles written: b (deleted)\nResult:\nok");
    }

    #[test]
    fn a_run_that_was_stopped_or_denied_something_is_not_done() {
        let result = |subtype: &str| json!({ "type": "result", "subtype": subtype, "is_error": false, "result": "ok" });
        let denied = |outcome: &str| {
            let start = call("started", "1", json!({ "shellToolCall": { "args": { "command": "ls" } } }));
            let end =
                call("completed", "1", json!({ "shellToolCall": { "result": { outcome: { "reason": "hook" } } } }));
            vec![init(), start, end, result("success")]
        };
        for (events, reason) in [
            (denied("rejected"), "denied: shell"),
            (denied("permissionDenied"), "denied: shell"),
            (denied("blockedByHook"), "denied: shell"),
            (vec![init(), result("max_turns")], "max turns"),
            (vec![init(), result("cancelled")], "cancelled"),
            (vec![init(), json!({ "type": "hook", "subtype": "stopped" }), result("success")], "stopped"),
            (
                vec![init(), json!({ "type": "warning", "reason": "Usage limit reached" }), result("success")],
                "Usage limit reached",
            ),
        ] {
            let (compact, _) = summary(Format::Cursor, &events);
            let first = compact.text.lines().next().unwrap();
            assert_eq!((first, compact.failed), (format!("Cursor agent: incomplete ({reason})").as_str(), true));
        }
        let (compact, _) = summary(Format::Cursor, &denied("success"));
        assert!(compact.text.starts_with("Cursor agent: done\n") && !compact.failed);
    }

    fn begun() -> Run {
        let mut run = Run::default();
        assert!(super::read(init().to_string().as_bytes(), &mut run));
        run
    }

    #[test]
    fn the_end_of_a_call_has_the_same_effect_read_in_part_and_whole() {
        let args = json!({ "path": "a.rs", "result": { "error": 1 } });
        for (result, kept) in [
            (json!({ "success": { "content": "\\\"x\\\"\n".repeat(500) } }), true),
            (json!({ "rejected": { "reason": "no" } }), false),
            (json!({ "error": "no" }), false),
            (json!({ "isBackground": false, "error": {} }), false),
            (json!({}), true),
            (json!("done"), true),
        ] {
            let tool = json!({ "editToolCall": { "args": args, "result": result } });
            let usual = format!(
                r#"{{"type":"tool_call","subtype":"completed","call_id":"1","tool_call":{tool},"session_id":"s-1"}}"#
            );
            let other = usual.replacen(
                r#""type":"tool_call","subtype":"completed""#,
                r#""subtype":"completed","type":"tool_call""#,
                1,
            );
            for end in [usual.as_str(), other.as_str()] {
                let mut run = begun();
                let start = call("started", "1", json!({ "editToolCall": { "args": args } })).to_string();
                assert!(super::read(start.as_bytes(), &mut run) && super::read(end.as_bytes(), &mut run));
                assert_eq!(run.done.manifest().written.len(), usize::from(kept), "{end}");
            }
        }
        // What follows the name of the outcome may be cut.
        let mut run = begun();
        let cut = br#"{"type":"tool_call","subtype":"completed","call_id":"1","tool_call":{"readToolCall":{"result":{"success":{"con"#;
        assert!(super::read(cut, &mut run) && run.known);
        assert!(!super::read(&cut[..60], &mut run));
    }
}
