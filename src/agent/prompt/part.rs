//! What a prompt is put together from: sections, and the parts that are kept under their hash.

use ghost_provider::tokens_of_bytes;
use sha2::{Digest, Sha256};

/// A prompt part under its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// SHA-256 of the text, hexadecimal.
    pub hash: String,
    /// The text.
    pub text: String,
}

impl Part {
    /// Hashes `text`.
    #[must_use]
    pub fn new(text: String) -> Self {
        let hash = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { hash, text }
    }
}

/// One section of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Its text; empty sections are left out of the prompt.
    pub text: String,
}

/// What one section takes of a prompt, for the report of `ghostctl agent prompt` (ARCH-15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The part that it belongs to.
    pub part: &'static str,
    /// Its name.
    pub name: &'static str,
    /// Bytes of its text; the empty lines between sections are not counted.
    pub bytes: u64,
    /// Tokens that it is at most, estimated as budgets do before a call.
    pub estimated_tokens: u64,
}

impl Size {
    /// The size of so many bytes.
    #[must_use]
    pub fn new(part: &'static str, name: &'static str, bytes: usize) -> Self {
        let estimated_tokens = tokens_of_bytes(bytes);
        Self { part, name, bytes: u64::try_from(bytes).unwrap_or(u64::MAX), estimated_tokens }
    }
}

/// The sizes of the sections that have something to say, in their order.
#[must_use]
pub fn sizes(part: &'static str, sections: &[Section]) -> Vec<Size> {
    let sizes = sections.iter().map(|section| Size::new(part, section.name, section.text.trim().len()));
    sizes.filter(|size| size.bytes > 0).collect()
}

/// Joins the sections that have something to say.
#[must_use]
pub fn join(sections: &[Section]) -> String {
    let texts: Vec<&str> = sections.iter().map(|section| section.text.trim()).filter(|text| !text.is_empty()).collect();
    texts.join("\n\n")
}
