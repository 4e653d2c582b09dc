//! Lines of a stream whose other end is not trusted.
//!
//! It must never hold more bytes than the longest line that its reader allows, and one piece of the stream.

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};

/// Why there is no line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// It is longer than the reader allows.
    #[error("a line has more than {0} bytes")]
    TooLong(usize),
    /// The stream ended within a line.
    #[error("the stream ended too early")]
    Cut,
    /// The stream failed.
    #[error("{0}")]
    Broken(String),
}

/// The lines of a stream.
#[derive(Debug)]
pub struct Lines<S> {
    stream: S,
    waiting: Vec<u8>,
    /// Bytes of `waiting` that are known to have no line break.
    seen: usize,
}

impl<S, E> Lines<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::fmt::Display,
{
    /// The lines of `stream`.
    pub fn new(stream: S) -> Self {
        Self { stream, waiting: Vec::new(), seen: 0 }
    }

    /// The next line, without its end; `None` at the end of the stream. Dropping the future loses nothing.
    ///
    /// # Errors
    /// If the line has more than `max` bytes, or the stream fails or ends within it.
    pub async fn next(&mut self, max: usize) -> Result<Option<Vec<u8>>, LineError> {
        loop {
            if let Some(at) = self.waiting[self.seen..].iter().position(|byte| *byte == b'\n') {
                let rest = self.waiting.split_off(self.seen + at + 1);
                let mut line = std::mem::replace(&mut self.waiting, rest);
                self.seen = 0;
                line.pop();
                return if line.len() > max { Err(LineError::TooLong(max)) } else { Ok(Some(line)) };
            }
            self.seen = self.waiting.len();
            if self.seen > max {
                return Err(LineError::TooLong(max));
            }
            match self.stream.next().await {
                Some(Ok(piece)) => self.waiting.extend_from_slice(&piece),
                Some(Err(error)) => return Err(LineError::Broken(error.to_string())),
                None if self.waiting.is_empty() => return Ok(None),
                None => return Err(LineError::Cut),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    fn lines(pieces: &[&'static str]) -> Lines<impl Stream<Item = Result<Bytes, String>> + Unpin> {
        let pieces: Vec<Result<Bytes, String>> =
            pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
        Lines::new(stream::iter(pieces))
    }

    #[tokio::test]
    async fn lines_come_whole_and_long_ones_are_errors() {
        let mut whole = lines(&["a", "b\n\nc", "d\ne\n"]);
        for wanted in ["ab", "", "cd", "e"] {
            assert_eq!(whole.next(2).await.unwrap().unwrap(), wanted.as_bytes());
        }
        assert!(whole.next(2).await.unwrap().is_none());
        assert!(matches!(lines(&["abc\n"]).next(2).await, Err(LineError::TooLong(2))));
        assert!(matches!(lines(&["ab", "cd", "ef"]).next(3).await, Err(LineError::TooLong(3))));
        assert!(matches!(lines(&["ab"]).next(3).await, Err(LineError::Cut)));
        let failed = stream::iter([Err::<Bytes, _>("no")]);
        assert!(matches!(Lines::new(failed).next(3).await, Err(LineError::Broken(_))));
    }
}
