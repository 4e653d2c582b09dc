//! The standard streams of a command. An output of any length is kept in bounded memory, its beginning and its end; input can come
//! and output can be read while the command runs.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// Bytes of input that may wait for the command to read them.
const WAITING_MAX: usize = 64 * 1024;

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

/// Bytes that go one way, between a command and whoever feeds or reads it.
#[derive(Debug, Default)]
struct Pipe {
    state: Mutex<State>,
    changed: Notify,
    /// Notified when what waits is taken.
    taken: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// Bytes that were taken since somebody asked.
    taken: u32,
    closed: bool,
}

impl Pipe {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is a few assignments, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds bytes, all of them or none, so that at most `most` wait.
    fn push(&self, bytes: &[u8], most: usize) -> Result<(), NotTaken> {
        let mut state = self.state();
        if state.closed {
            return Err(NotTaken::Closed);
        }
        if state.waiting.len().saturating_add(bytes.len()) > most {
            return Err(NotTaken::Full);
        }
        state.waiting.extend_from_slice(bytes);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    fn close(&self) {
        self.state().closed = true;
        self.changed.notify_one();
    }

    /// The next bytes; `None` at the end. Dropping the future loses nothing.
    async fn next(&self) -> Option<Vec<u8>> {
        loop {
            // A notification before the wait is kept, so nothing between the two is missed.
            let changed = self.changed.notified();
            {
                let mut state = self.state();
                if !state.waiting.is_empty() {
                    let bytes = std::mem::take(&mut state.waiting);
                    state.taken = state.taken.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                    drop(state);
                    self.taken.notify_one();
                    return Some(bytes);
                }
                if state.closed {
                    return None;
                }
            }
            changed.await;
        }
    }

    /// Waits until `found` gives something; it is asked again whenever something was taken.
    async fn taken<T>(&self, found: impl Fn(&mut State) -> Option<T>) -> T {
        loop {
            let taken = self.taken.notified();
            if let Some(found) = found(&mut self.state()) {
                return found;
            }
            taken.await;
        }
    }
}

/// Why input was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The command has not read enough of what came before.
    Full,
    /// The input was closed.
    Closed,
}

/// A standard input that stays open while a command runs. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Feed(Arc<Pipe>);

impl Feed {
    /// Adds input: all of it or none.
    ///
    /// # Errors
    /// If it does not fit, or the input is closed.
    pub fn push(&self, bytes: &[u8]) -> Result<(), NotTaken> {
        self.0.push(bytes, WAITING_MAX)
    }

    /// Closes the input: the command reads what waits, and then the end.
    pub fn close(&self) {
        self.0.close();
    }

    /// Completes when nothing waits any more. For one caller at a time.
    pub async fn drained(&self) {
        self.0.taken(|state| state.waiting.is_empty().then_some(())).await;
    }

    /// The next input; `None` at its end. Dropping the future loses nothing.
    pub(crate) async fn next(&self) -> Option<Vec<u8>> {
        self.0.next().await
    }
}

/// A standard output that is read piece by piece while a command runs, at its reader's pace. The command's credit bounds what
/// waits: one whose output nobody reads stops. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Drain(Arc<Pipe>);

impl Drain {
    /// The next output; `None` at its end. Dropping the future loses nothing. For one reader at a time.
    pub async fn next(&self) -> Option<Vec<u8>> {
        self.0.next().await
    }

    /// Adds output.
    pub(crate) fn push(&self, bytes: &[u8]) {
        // After its end there is no output.
        let _ = self.0.push(bytes, usize::MAX);
    }

    /// The bytes that the reader has taken since the last call. Waits until there are some.
    pub(crate) async fn taken(&self) -> u32 {
        self.0.taken(|state| Some(std::mem::take(&mut state.taken)).filter(|bytes| *bytes > 0)).await
    }

    /// Ends the output: the reader gets what waits, and then the end.
    pub(crate) fn close(&self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::FutureExt as _;

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

    #[tokio::test]
    async fn input_is_taken_whole_in_order_and_within_its_bound() {
        let feed = Feed::default();
        assert_eq!(feed.next().now_or_never(), None);
        feed.push(b"ab").unwrap();
        feed.push(b"c").unwrap();
        assert_eq!(feed.push(&[b'x'; WAITING_MAX]), Err(NotTaken::Full));
        assert_eq!(feed.next().await.as_deref(), Some(&b"abc"[..]));
        feed.push(&[b'x'; WAITING_MAX]).unwrap();
        feed.close();
        assert_eq!(feed.push(b"y"), Err(NotTaken::Closed));
        assert_eq!(feed.drained().now_or_never(), None);
        assert_eq!(feed.next().await.map(|bytes| bytes.len()), Some(WAITING_MAX));
        feed.drained().await;
        assert_eq!(feed.next().await, None);
    }

    #[tokio::test]
    async fn output_is_taken_in_order_and_credit_comes_with_the_reading() {
        let drain = Drain::default();
        assert_eq!(drain.next().now_or_never(), None);
        drain.push(b"ab");
        drain.push(b"c");
        assert_eq!(drain.taken().now_or_never(), None, "nothing was read");
        assert_eq!(drain.next().await.as_deref(), Some(&b"abc"[..]));
        assert_eq!(drain.taken().await, 3);
        drain.push(b"d");
        drain.close();
        assert_eq!(drain.next().await.as_deref(), Some(&b"d"[..]));
        assert_eq!(drain.next().await, None);
    }
}
