//! The marks in a model's words, one at a time: the tags of reasoning and of calls, control tokens, inline code.
//!
//! Must never: know what stands around a mark, or need more than [`HELD_MAX`] bytes to tell one.

use std::sync::LazyLock;

use regex::Regex;

/// Most bytes that are held back until it is clear what they are: inline code that has not ended, the beginning of a tag.
pub(crate) const HELD_MAX: usize = 1_024;
/// Longest tag, in bytes.
const TAG_MAX: usize = 160;
const THINKING: &str = "think|thinking|thought|reasoning|antml:thinking";
const CALL: &str = r"(?:antml:)?(?:tool_calls?|tool_use|function_calls?|invoke|function=[a-z0-9_.-]+)";

// Each begins where a tag may. The patterns are constants that the tests compile.
static THINK_OPEN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!("^(?i:<(?:{THINKING})>)")).ok());
static THINK_CLOSE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!("^(?i:</(?:{THINKING})>)")).ok());
static CALL_OPEN: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(&format!(r#"^(?i:<\|?{CALL}(?:[\s>|/{{\["]|$))"#)).ok());
static CALL_CLOSE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^(?i:</\|?(?:antml:)?(?:tool_calls?|tool_use|function_calls?|invoke|function|parameter)>)").ok()
});
/// Of what has no end of its own, all that follows is a call.
static CALL_REST: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"^(?:(?i:\[TOOL_CALLS?\])|<｜tool▁calls?▁begin｜>)").ok());
static CONTROL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"^(?:<\|(?:im_start|im_end|im_sep|eot_id|end_of_turn|endoftext|end|start|channel|message|return|call|assistant|user|system|begin_of_text|start_header_id|end_header_id|python_tag|eom_id)\|>|</?s>|<(?:start|end)_of_turn>|\[/?INST\]|<｜[^｜<>]{1,40}｜>)").ok()
});
/// What may stand in brackets.
const BRACKETED: [&str; 4] = ["[TOOL_CALL]", "[TOOL_CALLS]", "[INST]", "[/INST]"];

/// What comes next in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// It cannot be told yet.
    Wait,
    /// So many bytes that are what they are.
    Words(usize),
    /// So many bytes of inline code.
    Inline(usize),
    /// A mark of so many bytes.
    Mark(Mark, usize),
}

/// What a mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    ThinkOpen,
    ThinkClose,
    CallOpen,
    CallClose,
    CallRest,
    Control,
}

/// Looks at a tag at the beginning of `rest`. Of the marks, those count that `counts` says; within a call the close of a
/// parameter closes nothing. `last` says that nothing follows `rest`.
pub(crate) fn tag(rest: &str, last: bool, in_call: bool, counts: impl Fn(Mark) -> bool) -> Token {
    let most = ghost_domain::text::prefix_bytes(rest, TAG_MAX);
    let whole = match tag_end(most) {
        Some(end) => &most[..end],
        None if last || most.len() < rest.len() || rest.len() >= TAG_MAX => most,
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
            // A parameter is closed within a call.
            let parameter = || whole.to_ascii_lowercase().contains("parameter");
            let inner = in_call && mark == Mark::CallClose && parameter();
            return if inner { Token::Words(found.end()) } else { Token::Mark(mark, found.end()) };
        }
    }
    Token::Words(1)
}

/// The end of what may be a tag at the beginning of `text`: behind the first character that no tag has inside. `None` if
/// all of it may be the beginning of one.
fn tag_end(text: &str) -> Option<usize> {
    if text.starts_with('[') {
        let beginning = |tag: &str| tag.get(..text.len()).is_some_and(|part| part.eq_ignore_ascii_case(text));
        let whole = text.find(']').map(|end| end + 1);
        return match BRACKETED.iter().any(|tag| beginning(tag)) {
            true if whole.is_none() => None,
            _ => Some(whole.unwrap_or(1)),
        };
    }
    // The marks of some models have words between two wide bars.
    let wide = text.starts_with("<｜");
    let inside = |c: char| match wide {
        true => !matches!(c, '<' | '>'),
        false => c.is_ascii_alphanumeric() || matches!(c, '|' | '/' | ':' | '_' | '=' | '.' | '-' | '｜' | '▁'),
    };
    text.char_indices().skip(1).find(|(_, c)| !inside(*c)).map(|(at, c)| at + c.len_utf8())
}

/// Code between two backticks of a line, or a backtick.
pub(crate) fn inline(rest: &str, last: bool) -> Token {
    let most = &rest.as_bytes()[..rest.len().min(HELD_MAX)];
    match most[1..].iter().position(|byte| matches!(byte, b'`' | b'\n')) {
        Some(0) => Token::Words(1),
        Some(at) if most[at + 1] == b'`' => Token::Inline(at + 2),
        Some(_) => Token::Words(1),
        None if last || rest.len() >= HELD_MAX => Token::Words(1),
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
    fn a_mark_is_told_once_it_is_whole() {
        let all = |rest, last| tag(rest, last, false, |_| true);
        assert_eq!(all("</thi", false), Token::Wait);
        assert_eq!(all("</thi", true), Token::Words(1));
        assert_eq!(all("</think> a", false), Token::Mark(Mark::ThinkClose, 8));
        assert_eq!(tag("<think>", false, false, |mark| mark == Mark::ThinkClose), Token::Words(1));
        assert_eq!(tag("</parameter>", false, true, |_| true), Token::Words(12));
        assert_eq!(inline("`a` b", false), Token::Inline(3));
        assert_eq!(inline("`a", false), Token::Wait);
    }
}
