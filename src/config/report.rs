//! Collects the problems of one load, over all its files.
//!
//! This module must never grow without limit, or show the value of an environment variable. A
//! substituted value is replaced by its reference.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

use ghost_domain::text::nearest;

use crate::problem::{Hint, Problem, Problems, Severity};

/// The largest number of problems of one load. One more problem gives the number of the rest.
pub const PROBLEMS_MAX: usize = 100;

/// Shorter substituted values are not replaced: they are not secrets, and replacing them would
/// garble messages.
const SECRET_MIN: usize = 4;

/// The problems found so far in one load.
#[derive(Debug, Default)]
pub struct Report {
    found: RefCell<Vec<Problem>>,
    /// The number of problems that are not kept, and the highest severity among them.
    dropped: RefCell<(usize, Option<Severity>)>,
    errors: Cell<usize>,
    substituted: RefCell<Vec<(String, String)>>,
}

impl Report {
    /// All problems, sorted. Values that were substituted for `${NAME}` are replaced by that text.
    #[must_use]
    pub fn finish(self) -> Problems {
        let mut substituted = self.substituted.into_inner();
        substituted.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        let mut found = self.found.into_inner();
        let (dropped, severity) = self.dropped.into_inner();
        for problem in &mut found {
            for (value, reference) in &substituted {
                hide(&mut problem.message, value, reference);
                hide(&mut problem.field, value, reference);
                problem.hint.change(|hint| hide(hint, value, reference));
            }
        }
        let mut problems = Problems::sorted(found);
        if let (Some(last), Some(severity)) = (problems.0.last().cloned(), severity) {
            problems.0.push(Problem {
                severity,
                line: last.line,
                field: String::new(),
                message: format!("{dropped} more problems are not shown"),
                hint: "correct those above first".into(),
                file: last.file,
            });
        }
        problems
    }

    /// A view of the report for one file.
    #[must_use]
    pub fn file(&self, path: impl Into<PathBuf>) -> FileReport<'_> {
        FileReport { report: self, path: path.into() }
    }

    /// Records that `value` was substituted for `reference`.
    pub fn substituted(&self, value: &str, reference: &str) {
        if value.len() >= SECRET_MIN {
            self.substituted.borrow_mut().push((value.to_owned(), reference.to_owned()));
        }
    }

    /// The number of errors so far. A reader that compares it before and after knows whether there was one.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.errors.get()
    }

    /// Adds a problem.
    pub(crate) fn push(&self, problem: Problem) {
        if problem.severity == Severity::Error {
            self.errors.set(self.errors.get() + 1);
        }
        let mut found = self.found.borrow_mut();
        if found.len() < PROBLEMS_MAX {
            found.push(problem);
        } else {
            let mut dropped = self.dropped.borrow_mut();
            // An error is less than a warning: the worst comes first.
            let worst = dropped.1.map_or(problem.severity, |worst| worst.min(problem.severity));
            *dropped = (dropped.0 + 1, Some(worst));
        }
    }
}

fn hide(text: &mut String, value: &str, reference: &str) {
    if text.contains(value) {
        *text = text.replace(value, reference);
    }
}

/// A [`Report`] for problems of one file.
#[derive(Clone, Debug)]
pub struct FileReport<'r> {
    report: &'r Report,
    path: PathBuf,
}

impl FileReport<'_> {
    /// The report of the whole load.
    #[must_use]
    pub fn whole(&self) -> &Report {
        self.report
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reports an error, which keeps the world from starting. `line` is 0 if there is none: see
    /// [`Problem::line`].
    pub fn error(&self, line: usize, field: &str, message: impl Into<String>, hint: impl Into<Hint>) {
        self.push(Severity::Error, line, field, message.into(), hint.into());
    }

    /// Reports a warning.
    pub fn warn(&self, line: usize, field: &str, message: impl Into<String>, hint: impl Into<Hint>) {
        self.push(Severity::Warning, line, field, message.into(), hint.into());
    }

    /// Reports an unknown key.
    pub fn unknown_key<'k>(&self, line: usize, field: &str, key: &str, known: impl Iterator<Item = &'k str> + Clone) {
        self.no_key(line, field, key, did_you_mean(key, known, NO_KEY));
    }

    /// Reports an unknown key with the given hint.
    pub fn no_key(&self, line: usize, field: &str, key: &str, hint: impl Into<Hint>) {
        let shown = ghost_domain::text::clip(key, 60);
        self.error(line, field, format!("there is no key `{shown}` here"), hint);
    }

    fn push(&self, severity: Severity, line: usize, field: &str, message: String, hint: Hint) {
        self.report.push(Problem { severity, file: self.path.clone(), line, field: field.to_owned(), message, hint });
    }
}

/// The hint for an unknown key if there are too many known keys to list.
const NO_KEY: &str = "take it out, or begin it with `x-` if it is a note of your own";

/// The hint for an unknown name: the nearest of `known`, or all of them if they are few, else
/// `otherwise`.
#[must_use]
pub fn did_you_mean<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone, otherwise: &str) -> Hint {
    if let Some(near) = nearest(name, known.clone()) {
        return format!("did you mean `{near}`?").into();
    }
    // `memory` for `memory_mb` is too short to be the nearest name, but the intention is clear.
    if name.len() >= 4
        && let Some(longer) = known.clone().filter(|longer| longer.starts_with(name)).min()
    {
        return format!("did you mean `{longer}`?").into();
    }
    let mut all: Vec<&str> = known.collect();
    all.sort_unstable();
    all.dedup();
    match all.len() {
        1..=32 => format!("known: {}", all.join(", ")).into(),
        _ => otherwise.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substituted_values_are_replaced_by_their_references() {
        let report = Report::default();
        report.substituted("hunter2-secret", "${TOKEN}");
        report.file("a.yaml").error(3, "llm", "`xhunter2-secret` is no number", "not hunter2-secret");
        let text = report.finish().to_string();
        assert_eq!(text, "error: a.yaml:3: llm: `x${TOKEN}` is no number\n  hint: not ${TOKEN}");
    }

    #[test]
    fn the_number_of_problems_is_limited() {
        let report = Report::default();
        for line in 1..=PROBLEMS_MAX + 7 {
            report.file("a.yaml").error(line, "", "wrong", "right it");
        }
        let problems = report.finish();
        assert_eq!(problems.0.len(), PROBLEMS_MAX + 1);
        assert!(problems.to_string().contains('7'));
    }

    #[test]
    fn warnings_that_are_not_shown_do_not_stop_a_world() {
        for (also_error, last) in [(false, Severity::Warning), (true, Severity::Error)] {
            let report = Report::default();
            for line in 1..=PROBLEMS_MAX + 7 {
                report.file("a.yaml").warn(line, "", "odd", "look");
            }
            if also_error {
                report.file("a.yaml").error(1, "", "wrong", "right it");
            }
            report.file("a.yaml").warn(1, "", "odd", "look");
            assert_eq!(report.finish().0.last().unwrap().severity, last);
        }
    }
}
