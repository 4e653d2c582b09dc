//! Rules that hold for all five protocols: halves of characters, token counts that are missing, and stop reasons that
//! nobody knows.

use super::rounds::adapter_for;
use super::*;
use crate::error::{Charge, ErrorKind};
use crate::estimate::estimate_tokens;
use crate::model::{NoDeltas, Stop};
use crate::testing::Wire;

const WIRES: [Wire; 5] = [Wire::Anthropic, Wire::Chat, Wire::Responses, Wire::Gemini, Wire::Ollama];

/// An answer as a server sends it: thinking and text in pieces, and calls with their arguments as JSON text.
#[derive(Clone, Default)]
struct Sent {
    thinking: Vec<String>,
    text: Vec<String>,
    calls: Vec<(&'static str, String)>,
    /// The stop reason; `None` is the usual one.
    reason: Option<&'static str>,
    /// Input and output; `None` leaves them out.
    usage: Option<(u64, u64)>,
}

/// Halves of one character, as escapes of the event that they stand in.
const FIRST: &str = "◐";
const SECOND: &str = "◑";

impl Sent {
    fn body(&self, wire: Wire) -> (&'static str, String) {
        let (kind, body) = match wire {
            Wire::Anthropic => ("text/event-stream", anthropic::events(&self.anthropic())),
            Wire::Chat => ("text/event-stream", sse(&self.chat()) + "data: [DONE]\n\n"),
            Wire::Responses => ("text/event-stream", sse(&self.responses())),
            Wire::Gemini => ("text/event-stream", sse(&self.gemini())),
            Wire::Ollama => ("application/x-ndjson", ollama::lines(&self.ollama())),
        };
        (kind, body.replace(FIRST, "\\ud83d").replace(SECOND, "\\uDE00"))
    }

    fn anthropic(&self) -> Vec<Value> {
        let usage = |key: &str, count: Option<u64>| count.map_or(json!({}), |count| json!({ key: count }));
        let mut events = vec![json!({ "type": "message_start",
            "message": { "usage": usage("input_tokens", self.usage.map(|(input, _)| input)) } })];
        let mut block = |start: Value, deltas: Vec<Value>| {
            let index = events.len();
            events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
            let delta = |delta| json!({ "type": "content_block_delta", "index": index, "delta": delta });
            events.extend(deltas.into_iter().map(delta));
            events.push(json!({ "type": "content_block_stop", "index": index }));
        };
        let pieces = |kind: &str, key: &str, list: &[String]| {
            list.iter().map(|piece| json!({ "type": kind, key: piece })).collect::<Vec<_>>()
        };
        if !self.thinking.is_empty() {
            let deltas = pieces("thinking_delta", "thinking", &self.thinking);
            block(json!({ "type": "thinking", "thinking": "" }), deltas);
        }
        if !self.text.is_empty() {
            block(json!({ "type": "text", "text": "" }), pieces("text_delta", "text", &self.text));
        }
        for (name, arguments) in &self.calls {
            let start = json!({ "type": "tool_use", "id": format!("t-{name}"), "name": name, "input": {} });
            block(start, pieces("input_json_delta", "partial_json", &halves_of(arguments)));
        }
        let reason = self.reason.unwrap_or(if self.calls.is_empty() { "end_turn" } else { "tool_use" });
        events.push(json!({ "type": "message_delta", "delta": { "stop_reason": reason },
            "usage": usage("output_tokens", self.usage.map(|(_, output)| output)) }));
        events.push(json!({ "type": "message_stop" }));
        events
    }

