//! Reads the stream of a run, piece by piece, and gives its summary.

use std::error::Error;
use std::fmt;
use std::str::FromStr;

use ghost_domain::json_text::readable_part;

use crate::fields::Usage;
use crate::lines::Lines;
use crate::run::Run;
use crate::summary::{self, Summary};
use crate::text::one_line;
use crate::{claude, codex, cursor, gemini};

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
    /// is one line of at most [`NOTE_CHARS`](crate::NOTE_CHARS) characters, and there are at most [`MAX_NOTES`].
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

/// How a run ended, as seen from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exit {
    /// The exit code; `None` if a signal ended the run.
    pub code: Option<i32>,
    /// Whether the run was stopped because it took too long.
    pub timed_out: bool,
    /// How long it took. Used if the agent does not report its duration.
    pub duration_ms: Option<u64>,
}

impl Exit {
    /// The exit of a run that ended with `code`.
    #[must_use]
    pub fn with_code(code: i32) -> Self {
        Self { code: Some(code), ..Self::default() }
    }

    fn is_ok(self) -> bool {
        self.code == Some(0) && !self.timed_out
    }

    fn shown(self) -> String {
        match self.code {
            _ if self.timed_out => "stopped at its time limit".to_owned(),
            Some(code) => format!("exit code {code}"),
            None => "stopped by a signal".to_owned(),
        }
    }
}

/// The summary of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Compact {
    /// The summary for a model.
    pub text: String,
    /// Whether the run failed: it says so, or its exit does, or something speaks against it being done.
    pub failed: bool,
    /// The tokens of the run, if it reports them.
    pub usage: Option<Usage>,
    /// The id with which the run can be continued.
    pub session_id: Option<String>,
    /// How long the run took, in milliseconds.
    pub duration_ms: Option<u64>,
    /// What the run cost in US dollars, if the agent tells it.
    pub cost_usd: Option<f64>,
}

/// The summary of `run` in at most `max` bytes. `None` if it has nothing of use.
pub(crate) fn compact(run: &Run, format: Format, exit: &Exit, stderr: &str, max: usize) -> Option<Compact> {
    let manifest = run.done.manifest();
    let listed = !manifest.is_empty();
    // Of a run that failed, the exit code and the error output are more than nothing.
    let useful = run.end.is_some() || listed || (run.known && (!exit.is_ok() || !run.message.is_empty()));
    if !useful {
        return None;
    }
    let duration_ms = run.duration_ms.or(exit.duration_ms);
    let (end, doubt) = (run.end.as_ref(), run.doubts.reason());
    // An error that is the result is not said twice.
    let shown = doubt.clone().filter(|doubt| !last_text(run).contains(doubt));
    let reasons = [end.and_then(|end| end.reason.clone()), shown];
    let reason = Some(reasons.into_iter().flatten().collect::<Vec<_>>().join("; "));
    let summary = Summary {
        agent: format.agent().to_owned(),
        verdict: match end {
            None => "no result",
            Some(end) if end.failed => "failed",
            Some(_) if doubt.is_some() => "incomplete",
            Some(_) => "done",
        },
        reason: reason.filter(|reason| !reason.is_empty()),
        duration_ms,
        output_tokens: run.usage.map(|usage| usage.output),
        ended: (!exit.is_ok()).then(|| exit.shown()),
        manifest,
        warnings: run.doubts.warnings(),
        errors: if exit.is_ok() { String::new() } else { stderr.to_owned() },
        is_result: end.is_some(),
        text: last_text(run).to_owned(),
    };
    let text = summary::compact(&summary, max);
    let failed = end.is_some_and(|end| end.failed) || doubt.is_some() || !exit.is_ok();
    Some(Compact {
        text,
        failed,
        usage: run.usage,
        session_id: run.session_id.clone(),
        duration_ms,
        cost_usd: run.cost_usd,
    })
}

/// The result. If there is none, the last message stands for it.
fn last_text(run: &Run) -> &str {
    let text = run.end.as_ref().and_then(|end| end.text.as_ref());
    text.or(run.error.as_ref().filter(|_| run.end.is_none() && run.message.is_empty())).unwrap_or(&run.message)
}

/// The event format of a coding agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Cursor CLI with `--output-format stream-json`.
    Cursor,
    /// Claude Code with `--output-format stream-json --verbose`.
    Claude,
    /// OpenAI Codex with `codex exec --json`.
    Codex,
    /// Gemini CLI with `--output-format stream-json`.
    Gemini,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 4] = [Self::Cursor, Self::Claude, Self::Codex, Self::Gemini];

    /// The name of the format in a configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cursor => "cursor-json",
            Self::Claude => "claude-json",
            Self::Codex => "codex-json",
            Self::Gemini => "gemini-json",
        }
    }

    /// The name of the agent for people and models.
    #[must_use]
    pub fn agent(self) -> &'static str {
        match self {
            Self::Cursor => "Cursor agent",
            Self::Claude => "Claude agent",
            Self::Codex => "Codex agent",
            Self::Gemini => "Gemini agent",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// The error for a name that no format has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFormat(pub String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Format::ALL.map(Format::name).join(", ");
        write!(f, "no output format `{}`; there are {names}", one_line(&self.0, 40))
    }
}

impl Error for UnknownFormat {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_are_refused() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let error = "cursor\n".parse::<Format>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "no output format `cursor`; there are cursor-json, claude-json, codex-json, gemini-json"
        );
    }
}
