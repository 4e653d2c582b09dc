//! Problems as a person reads them: errors first, and warnings of one kind as one.
//!
//! A problem must never be left out: one that joins another stays with its name or its place.

use std::fmt;

use crate::problem::{Problem, Problems, Severity};

/// The most names in the line of one group.
const NAMES_MAX: usize = 20;

/// One problem, and others of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group<'p> {
    /// The first of them.
    pub first: &'p Problem,
    /// The others, in the order of the files. Empty for an error: each error needs a correction of its own.
    pub others: Vec<&'p Problem>,
}

impl Problems {
    /// The problems in the order in which to read them: errors, then warnings. Warnings that differ only in what they
    /// name are one group, at the place of the first.
    #[must_use]
    pub fn grouped(&self) -> Vec<Group<'_>> {
        grouped(&self.0)
    }
}

/// The same for a list of problems.
#[must_use]
pub fn grouped(problems: &[Problem]) -> Vec<Group<'_>> {
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error);
    let mut groups: Vec<Group<'_>> = errors.map(|first| Group { first, others: Vec::new() }).collect();
    let mut kinds: Vec<(Kind<'_>, usize)> = Vec::new();
    for problem in problems.iter().filter(|problem| problem.severity != Severity::Error) {
        let kind = Kind::of(problem);
        let known = kinds.iter().find(|(other, _)| *other == kind).map(|(_, at)| *at);
        match known.and_then(|at| groups.get_mut(at)) {
            Some(group) => group.others.push(problem),
            None => {
                kinds.push((kind, groups.len()));
                groups.push(Group { first: problem, others: Vec::new() });
            }
        }
    }
    groups
}

impl Group<'_> {
    /// Displays the group without its severity.
    #[must_use]
    pub fn bare(&self) -> impl fmt::Display + '_ {
        Bare(self)
    }
}

impl fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.first.severity, Bare(self))
    }
}

struct Bare<'g>(&'g Group<'g>);

impl fmt::Display for Bare<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Group { first, others } = self.0;
        let (place, hint) = (first.place(), &first.hint);
        let more = match others.len() {
            0 => String::new(),
            count => {
                let shown: Vec<String> = others.iter().take(NAMES_MAX).map(|other| named(first, other)).collect();
                let rest = if count > NAMES_MAX { ", …" } else { "" };
                format!(" (and {count} more like this: {}{rest})", shown.join(", "))
            }
        };
        write!(f, "{place}: {}{more}\n  hint: {hint}", first.message)
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in self.grouped().iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{group}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// What warnings of one kind have in common: the hint, and the texts around the names.
#[derive(PartialEq)]
struct Kind<'p> {
    hint: &'p str,
    around: Vec<&'p str>,
    field: String,
}

impl<'p> Kind<'p> {
    fn of(problem: &'p Problem) -> Self {
        // The number of a list's item is no kind: `agents[1].model` is `agents[].model`.
        let field = problem.field.chars().filter(|c| !c.is_ascii_digit()).collect();
        Self { hint: problem.hint.as_str(), around: problem.message.split('`').step_by(2).collect(), field }
    }
}

/// How a further problem of a kind is named: by the first name in which it differs, and by its place if that differs.
fn named(first: &Problem, other: &Problem) -> String {
    let names = |problem: &'_ Problem| -> Vec<String> {
        problem.message.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let name = names(other).into_iter().zip(names(first)).find(|(of_other, of_first)| of_other != of_first);
    let same_place = (&first.file, first.line) == (&other.file, other.line);
    match name {
        Some((name, _)) if same_place => format!("`{name}`"),
        Some((name, _)) => format!("`{name}` at {}", other.place()),
        None => other.place(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(severity: Severity, line: usize, message: &str) -> Problem {
        Problem {
            severity,
            file: "w.yaml".into(),
            line,
            field: format!("agents[{line}].model"),
            message: message.into(),
            hint: "do this".into(),
        }
    }

    #[test]
    fn errors_come_first_and_warnings_of_one_kind_are_one() {
        let mut list: Vec<Problem> =
            ["a", "b", "c"].iter().map(|name| problem(Severity::Warning, 1, &format!("`{name}` is public"))).collect();
        list.push(problem(Severity::Warning, 7, "`d` is public"));
        list.push(problem(Severity::Warning, 8, "`d` is large"));
        list.push(problem(Severity::Error, 9, "`x` is wrong"));
        list.push(problem(Severity::Error, 10, "`y` is wrong"));
        let problems = Problems::sorted(list);
        let groups = problems.grouped();
        let shape: Vec<(Severity, usize, usize)> =
            groups.iter().map(|group| (group.first.severity, group.first.line, group.others.len())).collect();
        let (error, warning) = (Severity::Error, Severity::Warning);
        assert_eq!(shape, [(error, 9, 0), (error, 10, 0), (warning, 1, 3), (warning, 8, 0)]);
        let text = problems.to_string();
        assert!(text.contains("and 3 more like this: `b`, `c`, `d` at w.yaml:7"), "{text}");
        assert_eq!(text.matches("hint: ").count(), 4);
    }

    #[test]
    fn warnings_with_another_remedy_or_another_field_stay_apart() {
        let mut other = problem(Severity::Warning, 2, "`b` is public");
        other.hint = "do that".into();
        let mut field = problem(Severity::Warning, 3, "`c` is public");
        field.field = "teams[3].model".into();
        let list = [problem(Severity::Warning, 1, "`a` is public"), other, field];
        assert_eq!(grouped(&list).len(), 3);
    }

    #[test]
    fn many_names_are_cut_and_all_are_counted() {
        let list: Vec<Problem> = (0..50).map(|n| problem(Severity::Warning, 1, &format!("`n{n}` is public"))).collect();
        let groups = grouped(&list);
        let text = groups[0].to_string();
        assert!(groups.len() == 1 && text.contains("49 more") && text.contains('…') && !text.contains("n40"), "{text}");
    }
}
