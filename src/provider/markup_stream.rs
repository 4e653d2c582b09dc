//! Removes markup from a model's text while it streams; [`crate::clean_visible`] does the same for a whole text. Streaming shows no
//! reasoning and no calls written as text. At most [`HELD_MAX`] bytes are held back, and the result does not depend on how the
//! text is split into pieces.

use std::sync::LazyLock;

use regex::Regex;

/// Opens and closes a code block, at the beginning of a line.
const FENCE: &str = "```";

/// The position relative to code blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum CodePosition {
    #[default]
    Prose,
    /// In the line of a fence; true if the fence opens a block.
    Fence(bool),
    /// Within a code block.
    Code,
}

/// The position relative to calls written as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Call {
    #[default]
    None,
    /// In a call that may be closed.
    Open,
    /// In a call that goes on until the next code block.
    Rest,
}

/// Takes a model's text piece by piece and returns the visible part: without reasoning in tags,
/// calls written as text and control tokens. Inline code and code blocks outside of those stay as
/// they are.
#[derive(Debug, Default)]
pub struct Cleaner {
    held: String,
    position: CodePosition,
    thinking: bool,
    call: Call,
    /// Whether the current line has anything other than white space.
    in_line: bool,
    /// Whether any visible text was returned. White space before it is dropped, because it follows
    /// reasoning.
    has_output: bool,
    closed_unopened_tag: bool,
}

impl Cleaner {
    /// For a model whose provider opens reasoning in a prefix: nothing is visible before the closing tag.
    #[must_use]
    pub fn within_reasoning() -> Self {
        Self { thinking: true, ..Self::default() }
    }

    /// Adds text and appends the visible part to `out`. A tag that closes unopened reasoning
    /// empties `out`; see [`Cleaner::closed_unopened`].
    pub fn push(&mut self, text: &str, out: &mut String) {
        self.held.push_str(text);
        self.read(false, out);
    }

    /// Ends the text and appends the rest to `out`.
    pub fn end(&mut self, out: &mut String) {
        self.read(true, out);
    }

    /// Whether, since the last call of this function, reasoning was closed that had not been
    /// opened. Everything before the closing tag was reasoning then.
    pub fn closed_unopened(&mut self) -> bool {
        std::mem::take(&mut self.closed_unopened_tag)
    }

