//! Problems of a world's files: the problem, its position, and the remedy. Loading collects all
//! problems and returns them together.
//!
//! A problem must never contain the value of an environment variable.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The world does not start.
    Error,
    /// The world starts, but an operator should check.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// The text that states the remedy for a problem. Every problem needs a hint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Hint(String);

impl Hint {
    /// The hint of a refusal, or `otherwise` if it has none.
    #[must_use]
    pub fn of(refused: Option<String>, otherwise: &str) -> Self {
        refused.map_or_else(|| otherwise.into(), Self::from)
    }

    /// The text of the hint.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Changes the text. It must not become empty.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut String)) {
        change(&mut self.0);
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        debug_assert!(!text.trim().is_empty(), "a hint must not be empty");
        Self(text)
    }
}

impl From<&str> for Hint {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The `file` of a problem with the command line.
pub const COMMAND_LINE: &str = "command line";

/// An error or a warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The severity of the problem.
    pub severity: Severity,
    /// The file, as a path that begins with the path given to `load`; or [`COMMAND_LINE`].
    pub file: PathBuf,
    /// The line, from 1; it is 1 for a problem with a whole file. 0 if there are no lines: for a
    /// missing file, something that is not a regular file, a directory, and the command line.
    pub line: usize,
    /// The dotted path of the field, such as `agents[1].archetype`; the flag for the command line.
    /// Empty if the problem is not about a field.
    pub field: String,
    /// The text that describes the problem.
    pub message: String,
    /// The text that states the remedy.
    pub hint: Hint,
}

impl Problem {
    /// Displays the problem without its severity, for contexts that show it already.
    #[must_use]
    pub fn bare(&self) -> impl fmt::Display + '_ {
        Bare(self)
    }

    /// The file, the line and the field, as far as there are any.
    #[must_use]
    pub fn place(&self) -> String {
        let mut place = self.file.display().to_string();
        if self.line > 0 {
            place.push_str(&format!(":{}", self.line));
        }
        if !self.field.is_empty() {
            place.push_str(&format!(": {}", self.field));
        }
        place
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, Bare(self))
    }
}

struct Bare<'p>(&'p Problem);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(problem) = self;
        write!(f, "{}: {}\n  hint: {}", problem.place(), problem.message, problem.hint)
    }
}

/// All problems, sorted by file and line, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Sorts `list` by file, line and field, and removes duplicates.
    #[must_use]
    pub fn sorted(mut list: Vec<Problem>) -> Self {
        list.sort_by(|a, b| {
            (&a.file, a.line, &a.field, a.severity, &a.message)
                .cmp(&(&b.file, b.line, &b.field, b.severity, &b.message))
        });
        list.dedup();
        Self(list)
    }

    /// Whether there are no problems.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is an error, so that the world cannot start.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// The numbers of errors and of warnings.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let errors = self.0.iter().filter(|problem| problem.severity == Severity::Error).count();
        (errors, self.0.len() - errors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(file: &str, line: usize) -> Problem {
        Problem {
            severity: Severity::Error,
            file: file.into(),
            line,
            field: "agents[1].archetype".into(),
            message: "there is no archetype `anlyst`".into(),
            hint: "did you mean `analyst`?".into(),
        }
    }

    #[test]
    fn a_problem_reads_as_one_block() {
        assert_eq!(
            problem("worlds/x/world-config.yaml", 12).to_string(),
            "error: worlds/x/world-config.yaml:12: agents[1].archetype: there is no archetype `anlyst`\n  hint: did you \
             mean `analyst`?"
        );
    }

    #[test]
    fn problems_are_sorted_and_without_duplicates() {
        let all = Problems::sorted(vec![problem("b", 1), problem("a", 9), problem("a", 9)]);
        assert_eq!(all.0.iter().map(|p| p.file.display().to_string()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(all.counts(), (2, 0));
        let json = serde_json::to_value(&all).unwrap();
        assert_eq!((&json[0]["line"], &json[0]["hint"]), (&9.into(), &"did you mean `analyst`?".into()));
    }
}
