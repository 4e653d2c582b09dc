//! Where readers put what they find. One report serves a whole load, so that everything comes out at once.
//!
//! Must never: grow without bound, or let the value of an environment variable through: what was substituted is put
//! back as the reference that it came from.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use ghost_domain::text::nearest;

use crate::problem::{Hint, Problem, Problems, Severity};

/// Most problems that one load reports; what follows is counted in a last one.
pub const PROBLEMS_MAX: usize = 500;

/// Substituted values shorter than this are no secrets, and putting them back would garble messages.
const SECRET_MIN: usize = 4;

/// Problems found so far, over all files of one load.
#[derive(Debug, Default)]
pub struct Report {
    found: RefCell<Vec<Problem>>,
    dropped: RefCell<usize>,
    substituted: RefCell<Vec<(String, String)>>,
}

impl Report {
    /// Everything, sorted. Values that were substituted for `${NAME}` are replaced by that text wherever they occur.
    #[must_use]
    pub fn finish(self) -> Problems {
        let mut substituted = self.substituted.into_inner();
        substituted.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        let mut found = self.found.into_inner();
        let dropped = self.dropped.into_inner();
        for problem in &mut found {
            for (value, reference) in &substituted {
                hide(&mut problem.message, value, reference);
                hide(&mut problem.field, value, reference);
                problem.hint.change(|hint| hide(hint, value, reference));
            }
        }
        let mut problems = Problems::sorted(found);
        if let (Some(last), true) = (problems.0.last().cloned(), dropped > 0) {
            problems.0.push(Problem {
                severity: Severity::Error,
                line: last.line,
                field: String::new(),
                message: format!("{dropped} more problems are not shown"),
                hint: "correct those above first".into(),
                file: last.file,
            });
        }
        problems
    }

    /// The report as seen from one file.
    #[must_use]
    pub fn file(&self, path: impl Into<PathBuf>) -> FileReport<'_> {
        FileReport { report: self, path: path.into() }
    }

    /// Remembers that `value` came from the environment.
    pub fn substituted(&self, value: &str, reference: &str) {
        if value.len() >= SECRET_MIN {
            self.substituted.borrow_mut().push((value.to_owned(), reference.to_owned()));
        }
    }

    /// How many problems were found so far.
    pub(crate) fn len(&self) -> usize {
        self.found.borrow().len()
    }

    /// Of the problems from the one at `from` on, keeps those that `keep` says.
    pub(crate) fn keep(&self, from: usize, keep: impl Fn(&Problem) -> bool) {
        let mut at = 0;
        self.found.borrow_mut().retain(|problem| {
            at += 1;
            at <= from || keep(problem)
        });
    }

    /// The problems of `other` as they were found; what was substituted for it is known here from now on.
    pub(crate) fn take_secrets(&self, other: Self) -> Vec<Problem> {
        self.substituted.borrow_mut().extend(other.substituted.into_inner());
        other.found.into_inner()
    }

    /// Adds a problem.
    pub(crate) fn push(&self, problem: Problem) {
        let mut found = self.found.borrow_mut();
        if found.len() < PROBLEMS_MAX {
            found.push(problem);
        } else {
            *self.dropped.borrow_mut() += 1;
        }
    }
}

fn hide(text: &mut String, value: &str, reference: &str) {
    if text.contains(value) {
        *text = text.replace(value, reference);
    }
}

/// A [`Report`] as seen from one file.
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

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Something that keeps the world from booting. `line` is 0 where there is none: see [`Problem::line`].
    pub fn error(&self, line: usize, field: &str, message: impl Into<String>, hint: impl Into<Hint>) {
        self.push(Severity::Error, line, field, message.into(), hint.into());
    }

    /// Something that someone should look at.
    pub fn warn(&self, line: usize, field: &str, message: impl Into<String>, hint: impl Into<Hint>) {
        self.push(Severity::Warning, line, field, message.into(), hint.into());
    }

    /// A key that nobody reads.
    pub fn unknown_key<'k>(&self, line: usize, field: &str, key: &str, known: impl Iterator<Item = &'k str> + Clone) {
        self.no_key(line, field, key, did_you_mean(key, known, NO_KEY));
    }

    /// The same, with what to do about it.
    pub fn no_key(&self, line: usize, field: &str, key: &str, hint: impl Into<Hint>) {
        let shown = ghost_domain::text::clip(key, 60);
        self.error(line, field, format!("there is no key `{shown}` here"), hint);
    }

    fn push(&self, severity: Severity, line: usize, field: &str, message: String, hint: Hint) {
        self.report.push(Problem { severity, file: self.path.clone(), line, field: field.to_owned(), message, hint });
    }
}

/// What to do with a key that nobody reads, where there are too many others to list them.
const NO_KEY: &str = "take it out, or begin it with `x-` if it is a note of your own";

/// A hint that names the nearest of `known`, or lists them if they are few; `otherwise` if there are none, or too many.
#[must_use]
pub fn did_you_mean<'k>(name: &str, known: impl Iterator<Item = &'k str> + Clone, otherwise: &str) -> Hint {
    if let Some(near) = nearest(name, known.clone()) {
        return format!("did you mean `{near}`?").into();
    }
    // `memory` for `memory_mb` is no slip of the keyboard, yet plain enough.
    if name.len() >= 4
        && let Some(longer) = known.clone().filter(|longer| longer.starts_with(name)).min()
    {
        return format!("did you mean `{longer}`?").into();
    }
    let mut all: Vec<&str> = known.collect();
    all.sort_unstable();
    all.dedup();
    match all.len() {
        1..=32 => format!("known are: {}", all.join(", ")).into(),
        _ => otherwise.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_from_the_environment_are_put_back() {
        let report = Report::default();
        report.substituted("hunter2-secret", "${TOKEN}");
        report.file("a.yaml").error(3, "llm", "`xhunter2-secret` is no number", "not hunter2-secret");
        let text = report.finish().to_string();
        assert_eq!(text, "error: a.yaml:3: llm: `x${TOKEN}` is no number\n  hint: not ${TOKEN}");
    }

    #[test]
    fn problems_are_bounded() {
        let report = Report::default();
        for line in 1..=PROBLEMS_MAX + 7 {
            report.file("a.yaml").error(line, "", "wrong", "right it");
        }
        let problems = report.finish();
        assert_eq!(problems.0.len(), PROBLEMS_MAX + 1);
        assert!(problems.to_string().contains("7 more problems"));
    }
}