    fn chat(&self) -> Vec<Value> {
        let choice = |delta: Value| json!({ "choices": [{ "index": 0, "delta": delta }] });
        let mut events: Vec<Value> =
            self.thinking.iter().map(|piece| choice(json!({ "reasoning_content": piece }))).collect();
        events.extend(self.text.iter().map(|piece| choice(json!({ "content": piece }))));
        for (index, (name, arguments)) in self.calls.iter().enumerate() {
            for (n, piece) in halves_of(arguments).into_iter().enumerate() {
                let (id, name) = if n == 0 { (json!(format!("t-{name}")), json!(name)) } else { Default::default() };
                let call = json!({ "index": index, "id": id, "function": { "name": name, "arguments": piece } });
                events.push(choice(json!({ "tool_calls": [call] })));
            }
        }
        let reason = self.reason.unwrap_or(if self.calls.is_empty() { "stop" } else { "tool_calls" });
        events.push(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] }));
        if let Some((input, output)) = self.usage {
            events.push(json!({ "choices": [], "usage": { "prompt_tokens": input, "completion_tokens": output } }));
        }
        events
    }

    fn responses(&self) -> Vec<Value> {
        let done = |item: Value| json!({ "type": "response.output_item.done", "output_index": 0, "item": item });
        let piece = |kind: &str, piece: &String| json!({ "type": format!("response.{kind}.delta"), "delta": piece });
        let mut events: Vec<Value> =
            self.thinking.iter().map(|thought| piece("reasoning_summary_text", thought)).collect();
        if !self.thinking.is_empty() {
            let summary = json!([{ "type": "summary_text", "text": self.thinking.concat() }]);
            events.push(done(json!({ "type": "reasoning", "id": "r", "summary": summary })));
        }
        events.extend(self.text.iter().map(|text| piece("output_text", text)));
        if !self.text.is_empty() {
            let content = json!([{ "type": "output_text", "text": self.text.concat(), "annotations": [] }]);
            events.push(done(json!({ "type": "message", "content": content })));
        }
        for (name, arguments) in &self.calls {
            let id = format!("t-{name}");
            events.push(done(json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments })));
        }
        let usage = self.usage.map(|(input, output)| json!({ "input_tokens": input, "output_tokens": output }));
        let (kind, details) = match self.reason {
            None => ("completed", Value::Null),
            Some(reason) => ("incomplete", json!({ "reason": reason })),
        };
        events.push(json!({ "type": format!("response.{kind}"),
            "response": { "status": kind, "incomplete_details": details, "usage": usage } }));
        events
    }

    fn gemini(&self) -> Vec<Value> {
        let part = |part: Value| json!({ "candidates": [{ "content": { "role": "model", "parts": [part] } }] });
        let mut events: Vec<Value> =
            self.thinking.iter().map(|piece| part(json!({ "text": piece, "thought": true }))).collect();
        events.extend(self.text.iter().map(|piece| part(json!({ "text": piece }))));
        for (name, arguments) in &self.calls {
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            events
                .push(part(json!({ "functionCall": { "id": format!("t-{name}"), "name": name, "args": arguments } })));
        }
        let mut end = json!({ "candidates": [{ "finishReason": self.reason.unwrap_or("STOP") }] });
        if let Some((input, output)) = self.usage {
            end["usageMetadata"] = json!({ "promptTokenCount": input, "candidatesTokenCount": output });
        }
        events.push(end);
        events
    }

    fn ollama(&self) -> Vec<Value> {
        let line = |message: Value| json!({ "message": message, "done": false });
        let mut events: Vec<Value> =
            self.thinking.iter().map(|piece| line(json!({ "content": "", "thinking": piece }))).collect();
        events.extend(self.text.iter().map(|piece| line(json!({ "content": piece }))));
        for (name, arguments) in &self.calls {
            let arguments: Value = serde_json::from_str(arguments).unwrap();
            let call = json!({ "id": format!("t-{name}"), "function": { "name": name, "arguments": arguments } });
            events.push(line(json!({ "content": "", "tool_calls": [call] })));
        }
        let mut end = json!({ "done": true, "done_reason": self.reason.unwrap_or("stop") });
        if let Some((input, output)) = self.usage {
            (end["prompt_eval_count"], end["eval_count"]) = (json!(input), json!(output));
        }
        events.push(end);
        events
    }

    async fn adapter(&self, wire: Wire, prefix: &'static str) -> (FakeServer, Arc<dyn Provider>) {
        let (kind, body) = self.body(wire);
        let body = format!("{prefix}{body}");
        let server = serve(move |_| FakeReply::new(200, kind, body.clone()).in_pieces(19)).await;
        let adapter = adapter_for(wire, format!("{}{}", server.url(), wire.path()));
        (server, adapter)
    }
}

