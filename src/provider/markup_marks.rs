//! Recognises the marks in a model's text, one at a time: tags of reasoning and of calls, control
//! tokens, inline code.
//!
//! Recognition must never depend on the text before a mark or need more than [`HELD_MAX`] bytes.

use std::sync::LazyLock;

use regex::Regex;

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
    use super::*;

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
