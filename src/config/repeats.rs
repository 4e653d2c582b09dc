//! Keys that stand in a map a second time: the first value counts, and what is wrong with the others is told all the same.
//!
//! Must never: let a value that does not count become part of what is read.

use std::ops::RangeInclusive;

use crate::node::{Node, Size, Value};
use crate::problem::{Problem, Severity};
use crate::report::{FileReport, Report};
use crate::yaml::{Repeat, Tree};

/// What [`each`] gives.
#[derive(Debug)]
pub struct Each<T> {
    /// What was read of the file as it counts.
    pub first: T,
    /// What was read of it with a value that does not count in place of the one that does, and the lines of that value.
    pub others: Vec<(RangeInclusive<usize>, T)>,
}

/// Reads `tree` with `read`, and once more with each value that does not count in place of the one that does. Of what is wrong
/// then, every error is told that lies within that value; and what is wrong elsewhere only as long as the first value counts is
/// not told, since it follows from the repetition.
pub fn each<T>(tree: &Tree, file: &FileReport<'_>, read: impl Fn(&Node, &FileReport<'_>) -> T) -> Each<T> {
    let from = file.whole().len();
    let first = read(&tree.root, file);
    let (mut others, mut asides) = (Vec::new(), Vec::new());
    for repeat in &tree.repeats {
        let Some((node, before)) = instead(&tree.root, repeat) else { continue };
        let (aside, lines) = (Report::default(), lines_of(repeat.key.line, &repeat.node));
        others.push((lines.clone(), read(&node, &aside.file(file.path()))));
        asides.push((aside, before, lines));
    }
    let mut more = Vec::new();
    for (aside, before, lines) in asides {
        let found = file.whole().take_secrets(aside);
        let counts = |line| before.contains(&line);
        // What a hint proposes may hang on the value.
        let still = |a: &Problem, b: &Problem| {
            (&a.file, a.line, &a.field, &a.message) == (&b.file, b.line, &b.field, &b.message)
        };
        file.whole().keep(from, |problem| {
            (problem.file == file.path() && counts(problem.line)) || found.iter().any(|found| still(found, problem))
        });
        let within = |problem: &Problem| problem.file == file.path() && lines.contains(&problem.line);
        more.extend(found.into_iter().filter(|problem| problem.severity == Severity::Error && within(problem)));
    }
    more.into_iter().for_each(|problem| file.whole().push(problem));
    Each { first, others }
}

fn lines_of(line: usize, node: &Node) -> RangeInclusive<usize> {
    line..=Size::of(node).last_line.max(line)
}

/// `root` with the value of `repeat` in place of the first one under its key, and the lines of that.
fn instead(root: &Node, repeat: &Repeat) -> Option<(Node, RangeInclusive<usize>)> {
    let mut whole = root.clone();
    let mut at = &mut whole;
    for place in &repeat.path {
        at = match &mut at.value {
            Value::List(items) => items.get_mut(*place)?,
            Value::Map(pairs) => &mut pairs.get_mut(*place)?.1,
            Value::Scalar { .. } => return None,
        };
    }
    let Value::Map(pairs) = &mut at.value else { return None };
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

    /// What is told of a file whose `list` names entries of `known`, each with a `count`.
    fn told(text: &str) -> Vec<String> {
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
    fn what_is_wrong_under_a_repeated_key_is_told_and_what_follows_from_it_is_not() {
        let text = "known:\n  a: { count: no }\nlist: [a, b, c]\nknown:\n  b: { count: many, x: 1 }\nknown:\n  b: {}\n  d: { \
                    count: 0, count: few }\nother: 1\n";
        assert_eq!(
            told(text),
            [
                "2 known.a.count `no` is not a whole number",
                "3 list[2] there is no `c`",
                "4 known the key `known` stands here a second time",
                "5 known.b.count `many` is not a whole number",
                "5 known.b.x there is no key `x` here",
                "6 known the key `known` stands here a second time",
                "8 known.d.count 0 is not within 1 to 9",
                "8 known.d.count the key `count` stands here a second time",
                "9 other there is no key `other` here",
            ]
        );
    }

    #[test]
    fn repeated_keys_are_bounded_and_found_however_deep_they_are() {
        let mut text = "known:\n  a: { count: 1, count: no }\n".to_owned();
        (0..40).for_each(|_| text.push_str("list: 5\n"));
        let told = told(&text);
        assert_eq!(told[0], "2 known.a.count `no` is not a whole number");
        assert_eq!(told.iter().filter(|told| told.contains("second time")).count(), 40);
        assert_eq!(told.iter().filter(|told| told.contains("`5` is not a list")).count(), 16, "the first and 15 more");
    }
}
