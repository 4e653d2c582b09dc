//! Escapes text from outside for prompts, in which tags have a meaning.

/// Escapes text inside a tag, so that mail cannot close its own tag.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Keeps Markdown readable inside a tag: only what closes the tag, or one whose name begins like it, is escaped.
#[must_use]
pub fn within(tag: &str, text: &str) -> String {
    let (mut inside, mut done) = (String::with_capacity(text.len()), 0);
    for (at, _) in text.to_ascii_lowercase().match_indices(&format!("</{tag}")) {
        inside.push_str(&text[done..at]);
        inside.push_str("&lt;");
        done = at + 1;
    }
    inside.push_str(&text[done..]);
    inside
}

/// Escapes text inside an attribute, and puts it on one line.
#[must_use]
pub fn escape_attribute(text: &str) -> String {
    escape(&ghost_domain::text::one_line(text)).replace('"', "&quot;")
}
