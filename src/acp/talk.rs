//! The agent's message, which comes in pieces.
//!
//! It must never keep more than [`TEXT_MAX`] bytes twice.

use crate::bounds::{NOTE_CHARS, TEXT_MAX};
use ghost_coding::text::{cut_middle, one_line, prefix_bytes};
use ghost_domain::json_text::joined;

/// Bytes of a line after which a note is given without the line's end.
const LINE_BYTES: usize = 4 * NOTE_CHARS;

#[derive(Debug, Default)]
pub(crate) struct Talk {
    /// The last message.
    message: String,
    /// Whether the next piece continues it.
    open: bool,
    /// The agent's own id of the message, if it gives one.
    id: Option<String>,
    /// The line that is not yet complete.
    line: String,
}

impl Talk {
    /// Adds a piece of the message `id`. Returns lines for people.
    pub(crate) fn piece(&mut self, id: Option<&str>, text: &str) -> Vec<String> {
        // An id is only compared, so the beginning of a long one is enough.
        let id = id.map(|id| prefix_bytes(id, 256));
        let other = id.is_some() && self.open && self.id.as_deref() != id;
        let mut notes = if other { self.end() } else { Vec::new() };
        if !self.open {
            // The white space after a call is not yet the next message.
            if text.trim().is_empty() {
                return notes;
            }
            self.message.clear();
            self.open = true;
            self.id = id.map(str::to_owned);
        }
        self.message.push_str(&cut_middle(text, 2 * TEXT_MAX));
        if self.message.len() > 2 * TEXT_MAX {
            self.message = cut_middle(&self.message, TEXT_MAX);
        }
        // A piece with more lines than notes are given per second is only kept.
        for part in text.split_inclusive('\n').take(64) {
            self.line.push_str(prefix_bytes(part, LINE_BYTES));
            if part.ends_with('\n') || self.line.len() >= LINE_BYTES {
                notes.extend(self.line());
            }
        }
        notes
    }

    /// Ends the message: what comes next is another one. Returns the last line for people.
    pub(crate) fn end(&mut self) -> Vec<String> {
        self.open = false;
        self.line().into_iter().collect()
    }

    fn line(&mut self) -> Option<String> {
        let line = one_line(&std::mem::take(&mut self.line), NOTE_CHARS);
        (!line.is_empty()).then_some(line)
    }

    /// The last message.
    pub(crate) fn text(&self) -> String {
        cut_middle(&joined(self.message.trim()), TEXT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_lines_and_the_last_message_counts() {
        let mut talk = Talk::default();
        assert!(talk.piece(None, "\n ").is_empty() && talk.piece(None, "I will").is_empty());
        assert_eq!(talk.piece(None, " look.\n\nThen"), ["I will look."]);
        assert_eq!(talk.end(), ["Then"]);
        assert_eq!(talk.text(), "I will look.\n\nThen");
        assert!(talk.piece(None, "  \n").is_empty());
        assert_eq!(talk.text(), "I will look.\n\nThen", "white space is no message");
        talk.piece(Some("1"), "one");
        assert_eq!(talk.piece(Some("2"), "two"), ["one"], "another id is another message");
        assert_eq!(talk.text(), "two");
    }

    #[test]
    fn a_message_without_end_keeps_its_bound_and_its_end() {
        let mut talk = Talk::default();
        for _ in 0..100 {
            let notes = talk.piece(None, &"words and more ".repeat(1000));
            assert!(notes.iter().all(|note| note.chars().count() <= NOTE_CHARS));
            assert!(talk.message.len() <= 2 * TEXT_MAX && talk.line.len() <= 2 * LINE_BYTES);
        }
        talk.piece(None, "the end");
        assert!(talk.text().len() <= TEXT_MAX && talk.text().ends_with("the end"));
        assert!(talk.piece(None, &"x".repeat(8_000_000)).len() <= 64);
        assert!(talk.message.len() <= 4 * TEXT_MAX);
    }
}
