//! What a model reads and writes, in one form for all providers (TOOL-10, LOOP-05).

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool_catalogue;

/// Who speaks in a transcript. The system part travels apart from the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Briefing, mail, corrections.
    User,
    /// The model.
    Assistant,
    /// Results of the model's calls.
    Tool,
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
    /// The model's reasoning, where a provider shows it. It goes back only where something that the provider attached to it
    /// proves whose it is.
    Thinking {
        /// The reasoning.
        text: String,
    },
    /// What a provider attached to its answer.
    Opaque(Opaque),
    /// A picture, in a user's message, or behind the result of the call that made it.
    Image {
        /// Such as `image/png`.
        media_type: String,
        /// Its bytes in base64.
        data: String,
    },
    /// The model asks for a tool.
    ToolCall {
        /// The provider's id of the call, never empty.
        id: String,
        /// The tool, by its canonical dotted name or an alias.
        name: String,
        /// The arguments, an object if the model behaved.
        arguments: Value,
    },
    /// What a call gave.
    ToolResult {
        /// The provider's id of the call.
        id: String,
        /// The tool.
        name: String,
        /// Result or refusal, as text.
        content: String,
        /// Whether it is a refusal.
        is_error: bool,
    },
}

/// What a provider attached to its answer for itself: a signature, encrypted reasoning, an id. It is sent back as it came, in
/// its place, to the provider and model that wrote it, and to no other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opaque {
    /// Who wrote it: the provider, with its kind and address, and the model's name there.
    pub author: String,
    /// JSON, byte for byte as it came.
    pub json: String,
    /// Whether it belongs to the block that follows. Else it stands for itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
}

/// One message of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub blocks: Vec<Block>,
}

impl Message {
    /// A message of one text block.
    #[must_use]
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, blocks: vec![Block::Text { text: text.into() }] }
    }

    /// The text blocks joined by line breaks; thinking is left out.
    #[must_use]
    pub fn visible_text(&self) -> String {
        visible_text(&self.blocks)
    }

    /// The calls that it makes: id, name, arguments. Blocks without an id are not calls (TOOL-10).
    pub fn calls(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        self.blocks.iter().filter_map(|block| match block {
            Block::ToolCall { id, name, arguments } if !id.is_empty() => Some((id.as_str(), name.as_str(), arguments)),
            _ => None,
        })
    }
}

/// The text among `blocks`, joined by line breaks; thinking is left out.
#[must_use]
pub fn visible_text(blocks: &[Block]) -> String {
    let parts: Vec<&str> = blocks
        .iter()
        .filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    parts.join("\n")
}

/// A tool as a model is told of it; the same value feeds the briefing and the request (ARCH-10, ARCH-11).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Canonical dotted name.
    pub name: String,
    /// One line.
    pub description: String,
    /// JSON schema of the arguments: an object schema.
    pub parameters: Value,
}

impl ToolSpec {
    /// What people call it (TOOL-04): the catalogue's label, the name for a tool that is not in the catalogue.
    #[must_use]
    pub fn label(&self) -> &str {
        tool_catalogue::entry(&self.name).map_or(self.name.as_str(), |entry| entry.label)
    }

    /// The catalogue's section that it is in; `None` for a tool that is not in the catalogue.
    #[must_use]
    pub fn section(&self) -> Option<&'static str> {
        tool_catalogue::entry(&self.name).map(|entry| entry.section)
    }
}

/// Tokens of one model call, as the provider reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Tokens read, cached ones included.
    pub input: u64,
    /// Tokens written, reasoning included.
    pub output: u64,
    /// Of `input`: read from the provider's prompt cache.
    #[serde(default)]
    pub cache_read: u64,
    /// Of `input`: written to the provider's prompt cache.
    #[serde(default)]
    pub cache_write: u64,
}

impl TokenUsage {
    /// Input and output together: what token budgets count.
    #[must_use]
    pub fn total(self) -> u64 {
        self.input.saturating_add(self.output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: ACC-14, TOOL-04
    #[test]
    fn a_tool_has_the_label_and_the_section_of_the_catalogue() {
        let spec = |name: &str| ToolSpec { name: name.into(), description: String::new(), parameters: Value::Null };
        let known = spec("workspace.read");
        assert_eq!((known.label(), known.section()), ("Read a file", Some("fs")));
        let of_a_toolbox = spec("weather.now");
        assert_eq!((of_a_toolbox.label(), of_a_toolbox.section()), ("weather.now", None));
    }
}
