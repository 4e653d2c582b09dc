//! Help for tests: streams, and their summaries.

use serde_json::{Value, json};

use crate::{Compact, Compactor, Exit, Format};

/// The folder of the runs in tests.
pub(crate) const FOLDER: &str = "/work/repo";

/// The lines of a stream.
pub(crate) fn stream(events: &[Value]) -> String {
    events.iter().map(|event| format!("{event}\n")).collect()
}

/// The summary of `stream` after a run with this exit code, and its notes.
pub(crate) fn summary_with(format: Format, stream: &[u8], code: i32, stderr: &str) -> (Option<Compact>, Vec<String>) {
    let mut compactor = Compactor::new(format, Some(FOLDER.to_owned()));
    let notes = compactor.push(stream);
    (compactor.finish(&Exit::with_code(code), stderr), notes)
}

/// The summary of `events` after a run that exited with 0, and its notes.
pub(crate) fn summary(format: Format, events: &[Value]) -> (Compact, Vec<String>) {
    let (compact, notes) = summary_with(format, stream(events).as_bytes(), 0, "");
    (compact.unwrap(), notes)
}

/// A stream of Cursor like real ones, of about `bytes`: thinking, calls that echo files, a result.
pub(crate) fn cursor_stream(bytes: usize) -> String {
    let started = |n: usize, tool: &str, args: Value| {
        let mut call = json!({});
        call[tool] = json!({ "args": args });
        json!({ "type": "tool_call", "subtype": "started", "call_id": format!("call_{n}\nfc_{n}"), "tool_call": call,
            "session_id": "5e55", "timestamp_ms": 1_770_000_000_000_u64 + n as u64 })
    };
    let mut text = stream(&[
        json!({ "type": "system", "subtype": "init", "cwd": FOLDER, "session_id": "5e55", "model": "Auto" }),
        json!({ "type": "user", "message": { "role": "user", "content": [{ "type": "text", "text": "Do it." }] } }),
    ]);
    let mut n = 0;
    while text.len() < bytes {
        for word in ["The ", "parser ", "needs \"a\" ", "test.\n"].iter().cycle().take(60) {
            let delta = json!({ "type": "thinking", "subtype": "delta", "text": word, "session_id": "5e55" });
            text.push_str(&format!("{delta}\n"));
        }
        let (tool, args) = match n % 4 {
            0 => ("readToolCall", json!({ "path": format!("{FOLDER}/src/part_{n}.rs") })),
            1 => ("shellToolCall", json!({ "command": format!("cargo test -p part_{n} -- --nocapture") })),
            2 => ("editToolCall", json!({ "path": format!("{FOLDER}/src/part_{}.rs", n - 2) })),
            _ => ("grepToolCall", json!({ "pattern": "fn main", "path": FOLDER })),
        };
        let call = started(n, tool, args.clone());
        let mut done = call.clone();
        done["subtype"] = json!("completed");
        done["tool_call"][tool]["result"] = json!({ "success": { "content": "let x = \"é\";\n".repeat(200) } });
        text.push_str(&format!("{call}\n{done}\n"));
        n += 1;
    }
    text + &stream(&[json!({ "type": "result", "subtype": "success", "is_error": false, "duration_ms": 13_421,
        "result": format!("{}All parts now have tests.", "I looked at a part. ".repeat(n)), "session_id": "5e55",
        "usage": { "inputTokens": 9_000, "outputTokens": 1_028, "cacheReadTokens": 70, "cacheWriteTokens": 8 } })])
}
