//! Keeps the beginning and the end of an output in bounded memory, and says how much lies between (SBX-03).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// Output as text: whole characters, with a mark where it was cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// The text. Bytes that are not UTF-8 are replacement characters.
    pub text: String,
    /// Bytes that the command wrote.
    pub bytes: u64,
    /// Whether a part is missing.
    pub truncated: bool,
}

/// Collects an output of any length.
#[derive(Debug)]
pub struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_max: usize,
    tail_max: usize,
    bytes: u64,
}

impl Capture {
    /// Keeps at most `limit` bytes: two thirds from the beginning, the rest from the end.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let tail_max = limit / 3;
        Self { head: Vec::new(), tail: VecDeque::new(), head_max: limit - tail_max, tail_max, bytes: 0 }
    }

    /// Adds the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes = self.bytes.saturating_add(piece.len() as u64);
        let (head, rest) = piece.split_at(piece.len().min(self.head_max - self.head.len()));
        self.head.extend_from_slice(head);
        // Only the last bytes of a long piece can stay.
        let rest = rest.get(rest.len().saturating_sub(self.tail_max)..).unwrap_or_default();
        let over = (self.tail.len() + rest.len()).saturating_sub(self.tail_max);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// The captured text. `total` is the number of bytes that the command wrote, if some never arrived.
    #[must_use]
    pub fn finish(mut self, total: u64) -> Captured {
        let bytes = self.bytes.max(total);
        let kept = (self.head.len() + self.tail.len()) as u64;
        let tail = self.tail.make_contiguous();
        if bytes == kept {
            self.head.extend_from_slice(tail);
            return Captured { text: String::from_utf8_lossy(&self.head).into_owned(), bytes, truncated: false };
        }
        let (head, tail) = (whole_end(&self.head), whole_start(tail));
        let left_out = bytes.saturating_sub((head.len() + tail.len()) as u64);
        let (head, tail) = (String::from_utf8_lossy(head), String::from_utf8_lossy(tail));
        Captured { text: format!("{head}\n[… {left_out} bytes left out …]\n{tail}"), bytes, truncated: true }
    }
}

/// Without a character that is cut at the end.
fn whole_end(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().rposition(|byte| byte & 0xC0 != 0x80).unwrap_or(0);
    let whole = match bytes.get(start) {
        Some(first) if first & 0xE0 == 0xC0 => start + 2 <= bytes.len(),
        Some(first) if first & 0xF0 == 0xE0 => start + 3 <= bytes.len(),
        Some(first) if first & 0xF8 == 0xF0 => start + 4 <= bytes.len(),
        _ => true,
    };
    if whole { bytes } else { &bytes[..start] }
}

/// Without a character that is cut at the start.
fn whole_start(bytes: &[u8]) -> &[u8] {
    let skip = bytes.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
    &bytes[skip..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(limit: usize, pieces: &[&[u8]]) -> Captured {
        let mut capture = Capture::new(limit);
        pieces.iter().for_each(|piece| capture.push(piece));
        capture.finish(0)
    }

    // covers: SBX-03, TEST-04
    #[test]
    fn a_short_output_is_whole_and_a_long_one_keeps_both_ends() {
        assert_eq!(captured(9, &[b"abc", b"def"]), Captured { text: "abcdef".into(), bytes: 6, truncated: false });
        let long = captured(9, &[b"abcdefgh", b"ijklmnop", b"q"]);
        assert_eq!((long.text.as_str(), long.bytes, long.truncated), ("abcdef\n[… 8 bytes left out …]\nopq", 17, true));
        assert_eq!(captured(0, &[b"abc"]).text, "\n[… 3 bytes left out …]\n");
    }

    #[test]
    fn no_character_is_cut() {
        let text = "äöü€𝄞".repeat(50);
        for limit in 0..60 {
            for size in 1..9 {
                let mut capture = Capture::new(limit);
                text.as_bytes().chunks(size).for_each(|piece| capture.push(piece));
                let done = capture.finish(0);
                assert!(!done.text.contains('\u{fffd}') && done.truncated, "{limit} {size}: {}", done.text);
            }
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut capture = Capture::new(3_000);
        for _ in 0..1_000 {
            capture.push(&[b'x'; 70_000]);
        }
        assert!(capture.head.capacity() + capture.tail.capacity() < 16_000);
        assert_eq!(capture.finish(0).bytes, 70_000_000);
    }
}
