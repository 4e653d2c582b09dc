//! Results of a server as blocks. A block that is unknown is described, and does not fail the whole
//! result.

use ghost_domain::text::prefix_bytes;
use serde_json::{Map, Value};

use crate::limits::shown;

/// Blocks of one result. Further ones are left out.
const BLOCKS_MAX: usize = 1_000;
/// Bytes of an address, a name or a description.
const LABEL_MAX: usize = 2_048;

/// A part of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Text.
    Text {
        /// The text; its end is missing if the result is cut.
        text: String,
    },
    /// A picture or a sound.
    Media {
        /// Which of them.
        kind: MediaKind,
        /// Its type, for example `image/png`.
        mime: String,
        /// Its size in Base64, in bytes.
        base64_bytes: usize,
        /// The data in Base64; `None` if it is larger than what is left of the bound.
        data: Option<String>,
    },
    /// The address of a resource, which was not read.
    Link {
        /// Its address.
        uri: String,
        /// Its name.
        name: String,
        /// What it is.
        description: Option<String>,
        /// Its type.
        mime: Option<String>,
        /// Its size in bytes, as the server says.
        size: Option<u64>,
    },
    /// A resource with its content.
    Resource {
        /// Its address.
        uri: String,
        /// Its type.
        mime: Option<String>,
        /// The content if it is text; its end is missing if the result is cut.
        text: Option<String>,
        /// The content in Base64 if it is no text; `None` if it is larger than what is left of the bound.
        data: Option<String>,
        /// Its size in Base64, in bytes; 0 if it is text.
        base64_bytes: usize,
    },
    /// A block of a type that is unknown here, or that is damaged.
    Unknown {
        /// The type, shortened.
        kind: String,
        /// Its size as JSON, in bytes.
        json_bytes: usize,
    },
}

/// The type of a picture or a sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A sound.
    Audio,
}

/// What a call gave.
#[derive(Clone, Debug, PartialEq)]
pub struct CallResult {
    /// The parts, at most 1,000.
    pub blocks: Vec<Block>,
    /// The structured result. It is not checked against the schema of the server.
    pub structured: Option<Value>,
    /// Whether the tool says that it failed. It may have had effects.
    pub is_error: bool,
    /// Whether something was left out to keep `CallOptions::result_limit`.
    pub is_cut: bool,
}

impl CallResult {
    /// The result in the answer to a call, as far as it fits into `limit` bytes.
    pub(crate) fn read(mut result: Value, limit: usize) -> Self {
        let mut take = |key: &str| result.get_mut(key).map(Value::take);
        let mut budget = Budget::new(limit);
        let blocks = blocks(take("content").unwrap_or_default(), &mut budget);
        let structured = take("structuredContent").filter(|value| !value.is_null());
        let structured = structured.and_then(|value| budget.json(value));
        let is_error = take("isError") == Some(Value::Bool(true));
        Self { blocks, structured, is_error, is_cut: budget.is_cut }
    }

    /// The text of all blocks, one below the other. Blocks that are no text are described in brackets.
    #[must_use]
    pub fn text(&self) -> String {
        self.blocks.iter().map(Block::text).collect::<Vec<_>>().join("\n")
    }
}

impl Block {
    /// The text, or a description in brackets.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text { text } | Self::Resource { text: Some(text), .. } => text.clone(),
            Self::Media { kind, mime, base64_bytes, .. } => {
                let kind = if *kind == MediaKind::Image { "image" } else { "audio" };
                format!("[{kind} {}: {base64_bytes} bytes of Base64]", shown(mime))
            }
            Self::Link { uri, name, .. } => format!("[link {}: {}]", shown(name), shown(uri)),
            Self::Resource { uri, base64_bytes, .. } => {
                format!("[resource {}: {base64_bytes} bytes of Base64]", shown(uri))
            }
            Self::Unknown { kind, json_bytes } => format!("[{kind}: {json_bytes} bytes of an unknown type]"),
        }
    }
}

/// How much of a result may still be kept.
#[derive(Debug)]
pub(crate) struct Budget {
    left: usize,
    /// Whether something was left out.
    pub(crate) is_cut: bool,
}

impl Budget {
    /// A budget of `bytes`.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { left: bytes, is_cut: false }
    }

    /// The start of `text` that fits.
    fn part(&mut self, mut text: String) -> String {
        let fits = prefix_bytes(&text, self.left).len();
        self.is_cut |= fits < text.len();
        text.truncate(fits);
        self.left -= fits;
        text
    }

    /// `data` if all of its `bytes` fit.
    fn whole<T>(&mut self, data: T, bytes: usize) -> Option<T> {
        let left = self.left.checked_sub(bytes);
        self.is_cut |= left.is_none();
        self.left = left.unwrap_or(self.left);
        left.map(|_| data)
    }

    fn json(&mut self, value: Value) -> Option<Value> {
        let bytes = value.to_string().len();
        self.whole(value, bytes)
    }
}

