//! Decides which text of a running turn is streamed: nothing that may turn out to be a silent token or
//! a reply tag (HB-05, MSG-13).
//!
//! The streamed text must never be authoritative. The entry that the turn ends with is.

use ghost_domain::reply_tokens::{HEARTBEAT_OK, SILENT};

/// Longest text that can still become a reply tag, in bytes.
const TAG_MAX: usize = 160;
/// The beginning of a reply tag.
const TAG: &str = "[[reply_to";

/// Filters the text of one model call.
#[derive(Default)]
pub(super) struct StreamFilter {
    buffered: String,
    /// Whether a tag was removed. The white space after it is removed as well.
    tagged: bool,
    open: bool,
}

impl StreamFilter {
    /// Whether any text passed the filter.
    pub(super) fn has_shown(&self) -> bool {
        self.open
    }

    /// Takes more text; returns the text that may be shown.
    pub(super) fn push(&mut self, text: &str) -> Option<String> {
        if self.open {
            return Some(text.to_owned());
        }
        self.buffered.push_str(text);
        loop {
            let beginning = self.buffered.trim_start();
            match leading_tag(beginning) {
                Tag::Complete(rest) => {
                    self.buffered = rest.to_owned();
                    self.tagged = true;
                }
                Tag::Incomplete => return None,
                Tag::None => break,
            }
        }
        let beginning = self.buffered.trim_start();
        if SILENT.iter().chain(&[HEARTBEAT_OK]).any(|token| may_be(beginning, token)) {
            return None;
        }
        self.open = true;
        let buffered = std::mem::take(&mut self.buffered);
        Some(if self.tagged { buffered.trim_start().to_owned() } else { buffered })
    }
}

/// Whether the text is a prefix of the token, or the token and white space.
fn may_be(text: &str, token: &str) -> bool {
    token.starts_with(text) || text.strip_prefix(token).is_some_and(|rest| rest.trim().is_empty())
}

enum Tag<'t> {
    /// A tag, followed by this text.
    Complete(&'t str),
    /// A text that may still become a tag.
    Incomplete,
    /// A text that is not a tag.
    None,
}

fn leading_tag(text: &str) -> Tag<'_> {
    if TAG.starts_with(text) {
        // Empty text may become anything, so the token check withholds it.
        return if text.is_empty() { Tag::None } else { Tag::Incomplete };
    }
    if !text.starts_with(TAG) {
        return Tag::None;
    }
    match text.find("]]") {
        Some(end) => Tag::Complete(text[end + 2..].trim_start()),
        None if text.len() <= TAG_MAX => Tag::Incomplete,
        None => Tag::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn visible_text(text: &str, size: usize) -> String {
        let mut filter = StreamFilter::default();
        let characters: Vec<char> = text.chars().collect();
        characters.chunks(size).filter_map(|piece| filter.push(&piece.iter().collect::<String>())).collect()
    }

    #[test]
    fn tokens_and_tags_are_not_shown() {
        for size in [1, 3, 100] {
            for silent in ["%%NO_REPLY%%", " NO_REPLY\n", "HEARTBEAT_OK", "[[reply_to_current]] NO_REPLY", "", "  "] {
                assert_eq!(visible_text(silent, size), "", "{silent:?}");
            }
            assert_eq!(visible_text("[[reply_to_current]] Yes, it is.", size), "Yes, it is.");
            assert_eq!(visible_text("[[reply_to:m-1]]\nYes.", size), "Yes.");
            for text in ["NO_REPLY is a word.", "[[a]] b", "[link]", "No.", "Hello [[reply_to_current]]"] {
                assert_eq!(visible_text(text, size), text);
            }
        }
    }

    proptest! {
        #[test]
        fn ordinary_text_passes_unchanged(text in "[a-z][a-z ,.\n]{0,80}", size in 1usize..20) {
            prop_assert_eq!(visible_text(&text, size), text);
        }

        #[test]
        fn any_text_is_filtered_without_a_panic(text in "[\\[\\]%A-Z_: a-zé]{0,200}", size in 1usize..9) {
            prop_assert!(visible_text(&text, size).len() <= text.len());
        }
    }
}
