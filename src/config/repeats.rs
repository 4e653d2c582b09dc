//! Handles repeated keys in maps. The first value is used. The other values are also checked, so
//! that their problems are reported.
//!
//! Must never: use a value of a repeated key other than the first.

use std::ops::RangeInclusive;

use crate::node::{Node, Size, Value};
use crate::problem::{Problem, Severity};
use crate::report::{FileReport, Report};
use crate::yaml::{Repeat, Tree};

/// The result of [`each`].
#[derive(Debug)]
pub struct Each<T> {
    /// What was read with the first value of every key.
    pub first: T,
    /// What was read with each other value in place of the first one, and the lines of that value.
    pub others: Vec<(RangeInclusive<usize>, T)>,
}

/// Reads `tree` with `read`, and again with each repeated value in place of the first one. Errors
/// within the repeated value are reported. A problem elsewhere that disappears with a repeated
/// value is dropped, because it follows from the repetition.
pub fn each<T>(tree: &Tree, file: &FileReport<'_>, read: impl Fn(&Node, &FileReport<'_>) -> T) -> Each<T> {
    let from = file.whole().len();
    let first = read(&tree.root, file);
    let (mut others, mut scratch_reports) = (Vec::new(), Vec::new());
    for repeat in &tree.repeats {
        let Some((node, before)) = replaced(&tree.root, repeat) else { continue };
        let (scratch, lines) = (Report::default(), lines_of(repeat.key.line, &repeat.node));
        others.push((lines.clone(), read(&node, &scratch.file(file.path()))));
        scratch_reports.push((scratch, before, lines));
    }
    let mut more = Vec::new();
    for (scratch, before, lines) in scratch_reports {
        let found = file.whole().take_secrets(scratch);
        let in_first_value = |line| before.contains(&line);
        // Hints are not compared: they may depend on the value.
        let same = |a: &Problem, b: &Problem| {
            (&a.file, a.line, &a.field, &a.message) == (&b.file, b.line, &b.field, &b.message)
        };
        file.whole().keep(from, |problem| {
            (problem.file == file.path() && in_first_value(problem.line))
                || found.iter().any(|found| same(found, problem))
        });
        let in_repeated_value = |problem: &Problem| problem.file == file.path() && lines.contains(&problem.line);
        more.extend(
            found.into_iter().filter(|problem| problem.severity == Severity::Error && in_repeated_value(problem)),
        );
    }
    more.into_iter().for_each(|problem| file.whole().push(problem));
    Each { first, others }
}

fn lines_of(line: usize, node: &Node) -> RangeInclusive<usize> {
    line..=Size::of(node).last_line.max(line)
}

/// `root` with the value of `repeat` in place of the first value of its key, and the lines of that
/// first value.
fn replaced(root: &Node, repeat: &Repeat) -> Option<(Node, RangeInclusive<usize>)> {
    let mut whole = root.clone();
    let mut current = &mut whole;
    for index in &repeat.path {
        current = match &mut current.value {
            Value::List(items) => items.get_mut(*index)?,
            Value::Map(pairs) => &mut pairs.get_mut(*index)?.1,
            Value::Scalar { .. } => return None,
        };
    }
    let Value::Map(pairs) = &mut current.value else { return None };
    let (key, node) = pairs.iter_mut().find(|(key, _)| key.text == repeat.key.text)?;
    let before = lines_of(key.line, node);
    (*key, *node) = (repeat.key.clone(), repeat.node.clone());
    Some((whole, before))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Field;
    use crate::yaml::{Bounds, parse_all};

    /// The problems of a file whose `list` names entries of `known`, each with a `count`.
    fn problems_of(text: &str) -> Vec<String> {
        let report = Report::default();
        let file = report.file("w.yaml");
        let tree = parse_all(text, &file, None, Bounds::CONFIGURATION).unwrap();
        each(&tree, &file, |node, file| {
            let map = Field::root(node, file).map().unwrap();
            let known = map.get("known").map(|field| field.entries()).unwrap_or_default();
            for (_, field) in &known {
                let map = field.map().unwrap();
                map.get("count").map(|field| field.count(1..=9));
                map.finish(&[]);
            }
            for (field, name) in map.get("list").map(|field| field.texts(9)).unwrap_or_default() {
                if known.iter().all(|(key, _)| key.text != name) {
                    field.error(format!("there is no `{name}`"), "name another");
                }
            }
            map.finish(&[]);
        });
        let short = |problem: &Problem| format!("{} {} {}", problem.line, problem.field, problem.message);
        report.finish().0.iter().map(short).collect()
    }

    #[test]
    fn repeated_values_are_checked_and_problems_caused_by_the_repetition_are_dropped() {
        let text = "known:\n  a: { count: no }\nlist: [a, b, c]\nknown:\n  b: { count: many, x: 1 }\nknown:\n  b: {}\n  d: { \
                    count: 0, count: few }\nother: 1\n";
        assert_eq!(
            problems_of(text),
            [
                "2 known.a.count `no` is not a whole number",
                "3 list[2] there is no `c`",
                "4 known the key `known` is repeated",
                "5 known.b.count `many` is not a whole number",
                "5 known.b.x there is no key `x` here",
                "6 known the key `known` is repeated",
                "8 known.d.count 0 is not within 1 to 9",
                "8 known.d.count the key `count` is repeated",
                "9 other there is no key `other` here",
            ]
        );
    }

    #[test]
    fn repeated_keys_are_limited_and_found_at_any_depth() {
        let mut text = "known:\n  a: { count: 1, count: no }\n".to_owned();
        (0..40).for_each(|_| text.push_str("list: 5\n"));
        let problems = problems_of(&text);
        assert_eq!(problems[0], "2 known.a.count `no` is not a whole number");
        assert_eq!(problems.iter().filter(|problem| problem.contains("is repeated")).count(), 40);
        assert_eq!(
            problems.iter().filter(|problem| problem.contains("`5` is not a list")).count(),
            16,
            "the first and 15 more"
        );
    }
}
