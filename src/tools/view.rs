//! The text of a result for the model: the last step that truncates results. The whole of a larger one goes to a file of the
//! agent, and the model gets the beginning, the end, and the path.
//!
//! The file is written before the result is recorded, and the record says so. So the text depends on the record alone, also
//! after a crash. A failure to save must never fail the call.

use std::cmp::Reverse;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::journal::CallOutcome;
use ghost_domain::text::{MORE_MARK, clip, cut_marked, prefix_bytes};
use ghost_domain::{CallId, Limits, Refusal, WorkspacePath};
use ghost_operations::Result;
use serde_json::{Map, Value, json};

use crate::context::CallContext;
use crate::effect::Output;

/// The text of an outcome for a model: `(text, is_error)`. Deterministic, so that a resumed turn
/// gets the same text.
pub fn model_view(outcome: &CallOutcome, view_bytes: Option<u32>, limits: &Limits) -> (String, bool) {
    let limit = view_bytes.unwrap_or(limits.result_view_bytes) as usize;
    let content = match &outcome.refusal {
        Some(refusal) if outcome.content.is_null() => short(refusal, limits),
        Some(refusal) => failed(&outcome.content, refusal, limits),
        None => outcome.content.clone(),
    };
    // A truncated list looks complete, so a mark is added. A truncated text contains its own mark.
    let more = outcome.truncated && (content.is_array() || content.is_object());
    let mut text = match &outcome.saved {
        Some(path) => view(&content, path, limit),
        None => cut_marked(&text_of(&content), limit).0,
    };
    if more {
        text.push_str(MORE_MARK);
    }
    (text, outcome.refusal.is_some())
}

/// A refusal for a model: its message and hint are cut at the limit, and details that are longer are left out.
fn short(refusal: &Refusal, limits: &Limits) -> Value {
    let chars = limits.error_view_chars as usize;
    let cut = |text: &str| clip(text, chars);
    Refusal {
        message: cut(&refusal.message),
        hint: refusal.hint.as_deref().map(cut),
        details: refusal.details.clone().filter(|details| details.to_string().len() <= chars),
        ..refusal.clone()
    }
    .to_json()
}

/// The content of a failed call for a model. A long one is reduced to its error, which tools name in different ways.
fn failed(content: &Value, refusal: &Refusal, limits: &Limits) -> Value {
    let chars = limits.error_view_chars as usize;
    if content.to_string().len() <= chars {
        return content.clone();
    }
    let named = ["message", "error", "status"].iter().find_map(|key| content.get(key)?.as_str());
    json!({ "error": clip(named.unwrap_or(&refusal.message), chars), "code": refusal.code })
}

/// The outcome of a refused call.
pub fn refused(refusal: Refusal) -> CallOutcome {
    CallOutcome { content: Value::Null, refusal: Some(refusal), truncated: false, ..CallOutcome::default() }
}

/// The directory of these files, in the agent's own.
const DIR: &str = "tool-results";
/// Files that are kept there. The oldest go first.
const FILES_MAX: usize = 50;
/// Bytes of one file.
const FILE_BYTES_MAX: usize = 4 << 20;
/// A string of at most so many bytes is never shortened.
const SHORT: usize = 512;

/// Saves the result of a call if a model sees less than all of it, and if the agent's rules let it write there.
pub async fn save(call: &CallContext, view_bytes: usize, mut output: Output) -> Output {
    if text_of(&output.content).len() <= view_bytes {
        return output;
    }
    match write(call, &output.content).await {
        Ok(path) => output.saved = path,
        Err(refusal) => {
            let text = format!("a large result was cut and not saved: {}", refusal.message);
            let payload = json!({ "warning": text, "call_id": call.call_id, "turn_id": call.turn_id });
            output.events.push(NewEvent::new(EventKind::WorldWarning, payload).agent(&call.caller.agent_id));
        }
    }
    output
}

async fn write(call: &CallContext, content: &Value) -> Result<Option<String>> {
    let agent_id = &call.caller.agent_id;
    let dir = WorkspacePath::parse(&format!("{}/{DIR}", agent_id.home()), false)?;
    let path = WorkspacePath::parse(&format!("{}/{}.txt", dir.as_str(), call.call_id), false)?;
    if call.caller.write_acl.check(agent_id, &path).is_err() {
        return Ok(None);
    }
    let workspace = &call.services.workspace;
    // Other agents can read the file.
    let whole = call.services.ctx.redactor.redact(&whole(content));
    let kept = prefix_bytes(&whole, FILE_BYTES_MAX);
    let mark = match kept.len() < whole.len() {
        true => format!("\n[cut: {} of {} bytes are here]\n", kept.len(), whole.len()),
        false => String::new(),
    };
    // If old files cannot be removed, no new one is written, so that they do not pile up.
    workspace.keep_newest(&dir, FILES_MAX - 1, is_own).await?;
    workspace.write_atomic(&path, [kept, &mark].concat().as_bytes()).await?;
    Ok(Some(path.as_str().to_owned()))
}

