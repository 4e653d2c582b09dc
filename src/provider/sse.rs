//! Splits a byte stream into events, in linear time and limited space: server-sent events, or lines
//! of JSON.
//!
//! The splitter must never hold more than one event and the rest of the last read.

use std::mem;

/// Longest event, in bytes.
pub(crate) const EVENT_MAX: usize = 8 * 1_024 * 1_024;

/// Some servers begin a stream with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Errors in a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    /// The event is not UTF-8.
    #[error("an event is not UTF-8")]
    NotText,
    /// The event is too long.
    #[error("an event is longer than {EVENT_MAX} bytes")]
    TooLong,
}

/// How events are separated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Server-sent events (HTML Living Standard, 9.2).
    #[default]
    Events,
    /// One event on each line.
    Lines,
}

/// Splits bytes into the data of events.
#[derive(Default)]
pub(crate) struct Splitter {
    framing: Framing,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were consumed.
    consumed: usize,
    /// Bytes of `buffer` that were searched for a line end.
    searched: usize,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
    /// Whether the first line is over. A byte order mark may stand in front of it.
    begun: bool,
}

impl Splitter {
    pub(crate) fn new(framing: Framing) -> Self {
        Self { framing, ..Self::default() }
    }

    /// Adds bytes to the buffer.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.searched -= self.consumed;
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The data of the next complete event. Events without data are skipped.
    pub(crate) fn next_event(&mut self) -> Option<Result<String, SseError>> {
        loop {
            let Some(end) = self.buffer[self.searched..].iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                self.searched = self.buffer.len();
                if self.buffer.len() - self.consumed + self.data.len() > EVENT_MAX {
                    return Some(Err(SseError::TooLong));
                }
                return None;
            };
            let end = self.searched + end;
            let (mut start, newline) = (self.consumed, self.buffer[end]);
            if !mem::replace(&mut self.begun, true) && self.buffer[start..end].starts_with(BYTE_ORDER_MARK) {
                start += BYTE_ORDER_MARK.len();
            }
            self.consumed = end + 1;
            self.searched = self.consumed;
            // The second half of a CR LF line end, perhaps split over two reads.
            if newline == b'\n' && mem::take(&mut self.after_cr) && end == start {
                continue;
            }
            self.after_cr = newline == b'\r';
            if start == end {
                if mem::take(&mut self.has_data) {
                    return Some(String::from_utf8(mem::take(&mut self.data)).map_err(|_| SseError::NotText));
                }
                continue;
            }
            let line = &self.buffer[start..end];
            if self.framing == Framing::Lines {
                if end - start > EVENT_MAX {
                    return Some(Err(SseError::TooLong));
                }
                return Some(String::from_utf8(line.to_vec()).map_err(|_| SseError::NotText));
            }
            if let Some(value) = line.strip_prefix(b"data:") {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.has_data = true;
                self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
                if self.data.len() > EVENT_MAX {
                    return Some(Err(SseError::TooLong));
                }
            }
        }
    }

    /// The data of a last event without an empty line after it.
    pub(crate) fn finish(&mut self) -> Option<Result<String, SseError>> {
        self.push(b"\n\n");
        self.next_event()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(chunks: &[&[u8]]) -> Vec<Result<String, SseError>> {
        let (mut sse, mut events) = (Splitter::default(), Vec::new());
        for chunk in chunks {
            sse.push(chunk);
            while let Some(event) = sse.next_event() {
                events.push(event);
            }
        }
        events.extend(sse.finish());
        events
    }

    #[test]
    fn events_are_split_at_every_kind_of_line_end() {
        let expected: Vec<Result<String, SseError>> = ["a", "b\nc", "d"].map(|s| Ok(s.to_owned())).into();
        for end in ["\n", "\r\n", "\r"] {
            let text = [": comment", "data: a", "", "event: x", "data:b", "data: c", "", "", "data: d"].join(end);
            assert_eq!(all(&[text.as_bytes()]), expected, "{end:?}");
        }
        assert_eq!(all(&[b"data: \xff\n\n"]), [Err(SseError::NotText)]);
        assert_eq!(all(&[b"data\n\nid: 1\n\n"]), []);
    }

    #[test]
    fn a_byte_order_mark_in_front_loses_nothing() {
        for chunks in [
            &[&b"\xef\xbb\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n"[..]][..],
            &[b"\xef", b"\xbb\xbfdata: a\n", b"\ndata: \xef\xbb\xbfb\n\n"],
        ] {
            assert_eq!(all(chunks), [Ok("a".to_owned()), Ok("\u{feff}b".to_owned())]);
        }
        assert_eq!(all(&[b"\xef\xbb\xbf\ndata: a\n\n"]), [Ok("a".to_owned())]);
        let mut lines = Splitter::new(Framing::Lines);
        lines.push(b"\xef\xbb\xbf{}\n\n{}");
        let mut events: Vec<_> = std::iter::from_fn(|| lines.next_event()).collect();
        events.extend(lines.finish());
        assert_eq!(events, [Ok("{}".to_owned()), Ok("{}".to_owned())]);
    }

    proptest! {
        #[test]
        fn the_boundaries_of_reads_make_no_difference(
            text in "(data: ?[a-zé]{0,3}|:x|\n|\r\n|\r|event: y\n){0,20}",
            cuts in proptest::collection::vec(0_usize..60, 0..6),
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&bytes[from..cut]);
                from = cut;
            }
            chunks.push(&bytes[from..]);
            prop_assert_eq!(all(&chunks), all(&[bytes]));
        }
    }
}
