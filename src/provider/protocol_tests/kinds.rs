//! Rules that hold for all five protocols: halves of characters, token counts that are missing, and stop reasons that
//! nobody knows.

use super::rounds::adapter_for;
use super::*;
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
