//! Events that genai cannot take, left out or made into ones that it can. It takes any delta outside thinking for text or the
//! arguments of a call, and any event of Gemini's without candidates for an error.
//!
//! Must never: leave out words or calls, or hold more than the kind of the block under way. What is no JSON is genai's to
//! refuse.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::genai_protocol::Protocol;

/// What stands in a reason to stop before Gemini's reason to block a prompt.
pub(crate) const BLOCKED: &str = "the prompt was blocked: ";

/// Blocks of an answer that genai knows. Others are of tools that a provider runs itself, and cannot be sent back.
const BLOCKS: [&str; 4] = ["text", "thinking", "redacted_thinking", "tool_use"];
/// Pieces of those blocks that genai knows. Others say more about words than the words themselves: citations.
const DELTAS: [&str; 4] = ["text_delta", "thinking_delta", "signature_delta", "input_json_delta"];

/// Looks at the events of one answer.
#[derive(Debug)]
pub(crate) enum Sift {
    /// Anthropic's.
    Anthropic {
        /// Whether the block under way is left out.
        skips: bool,
    },
    /// Gemini's.
    Gemini,
    /// Of a protocol whose events genai takes all.
    Nothing,
}

#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

/// What there is to be known of an event of Anthropic's.
#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    content_block: Option<Typed<'a>>,
    #[serde(borrow)]
    delta: Option<Typed<'a>>,
}

impl Sift {
    pub(crate) fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Anthropic => Self::Anthropic { skips: false },
            Protocol::Gemini => Self::Gemini,
            Protocol::Ollama => Self::Nothing,
        }
    }

    /// What of these whole events genai can take.
    pub(crate) fn pass(&mut self, events: Vec<u8>) -> Vec<u8> {
        if matches!(self, Self::Nothing) {
            return events;
        }
        let mut passed = Vec::with_capacity(events.len());
        let mut rest = events.as_slice();
        while !rest.is_empty() {
            let end = rest.windows(2).position(|pair| pair == b"\n\n").map_or(rest.len(), |at| at + 2);
            let (event, after) = rest.split_at(end);
            rest = after;
            match self {
                Self::Anthropic { skips } => {
                    if !is_unknown(event, skips) {
                        passed.extend_from_slice(event);
                    }
                }
                Self::Gemini => match with_candidates(event) {
                    Some(event) => passed.extend_from_slice(event.as_bytes()),
                    None => passed.extend_from_slice(event),
                },
                Self::Nothing => passed.extend_from_slice(event),
            }
        }
        passed
    }
}

/// Whether an event of Anthropic's is of a block, or a piece of one, that genai does not know.
fn is_unknown(event: &[u8], skips: &mut bool) -> bool {
    let Some((name, data)) = fields(event).filter(|(name, _)| name.starts_with("content_block_")) else { return false };
    let piece = serde_json::from_str::<Piece<'_>>(&data).ok();
    let unknown = |typed: Option<Typed<'_>>, known: &[&str]| typed.is_some_and(|typed| !known.contains(&&*typed.kind));
    match name {
        "content_block_start" => {
            *skips = piece.is_some_and(|piece| unknown(piece.content_block, &BLOCKS));
            *skips
        }
        "content_block_delta" => *skips || piece.is_some_and(|piece| unknown(piece.delta, &DELTAS)),
        "content_block_stop" => std::mem::take(skips),
        _ => false,
    }
}

/// An event of Gemini's that has no candidates, as one that has: for a blocked prompt one that says so, for mere counts none.
fn with_candidates(event: &[u8]) -> Option<String> {
    let (_, data) = fields(event)?;
    let has = |key: &str| data.contains(key);
    // Most events have candidates and nothing of this, and are not read twice.
    if has("\"candidates\"") && !has("\"blockReason\"") || !has("\"promptFeedback\"") && !has("\"usageMetadata\"") {
        return None;
    }
    let mut body: Value = serde_json::from_str(&data).ok()?;
    let object = body.as_object_mut().filter(|object| !object.contains_key("error"))?;
    if object.get("candidates").and_then(Value::as_array).is_some_and(|candidates| !candidates.is_empty()) {
        return None;
    }
    let blocked = object.get("promptFeedback").and_then(|feedback| feedback.get("blockReason")).and_then(Value::as_str);
    let candidates = match blocked {
        Some(why) => json!([{ "finishReason": format!("{BLOCKED}{why}") }]),
        None => json!([]),
    };
    object.insert("candidates".to_owned(), candidates);
    Some(format!("data: {body}\n\n"))
}