/// The blocks of a list of them. Anything else is no block.
fn blocks(list: Value, budget: &mut Budget) -> Vec<Block> {
    let items = match list {
        Value::Array(items) => items,
        Value::Null => Vec::new(),
        // One block instead of a list of one.
        single => vec![single],
    };
    budget.is_cut |= items.len() > BLOCKS_MAX;
    items.into_iter().take(BLOCKS_MAX).map(|item| block(item, budget)).collect()
}

/// The block in `item`.
pub(crate) fn block(item: Value, budget: &mut Budget) -> Block {
    let json_bytes = item.to_string().len();
    let Value::Object(mut fields) = item else { return Block::Unknown { kind: "no object".to_owned(), json_bytes } };
    let kind = word(&fields, "type").unwrap_or_default();
    let read = match kind.as_str() {
        "text" => text(&mut fields, "text").map(|text| Block::Text { text: budget.part(text) }),
        "image" => media(MediaKind::Image, &mut fields, budget),
        "audio" => media(MediaKind::Audio, &mut fields, budget),
        "resource_link" => link(&fields),
        "resource" => fields.remove("resource").and_then(|resource| contents(resource, budget)),
        _ => None,
    };
    read.unwrap_or_else(|| Block::Unknown { kind: shown(&kind), json_bytes })
}

/// The content of a resource.
pub(crate) fn contents(resource: Value, budget: &mut Budget) -> Option<Block> {
    let Value::Object(mut fields) = resource else { return None };
    let (uri, mime) = (word(&fields, "uri")?, word(&fields, "mimeType"));
    if let Some(text) = text(&mut fields, "text") {
        return Some(Block::Resource { uri, mime, text: Some(budget.part(text)), data: None, base64_bytes: 0 });
    }
    let data = text(&mut fields, "blob")?;
    let base64_bytes = data.len();
    Some(Block::Resource { uri, mime, text: None, data: budget.whole(data, base64_bytes), base64_bytes })
}

fn media(kind: MediaKind, fields: &mut Map<String, Value>, budget: &mut Budget) -> Option<Block> {
    let mime = word(fields, "mimeType")?;
    let data = text(fields, "data")?;
    let base64_bytes = data.len();
    Some(Block::Media { kind, mime, base64_bytes, data: budget.whole(data, base64_bytes) })
}

fn link(fields: &Map<String, Value>) -> Option<Block> {
    Some(Block::Link {
        uri: word(fields, "uri")?,
        name: word(fields, "name").unwrap_or_default(),
        description: word(fields, "description"),
        mime: word(fields, "mimeType"),
        size: fields.get("size").and_then(Value::as_u64),
    })
}

/// A short text, at most [`LABEL_MAX`] bytes of it.
pub(crate) fn word(fields: &Map<String, Value>, key: &str) -> Option<String> {
    fields.get(key).and_then(Value::as_str).map(|text| prefix_bytes(text, LABEL_MAX).to_owned())
}

fn text(fields: &mut Map<String, Value>, key: &str) -> Option<String> {
    match fields.get_mut(key).map(Value::take) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_type_of_block_is_read_and_an_unknown_one_is_described() {
        let mut budget = Budget::new(100);
        let read = blocks(
            json!([
                {"type": "text", "text": "hello"},
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                {"type": "resource_link", "uri": "file:///a", "name": "a", "size": 3},
                {"type": "resource", "resource": {"uri": "file:///b", "text": "b"}},
                {"type": "video", "x": 1},
                {"type": "text"},
                7,
            ]),
            &mut budget,
        );
        let text = CallResult { blocks: read, structured: None, is_error: false, is_cut: budget.is_cut }.text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..4], ["hello", "[image image/png: 4 bytes of Base64]", "[link a: file:///a]", "b"]);
        assert_eq!(lines[4], "[video: 22 bytes of an unknown type]");
        assert_eq!(lines[6], "[no object: 1 bytes of an unknown type]");
        assert!(!budget.is_cut);
    }

    #[test]
    fn what_does_not_fit_is_cut_on_a_character_boundary_or_left_out() {
        let mut budget = Budget::new(5);
        let list =
            json!([{"type": "text", "text": "aääa"}, {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]);
        let read = blocks(list, &mut budget);
        assert_eq!(read[0], Block::Text { text: "aää".to_owned() });
        let audio = Block::Media { kind: MediaKind::Audio, mime: "audio/wav".into(), base64_bytes: 4, data: None };
        assert_eq!(read[1], audio);
        assert!(budget.is_cut);
        assert_eq!(budget.json(json!({"a": 1})), None);
    }
}
