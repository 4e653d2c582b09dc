//! What of a turn's words is shown while they come: nothing that may turn out to be a silent token or a reply tag
//! (HB-05, MSG-13).
//!
//! Must never: be what counts. The entry that the turn ends with is.

use ghost_domain::reply_tokens::{HEARTBEAT_OK, SILENT};

/// Bytes of a beginning that can still be a tag.
const TAG_MAX: usize = 160;
/// What tags and tokens begin with.
const TAG: &str = "[[reply_to";

/// The words of one model call so far.
#[derive(Default)]
pub(super) struct Screen {
    held: String,
    /// Whether a tag was taken out: what set it apart from the words goes with it.
    tagged: bool,
    open: bool,
}

impl Screen {
    /// Whether anything was shown.
    pub(super) fn has_shown(&self) -> bool {
        self.open
    }

    /// Takes more; gives what may be shown.
    pub(super) fn push(&mut self, text: &str) -> Option<String> {
        if self.open {
            return Some(text.to_owned());
        }
        self.held.push_str(text);
        loop {
            let beginning = self.held.trim_start();
            match tag(beginning) {
                Tag::Whole(rest) => {
                    self.held = rest.to_owned();
                    self.tagged = true;
                }
                Tag::Perhaps => return None,
                Tag::None => break,
            }
        }
        let beginning = self.held.trim_start();
        if SILENT.iter().chain(&[HEARTBEAT_OK]).any(|token| may_be(beginning, token)) {
            return None;
        }
        self.open = true;
        let held = std::mem::take(&mut self.held);
        Some(if self.tagged { held.trim_start().to_owned() } else { held })
    }
}

/// Whether a text is the token so far, or the token and white space.
fn may_be(text: &str, token: &str) -> bool {
    token.starts_with(text) || text.strip_prefix(token).is_some_and(|rest| rest.trim().is_empty())
}

enum Tag<'t> {
    /// There was one; this follows it.
    Whole(&'t str),
    /// It may become one.
    Perhaps,
    /// It is none.
    None,
}

fn tag(text: &str) -> Tag<'_> {
    if TAG.starts_with(text) {
        // An empty text may become anything, which the tokens decide as well.
        return if text.is_empty() { Tag::None } else { Tag::Perhaps };
    }
    if !text.starts_with(TAG) {
        return Tag::None;
    }
    match text.find("]]") {
        Some(end) => Tag::Whole(text[end + 2..].trim_start()),
        None if text.len() <= TAG_MAX => Tag::Perhaps,
        None => Tag::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str, size: usize) -> String {
        let mut screen = Screen::default();
        let characters: Vec<char> = text.chars().collect();
        characters.chunks(size).filter_map(|piece| screen.push(&piece.iter().collect::<String>())).collect()
    }

    #[test]
    fn tokens_and_tags_are_not_shown() {
        for size in [1, 3, 100] {
            for silent in ["%%NO_REPLY%%", " NO_REPLY\n", "HEARTBEAT_OK", "[[reply_to_current]] NO_REPLY", "", "  "] {
                assert_eq!(shown(silent, size), "", "{silent:?}");
            }
            assert_eq!(shown("[[reply_to_current]] Yes, it is.", size), "Yes, it is.");
            assert_eq!(shown("[[reply_to:m-1]]\nYes.", size), "Yes.");
            for text in ["NO_REPLY is a word.", "[[a]] b", "[link]", "No.", "Hello [[reply_to_current]]"] {
                assert_eq!(shown(text, size), text);
            }
        }
    }

    proptest! {
        #[test]
        fn ordinary_words_come_whole(text in "[a-z][a-z ,.\n]{0,80}", size in 1usize..20) {
            prop_assert_eq!(shown(&text, size), text);
        }

        #[test]
        fn any_text_is_shown_or_held_without_a_panic(text in "[\\[\\]%A-Z_: a-zé]{0,200}", size in 1usize..9) {
            prop_assert!(shown(&text, size).len() <= text.len());
        }
    }
}
