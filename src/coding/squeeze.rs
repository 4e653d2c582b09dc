//! Shortens the long strings of one line of JSON.
//!
//! A line can have megabytes: an agent prints whole files, and a result can be long. If such a line
//! were dropped, the result or a changed file would be missing. If it were kept, memory would have
//! no bound. So only the middle of its long strings is left out, and the line is still JSON.

use std::ops::Range;

use ghost_domain::json_text::unit;

/// How much of a long string is kept at each end.
const END: usize = 16 * 1024;

/// In place of the middle of a string. The same as for texts, in JSON.
const MARK: &[u8] = b"\\n[cut: the middle is left out]\\n";

/// The longest string that is kept whole. A shortened string is not longer.
pub(crate) const LONGEST: usize = 2 * END + 64;

/// Shortens the long strings of `line`, the beginning of a line of JSON. The last string may be
/// open: what follows can be appended.
pub(crate) fn squeeze(line: &mut Vec<u8>) {
    let mut short = Vec::with_capacity(line.len() / 4);
    let mut at = 0;
    while at < line.len() {
        let Some(quote) = line[at..].iter().position(|byte| *byte == b'"') else { break };
        let start = at + quote + 1;
        let end = string_end(line, start);
        short.extend_from_slice(&line[at..start]);
        match middle(line, start..end) {
            Some(middle) => {
                short.extend_from_slice(&line[start..middle.start]);
                short.extend_from_slice(MARK);
                short.extend_from_slice(&line[middle.end..end]);
            }
            None => short.extend_from_slice(&line[start..end]),
        }
        if end < line.len() {
            short.push(b'"');
        }
        at = end + 1;
    }
    short.extend_from_slice(line.get(at..).unwrap_or_default());
    *line = short;
}

/// Where the string that begins at `start` ends: at its quote, or at the end of the line.
fn string_end(line: &[u8], start: usize) -> usize {
    let mut at = start;
    while at < line.len() && line[at] != b'"' {
        at += unit(line, at);
    }
    at.min(line.len())
}

/// The part of a string that is left out, if it is long. It begins and ends between characters.
fn middle(line: &[u8], string: Range<usize>) -> Option<Range<usize>> {
    if string.len() <= LONGEST {
        return None;
    }
    let (mut first, mut last) = (string.start, string.end);
    let mut at = string.start;
    while at < string.end {
        if is_cut_point(line, at) {
            if at <= string.start + END {
                first = at;
            } else if at >= string.end - END {
                last = at;
                break;
            }
        }
        at += unit(line, at);
    }
    Some(first..last)
}

/// Whether a string can be cut at `at`: not inside a character, and not inside a pair of escapes
/// that are one character.
fn is_cut_point(line: &[u8], at: usize) -> bool {
    match line[at] {
        0x80..=0xbf => false,
        b'\\' => !matches!(line.get(at + 1..at + 4), Some([b'u', b'd' | b'D', b'c'..=b'f' | b'C'..=b'F'])),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn squeezed(text: &str) -> String {
        let mut line = text.as_bytes().to_vec();
        squeeze(&mut line);
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn only_long_strings_are_shortened_and_the_rest_stays() {
        let long = format!("first {} last", "a\\u00e9\\ud83d\\ude00\\\"é".repeat(9_000));
        let line = format!(r#"{{"type":"x","path":"a.rs","long":"{long}","n":[1,"z"]}}"#);
        let short = squeezed(&line);
        assert!(short.len() < LONGEST + 100, "{}", short.len());
        let value: Value = serde_json::from_str(&short).unwrap();
        assert_eq!((&value["path"], &value["n"]), (&json!("a.rs"), &json!([1, "z"])));
        let text = value["long"].as_str().unwrap();
        assert!(text.starts_with("first a") && text.ends_with(" last") && text.contains("\n[cut: "));
        assert_eq!(squeezed(&short), short, "a short line stays as it is");
    }

    #[test]
    fn a_pair_of_escapes_is_not_split() {
        for before in 0..12 {
            let line = format!("\"{}{}\"", "a".repeat(before), "\\ud83d\\uDE00".repeat(4_000));
            let text: String = serde_json::from_str(&squeezed(&line)).unwrap();
            assert!(text.contains("[cut: ") && text.ends_with('😀'), "{before}");
        }
    }

    #[test]
    fn an_open_string_can_be_continued() {
        let mut line = format!("{{\"a\":\"{}", "b".repeat(LONGEST + 1)).into_bytes();
        squeeze(&mut line);
        line.extend_from_slice("c".repeat(LONGEST).as_bytes());
        squeeze(&mut line);
        line.extend_from_slice(b"end\"}");
        let value: Value = serde_json::from_slice(&line).unwrap();
        let text = value["a"].as_str().unwrap();
        assert!(text.starts_with("bbb") && text.ends_with("cend") && text.len() <= LONGEST + 3);
        assert_eq!(text.matches("[cut: ").count(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_become_no_longer(bytes in proptest::collection::vec(any::<u8>(), 0..400), times in 1usize..300) {
            let mut line = bytes.repeat(times);
            let before = line.len();
            squeeze(&mut line);
            prop_assert!(line.len() <= before);
        }

        #[test]
        fn json_stays_json(text in "[\\PC\\n\"\\\\]{1,40}", times in 1usize..3_000) {
            let mut line = json!({ "a": text.repeat(times), "b": 1 }).to_string().into_bytes();
            squeeze(&mut line);
            let value: Value = serde_json::from_slice(&line).unwrap();
            prop_assert_eq!(&value["b"], &json!(1));
            prop_assert!(line.len() <= LONGEST + 40);
        }
    }
}
