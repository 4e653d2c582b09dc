//! A fake server of OpenAI's chat completions, streamed. A closure decides each answer.
//!
//! The server itself must never decide anything.

use std::io;

use ghost_domain::tool_catalogue::{from_wire, to_wire};
use serde_json::{Value, json};

use super::server::{FakeReply, FakeRequest, FakeServer};

/// A tool call that the fake model makes.
#[derive(Clone, Debug)]
pub struct FakeCall {
    /// The provider's id of the call.
    pub id: String,
    /// Dotted canonical name of the tool.
    pub tool: String,
    /// Arguments of the call.
    pub arguments: Value,
}

/// What the fake model answers.
#[derive(Clone, Debug)]
pub enum FakeAnswer {
    /// Text, and calls.
    Model {
        /// The text; may be empty if there are calls.
        text: String,
        /// The tool calls.
        calls: Vec<FakeCall>,
    },
    /// Any HTTP reply, for failures and streams that break.
    Raw(FakeReply),
}

impl FakeAnswer {
    /// An answer with this text, which ends the turn.
    #[must_use]
    pub fn say(text: impl Into<String>) -> Self {
        Self::Model { text: text.into(), calls: Vec::new() }
    }

    /// An answer with one call. The id must be unique in the conversation.
    #[must_use]
    pub fn call(id: impl Into<String>, tool: impl Into<String>, arguments: Value) -> Self {
        let call = FakeCall { id: id.into(), tool: tool.into(), arguments };
        Self::Model { text: String::new(), calls: vec![call] }
    }

    /// An HTTP failure with an error body in OpenAI's form.
    #[must_use]
    pub fn status(status: u16, message: &str) -> Self {
        let body = json!({ "error": { "message": message, "type": "error", "code": null } });
        Self::Raw(FakeReply::new(status, "application/json", body.to_string()))
    }

    /// The HTTP reply with this answer.
    #[must_use]
    pub fn into_reply(self, request: &FakeRequest) -> FakeReply {
        match self {
            Self::Raw(reply) => reply,
            Self::Model { text, calls } => FakeReply::new(200, "text/event-stream", events(request, &text, &calls)),
        }
    }
}

/// The events of an answer. Its usage counts four bytes as a token.
fn events(request: &FakeRequest, text: &str, calls: &[FakeCall]) -> String {
    let model = request.body.get("model").and_then(Value::as_str).unwrap_or("fake");
    let mut out = String::new();
    let mut event = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": "chatcmpl-fake", "object": "chat.completion.chunk", "created": 0, "model": model,
            "choices": choices, "usage": usage,
        });
        out.push_str(&format!("data: {chunk}\n\n"));
    };
    let choice = |delta: Value, reason: Value| json!([{ "index": 0, "delta": delta, "finish_reason": reason }]);
    event(choice(json!({ "role": "assistant", "content": "" }), Value::Null), Value::Null);
    for line in text.split_inclusive('\n') {
        event(choice(json!({ "content": line }), Value::Null), Value::Null);
    }
    for (index, call) in calls.iter().enumerate() {
        let function = json!({ "name": to_wire(&call.tool), "arguments": "" });
        let first = json!({ "index": index, "id": call.id, "type": "function", "function": function });
        event(choice(json!({ "tool_calls": [first] }), Value::Null), Value::Null);
        let rest = json!({ "index": index, "function": { "arguments": call.arguments.to_string() } });
        event(choice(json!({ "tool_calls": [rest] }), Value::Null), Value::Null);
    }
    let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    event(choice(json!({}), reason.into()), Value::Null);
    let prompt = crate::estimate::json_len(&request.body) / 4;
    let written = (text.len() + calls.iter().map(|call| crate::estimate::json_len(&call.arguments)).sum::<usize>()) / 4;
    event(
        json!([]),
        json!({ "prompt_tokens": prompt, "completion_tokens": written + 1, "total_tokens": prompt + written + 1 }),
    );
    out.push_str("data: [DONE]\n\n");
    out
}

/// The fake server. It stops when this is dropped.
pub struct FakeOpenAi {
    server: FakeServer,
}

impl FakeOpenAi {
    /// Starts a server that gets its answers from `answer` and keeps every request.
    ///
    /// # Errors
    /// If no port of 127.0.0.1 can be bound.
    pub async fn start(answer: impl Fn(&FakeRequest) -> FakeAnswer + Send + Sync + 'static) -> io::Result<Self> {
        let server = FakeServer::start(true, move |request| answer(request).into_reply(request)).await?;
        Ok(Self { server })
    }

    /// Like [`Self::start`], but keeps no requests: for benches.
    ///
    /// # Errors
    /// If no port of 127.0.0.1 can be bound.
    pub async fn start_unlogged(
        answer: impl Fn(&FakeRequest) -> FakeAnswer + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let server = FakeServer::start(false, move |request| answer(request).into_reply(request)).await?;
        Ok(Self { server })
    }

    /// The `base_url` for this server.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.server.url())
    }

    /// All requests so far, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<FakeRequest> {
        self.server.requests()
    }

    /// Completes when no answer is being sent.
    pub async fn idle(&self) {
        self.server.idle().await;
    }
}

/// The fields of a chat completion request.
impl FakeRequest {
    /// Name of the model.
    #[must_use]
    pub fn model(&self) -> &str {
        self.body.get("model").and_then(Value::as_str).unwrap_or_default()
    }

    /// The messages, as sent.
    #[must_use]
    pub fn messages(&self) -> &[Value] {
        self.body.get("messages").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The text of the last message with this role; empty if there is none.
    #[must_use]
    pub fn last_of(&self, role: &str) -> &str {
        let of_role = |message: &&Value| message.get("role").and_then(Value::as_str) == Some(role);
        let last = self.messages().iter().rev().find(of_role);
        last.and_then(|message| message.get("content")).and_then(Value::as_str).unwrap_or_default()
    }

    /// The number of the model's answers in this turn: after the last mail, or in the whole conversation if it has none.
    #[must_use]
    pub fn rounds(&self) -> usize {
        let is_mail = |message: &Value| message["role"] == "user" && message.to_string().contains("<inbox>");
        let messages = self.messages();
        let mail = messages.iter().rposition(is_mail).unwrap_or(0);
        messages[mail..].iter().filter(|message| message["role"] == "assistant").count()
    }

    /// Canonical names of the tools in the request.
    #[must_use]
    pub fn tools(&self) -> Vec<String> {
        let tools = self.body.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str().map(from_wire)).collect()
    }
}
