//! Reads the stream of a run, piece by piece.

use ghost_domain::json_text::readable_part;

use crate::compact::{Compact, Exit, compact};
use crate::format::Format;
use crate::lines::Lines;
use crate::run::Run;
use crate::{claude, codex, cursor, gemini};

pub use crate::run::NOTE_CHARS;

/// The usual bound of a summary, in bytes.
pub const MAX_BYTES: usize = 2048;

/// The most notes that one call of [`Compactor::push`] returns.
pub const MAX_NOTES: usize = 32;

/// Reads the stream of a coding agent and keeps only what its summary needs.
#[derive(Debug)]
pub struct Compactor {
    format: Format,
    max_bytes: usize,
    lines: Lines,
    run: Run,
}

impl Compactor {
    /// A compactor for one run. Paths below `folder` are shown relative to it.
    #[must_use]
    pub fn new(format: Format, folder: Option<String>) -> Self {
        let mut run = Run::default();
        if let Some(folder) = folder {
            run.done.below(&folder);
        }
        Self { format, max_bytes: MAX_BYTES, lines: Lines::default(), run }
    }

    /// With another bound of the summary, in bytes. Below 256 it is 256.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Reads the next piece of the stream. Returns notes on what the agent does, for people: each
    /// is one line of at most [`NOTE_CHARS`] characters, and there are at most [`MAX_NOTES`].
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        // The last place is for the number of notes that are left out.
        self.run.notes.most = MAX_NOTES - 1;
        let Self { format, lines, run, .. } = self;
        lines.push(bytes, |line| read(*format, line, run));
        let notes = std::mem::take(&mut self.run.notes);
        let more = (notes.more > 0).then(|| format!("… and {} more", notes.more));
        notes.kept.into_iter().chain(more).collect()
    }

    /// The summary of the run, which ended with `exit`. `stderr_tail` is the end of its error
    /// output. `None` if the stream had no result and nothing else of use, for example because it
    /// was in another format. The raw output is then the best answer.
    #[must_use]
    pub fn finish(self, exit: &Exit, stderr_tail: &str) -> Option<Compact> {
        let Self { format, max_bytes, lines, mut run } = self;
        lines.finish(|line| read(format, line, &mut run));
        run.said();
        compact(&run, format, exit, stderr_tail, max_bytes.max(256))
    }

    /// An upper bound of the bytes that are held.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.lines.held() + self.run.held()
    }
}

/// Adds the event in `line`, if it is one. Agents also print lines that are not events. An event that could be skipped and
/// has space before it is parsed, with the same effect.
fn read(format: Format, line: &[u8], run: &mut Run) {
    let (is_skipped, read): (_, fn(&[u8], &mut Run) -> bool) = match format {
        Format::Cursor => (cursor::is_skipped(line), cursor::read),
        Format::Claude => (claude::is_skipped(line), claude::read),
        Format::Codex => (codex::is_skipped(line), codex::read),
        Format::Gemini => (false, gemini::read),
    };
    if is_skipped {
        run.known = true;
        return;
    }
    let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line).trim_ascii();
    if line.starts_with(b"{") && !read(line, run) {
        // The message of an agent can come in parts.
        read(readable_part(&String::from_utf8_lossy(line)).as_bytes(), run);
    }
}
