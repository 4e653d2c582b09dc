//! The building blocks of a prompt: sections, and parts that the store keeps by their hash.

use ghost_provider::tokens_of_bytes;
use sha2::{Digest, Sha256};

/// A part of a prompt, with its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// SHA-256 of the text, hexadecimal.
    pub hash: String,
    /// The part's text.
    pub text: String,
}

impl Part {
    /// Creates a part and computes its hash.
    #[must_use]
    pub fn new(text: String) -> Self {
        let hash = hex::encode(Sha256::digest(text.as_bytes()));
        Self { hash, text }
    }
}

/// One section of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Name of the section, for reports.
    pub name: &'static str,
    /// Text of the section; empty sections are omitted from the prompt.
    pub text: String,
}

/// The size of one section, for the report of `ghostctl agent prompt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Name of the part that contains the section.
    pub part: &'static str,
    /// Name of the section.
    pub name: &'static str,
    /// Bytes of the section's text, without the empty lines between sections.
    pub bytes: u64,
    /// The section's tokens, estimated high as for budgets.
    pub estimated_tokens: u64,
}

impl Size {
    /// The size of a section of `bytes` bytes.
    #[must_use]
    pub fn new(part: &'static str, name: &'static str, bytes: usize) -> Self {
        let estimated_tokens = tokens_of_bytes(bytes);
        Self { part, name, bytes: u64::try_from(bytes).unwrap_or(u64::MAX), estimated_tokens }
    }
}

/// The sizes of the sections that are not empty, in order.
#[must_use]
pub fn sizes(part: &'static str, sections: &[Section]) -> Vec<Size> {
    let sizes = sections.iter().map(|section| Size::new(part, section.name, section.text.trim().len()));
    sizes.filter(|size| size.bytes > 0).collect()
}

/// Joins the sections that are not empty with empty lines.
#[must_use]
pub fn join(sections: &[Section]) -> String {
    let texts: Vec<&str> = sections.iter().map(|section| section.text.trim()).filter(|text| !text.is_empty()).collect();
    texts.join("\n\n")
}

/// `text` under a heading; unchanged if it begins with a heading or is empty.
pub(super) fn titled(title: &str, text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') { text.to_owned() } else { format!("# {title}\n\n{text}") }
}