/// `arguments` in two pieces, the second of which begins with the last [`SECOND`].
fn halves_of(arguments: &str) -> Vec<String> {
    let at = arguments.rfind(SECOND).unwrap_or(arguments.len() / 2);
    vec![arguments[..at].to_owned(), arguments[at..].to_owned()]
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test]
async fn halves_of_a_character_in_two_pieces_are_one_character() {
    let pieces = strings(&["a ◐", "◑ b ◐", " c◑", " ◐", "◑", "d◐"]);
    let whole = "a 😀 b \u{fffd} c\u{fffd} 😀d\u{fffd}";
    let arguments = r#"{"path":"◐◑.md","n":"◐"}"#.to_owned();
    let sent = Sent {
        thinking: pieces.clone(),
        text: pieces,
        calls: vec![("one", arguments.clone()), ("two", arguments)],
        ..Sent::default()
    };
    for wire in WIRES {
        // A byte order mark in front of a stream loses nothing.
        for prefix in ["", "\u{feff}"] {
            let (_server, adapter) = sent.adapter(wire, prefix).await;
            let answer = ask(&adapter, &conversation("m")).await;
            let blocks: Vec<Block> =
                answer.blocks.into_iter().filter(|block| !matches!(block, Block::Opaque(_))).collect();
            let arguments = json!({ "path": "😀.md", "n": "\u{fffd}" });
            let expected =
                [thought(whole), text(whole), call("t-one", "one", arguments.clone()), call("t-two", "two", arguments)];
            assert_eq!(blocks, expected, "{wire:?} {prefix:?}");
        }
    }
}

