//! The messages that a model reads and writes, in one form for all providers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::image::ImageFile;
use crate::tool_catalogue;

/// Author of a message. The system prompt is not a message; it is sent separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The daemon: briefing, mail, corrections.
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
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// The model's reasoning, if the provider shows it. It is sent back only together with opaque
    /// state that the provider attached to it.
    Thinking {
        /// The reasoning.
        text: String,
    },
    /// Opaque state that a provider attached to its answer.
    Opaque(Opaque),
    /// An image, in a user message or after the result of the call that returned it.
    Image {
        /// Media type, such as `image/png`.
        media_type: String,
        /// The image's bytes in base64.
        data: String,
    },
    /// An image after the result of the call that returned it, before a request is built. A request has its bytes, or a
    /// text in the result.
    ImageFile(ImageFile),
    /// A tool call by the model.
    ToolCall {
        /// The provider's id of the call, never empty.
        id: String,
        /// Canonical dotted name of the tool, or an alias.
        name: String,
        /// The arguments: an object, if the model made a correct call.
        arguments: Value,
    },
    /// The result of a tool call.
    ToolResult {
        /// The provider's id of the call.
        id: String,
        /// Name of the tool.
        name: String,
        /// The result or refusal as text.
        content: String,
        /// Whether `content` is a refusal.
        is_error: bool,
    },
}

/// State that a provider attached to its answer: a signature, encrypted reasoning, an id. It is
/// sent back unchanged and at the same position, but only to the provider and model that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opaque {
    /// Author: the provider with its kind and address, and the name of the model.
    pub author: String,
    /// The JSON text, unchanged.
    pub json: String,
    /// Whether it belongs to the next block. Otherwise it is independent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attached: bool,
}

/// One message of a transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Author of the message.
    pub role: Role,
    /// Parts of the message, in order.
    pub blocks: Vec<Block>,
}

impl Message {
    /// A message of one text block.
    pub fn text(role: Role, text: impl Into<String>) -> Self {
        Self { role, blocks: vec![Block::Text { text: text.into() }] }
    }

    /// The text blocks, joined by line breaks. Omits reasoning.
    pub fn visible_text(&self) -> String {
        visible_text(&self.blocks)
    }

    /// The tool calls of the message: id, name, arguments. Omits calls with an empty id.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        self.blocks.iter().filter_map(|block| match block {
            Block::ToolCall { id, name, arguments } if !id.is_empty() => Some((id.as_str(), name.as_str(), arguments)),
            _ => None,
        })
    }
}

/// The text blocks of `blocks`, joined by line breaks. Omits reasoning.
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

/// A tool in the form that a model gets. The briefing and the request use the same value (ARCH-10,
/// ARCH-11).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Canonical dotted name.
    pub name: String,
    /// Description, one line.
    pub description: String,
    /// JSON schema of the arguments; an object schema.
    pub parameters: Value,
}

impl ToolSpec {
    /// Label for people: the catalogue's label, or the name if the tool is not in the
    /// catalogue.
    pub fn label(&self) -> &str {
        tool_catalogue::entry(&self.name).map_or(self.name.as_str(), |entry| entry.label)
    }

    /// Section of the tool in the catalogue; `None` if the tool is not in the catalogue.
    pub fn section(&self) -> Option<&'static str> {
        tool_catalogue::entry(&self.name).map(|entry| entry.section)
    }
}

/// Tokens of one model call, as the provider reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Input tokens, cached ones included.
    pub input: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// Tokens read from the provider's prompt cache; part of `input`.
    #[serde(default)]
    pub cache_read: u64,
    /// Tokens written to the provider's prompt cache; part of `input`.
    #[serde(default)]
    pub cache_write: u64,
}

impl TokenUsage {
    /// Input plus output, as token budgets count them.
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
        let unknown = spec("weather.now");
        assert_eq!((unknown.label(), unknown.section()), ("weather.now", None));
    }
}
