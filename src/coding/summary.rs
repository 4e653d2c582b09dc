//! The summary of a run for a model: one form for all coding agents.

use crate::collector::Manifest;
use crate::text::{after_space, cut_middle, plain, prefix_bytes, suffix_bytes};

/// How many entries of a list are shown.
const MAX_SHOWN: usize = 50;

/// What a summary is made of.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The name of the agent.
    pub agent: String,
    /// `done`, `incomplete`, `failed` or `no result`.
    pub verdict: &'static str,
    /// Why, in a few words.
    pub reason: Option<String>,
    /// How long the run took, in milliseconds.
    pub duration_ms: Option<u64>,
    /// Tokens that the model wrote.
    pub output_tokens: Option<u64>,
    /// How it ended as seen from outside, if not well.
    pub ended: Option<String>,
    /// What it did.
    pub manifest: Manifest,
    /// What the agent warned of.
    pub warnings: Vec<String>,
    /// What went wrong. Its end counts.
    pub errors: String,
    /// Whether `text` is the agent's answer, and not only its last message.
    pub is_result: bool,
    /// The answer, or the last message.
    pub text: String,
}

/// A list of the summary.
struct List<'a> {
    label: &'static str,
    between: &'static str,
    items: &'a [String],
    /// How many items are shown.
    shown: usize,
    /// How many more there are, of which nothing is known.
    more: usize,
    /// Lists with a larger weight are shortened first.
    weight: usize,
}

impl<'a> List<'a> {
    fn new(label: &'static str, between: &'static str, items: &'a [String], more: usize, weight: usize) -> Self {
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

/// The summary in at most `max` bytes. Below 256 it is 256.
#[must_use]
pub fn compact(summary: &Summary, max: usize) -> String {
    let max = max.max(256);
    let manifest = &summary.manifest;
    let mut lists = [
        List::new("Files read", ", ", &manifest.read, manifest.more_read, 2),
        List::new("Files written", ", ", &manifest.written, manifest.more_written, 1),
        List::new("Commands", "\n- ", &manifest.commands, manifest.more_commands, 2),
        List::new("Warnings", "\n- ", &summary.warnings, 0, 2),
    ];
    let mut text = status(summary);
    let errors = errors(&summary.errors, max / 4);
    let result = plain(&summary.text).trim().to_owned();
    let label = if summary.is_result { "Result:\n" } else { "Last message:\n" };

    // The result gets what the lists leave over, and at least two fifths.
    let label_bytes = if result.is_empty() { 0 } else { label.len() };
    let reserved = label_bytes + result.len().min(max * 2 / 5);
    shorten(&mut lists, max.saturating_sub(text.len() + errors.len() + reserved));
    for list in &lists {
        text.push_str(&list.text());
    }
    text.push_str(&errors);
    if !result.is_empty() {
        let room = max.saturating_sub(text.len() + label_bytes);
        text.push_str(label);
        text.push_str(cut_middle(&result, room).trim_end());
    }
    prefix_bytes(text.trim_end(), max).to_owned()
}

/// The first line: how the run ended, its duration and its output tokens.
fn status(summary: &Summary) -> String {
    let mut line = format!("{}: {}", summary.agent, summary.verdict);
    if let Some(reason) = &summary.reason {
        line.push_str(&format!(" ({reason})"));
    }
    if let Some(ms) = summary.duration_ms {
        // In tenths, so that the sum is exact.
        let tenths = ms.saturating_add(50) / 100;
        line.push_str(&format!(", {}.{} s", tenths / 10, tenths % 10));
    }
    if let Some(tokens) = summary.output_tokens {
        line.push_str(&format!(", {tokens} output tokens"));
    }
    if let Some(ended) = &summary.ended {
        line.push_str(&format!(", {ended}"));
    }
    line + "\n"
}

/// The end of the errors, with its label.
fn errors(errors: &str, max: usize) -> String {
    // Only the end is shown, so no more of it is cleaned.
    let clean = plain(suffix_bytes(errors, 4 * max));
    let clean = clean.trim();
    if clean.is_empty() {
        return String::new();
    }
    let tail = suffix_bytes(clean, max.saturating_sub("Errors:\n[cut: the beginning is left out]\n\n".len()));
    match tail.len() < clean.len() {
        true => format!("Errors:\n[cut: the beginning is left out]\n{}\n", after_space(tail)),
        false => format!("Errors:\n{tail}\n"),
    }
}

/// Shows fewer items until the lists have at most `room` bytes.
fn shorten(lists: &mut [List<'_>], room: usize) {
    loop {
        let bytes: usize = lists.iter().map(|list| list.text().len()).sum();
        let longest = lists.iter_mut().filter(|list| list.shown > 0).max_by_key(|list| list.text().len() * list.weight);
        match longest {
            Some(list) if bytes > room => list.shown -= 1,
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_its_parts_in_order_and_leaves_empty_ones_out() {
        let manifest = Manifest {
            read: vec!["a.rs".to_owned(), "b.rs".to_owned()],
            written: vec!["c.rs".to_owned()],
            commands: vec!["cargo test".to_owned()],
            ..Manifest::default()
        };
        let mut summary = Summary {
            agent: "ACP agent".to_owned(),
            verdict: "done",
            duration_ms: Some(12_345),
            output_tokens: Some(678),
            manifest,
            is_result: true,
            text: "All is well.\n".to_owned(),
            ..Summary::default()
        };
        assert_eq!(
            compact(&summary, 2048),
            "ACP agent: done, 12.3 s, 678 output tokens\nFiles read: a.rs, b.rs\nFiles written: c.rs\n\
             Commands:\n- cargo test\nResult:\nAll is well."
        );
        summary.manifest = Manifest::default();
        summary.text.clear();
        assert_eq!(compact(&summary, 2048), "ACP agent: done, 12.3 s, 678 output tokens");
    }

    #[test]
    fn a_long_summary_keeps_its_bound_and_the_end_of_the_result() {
        let many = |n: usize| (0..n).map(|n| format!("directory/file-{n}.rs")).collect();
        let manifest = Manifest { read: many(300), written: many(60), commands: many(80), ..Manifest::default() };
        let text = format!("{} the end", "word ".repeat(2_000));
        let summary = Summary { manifest, text, errors: "x ".repeat(5_000), ..Summary::default() };
        for max in [0, 256, 1000, 2048, 16_000] {
            let short = compact(&summary, max);
            assert!(short.len() <= max.max(256), "{max}: {}", short.len());
            assert!(max < 1000 || (short.ends_with(" the end") && short.contains(" more\n")), "{short}");
        }
        assert!(compact(&summary, 16_000).contains("+250 more"));
    }
}
