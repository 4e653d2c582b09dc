//! The lines that a process prints, gathered as they come.

use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::wait::Deadline;

/// Lines that are kept at most; a process that prints more is broken.
const LINES_MAX: usize = 500_000;

#[derive(Default)]
struct State {
    lines: Vec<String>,
    ended: bool,
}

/// What came through a pipe so far, line by line. Cheap to clone.
#[derive(Clone, Default)]
pub struct Lines(Arc<(Mutex<State>, Condvar)>);

impl Lines {
    /// Reads `pipe` to its end in a thread of its own.
    pub fn of(pipe: impl Read + Send + 'static) -> Self {
        let lines = Self::default();
        let shared = lines.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(pipe);
            let mut line = Vec::new();
            loop {
                line.clear();
                // A pipe that breaks has ended.
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

    /// Every line so far.
    #[must_use]
    pub fn all(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    /// Everything so far as one text.
    #[must_use]
    pub fn text(&self) -> String {
        self.all().iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    /// How many lines there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().lines.len()
    }

    /// Whether nothing was printed yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first line from number `from` on that `wanted` accepts, with its number; nothing if the pipe ends or the
    /// deadline passes before it comes.
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

    /// Waits for the end of the pipe; false if the deadline passes first.
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