/// The name of an event and its data.
fn fields(event: &[u8]) -> Option<(&str, Cow<'_, str>)> {
    let (mut name, mut data) = ("", Cow::Borrowed(""));
    for line in std::str::from_utf8(event).ok()?.lines() {
        let (key, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match key {
            "event" => name = value,
            "data" if data.is_empty() => data = Cow::Borrowed(value),
            "data" => data = Cow::Owned(format!("{data}\n{value}")),
            _ => {}
        }
    }
    Some((name, data))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn passed(protocol: Protocol, events: &[String]) -> Vec<String> {
        let mut sift = Sift::of(protocol);
        events.iter().map(|event| String::from_utf8(sift.pass(event.clone().into_bytes())).unwrap()).collect()
    }

    fn event(name: &str, data: &Value) -> String {
        format!("event: {name}\ndata: {data}\n\n")
    }

    #[test]
    fn blocks_and_deltas_that_are_not_known_are_left_out_and_nothing_else() {
        let start = |kind: &str| event("content_block_start", &json!({ "content_block": { "type": kind } }));
        let delta = |kind: &str| event("content_block_delta", &json!({ "delta": { "type": kind, "text": "x" } }));
        let stop = || event("content_block_stop", &json!({ "index": 0 }));
        let broken = "event: content_block_delta\ndata: {\"delta\n\n".to_owned();
        let untyped = event("content_block_delta", &json!({ "delta": { "text": "x" } }));
        let events = [
            (event("message_start", &json!({})), true),
            (start("text"), true),
            (delta("citations_delta"), false),
            (delta("text_delta"), true),
            (stop(), true),
            (start("server_tool_use"), false),
            (delta("input_json_delta"), false),
            (event("ping", &json!({})), true),
            (stop(), false),
            (stop(), true),
            (start("tool_use"), true),
            (delta("input_json_delta"), true),
            (broken, true),
            (untyped, true),
        ];
        let (sent, takes): (Vec<String>, Vec<bool>) = events.into_iter().unzip();
        let expected: Vec<String> =
            sent.iter().zip(takes).map(|(event, takes)| if takes { event.clone() } else { String::new() }).collect();
        assert_eq!(passed(Protocol::Anthropic, &sent), expected);
        assert_eq!(passed(Protocol::Anthropic, &[sent.concat()]), [expected.concat()], "in one piece");
        assert_eq!(passed(Protocol::Ollama, &sent), sent);
    }

    #[test]
    fn events_of_gemini_without_candidates_get_some() {
        let data = |body: Value| format!("data: {body}\n\n");
        let counts = json!({ "promptTokenCount": 10 });
        let said = json!([{ "content": { "parts": [{ "text": "\"blockReason\"" }] } }]);
        for (sent, expected) in [
            (
                json!({ "promptFeedback": { "blockReason": "SAFETY" }, "usageMetadata": counts }),
                Some(json!([{ "finishReason": "the prompt was blocked: SAFETY" }])),
            ),
            (
                json!({ "promptFeedback": { "blockReason": "OTHER" }, "candidates": [] }),
                Some(json!([{ "finishReason": "the prompt was blocked: OTHER" }])),
            ),
            (json!({ "promptFeedback": { "safetyRatings": [] } }), Some(json!([]))),
            (json!({ "usageMetadata": counts }), Some(json!([]))),
            (json!({ "candidates": said, "usageMetadata": counts }), None),
            (json!({ "candidates": said, "promptFeedback": { "blockReason": "SAFETY" } }), None),
            (json!({ "error": { "message": "busy" }, "usageMetadata": counts }), None),
            (json!({ "what": 1 }), None),
            (json!(["usageMetadata"]), None),
        ] {
            let passed = passed(Protocol::Gemini, &[data(sent.clone())]).concat();
            let expected = expected.map_or_else(
                || sent.clone(),
                |candidates| {
                    let mut with = sent.clone();
                    with["candidates"] = candidates;
                    with
                },
            );
            assert_eq!(passed, data(expected), "{sent}");
        }
    }

    proptest! {
        #[test]
        fn what_is_of_neither_goes_through_as_it_is(text in "(data: ?[a-z{}\":]{0,6}|:x|\n|\n\n|event: y\n){0,20}") {
            for protocol in [Protocol::Anthropic, Protocol::Gemini, Protocol::Ollama] {
                prop_assert_eq!(Sift::of(protocol).pass(text.clone().into_bytes()), text.as_bytes());
            }
        }
    }
}
