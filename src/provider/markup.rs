//! Tool calls and control tokens that a model wrote as plain text. They are detected, so that the
//! model gets a correction and nothing is executed. They are removed from the text that
//! people and later turns see. Every function here accepts any text and takes linear time.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::markup_stream::Cleaner;

/// Opening tags of tool calls as text. The name must follow the bracket directly and be complete.
const CALL_TAGS: &str = "tool_call|tool_calls|tool_use|function_call|function_calls|invoke|function=[a-zA-Z0-9_.-]+";

// The patterns are constants, and a test compiles them. A pattern that did not compile would match
// nothing.
static OPENED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(&format!(
        r"(?i)<\|?(?:antml:)?(?P<tag>{CALL_TAGS})(?:[\s>|/]|$)|\[TOOL_CALLS?\]|<｜tool▁calls?▁begin｜>"
    ))
    .ok()
});

/// Closing tags of reasoning.
static REASONED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new("(?i)</(?:think|thinking|thought|reasoning|antml:thinking)>").ok());

static INLINE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"`[^`\n]+`").ok());

/// Longest excerpt of a malformed call, in characters.
const EXCERPT_MAX: usize = 200;

/// The tool call that `text` tries to make as text, as an excerpt for the ledger, or `None`. Meant
/// for answers without a real call. Markup within inline code, or in a code block beside other
/// text, is ignored because such text is about calls. Markup in reasoning before the visible text
/// is ignored too.
#[must_use]
pub fn malformed_tool_call(text: &str) -> Option<String> {
    let text = match REASONED.as_ref().and_then(|reasoned| reasoned.find_iter(text).last()) {
        Some(end) if !text[end.end()..].trim().is_empty() => &text[end.end()..],
        _ => text,
    };
    let trimmed = text.trim();
    if json_call(trimmed) {
        return Some(ghost_domain::text::clip(trimmed, EXCERPT_MAX));
    }
    let outside = without_fences(text);
    let outside = INLINE.as_ref()?.replace_all(&outside, "");
    let found = OPENED.as_ref()?.find(&outside)?;
    Some(ghost_domain::text::clip(outside[found.start()..].trim_end(), EXCERPT_MAX))
}

/// Whether the whole text is one JSON call, bare or in a code block.
fn json_call(text: &str) -> bool {
    let body = match text.strip_prefix("```") {
        Some(rest) => {
            let Some(rest) = rest.strip_suffix("```") else { return false };
            let Some((language, body)) = rest.split_once('\n') else { return false };
            if !matches!(language.trim(), "" | "json" | "tool_call" | "tool_code" | "tool_use") {
                return false;
            }
            body.trim()
        }
        None => text,
    };
    // A long text that is not a JSON object is not parsed.
    if !body.starts_with('{') || !body.ends_with('}') {
        return false;
    }
    let Ok(Value::Object(object)) = serde_json::from_str::<Value>(body) else { return false };
    let named = object.get("name").or_else(|| object.get("tool")).or_else(|| object.get("function"));
    let arguments = ["arguments", "parameters", "input", "args"].iter().any(|key| object.contains_key(*key));
    named.is_some_and(|name| name.is_string() || name.is_object()) && arguments
}

/// `text` without its fenced code blocks; a block that is never closed stays.
fn without_fences(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut fenced: Option<String> = None;
    for line in text.split_inclusive('\n') {
        let fence = line.trim_start().starts_with("```");
        match (&mut fenced, fence) {
            (None, true) => fenced = Some(line.to_owned()),
            (None, false) => out.push_str(line),
            (Some(_), true) => fenced = None,
            (Some(held), false) => held.push_str(line),
        }
    }
    if let Some(open) = fenced {
        out.push_str(&open);
    }
    out
}

/// The visible part of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visible {
    /// The text without tool calls, reasoning and control tokens. Inline code and code blocks stay
    /// as they are.
    pub text: String,
    /// Whether the text closes a reasoning block that it has not opened. The provider then put the
    /// opening tag in a prefix, so everything before the closing tag is reasoning.
    pub closes_unopened: bool,
}

impl Visible {
    /// The visible part of `text`.
    #[must_use]
    pub fn of(text: &str) -> Self {
        if !text.contains(['<', '[']) {
            return Self { text: text.to_owned(), closes_unopened: false };
        }
        Self::through(Cleaner::default(), text)
    }

    /// Like [`Visible::of`], for a model that begins within reasoning: without a closing tag,
    /// nothing is visible.
    #[must_use]
    pub fn from_reasoning(text: &str) -> Self {
        Self::through(Cleaner::within_reasoning(), text)
    }

    fn through(mut cleaner: Cleaner, text: &str) -> Self {
        let mut out = String::with_capacity(text.len());
        cleaner.push(text, &mut out);
        cleaner.end(&mut out);
        Self { text: out.trim().to_owned(), closes_unopened: cleaner.closed_unopened() }
    }
}