    fn read(&mut self, last: bool, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        let mut at = 0;
        while at < held.len() {
            match self.next(&held[at..], last) {
                Token::Wait => break,
                Token::Text(bytes) | Token::Inline(bytes) => {
                    let text = &held[at..at + bytes];
                    self.text(text, out);
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

    fn text(&mut self, text: &str, out: &mut String) {
        let hidden = self.position == CodePosition::Prose && (self.thinking || self.call != Call::None);
        if !self.thinking {
            self.in_line = match text.rfind('\n') {
                Some(end) => !text[end..].trim().is_empty(),
                None => self.in_line || !text.trim().is_empty(),
            };
        }
        if hidden {
            return;
        }
        let text = if self.has_output { text } else { text.trim_start() };
        self.has_output |= !text.is_empty();
        out.push_str(text);
    }

    fn mark(&mut self, mark: Mark, out: &mut String) {
        match mark {
            Mark::ThinkOpen => self.thinking = true,
            Mark::ThinkClose if self.thinking => self.thinking = false,
            Mark::ThinkClose => {
                out.clear();
                (self.call, self.has_output, self.in_line, self.closed_unopened_tag) = (Call::None, false, false, true);
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

    /// Reads the next token of `rest`, which is not empty. `last` is true if no text follows it.
    fn next(&mut self, rest: &str, last: bool) -> Token {
        let line = || rest.find('\n').map_or(rest.len(), |end| end + 1);
        match self.position {
            CodePosition::Fence(opens) => {
                let line = line();
                if rest[..line].ends_with('\n') {
                    self.position = if opens { CodePosition::Code } else { CodePosition::Prose };
                    // The end of the line belongs to the fence.
                    self.in_line = false;
                }
                return Token::Text(line);
            }
            CodePosition::Code | CodePosition::Prose if !self.in_line && !self.thinking => {
                if rest.starts_with(FENCE) {
                    self.position = CodePosition::Fence(self.position == CodePosition::Prose);
                    self.call = Call::None;
                    return Token::Text(FENCE.len());
                }
                if FENCE.starts_with(rest) && !last {
                    return Token::Wait;
                }
            }
            CodePosition::Code | CodePosition::Prose => {}
        }
        if self.position == CodePosition::Code {
            // White space is a token of its own, so that a fence after it is recognised.
            let blank = rest.len() - rest.trim_start_matches([' ', '\t']).len();
            return Token::Text(if blank > 0 && !self.in_line { blank } else { line() });
        }
        match rest.as_bytes()[0] {
            b'`' => inline(rest, last),
            b'<' | b'[' => tag(rest, last, self.call == Call::Open, |mark| self.counts(mark)),
            b'\n' => Token::Text(1),
            _ => Token::Text(rest.find(['`', '<', '[', '\n']).unwrap_or(rest.len())),
        }
    }

    /// Whether a mark has a meaning at this position.
    fn counts(&self, mark: Mark) -> bool {
        match mark {
            Mark::ThinkClose => true,
            _ if self.thinking => false,
            Mark::ThinkOpen | Mark::CallClose => true,
            Mark::CallOpen | Mark::CallRest | Mark::Control => self.call == Call::None,
        }
    }
}

/// Maximum bytes held back until they are recognised: inline code that has not ended, or the
/// beginning of a tag.
pub(crate) const HELD_MAX: usize = 1_024;
/// Longest tag, in bytes.
const TAG_MAX: usize = 160;
const THINKING: &str = "think|thinking|thought|reasoning|antml:thinking";
const CALL: &str = r"(?:antml:)?(?:tool_calls?|tool_use|function_calls?|invoke|function=[a-z0-9_.-]+)";

// Each pattern matches at the beginning. The patterns are constants, and a test compiles them.
static THINK_OPEN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!("^(?i:<(?:{THINKING})>)")).ok());
static THINK_CLOSE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!("^(?i:</(?:{THINKING})>)")).ok());
static CALL_OPEN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!(r#"^(?i:<\|?{CALL}(?:[\s>|/{{\["]|$))"#)).ok());
static CALL_CLOSE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^(?i:</\|?(?:antml:)?(?:tool_calls?|tool_use|function_calls?|invoke|function|parameter)>)").ok()
});
/// Marks without a closing tag: everything after them belongs to the call.
static CALL_REST: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?:(?i:\[TOOL_CALLS?\])|<｜tool▁calls?▁begin｜>)").ok());
static CONTROL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^(?:<\|(?:im_start|im_end|im_sep|eot_id|end_of_turn|endoftext|end|start|channel|message|return|call|assistant|user|system|begin_of_text|start_header_id|end_header_id|python_tag|eom_id)\|>|</?s>|<(?:start|end)_of_turn>|\[/?INST\]|<｜[^｜<>]{1,40}｜>)").ok()
});
/// Marks in square brackets.
const BRACKETED: [&str; 4] = ["[TOOL_CALL]", "[TOOL_CALLS]", "[INST]", "[/INST]"];

/// The next piece of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// More text is needed to decide.
    Wait,
    /// This many bytes of ordinary text.
    Text(usize),
    /// This many bytes of inline code.
    Inline(usize),
    /// A mark of this many bytes.
    Mark(Mark, usize),
}

/// The kinds of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    ThinkOpen,
    ThinkClose,
    CallOpen,
    CallClose,
    CallRest,
    Control,
}

/// Reads a tag at the beginning of `rest`. Only marks for which `counts` is true are recognised.
/// Within a call, the closing tag of a parameter does not end the call. `last` is true if no text
/// follows `rest`.
pub(crate) fn tag(rest: &str, last: bool, in_call: bool, counts: impl Fn(Mark) -> bool) -> Token {
    let head = ghost_domain::text::prefix_bytes(rest, TAG_MAX);
    let whole = match tag_end(head) {
        Some(end) => &head[..end],
        None if last || head.len() < rest.len() || rest.len() >= TAG_MAX => head,
        None => return Token::Wait,
    };
    let marks = [
        (Mark::ThinkClose, &THINK_CLOSE),
        (Mark::ThinkOpen, &THINK_OPEN),
        (Mark::CallRest, &CALL_REST),
        (Mark::CallClose, &CALL_CLOSE),
        (Mark::CallOpen, &CALL_OPEN),
        (Mark::Control, &CONTROL),
    ];
    for (mark, pattern) in marks {
        if counts(mark)
            && let Some(found) = pattern.as_ref().and_then(|pattern| pattern.find(whole))
        {
            // Within a call, this closes only a parameter.
            let parameter = || whole.to_ascii_lowercase().contains("parameter");
            let inner = in_call && mark == Mark::CallClose && parameter();
            return if inner { Token::Text(found.end()) } else { Token::Mark(mark, found.end()) };
        }
    }
    Token::Text(1)
}

