//! The prompt of a turn: the stable parts first, byte for byte the same while their sources are, then what the turn is
//! about (ARCH-08..12, 14). Assembled once a turn; a resumed turn reads it back from its journal.
//!
//! Must never: hold the time of day, a secret, or machine configuration (ARCH-02, ARCH-14).

mod briefing;
mod mail;
mod system;

pub use briefing::briefing;
pub use mail::{Ways, channel, earlier_note, inbox, recent};
pub use system::system;

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

/// One section of a prompt with its size, for the report of `ghostctl agent prompt` (ARCH-15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Its name.
    pub name: &'static str,
    /// Its text; empty sections are left out of the prompt.
    pub text: String,
}

/// Joins the sections that have something to say.
#[must_use]
pub fn join(sections: &[Section]) -> String {
    let texts: Vec<&str> = sections.iter().map(|section| section.text.trim()).filter(|text| !text.is_empty()).collect();
    texts.join("\n\n")
}

/// Escapes text that stands inside a tag, so that mail cannot close its own.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Escapes text that stands inside an attribute.
#[must_use]
pub fn escape_attribute(text: &str) -> String {
    escape(&ghost_domain::text::one_line(text)).replace('"', "&quot;")
}