/// Whether a file there was written by this module.
fn is_own(name: &str) -> bool {
    name.strip_suffix(".txt").is_some_and(|id| id.parse::<CallId>().is_ok())
}

/// A result as the text that a model sees.
pub(crate) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Null => "(no output)".to_owned(),
        other => other.to_string(),
    }
}

/// The strings of a result that are shortened for the model, longest first.
fn long_strings(members: &Map<String, Value>) -> Vec<(&str, &str)> {
    let texts = members.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)));
    let mut long: Vec<(&str, &str)> = texts.filter(|(_, text)| text.len() > SHORT).collect();
    long.sort_by_key(|(_, text)| Reverse(text.len()));
    long
}

/// What the file holds: the text itself, or the long texts of an object as they are, each under its name.
fn whole(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Object(members) => match long_strings(members).as_slice() {
            [] => format!("{content:#}"),
            [(_, text)] => (*text).to_owned(),
            texts => texts.iter().map(|(name, text)| format!("== {name} ==\n{text}\n")).collect(),
        },
        other => format!("{other:#}"),
    }
}

/// A saved result in about `limit` bytes. The long texts of an object are shortened within it, so that it is still JSON
/// and its other members stay.
pub(crate) fn view(content: &Value, path: &str, limit: usize) -> String {
    let text = text_of(content);
    if text.len() <= limit {
        return text;
    }
    if let Value::Object(members) = content
        && let Some(shortened) = shortened(members, path, limit)
    {
        return shortened.to_string();
    }
    ends(&text, limit, path)
}

/// The object in at most `limit` bytes; `None` if its long texts are not what makes it large.
fn shortened(members: &Map<String, Value>, path: &str, limit: usize) -> Option<Value> {
    let mut members = members.clone();
    let long: Vec<(String, String)> =
        long_strings(&members).into_iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
    for (name, _) in &long {
        members.insert(name.clone(), Value::String(String::new()));
    }
    let mut left = limit.checked_sub(Value::Object(members.clone()).to_string().len())?;
    // The shortest first: what it does not need is left for the others.
    for (at, (name, text)) in long.iter().enumerate().rev() {
        let text = fitting(text, left / (at + 1), path)?;
        left -= json_bytes(&text);
        members.insert(name.clone(), Value::String(text));
    }
    Some(Value::Object(members))
}

/// The bytes of a text within JSON, without its quotes.
fn json_bytes(text: &str) -> usize {
    Value::from(text).to_string().len() - 2
}

/// The text in at most `limit` bytes of JSON; `None` if there is no room for anything of it.
fn fitting(text: &str, limit: usize, path: &str) -> Option<String> {
    if json_bytes(text) <= limit {
        return Some(text.to_owned());
    }
    let mut keep = limit;
    loop {
        let cut = ends(text, keep, path);
        let bytes = json_bytes(&cut);
        if bytes <= limit {
            return Some(cut);
        }
        // Line breaks, quotes and the mark take room too.
        keep = keep.checked_sub((bytes - limit).max(16)).filter(|keep| *keep > 0)?;
    }
}

/// The first two thirds and the last third of what is kept of a text, and a mark between them.
fn ends(text: &str, keep: usize, path: &str) -> String {
    let head = prefix_bytes(text, keep - keep / 3);
    let mut start = text.len().saturating_sub(keep / 3).max(head.len());
    while !text.is_char_boundary(start) {
        start += 1;
    }
    let (tail, out) = (&text[start..], start - head.len());
    format!("{head}\n[{out} of {} bytes are left out here; the whole is in {path}, scope world]\n{tail}", text.len())
}

#[cfg(test)]
mod view_tests {
    use super::*;
    use ghost_domain::Code;

