//! Splits a stream into lines, with a bound on what is held.
//!
//! A line can have megabytes: an agent prints whole files, and a result can be long. If such a line were dropped, the result
//! or a changed file would be missing. If it were kept, memory would have no bound. So only the middle of its long strings
//! is left out, and the line is still JSON.

use std::ops::Range;

use ghost_domain::json_text::unit;
use memchr::memchr;

/// The longest line that is kept as it is. Of a longer line, the long strings are shortened.
pub(crate) const MAX_LINE: usize = 1024 * 1024;

/// The size of a held line after its strings were shortened. A line that stays larger has very many
/// short parts. It is dropped, because shortening it again and again would take too long.
const MAX_SQUEEZED: usize = MAX_LINE / 2;

/// Buffers above this size are freed after their line.
const SPARE: usize = 64 * 1024;

/// The unfinished line of a stream.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    held: Vec<u8>,
    dropping: bool,
}

impl Lines {
    /// Calls `line` with each line that ends in `bytes`, without its line end. Lines that are
    /// completely in `bytes` are not copied.
    pub(crate) fn push(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (part, ended) = match memchr(b'\n', rest) {
                Some(at) => (&rest[..at], true),
                None => (rest, false),
            };
            rest = rest.get(part.len() + 1..).unwrap_or_default();
            if ended && self.held.is_empty() && !self.dropping && part.len() <= MAX_LINE {
                line(part);
                continue;
            }
            self.hold(part);
            if ended {
                self.end(&mut line);
            }
        }
    }

    /// Calls `line` with the last line, if it has no line end.
    pub(crate) fn finish(mut self, mut line: impl FnMut(&[u8])) {
        self.end(&mut line);
    }

    fn end(&mut self, line: &mut impl FnMut(&[u8])) {
        if !self.dropping {
            line(&self.held);
        }
        self.dropping = false;
        self.held.clear();
        self.held.shrink_to(SPARE);
    }

    /// Appends to the held line. It is shortened each time it reaches the bound, so the result does
    /// not depend on how the stream is split into pieces.
    fn hold(&mut self, mut part: &[u8]) {
        while !part.is_empty() && !self.dropping {
            if self.held.len() == MAX_LINE {
                squeeze(&mut self.held);
                if self.held.len() > MAX_SQUEEZED {
                    self.dropping = true;
                    self.held = Vec::new();
                    return;
                }
            }
            let (now, later) = part.split_at(part.len().min(MAX_LINE - self.held.len()));
            self.held.extend_from_slice(now);
            part = later;
        }
    }

    /// The number of bytes that are allocated.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.capacity()
    }
}

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
mod lines_tests {
    use super::*;
    use proptest::prelude::*;

    fn lines_of(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece, |line| found.push(line.to_vec()));
            assert!(lines.held.len() <= MAX_LINE && lines.held() <= 2 * MAX_LINE);
        }
        lines.finish(|line| found.push(line.to_vec()));
        found
    }

    #[test]
    fn lines_are_joined_from_pieces() {
        assert_eq!(lines_of(&[b"a\nb", b"c\n", b"\nd"]), [b"a".to_vec(), b"bc".into(), b"".into(), b"d".into()]);
        assert_eq!(lines_of(&[b"a\n"]), [b"a".to_vec(), b"".into()]);
    }

    #[test]
    fn a_line_of_megabytes_is_shortened_and_one_without_strings_is_dropped() {
        let long = format!("{{\"a\":\"{}\",\"b\":1}}\n", "x".repeat(5 * MAX_LINE));
        let hostile = format!("{}\nnext\n", "[".repeat(3 * MAX_LINE));
        let input = [long.as_bytes(), hostile.as_bytes()].concat();
        let whole = lines_of(&[&input]);
        assert_eq!(whole.len(), 3, "the line without strings is dropped");
        assert!(whole[0].len() < MAX_LINE && whole[0].ends_with(b"xxx\",\"b\":1}"));
        assert_eq!(whole[1], b"next");
        let pieces: Vec<&[u8]> = input.chunks(65_537).collect();
        assert_eq!(lines_of(&pieces), whole);
    }

    #[test]
    fn a_line_at_the_bound_is_kept_whole() {
        let line = "y".repeat(MAX_LINE);
        assert_eq!(lines_of(&[format!("{line}\n").as_bytes()])[0], line.as_bytes());
        assert_eq!(lines_of(&[b"y", &line.as_bytes()[1..], b"\n"])[0], line.as_bytes());
        let mut lines = Lines::default();
        lines.push(line.as_bytes(), |_| {});
        assert!(lines.held() >= MAX_LINE);
        lines.push(b"\n", |_| {});
        assert!(lines.held() <= SPARE, "a large buffer is freed");
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(input in "[ab\\n]{0,60}", cuts in proptest::collection::vec(0usize..61, 0..6)) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut <= input.len()).collect();
            cuts.sort_unstable();
            let (mut pieces, mut from) = (Vec::new(), 0);
            for cut in cuts {
                pieces.push(&input.as_bytes()[from..cut]);
                from = cut;
            }
            pieces.push(&input.as_bytes()[from..]);
            prop_assert_eq!(lines_of(&pieces), lines_of(&[input.as_bytes()]));
        }
    }
}

#[cfg(test)]
mod squeeze_tests {
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
