//! Splits a stream into lines, with a bound on what is held.

use memchr::memchr;

use crate::squeeze::squeeze;

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

#[cfg(test)]
mod tests {
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
