//! Events out of bytes as they come, in linear time and bounded space: server-sent events, or lines of JSON.
//!
//! Must never: hold more than one event and what is left of the last read.

use std::mem;

/// Longest event, in bytes.
pub(crate) const EVENT_MAX: usize = 8 * 1_024 * 1_024;

/// What is wrong with a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SseError {
    /// Not UTF-8.
    #[error("an event is not UTF-8")]
    NotText,
    /// An event without end.
    #[error("an event is longer than {EVENT_MAX} bytes")]
    TooLong,
}

/// What an event is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Framing {
    /// A server-sent event (HTML Living Standard, 9.2).
    #[default]
    Events,
    /// A line.
    Lines,
}

/// Splits bytes into the data of events.
#[derive(Default)]
pub(crate) struct Splitter {
    framing: Framing,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that are done with.
    done: usize,
    /// Bytes of `buffer` that are known to hold no line end.
    seen: usize,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
}

impl Splitter {
    pub(crate) fn new(framing: Framing) -> Self {
        Self { framing, ..Self::default() }
    }

    /// Adds bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.done > 0 {
            self.buffer.drain(..self.done);
            self.seen -= self.done;
            self.done = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The data of the next whole event; events without data are passed over.
    pub(crate) fn next_event(&mut self) -> Option<Result<String, SseError>> {
        loop {
            let Some(end) = self.buffer[self.seen..].iter().position(|b| matches!(b, b'\n' | b'\r')) else {
                self.seen = self.buffer.len();
                if self.buffer.len() - self.done + self.data.len() > EVENT_MAX {
                    return Some(Err(SseError::TooLong));
                }
                return None;
            };
            let end = self.seen + end;
            let (start, newline) = (self.done, self.buffer[end]);
            self.done = end + 1;
            self.seen = self.done;
            // The second half of a line end that is CR LF, perhaps split over two reads.
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

    /// The data of a last event that no empty line follows.
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
    fn events_are_split_whatever_ends_their_lines() {
        let expected: Vec<Result<String, SseError>> = ["a", "b\nc", "d"].map(|s| Ok(s.to_owned())).into();
        for end in ["\n", "\r\n", "\r"] {
            let text = [": comment", "data: a", "", "event: x", "data:b", "data: c", "", "", "data: d"].join(end);
            assert_eq!(all(&[text.as_bytes()]), expected, "{end:?}");
        }
        assert_eq!(all(&[b"data: \xff\n\n"]), [Err(SseError::NotText)]);
        assert_eq!(all(&[b"data\n\nid: 1\n\n"]), []);
    }

    proptest! {
        #[test]
        fn where_reads_end_makes_no_difference(
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
