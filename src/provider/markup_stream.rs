//! The words of a model without its markup, piece by piece: what [`crate::clean_visible`] is for a whole text, so that
//! nobody reads reasoning or a call in words only because it is streamed.
//!
//! Must never: keep more than [`crate::markup_marks::HELD_MAX`] bytes back, or depend on where the pieces are cut.

use crate::markup_marks::{Mark, Token, inline, tag};

/// What opens and closes a block of code, at the beginning of a line.
const FENCE: &str = "```";

/// Where the text is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Prose,
    /// In the line of a fence, and whether it opens.
    Fence(bool),
    /// Between two fences.
    Code,
}

/// In which call in words the text is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Call {
    #[default]
    None,
    /// In one that may be closed.
    Open,
    /// In one that goes on up to the next block of code.
    Rest,
}

/// Takes a model's words piece by piece and gives what people may read of them: no reasoning in tags, no call in words, no
/// control token. Code, fenced or inline, is left as it is, outside of those.
#[derive(Debug, Default)]
pub struct Cleaner {
    held: String,
    place: Place,
    thinking: bool,
    call: Call,
    /// Whether this line has something other than white space.
    in_line: bool,
    /// Whether anything but white space was given: what stood behind reasoning does not begin with empty lines.
    said: bool,
    unopened: bool,
}

impl Cleaner {
    /// For the words of a model whose reasoning is opened in a prefix of its provider's: nothing is read before its close.
    #[must_use]
    pub fn within_reasoning() -> Self {
        Self { thinking: true, ..Self::default() }
    }

    /// Takes more and adds to `out` what may be read of it. Reasoning that is closed without having been opened, because
    /// the opening was in a prefix of the provider's, empties `out`: see [`Cleaner::closed_unopened`].
    pub fn push(&mut self, text: &str, out: &mut String) {
        self.held.push_str(text);
        self.read(false, out);
    }

    /// Adds the rest to `out`: the text has ended.
    pub fn end(&mut self, out: &mut String) {
        self.read(true, out);
    }

    /// Whether, since this was last asked, reasoning was closed that had not been opened: everything before it was
    /// reasoning.
    pub fn closed_unopened(&mut self) -> bool {
        std::mem::take(&mut self.unopened)
    }

    fn read(&mut self, last: bool, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        let mut at = 0;
        while at < held.len() {
            match self.next(&held[at..], last) {
                Token::Wait => break,
                Token::Words(bytes) | Token::Inline(bytes) => {
                    let words = &held[at..at + bytes];
                    self.words(words, out);
                    at += bytes;
                }
                Token::Mark(mark, bytes) => {
                    self.mark(mark, out);
                    at += bytes;
                }
            }
        }
        self.held = held[at..].to_owned();
    }

    fn words(&mut self, words: &str, out: &mut String) {
        let hidden = self.place == Place::Prose && (self.thinking || self.call != Call::None);
        if !self.thinking {
            self.in_line = match words.rfind('\n') {
                Some(end) => !words[end..].trim().is_empty(),
                None => self.in_line || !words.trim().is_empty(),
            };
        }
        if hidden {
            return;
        }
        let words = if self.said { words } else { words.trim_start() };
        self.said |= !words.is_empty();
        out.push_str(words);
    }

    fn mark(&mut self, mark: Mark, out: &mut String) {
        match mark {
            Mark::ThinkOpen => self.thinking = true,
            Mark::ThinkClose if self.thinking => self.thinking = false,
            Mark::ThinkClose => {
                out.clear();
                (self.call, self.said, self.in_line, self.unopened) = (Call::None, false, false, true);
            }
            Mark::CallOpen => self.call = Call::Open,
            Mark::CallRest => self.call = Call::Rest,
            Mark::CallClose if self.call == Call::Open => {
                self.call = Call::None;
                self.in_line = true;
            }
            Mark::CallClose | Mark::Control => {}
        }
    }

    /// Looks at the beginning of `rest`, which is not empty. `last` says that nothing follows it.
    fn next(&mut self, rest: &str, last: bool) -> Token {
        let line = || rest.find('\n').map_or(rest.len(), |end| end + 1);
        match self.place {
            Place::Fence(opens) => {
                let line = line();
                if rest[..line].ends_with('\n') {
                    self.place = if opens { Place::Code } else { Place::Prose };
                    // The end of the line is the fence's.
                    self.in_line = false;
                }
                return Token::Words(line);
            }
            Place::Code | Place::Prose if !self.in_line && !self.thinking => {
                if rest.starts_with(FENCE) {
                    self.place = Place::Fence(self.place == Place::Prose);
                    self.call = Call::None;
                    return Token::Words(FENCE.len());
                }
                if FENCE.starts_with(rest) && !last {
                    return Token::Wait;
                }
            }
            Place::Code | Place::Prose => {}
        }
        if self.place == Place::Code {
            // White space apart, so that a fence behind it is seen.
            let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
            return Token::Words(if blank > 0 && !self.in_line { blank } else { line() });
        }
        match rest.as_bytes()[0] {
            b'`' => inline(rest, last),
            b'<' | b'[' => tag(rest, last, self.call == Call::Open, |mark| self.counts(mark)),
            b'\n' => Token::Words(1),
            _ => Token::Words(rest.find(['`', '<', '[', '\n']).unwrap_or(rest.len())),
        }
    }

