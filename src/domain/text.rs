//! Cutting and matching text: every cut respects character boundaries and is marked (TOOL-14).

use std::cmp::Reverse;

use serde_json::Value;

/// What stands behind a result that is a list or an object and has more than is shown: it looks whole otherwise.
pub const MORE_MARK: &str = "\n[there is more than is shown]";

/// At most `max` characters of `text`, with an ellipsis if any were cut. For messages, not for tool results.
#[must_use]
pub fn clip(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// The longest prefix of `text` of at most `max` bytes that ends on a character boundary.
#[must_use]
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

/// `text` cut to `max` bytes, the cut marked in the text itself. The flag says whether anything was cut.
#[must_use]
pub fn cut_marked(text: &str, max: usize) -> (String, bool) {
    if text.len() <= max {
        return (text.to_owned(), false);
    }
    let kept = prefix_bytes(text, max);
    (format!("{kept}\n[cut: {} of {} bytes shown]", kept.len(), text.len()), true)
}

/// `value` as JSON text of at most about `max` bytes, and whether anything was cut. What is cut is its long strings, each
/// marked, so that it stays JSON and shows every short member whole. What has too many members for that becomes one
/// string with the beginning of the text.
#[must_use]
pub fn cut_json(value: &Value, max: usize) -> (String, bool) {
    let whole = value.to_string();
    if whole.len() <= max {
        return (whole, false);
    }
    let mut most = max / 2;
    while most >= SHORT_STRING {
        let cut = strings_cut(value, most).to_string();
        if cut.len() <= max {
            return (cut, true);
        }
        most /= 2;
    }
    (Value::String(cut_marked(&whole, max).0).to_string(), true)
}

/// Bytes of a string in JSON below which nothing is gained by a cut: the mark is as long.
const SHORT_STRING: usize = 32;

fn strings_cut(value: &Value, most: usize) -> Value {
    match value {
        Value::String(text) => Value::String(cut_marked(text, most).0),
        Value::Array(items) => items.iter().map(|item| strings_cut(item, most)).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), strings_cut(member, most))).collect()
        }
        other => other.clone(),
    }
}

/// Whether a character has a terminal or an editor show the text around it in another order than it has: a name with one of
/// them can look like another.
#[must_use]
pub fn is_bidi(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a character has no place in a name: it controls something, or the order in which the name is shown.
#[must_use]
pub fn is_strange(c: char) -> bool {
    c.is_control() || is_bidi(c)
}

/// At most `max` characters of a text from outside, for a message to name it: control characters are escaped, so that it
/// can neither break the line nor speak to a terminal.
#[must_use]
pub fn shown(text: &str, max: usize) -> String {
    let mut shown = String::new();
    for c in clip(text, max).chars() {
        if is_strange(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// `text` on one line: control characters and line breaks become single spaces, and what would turn its order is escaped.
#[must_use]
pub fn one_line(text: &str) -> String {
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

/// The word with `a` or `an` before it, by its first letter.
#[must_use]
pub fn a(word: &str) -> String {
    let article = if word.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    format!("{article} {word}")
}

/// The candidate nearest to `name` by edit distance, if it is near enough to be a slip of the keyboard.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_within(name, candidates, (name.chars().count() / 3).max(2))
}

/// The candidate nearest to `name` by edit distance, if it is at most `limit` away; of several, one that begins like it.
#[must_use]
pub fn nearest_within<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>, limit: usize) -> Option<&'a str> {
    // The distance is quadratic: a hostile name of a megabyte must cost nothing.
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
    fn nearest_finds_slips_and_ignores_strangers() {
        let names = ["manager", "admin", "communicator"];
        assert_eq!(nearest("manger", names), Some("manager"));
        assert_eq!(nearest("amdin", names), Some("admin"));
        assert_eq!(nearest("wholly-different", names), None);
        assert_eq!(nearest("kinds", ["binds", "kind"]), Some("kind"), "people get beginnings right");
    }

    #[test]
    fn the_article_goes_with_the_word() {
        assert_eq!(
            (a("archetype").as_str(), a("root").as_str(), a("ask id").as_str()),
            ("an archetype", "a root", "an ask id")
        );
    }

    #[test]
    fn what_is_shown_is_one_plain_line() {
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
        fn json_that_is_cut_is_json_and_says_so(long in ".{0,400}", n in 0usize..40, max in 0usize..600) {
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
