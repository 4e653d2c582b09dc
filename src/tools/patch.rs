//! Unified diffs: parses a patch and applies it to texts.
//!
//! It must never guess: whatever is not understood refuses the whole patch, and a hunk applies only where its
//! context and its removed lines are exactly. Libraries for diffs skip lines that they do not know, which would
//! apply a part of a patch.

use ghost_domain::text::clip;
use ghost_domain::{Refusal, refusal};
use ghost_operations::Result;
use serde_json::json;

/// The name of the side of a diff that does not exist.
const NOTHING: &str = "/dev/null";
/// Lines between the files of a patch that say nothing about their content.
const PASSED_OVER: [&str; 6] = ["diff ", "index ", "new file mode ", "deleted file mode ", "old mode ", "new mode "];
const MARKER: &str = "\\ No newline at end of file";

/// What a patch does to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    Modify,
    Delete,
}

/// One file of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileChange<'p> {
    /// The path as the patch names it, without `a/` or `b/` if all its paths have them.
    pub(crate) path: &'p str,
    pub(crate) kind: Kind,
    hunks: Vec<Hunk<'p>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Hunk<'p> {
    /// The number of its header in the patch, from 1.
    at: usize,
    /// The first old line, from 1; 0 for the start of an empty file.
    old_start: usize,
    /// The lines that must be there.
    old: Vec<&'p str>,
    /// The lines that take their place.
    new: Vec<&'p str>,
}

fn bad(line: usize, what: impl std::fmt::Display) -> Refusal {
    refusal!(InvalidArguments, "line {line} of the patch: {what}")
        .hint("nothing was changed; write a unified diff: `--- path`, `+++ path`, then hunks `@@ -1,3 +1,4 @@` whose lines begin with a space, - or +")
        .details(json!({ "line": line }))
}

/// Parses a patch.
///
/// # Errors
/// `InvalidArguments` with the line, for anything but a unified diff that creates, changes or deletes files.
pub(crate) fn parse_patch(patch: &str) -> Result<Vec<FileChange<'_>>> {
    let mut lines = Lines { rest: patch.split_inclusive('\n').peekable(), number: 0 };
    let mut raw = Vec::new();
    while let Some((number, line)) = lines.next() {
        let text = line.trim_end();
        if text.is_empty() || PASSED_OVER.iter().any(|start| text.starts_with(start)) {
            continue;
        }
        match text.strip_prefix("--- ") {
            Some(old) => raw.push(file(&mut lines, number, old)?),
            None => return Err(bad(number, unknown(text))),
        }
    }
    if raw.is_empty() {
        return Err(bad(1, "it names no file"));
    }
    // Paths such as a/x and b/x are git's way to name two sides of one file.
    let given = |side: &str| side != NOTHING;
    let prefixed = raw
        .iter()
        .all(|(_, old, new, _)| (!given(old) || old.starts_with("a/")) && (!given(new) || new.starts_with("b/")));
    let bare = |side: &'_ str| if prefixed && given(side) { 2 } else { 0 };
    raw.into_iter()
        .map(|(number, old, new, hunks)| {
            let (old, new) = (&old[bare(old)..], &new[bare(new)..]);
            let (path, kind) = match (given(old), given(new)) {
                (true, true) if old == new => (new, Kind::Modify),
                (true, true) => {
                    return Err(bad(number, format!("it renames `{}`, which a patch cannot do here", clip(old, 120)))
                        .hint("delete the old file and create the new one in the same patch"));
                }
                (true, false) => (old, Kind::Delete),
                (false, true) => (new, Kind::Create),
                (false, false) => return Err(bad(number, "both sides are /dev/null")),
            };
            let too_much = |hunk: &&Hunk<'_>| match kind {
                Kind::Create => !hunk.old.is_empty(),
                Kind::Delete => !hunk.new.is_empty(),
                Kind::Modify => false,
            };
            if let Some(hunk) = hunks.iter().find(too_much) {
                return Err(bad(
                    hunk.at,
                    "a file that is created has no old lines, and one that is deleted no new ones",
                ));
            }
            Ok(FileChange { path, kind, hunks })
        })
        .collect()
}

