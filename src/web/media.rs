//! The type of a content. Pure.

/// A `Content-Type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Media {
    /// The type in lower case, without parameters; empty if there is none.
    pub essence: String,
    /// The encoding of the text, if it is named.
    pub charset: Option<String>,
}

impl Media {
    /// Parses a header.
    #[must_use]
    pub fn parse(header: &str) -> Self {
        let mut parts = header.split(';');
        let essence = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let plain = |c: char| c.is_ascii_alphanumeric() || "!#$&^_.+-/".contains(c);
        let essence = if essence.len() <= 100 && essence.chars().all(plain) { essence } else { String::new() };
        let charset = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            let value = value.trim().trim_matches('"');
            (name.trim().eq_ignore_ascii_case("charset") && value.len() <= 40).then(|| value.to_owned())
        });
        Self { essence, charset }
    }

    /// Whether this is an HTML page.
    #[must_use]
    pub fn is_html(&self) -> bool {
        matches!(self.essence.as_str(), "text/html" | "application/xhtml+xml")
    }

    /// Whether this may be text. A content without a type may be; its bytes decide.
    #[must_use]
    pub fn is_text(&self) -> bool {
        let known = [
            "",
            "application/javascript",
            "application/json",
            "application/ld+json",
            "application/toml",
            "application/x-javascript",
            "application/x-ndjson",
            "application/x-sh",
            "application/x-yaml",
            "application/xml",
            "application/yaml",
            "application/x-www-form-urlencoded",
            "image/svg+xml",
        ];
        self.essence.starts_with("text/")
            || known.contains(&self.essence.as_str())
            || self.essence.ends_with("+json")
            || self.essence.ends_with("+xml")
            || self.essence.ends_with("+yaml")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_with_their_encoding() {
        let media = Media::parse("Text/HTML ; Charset=\"ISO-8859-1\"; x=y");
        assert!(media.is_html() && media.is_text());
        assert_eq!(media.charset.as_deref(), Some("ISO-8859-1"));
        for text in ["", "application/json", "application/problem+json", "text/csv", "application/atom+xml"] {
            assert!(Media::parse(text).is_text(), "{text}");
        }
        for binary in ["application/pdf", "image/png", "application/octet-stream", "application/zip", "audio/mpeg"] {
            assert!(!Media::parse(binary).is_text(), "{binary}");
        }
        assert_eq!(Media::parse("a b\u{7}/c").essence, "");
    }
}