/// The visible part of `text`; see [`Visible`].
#[must_use]
pub fn clean_visible(text: &str) -> String {
    Visible::of(text).text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_compile() {
        for pattern in [&OPENED, &REASONED, &INLINE] {
            assert!(pattern.is_some());
        }
    }

    // covers: TOOL-13
    #[test]
    fn calls_as_text_are_found() {
        for text in [
            "<tool_call>{\"name\": \"workspace.read\", \"argu",
            "I will read it.\n<tool_call>\n{\"name\":\"x\",\"arguments\":{}}\n</tool_call>",
            "<function_call name=\"x\">",
            "<function=workspace.read>{\"path\":\"a\"}</function>",
            "<invoke name=\"workspace.read\"><parameter name=\"path\">a</parameter></invoke>",
            "```json\n{\"name\": \"workspace.read\", \"arguments\": {\"path\": \"a\"}}\n```",
            "{\"name\": \"workspace.read\", \"parameters\": {}}",
            "[TOOL_CALLS] [{\"name\": \"x\"}]",
            "<|tool_call|>x",
            "<think>Read it.</think><tool_call>{\"name\": \"x\"",
            "<think>Read it. <tool_call>{\"name\": \"x\"}</tool_call></think>\n",
            "<think>Read it. <tool_call>{\"name\": \"x\"}</tool_call>",
            "<tool_call",
        ] {
            assert!(malformed_tool_call(text).is_some(), "{text}");
        }
    }

    // covers: TOOL-13
    #[test]
    fn talk_about_calls_does_not_count() {
        for text in [
            "The report is done.",
            "I would call the tool now.",
            "Use it like so:\n```xml\n<tool_call>...</tool_call>\n```\nThat is all.",
            "{\"name\": \"Chora\", \"age\": 3}",
            "```json\n{\"name\": \"Chora\"}\n```",
            "a <invoker> and a <tool_caller>",
            "Models write `<tool_call>` for that.",
            "<think>I could write <tool_call> now.</think>The report is done.",
            "I could write <tool_call> now.</THINK>\nThe report is done.",
            "",
        ] {
            assert_eq!(malformed_tool_call(text), None, "{text}");
        }
    }

    // covers: LOOP-08
    #[test]
    fn visible_text_has_no_markup() {
        for (dirty, clean) in [
            ("<think>hm, let me see</think>The answer is 4.", "The answer is 4."),
            ("let me see</think>The answer is 4.", "The answer is 4."),
            ("The answer<tool_call>{\"name\":\"x\"}</tool_call> is 4.", "The answer is 4."),
            ("The answer is 4.<tool_call>{\"name\":", "The answer is 4."),
            ("The answer is 4.<|im_end|>", "The answer is 4."),
            ("<|channel|>The answer is 4.</s>", "The answer is 4."),
            ("<thinking>never closed", ""),
            ("a < b and [c]", "a < b and [c]"),
            ("It writes `<tool_call>` and `</s>`.</s> Yes.", "It writes `<tool_call>` and `</s>`. Yes."),
            ("<think>`<x>`</think>See `<y>`.", "See `<y>`."),
            ("<think>so:\n```\nlet plan;\n```\nhm</think>Done.", "Done."),
            ("so:\n```\nlet plan;\n```\nhm</think>Done.", "Done."),
            ("```xml\n<tool_call>x</tool_call>\n```", "```xml\n<tool_call>x</tool_call>\n```"),
        ] {
            assert_eq!(clean_visible(dirty), clean, "{dirty}");
        }
    }

    #[test]
    fn from_reasoning_shows_nothing_without_a_closing_tag() {
        assert_eq!(Visible::from_reasoning("first, the secret").text, "");
        assert_eq!(Visible::from_reasoning("first, the secret</think>\nYes.").text, "Yes.");
        let closes_unopened = |text| Visible::of(text).closes_unopened;
        assert!(closes_unopened("a</think>b") && closes_unopened("<think>a</think>b</THINKING>c"));
        assert!(!closes_unopened("<think>a</think>b") && !closes_unopened("`</think>` a") && !closes_unopened("a</b>"));
    }

    proptest! {
        #[test]
        fn any_text_is_accepted(text in any::<String>()) {
            let _ = malformed_tool_call(&text);
            let clean = clean_visible(&text);
            prop_assert!(clean.len() <= text.len());
        }

        #[test]
        fn any_mix_of_marks_is_accepted(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("<tool_call>"), Just("</tool_call>"), Just("<think>"), Just("</think>"), Just("```"),
                    Just("\n"), Just("<|im_end|>"), Just("{\"name\":"), Just("é"), Just("<invoke "), Just("x")
                ],
                0..40,
            )
        ) {
            let text = parts.concat();
            let _ = malformed_tool_call(&text);
            let clean = clean_visible(&text);
            prop_assert!(clean.len() <= text.len());
        }
    }
}
