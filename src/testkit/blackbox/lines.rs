//! The lines that a process prints, collected by a thread.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::wait::Deadline;

/// Maximum number of lines that are kept.
const LINES_MAX: usize = 500_000;

#[derive(Default)]
struct State {
    lines: Vec<String>,
    ended: bool,
}

/// The lines of a pipe so far. A clone shares them.
#[derive(Clone, Default)]
pub struct Lines(Arc<(Mutex<State>, Condvar)>);

impl Lines {
    /// Reads `pipe` to its end on a thread of its own.
    pub fn of(pipe: impl Read + Send + 'static) -> Self {
        let lines = Self::default();
        let shared = lines.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(pipe);
            let mut line = Vec::new();
            loop {
                line.clear();
                // A read error is treated as the end.
                if reader.read_until(b'\n', &mut line).unwrap_or(0) == 0 {
                    break;
                }
                let mut state = shared.lock();
                if state.lines.len() < LINES_MAX {
                    state.lines.push(String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned());
                }
                shared.0.1.notify_all();
            }
            shared.lock().ended = true;
            shared.0.1.notify_all();
        });
        lines
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All lines so far.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    /// All lines so far as one text.
    #[must_use]
    pub fn text(&self) -> String {
        self.all().iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    /// Number of lines so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().lines.len()
    }

    /// Whether there are no lines yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first line that `wanted` accepts, from index `from` on, with its index. `None` if the pipe ends or the
    /// deadline passes first.
    pub fn find(&self, from: usize, deadline: Deadline, wanted: impl Fn(&str) -> bool) -> Option<(usize, String)> {
        let mut state = self.lock();
        let mut at = from;
        loop {
            while let Some(line) = state.lines.get(at) {
                if wanted(line) {
                    return Some((at, line.clone()));
                }
                at += 1;
            }
            if state.ended || deadline.passed() {
                return None;
            }
            (state, _) = self.0.1.wait_timeout(state, deadline.left()).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for the end of the pipe. Returns false if the deadline passes first.
    #[must_use]
    pub fn wait_for_end(&self, deadline: Deadline) -> bool {
        let mut state = self.lock();
        while !state.ended {
            if deadline.passed() {
                return false;
            }
            (state, _) = self.0.1.wait_timeout(state, deadline.left()).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}
