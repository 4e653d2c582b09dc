//! The summary of a run (DEV-15, DEV-18, DEV-21).

use crate::format::Format;
use crate::run::Run;
use crate::text::{after_space, cut_middle, plain, prefix_bytes, suffix_bytes};
use crate::usage::Usage;

/// How many entries of a list are shown.
const MAX_SHOWN: usize = 50;

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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compact {
    /// The summary for a model.
    pub text: String,
    /// Whether the run failed: it says so, or its exit does.
    pub failed: bool,
    /// The tokens of the run, if it reports them.
    pub usage: Option<Usage>,
    /// The id with which the run can be continued.
    pub session_id: Option<String>,
    /// How long the run took, in milliseconds.
    pub duration_ms: Option<u64>,
}

/// A list of the summary.
struct List {
    label: &'static str,
    between: &'static str,
    items: Vec<String>,
    /// How many items are shown.
    shown: usize,
    /// How many more there are, of which nothing is known.
    more: usize,
    /// Lists with a larger weight are shortened first.
    weight: usize,
}

impl List {
    fn new(label: &'static str, between: &'static str, items: Vec<String>, more: usize, weight: usize) -> Self {
        Self { label, between, shown: items.len().min(MAX_SHOWN), items, more, weight }
    }

    fn text(&self) -> String {
        let more = self.items.len() - self.shown + self.more;
        let more = (more > 0).then(|| format!("+{more} more"));
        let shown: Vec<&str> = self.items[..self.shown].iter().map(String::as_str).chain(more.as_deref()).collect();
        if shown.is_empty() {
            return String::new();
        }
        let first = if self.between.starts_with('\n') { self.between } else { " " };
        format!("{}:{first}{}\n", self.label, shown.join(self.between))
    }
}

/// The summary of `run` in at most `max` bytes. `None` if it has nothing of use.
pub(crate) fn compact(run: &Run, format: Format, exit: &Exit, stderr: &str, max: usize) -> Option<Compact> {
    let manifest = &run.manifest;
    let mut lists = [
        List::new("Files read", ", ", manifest.read(), manifest.more_read, 2),
        List::new("Files written", ", ", manifest.written(), manifest.more_written, 1),
        List::new("Commands", "\n- ", manifest.commands(), manifest.more_commands, 2),
    ];
    let listed = lists.iter().any(|list| !list.items.is_empty());
    // Of a run that failed, the exit code and the error output are more than nothing.
    let useful = run.end.is_some() || listed || (run.known && (!exit.is_ok() || !run.message.is_empty()));
    if !useful {
        return None;
    }
    let duration_ms = run.duration_ms.or(exit.duration_ms);
    let head = status(run, format, *exit, duration_ms);
    let stderr = errors(stderr, *exit, max / 4);
    let (label, result) = result(run);

    // The result gets what the lists leave over, and at least two fifths.
    let label_bytes = if result.is_empty() { 0 } else { label.len() + 1 };
    let reserved = label_bytes + result.len().min(max * 2 / 5);
    shorten(&mut lists, max.saturating_sub(head.len() + stderr.len() + reserved));
    let mut text = head;
    for list in &lists {
        text.push_str(&list.text());
    }
    text.push_str(&stderr);
    if !result.is_empty() {
        let room = max.saturating_sub(text.len() + label_bytes);
        text.push_str(label);
        text.push('\n');
        text.push_str(cut_middle(&result, room).trim_end());
    }
    let text = prefix_bytes(text.trim_end(), max).to_owned();
    let failed = run.end.as_ref().is_some_and(|end| end.failed) || !exit.is_ok();
    Some(Compact { text, failed, usage: run.usage, session_id: run.session_id.clone(), duration_ms })
}

/// The first line: how the run ended, its duration and its output tokens.
fn status(run: &Run, format: Format, exit: Exit, duration_ms: Option<u64>) -> String {
    let verdict = match &run.end {
        None => "no result",
        Some(end) if end.failed => "failed",
        Some(_) => "done",
    };
    let mut line = format!("{}: {verdict}", format.agent());
    if let Some(reason) = run.end.as_ref().and_then(|end| end.reason.as_ref()) {
        line.push_str(&format!(" ({reason})"));
    }
    if let Some(ms) = duration_ms {
        // In tenths, so that the sum is exact.
        let tenths = ms.saturating_add(50) / 100;
        line.push_str(&format!(", {}.{} s", tenths / 10, tenths % 10));
    }
    if let Some(usage) = run.usage {
        line.push_str(&format!(", {} output tokens", usage.output));
    }
    if !exit.is_ok() {
        line.push_str(&format!(", {}", exit.shown()));
    }
    line + "\n"
}

/// The end of the error output of a run that failed, with its label.
fn errors(stderr: &str, exit: Exit, max: usize) -> String {
    // Only the end is shown, so no more of it is cleaned.
    let clean = plain(suffix_bytes(stderr, 4 * max));
    let clean = clean.trim();
    if exit.is_ok() || clean.is_empty() {
        return String::new();
    }
    let tail = suffix_bytes(clean, max.saturating_sub("Errors:\n[cut: the beginning is left out]\n\n".len()));
    match tail.len() < clean.len() {
        true => format!("Errors:\n[cut: the beginning is left out]\n{}\n", after_space(tail)),
        false => format!("Errors:\n{tail}\n"),
    }
}

/// The result with its label. If there is none, the last message is shown as what it is.
fn result(run: &Run) -> (&'static str, String) {
    let text = run.end.as_ref().and_then(|end| end.text.as_ref());
    let label = if run.end.is_some() { "Result:" } else { "Last message:" };
    let text = text.or(run.error.as_ref().filter(|_| run.end.is_none() && run.message.is_empty()));
    (label, plain(text.unwrap_or(&run.message)).trim().to_owned())
}

/// Shows fewer items until the lists have at most `room` bytes.
fn shorten(lists: &mut [List], room: usize) {
    loop {
        let bytes: usize = lists.iter().map(|list| list.text().len()).sum();
        let longest = lists.iter_mut().filter(|list| list.shown > 0).max_by_key(|list| list.text().len() * list.weight);
        match longest {
            Some(list) if bytes > room => list.shown -= 1,
            _ => return,
        }
    }
}
