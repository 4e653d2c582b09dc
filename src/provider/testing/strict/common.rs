//! What the strict servers share: what was asked, what is answered, and what every protocol wants of a conversation.
//!
//! Must never: know a protocol.

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
    /// Every protocol.
    pub const ALL: [Self; 5] = [Self::Anthropic, Self::Responses, Self::Chat, Self::Gemini, Self::Ollama];

    /// The kind of provider that speaks it.
    #[must_use]
    pub fn kind(self) -> ProviderKind {
        match self {
            Self::Anthropic => ProviderKind::Anthropic,
            Self::Responses | Self::Chat => ProviderKind::OpenAi,
            Self::Gemini => ProviderKind::Gemini,
            Self::Ollama => ProviderKind::Ollama,
        }
    }

    /// The path of a base URL.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Responses | Self::Chat => "/v1",
            Self::Gemini => "/v1beta",
            Self::Ollama => "",
        }
    }
}

/// Tokens of a request, by what the cache has to do with them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cached {
    pub(super) read: u64,
    pub(super) written: u64,
    /// At least 1.
    pub(super) fresh: u64,
}

impl Cached {
    pub(super) fn all(self) -> u64 {
        self.read + self.written + self.fresh
    }
}

/// What was asked.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The model.
    pub model: String,
    /// The system part.
    pub system: String,
    /// The conversation in the words of the domain, without what was attached.
    pub messages: Vec<Message>,
    /// Canonical names of the tools on offer.
    pub tools: Vec<String>,
    /// What was attached to each earlier answer, in order.
    pub(super) attached: Vec<Vec<String>>,
}

/// What is answered.
pub(super) struct Said {
    pub(super) model: String,
    /// The number of the answer; what is attached to it has it.
    pub(super) number: u64,
    pub(super) text: String,
    /// Id, name on the wire, arguments.
    pub(super) calls: Vec<(String, String, Value)>,
    /// Tokens of the request.
    pub(super) input: Cached,
}

impl Said {
    pub(super) fn written(&self) -> u64 {
        let calls: usize = self.calls.iter().map(|(_, name, arguments)| name.len() + arguments.to_string().len()).sum();
        (self.text.len() + calls) as u64 / 4 + 20
    }
}

/// What all protocols want of a conversation: results for every call and for no other, and names that fit.
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
            let there: BTreeSet<&String> = results.iter().copied().collect();
            if let Some(missing) = open.iter().find(|id| !there.contains(id)) {
                return Err(format!("the call {missing} has no result right behind it"));
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
                return Err(format!("the id {id} is there twice"));
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
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match (1..=64).contains(&name.len()) && name.chars().all(fits) {
        true => Ok(()),
        false => Err(format!("the name {name} does not match ^[a-zA-Z0-9_-]{{1,64}}$")),
    }
}

/// Refuses fields that the protocol does not have.
pub(super) fn only(object: &Value, what: &str, known: &[&str]) -> Result<(), String> {
    let fields = object.as_object().ok_or_else(|| format!("{what} is no object"))?;
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

pub(super) fn words(text: &str) -> Block {
    Block::Text { text: text.to_owned() }
}

pub(super) fn called(id: &str, name: &str, arguments: Value) -> Block {
    Block::ToolCall { id: id.to_owned(), name: from_wire(name), arguments }
}

pub(super) fn result(id: &str, name: &str, content: &str) -> Block {
    // On most wires a refusal is known by its form alone.
    let is_error = serde_json::from_str::<Value>(content)
        .is_ok_and(|value| value.get("error").is_some() && value.get("code").is_some());
    Block::ToolResult { id: id.to_owned(), name: from_wire(name), content: content.to_owned(), is_error }
}

/// The name of the call that a result answers.
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

/// Adds a result to those of the same round.
pub(super) fn push_result(messages: &mut Vec<Message>, found: Block) {
    match messages.last_mut().filter(|last| last.role == Role::Tool) {
        Some(last) => last.blocks.push(found),
        None => messages.push(Message { role: Role::Tool, blocks: vec![found] }),
    }
}