/// What to say of a line that is none of a unified diff.
fn unknown(text: &str) -> String {
    let why = if text.starts_with("***") {
        "this form of patch is not taken"
    } else if text.starts_with("rename ") || text.starts_with("copy ") || text.starts_with("similarity ") {
        "files are not renamed or copied"
    } else if text.starts_with("Binary ") || text.starts_with("GIT binary") {
        "binary files are not patched"
    } else if text.starts_with(['+', '-', ' ', '@', '\\']) {
        "it belongs to no hunk: the numbers in the header of the hunk before do not count its lines"
    } else {
        "it is none of a unified diff"
    };
    format!("{why}: `{}`", clip(text, 80))
}

/// The lines of a patch, with their numbers.
struct Lines<'p, I: Iterator<Item = &'p str>> {
    rest: std::iter::Peekable<I>,
    number: usize,
}

impl<'p, I: Iterator<Item = &'p str>> Lines<'p, I> {
    fn next(&mut self) -> Option<(usize, &'p str)> {
        let line = self.rest.next()?;
        self.number += 1;
        Some((self.number, line))
    }
}

type RawFile<'p> = (usize, &'p str, &'p str, Vec<Hunk<'p>>);

/// The rest of a file after its first line `--- old`.
fn file<'p>(lines: &mut Lines<'p, impl Iterator<Item = &'p str>>, number: usize, old: &'p str) -> Result<RawFile<'p>> {
    let new = lines.next().and_then(|(_, line)| line.strip_prefix("+++ "));
    let Some(new) = new else { return Err(bad(number + 1, "the line after `---` does not begin with `+++ `")) };
    let mut hunks = Vec::new();
    while lines.rest.peek().is_some_and(|line| line.starts_with("@@")) {
        hunks.push(hunk(lines)?);
    }
    if hunks.is_empty() {
        return Err(bad(number + 2, "the file has no hunk"));
    }
    Ok((number, path(number, old)?, path(number + 1, new)?, hunks))
}

/// A path without the time that may follow it after a tab.
fn path(number: usize, text: &str) -> Result<&str> {
    let text = text.split('\t').next().unwrap_or_default().trim_end();
    if text.is_empty() || text.starts_with('"') {
        return Err(bad(number, "the path is empty or in quotes").hint("write the path as it is, without quotes"));
    }
    Ok(text)
}

fn hunk<'p>(lines: &mut Lines<'p, impl Iterator<Item = &'p str>>) -> Result<Hunk<'p>> {
    let (at, header) = lines.next().unwrap_or_default();
    let ranges = ranges(header).ok_or_else(|| bad(at, "it is not `@@ -start,count +start,count @@`"))?;
    let ((old_start, mut old_left), mut new_left) = ranges;
    let (mut old, mut new): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    // Which sides have the line before, which a marker shortens.
    let mut last = (false, false);
    while old_left > 0 || new_left > 0 || lines.rest.peek().is_some_and(|line| line.trim_end() == MARKER) {
        let Some((number, line)) = lines.next() else {
            return Err(bad(at, format!("the hunk ends too soon: it lacks {old_left} old and {new_left} new lines")));
        };
        let (sides, text) = match line.chars().next() {
            Some(' ') => ((true, true), &line[1..]),
            Some('-') => ((true, false), &line[1..]),
            Some('+') => ((false, true), &line[1..]),
            // Editors drop the space of an empty line.
            Some('\n') => ((true, true), line),
            Some('\r') if line == "\r\n" => ((true, true), line),
            Some('\\') if line.trim_end() == MARKER && last != (false, false) => {
                let cut = |side: &mut Vec<&str>| {
                    if let Some(line) = side.last_mut() {
                        *line = line.strip_suffix('\n').unwrap_or(line);
                    }
                };
                if last.0 {
                    cut(&mut old);
                }
                if last.1 {
                    cut(&mut new);
                }
                last = (false, false);
                continue;
            }
            _ => return Err(bad(number, unknown(line.trim_end()))),
        };
        if (sides.0 && old_left == 0) || (sides.1 && new_left == 0) {
            return Err(bad(number, "the hunk has more lines than its header counts"));
        }
        if sides.0 {
            old.push(text);
            old_left -= 1;
        }
        if sides.1 {
            new.push(text);
            new_left -= 1;
        }
        last = sides;
    }
    Ok(Hunk { at, old_start, old, new })
}

