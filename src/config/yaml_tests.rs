use super::*;
use crate::report::Report;
use proptest::prelude::*;

fn read(text: &str) -> (Option<Node>, String) {
    let report = Report::default();
    let node = parse(text, &report.file("w.yaml"), &|_| None);
    (node, report.finish().to_string())
}

fn refused(text: &str, line: usize, datum: &str) {
    let (node, problems) = read(text);
    let shown = &text[..text.len().min(60)];
    assert!(problems.starts_with(&format!("error: w.yaml:{line}: ")), "{shown:?} gave {problems:?}");
    assert!(problems.contains(datum), "{shown:?} gave {problems:?}");
    assert!(node.is_none() || datum == "`a`", "only a repeated key leaves a tree");
}

#[test]
fn lines_are_kept() {
    let (node, problems) = read("\u{feff}a: 1\r\nb:\r\n  - x\r\n  - y: z\r\nc:\r\nd: 'q'\r\n");
    assert_eq!(problems, "");
    let node = node.unwrap();
    let Value::Map(pairs) = &node.value else { panic!() };
    let seen: Vec<(&str, usize, usize)> = pairs.iter().map(|(k, n)| (k.text.as_str(), k.line, n.line)).collect();
    assert_eq!(seen, [("a", 1, 1), ("b", 2, 3), ("c", 5, 5), ("d", 6, 6)]);
    assert!(node.get("c").unwrap().is_null());
    let Value::List(items) = &node.get("b").unwrap().value else { panic!() };
    assert_eq!((items[1].line, items[1].get("y").unwrap().text()), (4, Some("z")));
}

#[test]
fn hostile_files_are_refused() {
    let mut bomb = String::from("a: &a [x, x]\n");
    for level in 1..30 {
        bomb.push_str(&format!("b{level}: &b{level} [*a, *a]\n"));
    }
    refused(&bomb, 1, "`&name`");
    refused("a: *b\n", 1, "");
    refused("a: {<<: {b: 1}}", 1, "");
    refused("a: !!str 1", 1, "");
    refused("a: !evil x", 1, "");
    refused(&"[".repeat(200), 1, "32");
    refused(&"[".repeat(100_000), 1, "");
    refused(&"{a: ".repeat(200), 1, "32");
    refused(&"- ".repeat(100_000), 1, "32");
    refused(&format!("a: {}", "x".repeat(SCALAR_MAX + 1)), 1, "65537");
    refused(&"x".repeat(1024 * 1024), 1, "262144");
    refused(&format!("[{}]", "1,".repeat(NODES_MAX + 1)), 1, "20000");
    refused("a: 1\nb: 2\na: 3\n", 3, "`a`");
    refused("a:\n\t- b\n", 2, "");
    refused("a: 1\0b: 2", 1, "U+0000");
    refused("a: 1\rb: 2", 1, "U+000D");
    refused("? [a]\n: b\n", 1, "");
    refused("a: 1\n---\nb: 2\n", 2, "");
    refused("", 1, "");
    refused("a: 'x", 1, "");
    refused("a: b: c", 1, "");
}

#[test]
fn an_unknown_alias_is_refused() {
    let (node, problems) = read("a: *b\n");
    assert!(node.is_none() && problems.contains("w.yaml:1"), "{problems}");
}

#[test]
fn a_block_has_the_line_at_which_it_begins() {
    let (node, problems) = read("a: |\n  x\nb: >-\n\n\n  y\n  z\nc:\n  |+\n\n  w\n\ne: |2\n    v\n");
    assert_eq!(problems, "");
    let node = node.unwrap();
    let lines = ["a", "b", "c", "e"].map(|key| node.get(key).unwrap().line);
    assert_eq!(lines, [1, 3, 9, 13]);
}

fn rules(text: &str) -> (Option<Node>, String) {
    let report = Report::default();
    let bounds = Bounds { file: 2_000, nodes: 1_000, scalar: 500, aliases: true };
    let node = parse_within(text, &report.file("r.yaml"), None, bounds);
    (node, report.finish().to_string())
}

#[test]
fn aliases_are_expanded_within_the_limits() {
    let (node, problems) = rules("a: &x [1, '${HOME}']\nb: *x\nc: &t |\n  one\n  two\nd: *t\n");
    assert_eq!(problems, "");
    let node = node.unwrap();
    assert_eq!(node.get("a"), node.get("b"));
    let Value::Scalar { text, literal: true, .. } = &node.get("d").unwrap().value else { panic!() };
    assert_eq!((text.as_str(), node.get("d").unwrap().line), ("one\ntwo\n", 3));
    let mut bomb = String::from("a: &a [x, x]\n");
    for (above, name) in ('a'..='z').zip('b'..='z') {
        bomb.push_str(&format!("{name}: &{name} [*{above}, *{above}]\n"));
    }
    let long = format!("a: &a {}\nb: [*a, *a, *a, *a, *a]\n", "x".repeat(450));
    for (text, line) in [(long.as_str(), 2), ("a: &a [*a]\n", 1), ("a: &a x\n*a : y\n", 2), ("a: *b\n", 1)] {
        let (node, problems) = rules(text);
        assert!(node.is_none() && problems.starts_with(&format!("error: r.yaml:{line}: ")), "{text}: {problems}");
    }
    assert_eq!(rules(&bomb).0, None);
    let nested: String = (0..40).map(|n| format!("a{}: &a{} [*a{n}]\n", n + 1, n + 1)).collect();
    let (node, problems) = rules(&format!("a0: &a0 [x]\n{nested}"));
    assert!(node.is_none() && problems.contains("32"), "{problems}");
}

fn depth(node: &Node) -> usize {
    match &node.value {
        Value::Scalar { .. } => 0,
        Value::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Map(pairs) => 1 + pairs.iter().map(|(_, node)| depth(node)).max().unwrap_or(0),
    }
}

fn checks(text: &str) {
    let report = Report::default();
    let lines = text.lines().count().max(1);
    let node = parse(text, &report.file("w.yaml"), &|_| None);
    let problems = report.finish();
    assert!(problems.0.iter().all(|problem| problem.line <= lines), "{problems}");
    match node {
        Some(node) => assert!(depth(&node) <= DEPTH_MAX),
        None => assert!(problems.has_errors()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_text_causes_a_panic(text in ".{0,200}") {
        checks(&text);
    }

    #[test]
    fn no_text_similar_to_yaml_causes_a_panic(text in "[ab:,\\-\\[\\]{}&*!|>'\"#%@?<~\n \t$]{0,120}") {
        checks(&text);
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        checks(&String::from_utf8_lossy(&bytes));
    }
}
