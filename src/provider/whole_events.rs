//! The bytes of a stream as whole events, with one sort of line ends, and bounded.
//!
//! Must never: look into an event, or hold more than one.

use crate::answer_bounds::ANSWER_MAX;
use crate::error::{ErrorKind, ProviderError};
use crate::sse::EVENT_MAX;

/// What ends an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// A line end: NDJSON.
    Line,
    /// An empty line: server-sent events.
    EmptyLine,
}

/// Keeps back what is no whole event yet. Every line end becomes LF: genai takes a CR LF that two reads share for two.
pub(crate) struct Whole {
    ends: Ends,
    buffer: Vec<u8>,
    after_cr: bool,
    total: usize,
}

impl Whole {
    pub(crate) fn new(ends: Ends) -> Self {
        Self { ends, buffer: Vec::new(), after_cr: false, total: 0 }
    }

    /// Takes more; gives all events that are whole.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<u8>, ProviderError> {
        let too_long = |what: &str, most: usize| {
            Err(ProviderError::new(ErrorKind::BadAnswer, format!("{what} is longer than {most} bytes")))
        };
        self.total = self.total.saturating_add(bytes.len());
        if self.total > ANSWER_MAX {
            return too_long("the answer", ANSWER_MAX);
        }
        // The end of an event may have begun in what was there.
        let from = self.buffer.len().saturating_sub(1);
        for byte in bytes {
            match (*byte, std::mem::replace(&mut self.after_cr, *byte == b'\r')) {
                (b'\n', true) => {}
                (b'\r', _) => self.buffer.push(b'\n'),
                (byte, _) => self.buffer.push(byte),
            }
        }
        let fresh = &self.buffer[from..];
        let end = match self.ends {
            Ends::Line => fresh.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1),
            Ends::EmptyLine => fresh.windows(2).rposition(|pair| pair == b"\n\n").map(|at| at + 2),
        };
        let rest = end.map_or_else(Vec::new, |end| self.buffer.split_off(from + end));
        let events = if end.is_some() { std::mem::replace(&mut self.buffer, rest) } else { Vec::new() };
        if self.buffer.len() > EVENT_MAX {
            return too_long("an event", EVENT_MAX);
        }
        Ok(events)
    }

    /// What has come after the last whole event.
    pub(crate) fn rest(self) -> Vec<u8> {
        self.buffer
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pushed(ends: Ends, pieces: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<u8>) {
        let mut whole = Whole::new(ends);
        let events = pieces.iter().map(|piece| whole.push(piece).unwrap()).collect();
        (events, whole.buffer)
    }

    #[test]
    fn only_whole_events_go_on() {
        let (events, rest) =
            pushed(Ends::EmptyLine, &[b"data: a\r", b"\ndata: b\r\n", b"\r\ndata: c\n\ndata: d", b"\n"]);
        assert_eq!(events, [&b""[..], b"", b"data: a\ndata: b\n\ndata: c\n\n", b""]);
        assert_eq!(rest, b"data: d\n");
        let (events, rest) = pushed(Ends::Line, &[b"{\"a\"", b":1}\r", b"\n{}\n{"]);
        assert_eq!((events, rest), (vec![b"".to_vec(), b"{\"a\":1}\n".to_vec(), b"{}\n".to_vec()], b"{".to_vec()));
    }

    #[test]
    fn an_event_and_an_answer_have_an_end() {
        let piece = vec![b'x'; 1 << 20];
        for ends in [Ends::Line, Ends::EmptyLine] {
            let mut whole = Whole::new(ends);
            let taken = (0..64).take_while(|_| whole.push(&piece).is_ok()).count();
            assert_eq!(taken, EVENT_MAX / piece.len());
            let (mut whole, line) = (Whole::new(ends), [&piece[..], b"\n\n"].concat());
            let taken = (0..64).take_while(|_| whole.push(&line).is_ok()).count();
            assert_eq!(taken, ANSWER_MAX / line.len());
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_wherever_reads_end(text in "[ab\r\n]{0,60}", cuts in prop::collection::vec(0_usize..60, 0..8), line: bool) {
            let mut whole = Whole::new(if line { Ends::Line } else { Ends::EmptyLine });
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.sort_unstable();
            let (mut from, mut got) = (0, Vec::new());
            for cut in cuts.into_iter().chain([text.len()]) {
                got.extend(whole.push(&text.as_bytes()[from..cut]).unwrap());
                from = cut;
            }
            got.extend(whole.buffer);
            prop_assert_eq!(got, text.replace("\r\n", "\n").replace('\r', "\n").into_bytes());
        }
    }
}