type Ranges = ((usize, usize), usize);

/// The old start and count, and the new count.
fn ranges(header: &str) -> Option<Ranges> {
    let inner = header.strip_prefix("@@ -")?;
    let (inner, _) = inner.split_once(" @@")?;
    let (old, new) = inner.split_once(" +")?;
    let range = |text: &str| -> Option<(usize, usize)> {
        let (start, count) = text.split_once(',').unwrap_or((text, "1"));
        Some((start.parse().ok()?, count.parse().ok()?))
    };
    Some((range(old)?, range(new)?.1))
}

impl FileChange<'_> {
    /// The text of the file after the change of `old`, its text before; the empty text for a file that is created.
    ///
    /// # Errors
    /// `Conflict` if a hunk does not fit, or fits at several places; also if a file that is to be deleted has
    /// more lines than the patch removes.
    pub(crate) fn apply(&self, old: &str) -> Result<String> {
        let lines: Vec<&str> = old.split_inclusive('\n').collect();
        let mut out = String::with_capacity(old.len());
        let mut done = 0;
        for hunk in &self.hunks {
            let at = self.place(hunk, &lines, done)?;
            out.extend(lines[done..at].iter().copied());
            out.extend(hunk.new.iter().copied());
            done = at + hunk.old.len();
        }
        out.extend(lines[done..].iter().copied());
        if self.kind == Kind::Delete && !out.is_empty() {
            return Err(self.conflict("it has lines that the patch does not remove, so it would not be deleted whole"));
        }
        Ok(out)
    }

    /// Where a hunk applies: where its header says, else at the only place after the hunk before that has its
    /// lines.
    fn place(&self, hunk: &Hunk<'_>, lines: &[&str], from: usize) -> Result<usize> {
        let fits = |at: usize| lines.get(at..at + hunk.old.len()).is_some_and(|found| found == hunk.old);
        // A hunk without old lines says after which line its new ones come.
        let said = if hunk.old.is_empty() { hunk.old_start } else { hunk.old_start.saturating_sub(1) };
        if said >= from && said <= lines.len() && fits(said) {
            return Ok(said);
        }
        let line = hunk.at;
        if hunk.old.is_empty() {
            return Err(self.conflict(&format!("the hunk at line {line} of the patch is beyond its end")));
        }
        let mut others = (from..lines.len()).filter(|at| fits(*at));
        match (others.next(), others.next()) {
            (Some(only), None) => Ok(only),
            (Some(_), Some(_)) => Err(self.conflict(&format!(
                "the lines of the hunk at line {line} of the patch are not where it says, and at several other places"
            ))),
            (None, _) => {
                let ends = hunk.old.last().is_some_and(|last| last.ends_with('\n'))
                    && lines.last().is_some_and(|last| {
                        !last.ends_with('\n') && hunk.old.last().is_some_and(|old| old.trim_end_matches('\n') == *last)
                    });
                let more = if ends {
                    "; its last line has no line break, which `\\ No newline at end of file` says"
                } else {
                    ""
                };
                Err(self.conflict(&format!(
                    "it does not have the context and the removed lines of the hunk at line {line} of the patch{more}"
                )))
            }
        }
    }

    fn conflict(&self, what: &str) -> Refusal {
        refusal!(Conflict, "`{}`: {what}", clip(self.path, 120))
            .hint("nothing was changed; read the file and write the patch anew")
            .details(json!({ "path": self.path }))
    }
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
