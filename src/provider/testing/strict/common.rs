//! Shared parts of the strict servers: the parsed request, the answer, and rules that all protocols
//! have for a conversation.
//!
//! This module must never depend on one protocol.

use std::collections::BTreeSet;

use ghost_config::plan::ProviderKind;
use ghost_domain::tool_catalogue::from_wire;
use ghost_domain::transcript::{Block, Message, Role};
use serde_json::Value;

/// A protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Responses.
    Responses,
    /// Chat completions of a server that attaches reasoning and signatures.
    Chat,
    /// Gemini's `streamGenerateContent`.
    Gemini,
    /// Ollama's chat.
    Ollama,
}

impl Wire {
    /// All protocols.
    pub const ALL: [Self; 5] = [Self::Anthropic, Self::Responses, Self::Chat, Self::Gemini, Self::Ollama];

    /// The provider kind for the protocol.
    #[must_use]
    pub fn kind(self) -> ProviderKind {
        match self {
            Self::Anthropic => ProviderKind::Anthropic,
            Self::Responses | Self::Chat => ProviderKind::OpenAi,
            Self::Gemini => ProviderKind::Gemini,
            Self::Ollama => ProviderKind::Ollama,
        }
    }

    /// The settings of a provider in `world-config.yaml` that speaks the protocol at `base_url`, and `more` settings.
    #[must_use]
    pub fn provider(self, base_url: &str, more: &str) -> String {
        let (kind, api) = match self {
            Self::Anthropic => ("anthropic", ""),
            Self::Responses => ("openai", ", api: responses"),
            Self::Chat => ("openai", ", api: chat"),
            Self::Gemini => ("gemini", ""),
            Self::Ollama => ("ollama", ""),
        };
        format!("{{ kind: {kind}, base_url: '{base_url}'{api}{more} }}")
    }

    /// The path of its base URL.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Responses | Self::Chat => "/v1",
            Self::Gemini => "/v1beta",
            Self::Ollama => "",
        }
    }
}

/// Tokens of a request's input, by their relation to the prompt cache.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct InputTokens {
    pub(super) read: u64,
    pub(super) written: u64,
    /// Tokens outside the cache; at least 1.
    pub(super) uncached: u64,
}

impl InputTokens {
    pub(super) fn all(self) -> u64 {
        self.read + self.written + self.uncached
    }
}

/// A parsed request.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Name of the model.
    pub model: String,
    /// The system part of the prompt.
    pub system: String,
    /// The conversation without opaque state.
    pub messages: Vec<Message>,
    /// Canonical names of the tools in the request.
    pub tools: Vec<String>,
    /// Whether the model may search for deferred tools.
    pub(super) searches: bool,
    /// The opaque state of each earlier answer, in order.
    pub(super) attached: Vec<Vec<String>>,
}

/// An answer to send.
pub(super) struct StrictAnswer {
    pub(super) model: String,
    /// Number of the answer; it appears in the attached state.
    pub(super) number: u64,
    pub(super) text: String,
    /// Id, name on the wire, arguments.
    pub(super) calls: Vec<(String, String, Value)>,
    /// Whether a call of the tool that describes deferred tools is a search for them.
    pub(super) searches: bool,
    /// Tokens of the request.
    pub(super) input: InputTokens,
}

impl StrictAnswer {
    pub(super) fn written(&self) -> u64 {
        let calls: usize = self.calls.iter().map(|(_, name, arguments)| name.len() + arguments.to_string().len()).sum();
        (self.text.len() + calls) as u64 / 4 + 20
    }
}

/// The rules of all protocols: every call has one result, every result has a call, and names are
/// valid.
pub(super) fn check_calls(messages: &[Message]) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    let mut seen = BTreeSet::new();
    for message in messages {
        let results: Vec<&String> = message
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::ToolResult { id, .. } => Some(id),
                _ => None,
            })
            .collect();
        if !open.is_empty() {
            let present: BTreeSet<&String> = results.iter().copied().collect();
            if let Some(missing) = open.iter().find(|id| !present.contains(id)) {
                return Err(format!("the call {missing} has no result directly after it"));
            }
        }
        if let Some(stray) = results.iter().find(|id| !open.contains(id)) {
            return Err(format!("the result {stray} belongs to no call of the answer before it"));
        }
        open = match message.role {
            Role::Assistant => message.calls().map(|(id, _, _)| id.to_owned()).collect(),
            _ => Vec::new(),
        };
        for id in &open {
            if !seen.insert(id.clone()) {
                return Err(format!("the id {id} is used twice"));
            }
        }
        for (_, name, _) in message.calls() {
            check_name(&ghost_domain::tool_catalogue::to_wire(name))?;
        }
    }
    match open.first() {
        Some(id) => Err(format!("the call {id} has no result")),
        None => Ok(()),
    }
}

pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match (1..=64).contains(&name.len()) && name.chars().all(is_allowed) {
        true => Ok(()),
        false => Err(format!("the name {name} does not match ^[a-zA-Z0-9_-]{{1,64}}$")),
    }
}

/// Refuses fields that the protocol does not have.
pub(super) fn check_fields(object: &Value, what: &str, known: &[&str]) -> Result<(), String> {
    let fields = object.as_object().ok_or_else(|| format!("{what} is not an object"))?;
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("{what}.{key}: extra inputs are not permitted")),
        None => Ok(()),
    }
}

pub(super) fn list<'v>(object: &'v Value, key: &str) -> &'v [Value] {
    object.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn text<'v>(object: &'v Value, key: &str) -> &'v str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn text_block(text: &str) -> Block {
    Block::Text { text: text.to_owned() }
}

pub(super) fn call_block(id: &str, name: &str, arguments: Value) -> Block {
    Block::ToolCall { id: id.to_owned(), name: from_wire(name), arguments }
}

pub(super) fn result(id: &str, name: &str, content: &str) -> Block {
    // Most protocols have no error flag, so a refusal is recognised by its form.
    let is_error = serde_json::from_str::<Value>(content)
        .is_ok_and(|value| value.get("error").is_some() && value.get("code").is_some());
    Block::ToolResult { id: id.to_owned(), name: from_wire(name), content: content.to_owned(), is_error }
}

/// The name of the call that a result belongs to.
pub(super) fn name_of(messages: &[Message], id: &str) -> String {
    let calls = messages.iter().rev().flat_map(Message::calls);
    calls.filter(|(known, ..)| *known == id).map(|(_, name, _)| name.to_owned()).next().unwrap_or_default()
}

pub(super) fn events(list: &[Value]) -> String {
    list.iter().map(|event| format!("event: {}\ndata: {event}\n\n", text(event, "type"))).collect()
}

pub(super) fn data(list: &[Value]) -> String {
    list.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// Adds a result to the results of the same round.
pub(super) fn push_result(messages: &mut Vec<Message>, found: Block) {
    match messages.last_mut().filter(|last| last.role == Role::Tool) {
        Some(last) => last.blocks.push(found),
        None => messages.push(Message { role: Role::Tool, blocks: vec![found] }),
    }
}