    // covers: LIM-04, TOOL-15
    #[test]
    fn errors_are_short_and_found_under_their_usual_names() {
        let limits = Limits { error_view_chars: 20, ..Limits::default() };
        let refusal =
            Refusal::new(Code::Timeout, "m".repeat(50)).hint("h".repeat(50)).details(json!({ "d": "x".repeat(50) }));
        let (text, is_error) = model_view(&refused(refusal.clone()), None, &limits);
        assert!(is_error && text.len() < 120 && !text.contains("details"), "{text}");
        for key in ["message", "error", "status"] {
            let content = json!({ key: "the disk is full", "rest": "x".repeat(99) });
            let outcome =
                CallOutcome { content, refusal: Some(refusal.clone()), truncated: false, ..CallOutcome::default() };
            let (text, _) = model_view(&outcome, None, &limits);
            assert_eq!(text, "{\"error\":\"the disk is full\",\"code\":\"timeout\"}", "{key}");
        }
        let short = CallOutcome {
            content: json!({ "a": 1 }),
            refusal: Some(refusal),
            truncated: false,
            ..CallOutcome::default()
        };
        assert_eq!(model_view(&short, None, &limits).0, "{\"a\":1}");
        let long = refused(Refusal::new(Code::Timeout, "m".repeat(401)));
        let shown: Value = serde_json::from_str(&model_view(&long, None, &Limits::default()).0).unwrap();
        assert_eq!(shown["error"], format!("{}…", "m".repeat(400)));
    }

    // covers: CONF-07, LIM-03
    #[test]
    fn a_result_is_cut_unless_its_tool_shows_more() {
        let (most, limits) = (8_192, Limits::default());
        let of = |text: &str| CallOutcome { content: json!(text), ..CallOutcome::default() };
        let (fits, long) = ("x".repeat(most), "x".repeat(2 * most));
        assert_eq!(model_view(&of(&fits), None, &limits), (fits.clone(), false));
        let (cut, _) = model_view(&of(&long), None, &limits);
        assert!(cut.starts_with(&format!("{fits}\n[cut: ")), "{}", cut.len());
        assert_eq!(model_view(&of(&long), Some(16_384), &limits), (long, false));
    }
}

#[cfg(test)]
mod saved_tests {
    use proptest::prelude::*;

    use super::*;

    const PATH: &str = "agents/a/tool-results/x.txt";

    // covers: TOOL-14
    #[test]
    fn a_command_keeps_its_exit_code_and_both_ends_of_its_output() {
        let lines: String = (0..5_000).map(|n| format!("line {n}\n")).collect();
        let content = json!({ "exit_code": 1, "stdout": lines, "stderr": "one \"error\"\n".repeat(90), "cwd": "." });
        let text = view(&content, PATH, 8_192);
        assert!(text.len() <= 8_192 && text.len() > 7_500, "{}", text.len());
        let shown: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (&shown["exit_code"], &shown["cwd"], &shown["stderr"]),
            (&json!(1), &json!("."), &content["stderr"])
        );
        let stdout = shown["stdout"].as_str().unwrap();
        assert!(stdout.starts_with("line 0\n") && stdout.ends_with("line 4999\n") && stdout.contains(PATH), "{stdout}");
        let file = whole(&content);
        assert!(file.starts_with("== stdout ==\nline 0\n") && file.contains("== stderr ==\none \"error\"\n"));
        assert_eq!(whole(&json!({ "ok": true, "text": lines })), lines);
    }

    #[test]
    fn other_results_are_cut_as_text() {
        let rows: Vec<Value> = (0..2_000).map(|n| json!({ "n": n })).collect();
        for content in [json!(rows), json!({ "rows": rows }), json!("é".repeat(9_000))] {
            let text = view(&content, PATH, 1_000);
            assert!(text.len() < 1_200 && text.contains(PATH) && text.starts_with(&text_of(&content)[..100]), "{text}");
            assert!(text.ends_with(&text_of(&content)[text_of(&content).len() - 100..]));
        }
    }

    #[test]
    fn only_files_of_this_kind_are_cleared() {
        let id = CallId(uuid::Uuid::nil());
        assert!(is_own(&format!("{id}.txt")) && !is_own("notes.txt") && !is_own(&id.to_string()));
    }

    proptest! {
        #[test]
        fn a_view_is_small_and_an_object_stays_one(
            texts in prop::collection::btree_map("[a-z]{1,6}", "(\\PC|\n|\"){0,2000}", 1..5),
            limit in 1_500_usize..6_000,
        ) {
            let content = json!(texts);
            let text = view(&content, PATH, limit);
            // Where the text itself is cut, the mark comes on top.
            prop_assert!(text.len() <= limit + 120, "{}", text.len());
            if text_of(&content).len() > limit && texts.values().all(|text| text.len() > SHORT) && limit > 3_000 {
                let shown: Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(shown.as_object().unwrap().len(), texts.len());
            }
        }
    }
}
