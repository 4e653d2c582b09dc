//! What is wrong with a world's files, in words that say where and what to do. Every reader reports here, and all that
//! was found comes out at once.
//!
//! Must never: hold the value of an environment variable (WORLD-09).

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The world does not boot.
    Error,
    /// It boots, and someone should look.
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

/// What to do about a problem: some text. Nobody can tell a problem without one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Hint(String);

impl Hint {
    /// The hint that a refusal came with, or `otherwise` if it came without.
    #[must_use]
    pub fn of(refused: Option<String>, otherwise: &str) -> Self {
        refused.map_or_else(|| otherwise.into(), Self::from)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Changes the text, which must not become empty.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut String)) {
        change(&mut self.0);
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        debug_assert!(!text.trim().is_empty(), "an empty hint helps nobody");
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

/// Stands for the file of what is wrong with the command line.
pub const COMMAND_LINE: &str = "command line";

/// One thing that is wrong or doubtful.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The file that it is in, as a path that starts like the one that was asked to be loaded; or [`COMMAND_LINE`].
    pub file: PathBuf,
    /// The line, from 1: the first of a file that is meant as a whole. 0 where there are no lines: of a file that is missing
    /// or no regular file, of a directory, and of the command line.
    pub line: usize,
    /// The field, dotted: `agents[1].archetype`; of the command line the flag. Empty if none is meant.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Hint,
}

impl Problem {
    /// The problem without its severity, for where that is said already.
    #[must_use]
    pub fn bare(&self) -> impl fmt::Display + '_ {
        Bare(self)
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
        write!(f, "{}", problem.file.display())?;
        if problem.line > 0 {
            write!(f, ":{}", problem.line)?;
        }
        if !problem.field.is_empty() {
            write!(f, ": {}", problem.field)?;
        }
        write!(f, ": {}\n  hint: {}", problem.message, problem.hint)
    }
}

/// Everything that was found, sorted by file and line, each problem once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    /// Sorts `list` by file, line and field, and drops doubles.
    #[must_use]
    pub fn sorted(mut list: Vec<Problem>) -> Self {
        list.sort_by(|a, b| {
            (&a.file, a.line, &a.field, a.severity, &a.message)
                .cmp(&(&b.file, b.line, &b.field, b.severity, &b.message))
        });
        list.dedup();
        Self(list)
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the world cannot boot.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|problem| problem.severity == Severity::Error)
    }

    /// How many errors and how many warnings there are.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        let errors = self.0.iter().filter(|problem| problem.severity == Severity::Error).count();
        (errors, self.0.len() - errors)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.0.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

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
    fn problems_are_sorted_and_single() {
        let all = Problems::sorted(vec![problem("b", 1), problem("a", 9), problem("a", 9)]);
        assert_eq!(all.0.iter().map(|p| p.file.display().to_string()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(all.counts(), (2, 0));
        let json = serde_json::to_value(&all).unwrap();
        assert_eq!((&json[0]["line"], &json[0]["hint"]), (&9.into(), &"did you mean `analyst`?".into()));
    }
}
