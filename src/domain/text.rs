//! Functions on text: truncation (never inside a character, TOOL-14), escaping for display, and
//! search for similar names.

use std::cmp::Reverse;

use serde_json::Value;

/// Mark after a result that is a list or an object and is not complete. Without it, the result
/// would look complete.
pub const MORE_MARK: &str = "\n[there is more than is shown]";

/// The first `max` characters of `text`, with an ellipsis if it was longer. For messages, not for
/// tool results.
pub fn clip(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// The longest prefix of `text` of at most `max` bytes that ends on a character boundary.
pub fn prefix_bytes(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// `text` truncated to `max` bytes, plus a mark if it was truncated. The flag says whether it was
/// truncated.
pub fn cut_marked(text: &str, max: usize) -> (String, bool) {
    if text.len() <= max {
        return (text.to_owned(), false);
    }
    let kept = prefix_bytes(text, max);
    (format!("{kept}\n[cut: {} of {} bytes shown]", kept.len(), text.len()), true)
}

/// `value` as JSON text of about `max` bytes at most, and whether it was truncated. Only long
/// strings are truncated, each with a mark, so the result is still JSON and short members stay
/// complete. If that is not enough, the result is one string with the beginning of the text.
pub fn cut_json(value: &Value, max: usize) -> (String, bool) {
    let whole = value.to_string();
    if whole.len() <= max {
        return (whole, false);
    }
    let mut limit = max / 2;
    while limit >= SHORT_STRING {
        let cut = cut_strings(value, limit).to_string();
        if cut.len() <= max {
            return (cut, true);
        }
        limit /= 2;
    }
    (Value::String(cut_marked(&whole, max).0).to_string(), true)
}

/// Strings below this many bytes are not truncated: the mark would be as long.
const SHORT_STRING: usize = 32;

/// `value` with every string truncated to `limit` bytes.
fn cut_strings(value: &Value, limit: usize) -> Value {
    match value {
        Value::String(text) => Value::String(cut_marked(text, limit).0),
        Value::Array(items) => items.iter().map(|item| cut_strings(item, limit)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), cut_strings(member, limit))).collect()
        }
        other => other.clone(),
    }
}

/// Whether `c` is a bidirectional control character. It changes the order in which a terminal or
/// editor shows text, so that one name can look like another.
pub fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether `c` is not allowed in a name: a control character or a bidirectional one.
pub fn is_strange(c: char) -> bool {
    c.is_control() || is_bidi(c)
}

/// The first `max` characters of a text from outside, for use in a message. Control characters are
/// escaped, so the text cannot break the line or control a terminal.
pub fn shown(text: &str, max: usize) -> String {
    let mut shown = String::new();
    for c in clip(text, max).chars() {
        if is_strange(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// `text` on one line. Control characters and white space become single spaces; bidirectional
/// characters are escaped.
pub fn one_line(text: &str) -> String {
    // Most texts are names.
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return text.to_owned();
    }
    let mut spaced = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if is_bidi(c) => spaced.extend(c.escape_default()),
            c if c.is_control() => spaced.push(' '),
            c => spaced.push(c),
        }
    }
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The message of a panic, if its payload is a string.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// The word with its article: `an` before a vowel, otherwise `a`.
pub fn a(word: &str) -> String {
    let article = if word.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    format!("{article} {word}")
}

/// The candidate nearest to `name` by edit distance, if it is near enough to be a typing error.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_within(name, candidates, (name.chars().count() / 3).max(2))
}

/// The candidate nearest to `name` by edit distance, if the distance is at most `limit`. Among
/// equals, the one with the longest common beginning.
pub fn nearest_within<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>, limit: usize) -> Option<&'a str> {
    // The cost is quadratic, so very long names are ignored.
    if name.chars().count() > 256 {
        return None;
    }
    let name = name.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| {
            let small = candidate.to_lowercase();
            let alike = name.chars().zip(small.chars()).take_while(|(a, b)| a == b).count();
            (strsim::osa_distance(&name, &small), Reverse(alike), candidate)
        })
        .filter(|(distance, ..)| *distance <= limit)
        .min()
        .map(|(.., candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nearest_finds_typing_errors_and_ignores_other_names() {
        let names = ["manager", "admin", "communicator"];
        assert_eq!(nearest("manger", names), Some("manager"));
        assert_eq!(nearest("amdin", names), Some("admin"));
        assert_eq!(nearest("wholly-different", names), None);
        assert_eq!(nearest("kinds", ["binds", "kind"]), Some("kind"), "the common beginning decides");
    }

    #[test]
    fn the_article_depends_on_the_first_letter() {
        assert_eq!(
            (a("archetype").as_str(), a("root").as_str(), a("ask id").as_str()),
            ("an archetype", "a root", "an ask id")
        );
    }

    #[test]
    fn text_for_messages_has_no_control_characters() {
        assert_eq!(shown("a  b", 9), "a  b");
        assert_eq!(shown("\0a\n\u{1b}[2J", 9), "\\u{0}a\\n\\u{1b}[2J");
        assert_eq!(shown("\n\n\n", 1), "\\n…");
        assert_eq!(shown("cod\u{202e}txt.exe", 40), "cod\\u{202e}txt.exe");
        assert_eq!(one_line("a\n\u{2067}b"), "a \\u{2067}b");
        assert!(
            "\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}\n".chars().all(is_strange)
                && !"aä\u{2028}".contains(is_bidi)
        );
    }

    proptest! {
        // covers: TEST-04, TOOL-14
        #[test]
        fn cuts_never_split_a_character(text in ".{0,200}", max in 0usize..220) {
            let kept = prefix_bytes(&text, max);
            prop_assert!(text.starts_with(kept) && kept.len() <= max);
            let (marked, cut) = cut_marked(&text, max);
            prop_assert_eq!(cut, text.len() > max);
            prop_assert!(cut || marked == text);
        }

        #[test]
        fn cut_json_is_still_json_and_has_a_mark(long in ".{0,400}", n in 0usize..40, max in 0usize..600) {
            let value = serde_json::json!({ "path": "a", "n": 7, "content": long, "list": vec!["é\n"; n] });
            let whole = value.to_string();
            let (text, cut) = cut_json(&value, max);
            let back: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(cut, whole.len() > max);
            prop_assert!(cut || back == value);
            prop_assert_eq!(cut, text.contains("[cut: "));
            if back.is_object() {
                prop_assert_eq!((&back["path"], &back["n"]), (&value["path"], &value["n"]));
                prop_assert!(text.len() <= max);
            }
        }
    }
}