    /// Whether a mark means anything here.
    fn counts(&self, mark: Mark) -> bool {
        match mark {
            Mark::ThinkClose => true,
            _ if self.thinking => false,
            Mark::ThinkOpen | Mark::CallClose => true,
            Mark::CallOpen | Mark::CallRest | Mark::Control => self.call == Call::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clean_visible;
    use crate::markup_marks::HELD_MAX;

    /// What is read of `text` when it comes in pieces of so many characters, and whether reasoning was closed unopened.
    fn streamed(text: &str, size: usize) -> (String, bool) {
        let (mut seen, mut unopened, mut cleaner) = (String::new(), false, Cleaner::default());
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(size) {
            let mut out = String::new();
            cleaner.push(&piece.iter().collect::<String>(), &mut out);
            assert!(cleaner.held.len() <= HELD_MAX, "{}", cleaner.held.len());
            seen.push_str(&out);
            unopened |= cleaner.closed_unopened();
        }
        let mut out = String::new();
        cleaner.end(&mut out);
        (seen + &out, unopened || cleaner.closed_unopened())
    }

    #[test]
    fn reasoning_that_comes_in_pieces_is_never_read() {
        for (text, read) in [
            ("<think>First, the secret plan.</think>\n\nThe answer is 4.", "The answer is 4."),
            ("<think>a\n```\ncode of the plan\n```\n</think>The answer.", "The answer."),
            ("<thinking>never closed", ""),
            ("A <b>bold</b> word, 1 < 2 and [a](b).", "A <b>bold</b> word, 1 < 2 and [a](b)."),
            ("It writes `<think>` here.", "It writes `<think>` here."),
            ("See:\n```xml\n<think>x</think>\n```\nDone.<|im_end|>", "See:\n```xml\n<think>x</think>\n```\nDone."),
            ("The answer.<tool_call>{\"name\": \"x\"}</tool_call> And more.", "The answer. And more."),
            ("a `b\nc <think>d</think> e`", "a `b\nc  e`"),
        ] {
            for size in 1..=5 {
                assert_eq!(streamed(text, size).0, read, "{size}: {text}");
            }
        }
    }

    #[test]
    fn reasoning_that_is_closed_unopened_is_told_of() {
        let text = format!("{}</think>The answer.", "so I think ".repeat(40));
        let (seen, unopened) = streamed(&text, 3);
        assert!(unopened && seen.ends_with("The answer."));
        assert!(!streamed("<think>x</think>y", 3).1);
    }

    #[test]
    fn reasoning_that_was_opened_elsewhere_ends_with_its_close() {
        let (mut cleaner, mut out) = (Cleaner::within_reasoning(), String::new());
        cleaner.push("a plan</thi", &mut out);
        assert!(out.is_empty());
        cleaner.push("nk>\n\nThe answer.", &mut out);
        cleaner.end(&mut out);
        assert!(out == "The answer." && !cleaner.closed_unopened());
    }

    #[test]
    fn what_is_held_back_is_bounded() {
        for endless in ["`".to_owned() + &"x".repeat(10_000), "<tool".to_owned() + &"_".repeat(10_000)] {
            assert_eq!(streamed(&endless, 7).0, endless);
        }
        let text = format!("<think>{}</think>end", "plan ".repeat(10_000));
        assert_eq!(streamed(&text, 5).0, "end");
    }

    fn parts() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            prop::sample::select(vec![
                "<think>",
                "</think>",
                "<THINKING>",
                "</thinking>",
                "<reasoning>",
                "</reasoning>",
                "<thinking>",
                "<tool_call>",
                "</tool_call>",
                "<invoke name=\"x\">",
                "</invoke>",
                "</parameter>",
                "<function=a.b>",
                "</function>",
                "[TOOL_CALLS]",
                "[INST]",
                "[/INST]",
                "<|im_end|>",
                "<|tool_call|>",
                "</s>",
                "<s>",
                "<｜tool▁calls▁begin｜>",
                "<｜end▁of▁sentence｜>",
                "```",
                "\n```\n",
                "```rust\n",
                "`",
                "\n",
                " ",
                "<",
                "[",
                "<thin",
                "k>",
                "</",
                "é",
                "｜",
                "a < b",
                "words",
                "{\"name\":",
                "<tool_caller>",
                "\t",
            ])
            .prop_map(str::to_owned),
            "[a-z ]{1,12}",
        ];
        prop::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn pieces_are_read_as_the_whole(text in parts(), size in 1_usize..=5) {
            let (seen, unopened) = streamed(&text, size);
            let whole = clean_visible(&text);
            if unopened {
                // What was read before the close cannot be taken back; what follows it is the same.
                prop_assert!(seen.trim().ends_with(whole.trim()), "{:?} {:?}", seen, whole);
            } else {
                prop_assert_eq!(seen.trim(), whole.trim());
            }
        }

        #[test]
        fn any_text_is_taken(text in any::<String>(), size in 1_usize..=5) {
            prop_assert!(streamed(&text, size).0.len() <= text.len());
        }
    }
}