/// The end of a possible tag at the beginning of `text`: after the first character that cannot be
/// inside a tag. `None` if all of `text` may be the beginning of a tag.
fn tag_end(text: &str) -> Option<usize> {
    if text.starts_with('[') {
        let beginning = |tag: &str| tag.get(..text.len()).is_some_and(|part| part.eq_ignore_ascii_case(text));
        let whole = text.find(']').map(|end| end + 1);
        return match BRACKETED.iter().any(|tag| beginning(tag)) {
            true if whole.is_none() => None,
            _ => Some(whole.unwrap_or(1)),
        };
    }
    // The marks of some models have words between two full-width bars.
    let wide = text.starts_with("<｜");
    let inside = |c: char| match wide {
        true => !matches!(c, '<' | '>'),
        false => c.is_ascii_alphanumeric() || matches!(c, '|' | '/' | ':' | '_' | '=' | '.' | '-' | '｜' | '▁'),
    };
    text.char_indices().skip(1).find(|(_, c)| !inside(*c)).map(|(at, c)| at + c.len_utf8())
}

/// Recognises inline code between two backticks on one line; otherwise a single backtick.
pub(crate) fn inline(rest: &str, last: bool) -> Token {
    let head = &rest.as_bytes()[..rest.len().min(HELD_MAX)];
    match head[1..].iter().position(|byte| matches!(byte, b'`' | b'\n')) {
        Some(0) => Token::Text(1),
        Some(at) if head[at + 1] == b'`' => Token::Inline(at + 2),
        Some(_) => Token::Text(1),
        None if last || rest.len() >= HELD_MAX => Token::Text(1),
        None => Token::Wait,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clean_visible;

    /// The visible part of `text` when it comes in pieces of this many characters, and whether
    /// reasoning was closed that had not been opened.
    fn streamed(text: &str, size: usize) -> (String, bool) {
        let (mut seen, mut closed_unopened_tag, mut cleaner) = (String::new(), false, Cleaner::default());
        let characters: Vec<char> = text.chars().collect();
        for piece in characters.chunks(size) {
            let mut out = String::new();
            cleaner.push(&piece.iter().collect::<String>(), &mut out);
            assert!(cleaner.held.len() <= HELD_MAX, "{}", cleaner.held.len());
            seen.push_str(&out);
            closed_unopened_tag |= cleaner.closed_unopened();
        }
        let mut out = String::new();
        cleaner.end(&mut out);
        (seen + &out, closed_unopened_tag || cleaner.closed_unopened())
    }

    #[test]
    fn reasoning_in_pieces_is_never_visible() {
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
    fn reasoning_closed_without_opening_is_reported() {
        let text = format!("{}</think>The answer.", "so I think ".repeat(40));
        let (seen, closed_unopened_tag) = streamed(&text, 3);
        assert!(closed_unopened_tag && seen.ends_with("The answer."));
        assert!(!streamed("<think>x</think>y", 3).1);
    }

    #[test]
    fn reasoning_opened_by_the_provider_ends_with_its_closing_tag() {
        let (mut cleaner, mut out) = (Cleaner::within_reasoning(), String::new());
        cleaner.push("a plan</thi", &mut out);
        assert!(out.is_empty());
        cleaner.push("nk>\n\nThe answer.", &mut out);
        cleaner.end(&mut out);
        assert!(out == "The answer." && !cleaner.closed_unopened());
    }

    #[test]
    fn held_back_text_is_limited() {
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
        fn pieces_give_the_same_result_as_the_whole_text(text in parts(), size in 1_usize..=5) {
            let (seen, closed_unopened_tag) = streamed(&text, size);
            let whole = clean_visible(&text);
            if closed_unopened_tag {
                // Text shown before the closing tag cannot be withdrawn; the text after it is the
                // same.
                prop_assert!(seen.trim().ends_with(whole.trim()), "{:?} {:?}", seen, whole);
            } else {
                prop_assert_eq!(seen.trim(), whole.trim());
            }
        }

        #[test]
        fn any_text_is_accepted(text in any::<String>(), size in 1_usize..=5) {
            prop_assert!(streamed(&text, size).0.len() <= text.len());
        }
    }

    #[test]
    fn patterns_compile() {
        for pattern in [&THINK_OPEN, &THINK_CLOSE, &CALL_OPEN, &CALL_CLOSE, &CALL_REST, &CONTROL] {
            assert!(pattern.is_some());
        }
    }

    #[test]
    fn a_mark_is_recognised_once_it_is_complete() {
        let all = |rest, last| tag(rest, last, false, |_| true);
        assert_eq!(all("</thi", false), Token::Wait);
        assert_eq!(all("</thi", true), Token::Text(1));
        assert_eq!(all("</think> a", false), Token::Mark(Mark::ThinkClose, 8));
        assert_eq!(tag("<think>", false, false, |mark| mark == Mark::ThinkClose), Token::Text(1));
        assert_eq!(tag("</parameter>", false, true, |_| true), Token::Text(12));
        assert_eq!(inline("`a` b", false), Token::Inline(3));
        assert_eq!(inline("`a", false), Token::Wait);
    }
}
