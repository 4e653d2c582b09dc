//! Text from outside: cleaned of control characters, on one line, and cut to a bound.

use ghost_domain::json_text::joined;
use ghost_domain::text::is_bidi;
pub use ghost_domain::text::prefix_bytes;

/// A mark in place of the middle of a text. It begins like all marks of cut texts, so that a secret
/// which was cut is still found and redacted.
pub const MIDDLE_MARK: &str = "\n[cut: the middle is left out]\n";

/// How far a cut moves to the next white space. Words, and so secrets, stay whole or are left out.
const ALIGN: usize = 200;

/// `text` on one line with at most `max` characters. Control characters and white space become
/// single spaces, and bidirectional characters are removed.
pub fn one_line(text: &str, max: usize) -> String {
    // Most texts are paths and short notes.
    if text.len() <= max && is_plain_line(text.as_bytes()) {
        return text.to_owned();
    }
    // The text can be long. No more of it is read than can be shown, with some room for spaces.
    let start = prefix_bytes(text.trim_start(), max.saturating_mul(8));
    let mut line = String::new();
    for word in plain(start).split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    clip(&line, max)
}

/// Whether a text has only visible ASCII, with single spaces between words.
fn is_plain_line(text: &[u8]) -> bool {
    text.split(|byte| *byte == b' ').all(|word| !word.is_empty() && word.iter().all(u8::is_ascii_graphic))
}

/// The first line of `text` that is not empty, as with [`one_line`].
pub(crate) fn first_line(text: &str, max: usize) -> String {
    one_line(text.trim_start().lines().next().unwrap_or_default(), max)
}

/// At most `max` characters of `text`, the last one an ellipsis if it was longer.
fn clip(text: &str, max: usize) -> String {
    if text.chars().nth(max).is_none() {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// `text` without what controls a terminal: escape sequences, control characters other than line
/// breaks and tabs, and bidirectional characters. Halves of characters from parts of a stream meet here.
pub fn plain(text: &str) -> String {
    let text = joined(text);
    let mut kept = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\n' | '\t' => kept.push(c),
            // In a line end of two characters, this is only the first one.
            '\r' => {
                if !chars.as_str().starts_with('\n') {
                    kept.push('\n');
                }
            }
            c if is_bidi(c) => {}
            c if c.is_control() => kept.push(' '),
            c => kept.push(c),
        }
    }
    kept
}

/// Reads the rest of an escape sequence. Without this, `[31m` would stay in the text.
fn skip_escape(chars: &mut std::str::Chars<'_>) {
    match chars.clone().next() {
        Some('[') => {
            chars.next();
            chars.find(|c| !matches!(c, ' '..='?'));
        }
        Some(']') => {
            let rest = chars.as_str();
            // An unfinished sequence must not hide the rest of the text.
            if let Some(end) = rest.find(['\u{7}', '\u{1b}', '\n']) {
                *chars = rest[end..].chars();
                if rest[end..].starts_with("\u{1b}\\") {
                    chars.next();
                }
                if !rest[end..].starts_with('\n') {
                    chars.next();
                }
            }
        }
        _ => {}
    }
}

/// The longest suffix of `text` of at most `max` bytes that begins on a character boundary.
pub fn suffix_bytes(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

/// `text` in at most `max` bytes. If it is longer, its middle is left out, and two thirds of what
/// remains are its end: agents write their summary last.
pub fn cut_middle(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let Some(room) = max.checked_sub(MIDDLE_MARK.len()).filter(|room| *room >= MIDDLE_MARK.len()) else {
        return prefix_bytes(text, max).to_owned();
    };
    let head = prefix_bytes(text, room / 3);
    let tail = suffix_bytes(text, room - room / 3);
    format!("{}{MIDDLE_MARK}{}", until_space(head), after_space(tail))
}

/// `head` up to its last white space, if that is near its end.
fn until_space(head: &str) -> &str {
    match head.rfind(char::is_whitespace) {
        Some(at) if head.len() - at <= ALIGN.min(head.len() / 2) => head[..at].trim_end(),
        _ => head,
    }
}

/// `tail` from its first white space, if that is near its beginning.
pub(crate) fn after_space(tail: &str) -> &str {
    match tail.find(char::is_whitespace) {
        Some(at) if at <= ALIGN.min(tail.len() / 2) => tail[at..].trim_start(),
        _ => tail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escape_sequences_and_control_characters_are_removed() {
        assert_eq!(plain("a\u{1b}[1;31mb\u{1b}[0m\u{7}c\r\nd\te"), "ab c\nd\te");
        assert_eq!(plain("\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\y"), "xy");
        assert_eq!(plain("\u{1b}]0;open\nnext"), "\nnext", "an open sequence ends with its line");
        assert_eq!(plain("\u{1b}]0;open"), "]0;open");
        assert_eq!(plain("cod\u{202e}txt\rb\u{9b}"), "codtxt\nb ");
        assert_eq!(plain("\u{1b}"), "");
    }

    #[test]
    fn a_line_is_short_and_has_no_line_breaks() {
        assert_eq!(one_line("src/a.rs", 20), "src/a.rs");
        assert_eq!(one_line(" a\n\n b\u{2028}c ", 20), "a b c");
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(first_line("\n\n# Title\nmore", 20), "# Title");
        assert_eq!(first_line("", 20), "");
    }

    #[test]
    fn a_long_text_keeps_both_ends_at_words() {
        let text = format!("first words {} the summary is last", "x ".repeat(300));
        let cut = cut_middle(&text, 120);
        assert!(cut.starts_with("first words x") && cut.ends_with(" the summary is last"), "{cut}");
        assert!(cut.contains("\n[cut: ") && cut.len() <= 120, "{cut}");
        assert_eq!(cut_middle("abcdef", 3), "abc");
        let secret = format!("{} key=abcdefghijklmnop {}", "a".repeat(36), "b".repeat(90));
        assert!(!cut_middle(&secret, 140).contains("klmnop b"), "no half of a word remains");
    }

    proptest! {
        #[test]
        fn cuts_keep_their_bound(text in "\\PC{0,300}", max in 0usize..320) {
            prop_assert!(cut_middle(&text, max).len() <= max);
            prop_assert!(prefix_bytes(&text, max).len() <= max && suffix_bytes(&text, max).len() <= max);
        }

        #[test]
        fn lines_have_no_control_characters(text in any::<String>(), max in 1usize..120) {
            let line = one_line(&text, max);
            prop_assert!(line.chars().count() <= max);
            prop_assert!(!line.chars().any(|c| c.is_control() || is_bidi(c)));
            prop_assert!(!plain(&text).chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        }
    }
}
