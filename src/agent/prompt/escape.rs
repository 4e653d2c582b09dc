//! Text from outside as it may stand in a prompt, where tags mean something.

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
