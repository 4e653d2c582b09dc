//! Reads lines with a bound.
//!
//! It must never hold more than one line of at most its bound.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// How much is read at once, in bytes.
const CHUNK: usize = 64 * 1024;

pub(crate) struct Lines<R> {
    input: BufReader<R>,
    max: usize,
    line: Vec<u8>,
}

/// Why there is no line.
#[derive(Debug)]
pub(crate) enum LineError {
    /// It is longer than the bound.
    TooLong,
    /// It cannot be read.
    Io(io::Error),
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// Lines of at most `max` bytes, without their ends.
    pub(crate) fn new(input: R, max: usize) -> Self {
        Self { input: BufReader::with_capacity(CHUNK, input), max, line: Vec::new() }
    }

    /// The next line; `None` at the end. Bytes that are not UTF-8 become `U+FFFD`: a wrong byte in a text must not
    /// cost the whole message. A last line may lack its end.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, LineError> {
        loop {
            let read = self.input.fill_buf().await.map_err(LineError::Io)?;
            if read.is_empty() {
                return Ok((!self.line.is_empty()).then(|| self.take()));
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let part = &read[..end.unwrap_or(read.len())];
            if self.line.len() + part.len() > self.max {
                return Err(LineError::TooLong);
            }
            self.line.extend_from_slice(part);
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if end.is_some() {
                return Ok(Some(self.take()));
            }
        }
    }

    /// The line. Its memory is given back, so that one long line does not cost memory for ever.
    fn take(&mut self) -> String {
        let line = std::mem::take(&mut self.line);
        String::from_utf8(line).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_read_up_to_their_bound_and_the_last_one_may_be_open() {
        let mut lines = Lines::new(&b"ab\n\nc\xffd\n12345\nrest"[..], 5);
        for expected in ["ab", "", "c\u{fffd}d", "12345", "rest"] {
            assert_eq!(lines.next().await.unwrap().as_deref(), Some(expected));
        }
        assert!(lines.next().await.unwrap().is_none());
        let mut lines = Lines::new(&b"123456"[..], 5);
        assert!(matches!(lines.next().await, Err(LineError::TooLong)));
    }
}
