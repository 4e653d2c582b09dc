//! Escapes text from outside for prompts, in which tags have a meaning.

/// Escapes text inside a tag, so that mail cannot close its own tag.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Escapes text inside an attribute, and puts it on one line.
#[must_use]
pub fn escape_attribute(text: &str) -> String {
    escape(&ghost_domain::text::one_line(text)).replace('"', "&quot;")
}
