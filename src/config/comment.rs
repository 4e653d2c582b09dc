//! Finds text that YAML takes for a comment: in `description: Use C# and #tags`, the description is `Use C# and`.
//!
//! This module must never change what is read; it only says what was left out.

use ghost_domain::text::{clip, shown};

/// Longest part of a comment that a message shows, in characters.
const SHOWN: usize = 60;

/// What a value loses to a comment.
pub(crate) struct Comment {
    /// The line after that of the key; 0 for the line of the key.
    pub(crate) line: usize,
    /// What is wrong.
    pub(crate) message: String,
    /// What to do.
    pub(crate) hint: &'static str,
}

/// The comment that ends an unquoted value. `lines` are those of one key, its own first.
pub(crate) fn in_text(lines: &[&str]) -> Option<Comment> {
    let (_, value) = lines.first()?.split_once(':')?;
    // A quoted text, a block, a list or a map; or no text at all.
    if value.trim_start().starts_with(['"', '\'', '|', '>', '[', '{', '#', '&', '*']) {
        return None;
    }
    let values = std::iter::once(value).chain(lines.iter().skip(1).copied());
    values.enumerate().find_map(|(line, value)| {
        let is_begin = |at: usize| value[..at].ends_with([' ', '\t']) && !value[..at].trim().is_empty();
        let at = value.match_indices('#').map(|(at, _)| at).find(|at| is_begin(*at))?;
        let comment = shown(&clip(value[at..].trim_end(), SHOWN), SHOWN + 1);
        Some(Comment {
            line,
            message: format!("`{comment}` is a comment in YAML: the text ends before it"),
            hint: "put the text into quotes if `#` belongs to it",
        })
    })
}

#[cfg(test)]
mod tests {
    use super::in_text;

    fn found(text: &str) -> Option<(usize, bool)> {
        let lines: Vec<&str> = text.lines().collect();
        in_text(&lines).map(|comment| (comment.line, comment.message.contains("`#tags`")))
    }

    #[test]
    fn a_comment_in_a_text_is_found_at_its_line() {
        assert_eq!(found("description: Use C# and #tags"), Some((0, true)));
        assert_eq!(found("description: Use C#\n  and also #tags\n  here"), Some((1, true)));
        assert_eq!(found("description:\n  Use C# and #tags"), Some((1, true)));
        for whole in [
            "description: Use C# well",
            "description: \"Use C# and #tags\"",
            "description: 'Use C# and #tags'",
            "description: |\n  Use C# and #tags",
            "description: # only a comment",
            "description:\n  # only a comment\n  Use it",
            "description: [a] #tags",
            "# description",
            "",
        ] {
            assert_eq!(found(whole), None, "{whole}");
        }
    }
}