#[tokio::test]
async fn a_half_in_the_json_of_arguments_does_not_make_them_text() {
    // Here the model's own JSON has the escapes.
    let sent = Sent { calls: vec![("one", r#"{"a":"\ud83d\ude00","b":"\ud83d"}"#.to_owned())], ..Sent::default() };
    for wire in [Wire::Anthropic, Wire::Chat, Wire::Responses] {
        let (_server, adapter) = sent.adapter(wire, "").await;
        let answer = ask(&adapter, &conversation("m")).await;
        let expected = call("t-one", "one", json!({ "a": "😀", "b": "\u{fffd}" }));
        assert_eq!(answer.blocks.last(), Some(&expected), "{wire:?}");
    }
}

#[tokio::test]
async fn a_whole_answer_without_counts_is_estimated_from_what_was_received() {
    let request = conversation("m");
    let input = estimate_tokens(&request);
    let calls = vec![("one", r#"{"path":"a.md"}"#.to_owned())];
    let whole = Sent { thinking: strings(&["Hm."]), text: strings(&["pong", "!"]), calls, ..Sent::default() };
    for wire in WIRES {
        for (usage, expected) in [
            (None, (Some(input), None)),
            (Some((0, 0)), (Some(input), None)),
            (Some((100, 0)), (Some(100), None)),
            (Some((0, 20)), (Some(input), Some(20))),
            (Some((100, 20)), (Some(100), Some(20))),
        ] {
            let (_server, adapter) = Sent { usage, ..whole.clone() }.adapter(wire, "").await;
            let answer = ask(&adapter, &request).await;
            let counted = answer.usage.unwrap();
            assert_eq!(Some(counted.input), expected.0, "{wire:?} {usage:?}");
            match expected.1 {
                Some(output) => assert_eq!(counted.output, output, "{wire:?} {usage:?}"),
                // "Hm.", "pong!", the call, and what a protocol attaches to them.
                None => assert!((8..60).contains(&counted.output), "{wire:?} {usage:?} {counted:?}"),
            }
            assert_eq!(answer.estimated, usage != Some((100, 20)), "{wire:?} {usage:?}");
        }
        // Never more than the reservation.
        let small = ModelRequest { max_tokens: 5, ..request.clone() };
        let (_server, adapter) = whole.adapter(wire, "").await;
        assert_eq!(ask(&adapter, &small).await.usage.map(|usage| usage.output), Some(5), "{wire:?}");
    }
}

#[tokio::test]
async fn a_cut_answer_without_counts_stays_unknown() {
    for (wire, reason) in [
        (Wire::Anthropic, "max_tokens"),
        (Wire::Chat, "length"),
        (Wire::Responses, "max_output_tokens"),
        (Wire::Gemini, "MAX_TOKENS"),
        (Wire::Ollama, "length"),
    ] {
        for usage in [None, Some((0, 0)), Some((100, 0))] {
            let cut = Sent { text: strings(&["a"]), reason: Some(reason), usage, ..Sent::default() };
            let (_server, adapter) = cut.adapter(wire, "").await;
            let answer = ask(&adapter, &conversation("m")).await;
            assert_eq!((answer.stop, answer.usage), (Stop::MaxTokens, None), "{wire:?} {usage:?}");
        }
    }
}

#[tokio::test]
async fn an_unknown_stop_reason_beside_a_usable_answer_is_used() {
    let reason = "NOBODY_KNOWS_YET";
    let (text, calls) = (strings(&["Hello."]), vec![("one", r#"{"path":"a.md"}"#.to_owned())]);
    let sent = |text: &[String], calls: &[(&'static str, String)]| Sent {
        thinking: strings(&["Hm."]),
        text: text.to_vec(),
        calls: calls.to_vec(),
        reason: Some(reason),
        usage: Some((100, 20)),
    };
    for wire in WIRES {
        for usable in [sent(&text, &[]), sent(&[], &calls), sent(&text, &calls)] {
            let (_server, adapter) = usable.adapter(wire, "").await;
            let answer = ask(&adapter, &conversation("m")).await;
            assert_eq!(answer.stop, Stop::Other(reason.to_owned()), "{wire:?}");
            assert!(answer.stop.is_unknown() && !answer.stop.is_cut(), "{wire:?}");
            let made = answer.blocks.iter().filter(|block| matches!(block, Block::ToolCall { .. })).count();
            assert_eq!(made, usable.calls.len(), "{wire:?}");
        }
        let mut useless = vec![sent(&[], &[]), sent(&strings(&[" \n"]), &[])];
        if matches!(wire, Wire::Anthropic | Wire::Chat | Wire::Responses) {
            // The arguments break off.
            useless.push(sent(&text, &[("one", r#"{"path":"a."#.to_owned())]));
        }
        for useless in useless {
            let (_server, adapter) = useless.adapter(wire, "").await;
            // Also after results, where an empty answer of a known reason is an answer.
            for turn in [conversation("m"), request("m", "hello")] {
                let error = adapter.complete(&turn, &mut NoDeltas).await.unwrap_err();
                assert_eq!((error.kind, error.charge), (ErrorKind::BadAnswer, Charge::Unknown), "{wire:?} {error}");
                assert!(error.message.contains(reason), "{wire:?} {error}");
                assert_eq!(error.usage.map(|usage| usage.output), Some(20), "{wire:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_full_context_window_is_said_as_what_it_is() {
    for (wire, reason) in [
        (Wire::Anthropic, "model_context_window_exceeded"),
        (Wire::Chat, "model_length"),
        (Wire::Chat, "context_length_exceeded"),
        (Wire::Responses, "max_context_length"),
        (Wire::Gemini, "CONTEXT_WINDOW_EXCEEDED"),
        (Wire::Ollama, "context_full"),
    ] {
        let sent = |text: &[&str]| Sent {
            text: strings(text),
            reason: Some(reason),
            usage: Some((100, 2)),
            ..Sent::default()
        };
        let (_server, adapter) = sent(&["Half of"]).adapter(wire, "").await;
        let answer = ask(&adapter, &conversation("m")).await;
        assert_eq!(answer.stop.word().as_deref(), Some("model_context_window_exceeded"), "{reason}");
        assert!(answer.stop.is_cut(), "{reason}");
        // Nothing was written, so the conversation must become shorter.
        let (_server, adapter) = sent(&[]).adapter(wire, "").await;
        let error = adapter.complete(&conversation("m"), &mut NoDeltas).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::ContextTooLong, "{reason}");
    }
}

#[tokio::test]
async fn too_long_is_recognised_in_statuses_and_in_streams_of_all_protocols() {
    let long = "exceeded model token limit: 8192";
    let rate = "input tokens exceed your rate limit of 8192 tokens per minute";
    for wire in WIRES {
        let event = |message: &str| match wire {
            Wire::Anthropic => json!({ "type": "error", "error": { "type": "api_error", "message": message } }),
            Wire::Chat => json!({ "error": { "message": message, "code": 500 } }),
            Wire::Responses => json!({ "type": "response.failed",
                "response": { "status": "failed", "error": { "code": "server_error", "message": message } } }),
            Wire::Gemini => json!({ "error": { "code": 500, "status": "INTERNAL", "message": message } }),
            Wire::Ollama => json!({ "error": message }),
        };
        for (message, is_long) in [(long, true), (rate, false)] {
            let stream = match wire {
                Wire::Ollama => ollama::lines(&[event(message)]),
                _ => sse(&[event(message)]),
            };
            let body = json!({ "error": { "message": message } }).to_string();
            for (status, body) in
                [(200, stream), (400, body.clone()), (413, body.clone()), (422, body.clone()), (500, body)]
            {
                let kind = if status == 200 { "text/event-stream" } else { "application/json" };
                let server = serve(move |_| FakeReply::new(status, kind, body.clone())).await;
                let adapter = adapter_for(wire, format!("{}{}", server.url(), wire.path()));
                let error = adapter.complete(&conversation("m"), &mut NoDeltas).await.unwrap_err();
                assert_eq!(error.kind == ErrorKind::ContextTooLong, is_long, "{wire:?} {status} {error}");
            }
        }
    }
}
