use super::*;
use crate::report::Report;
use proptest::prelude::*;

fn read(text: &str) -> (Option<Node>, String) {
    let report = Report::default();
    let node = parse(text, &report.file("w.yaml"), &|_| None);
    (node, report.finish().to_string())
}

fn refused(text: &str, expected: &str) {
    let (node, problems) = read(text);
    assert!(problems.contains(expected), "{:?} gave {problems:?}", &text[..text.len().min(60)]);
    assert!(node.is_none() || expected.contains("is repeated"));
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
    refused(&bomb, "w.yaml:1: anchors");
    refused("a: *b\n", "");
    refused("a: {<<: {b: 1}}", "merge keys");
    refused("a: !!str 1", "tags");
    refused("a: !evil x", "tags");
    refused(&"[".repeat(200), "nested more than 32 deep");
    refused(&"[".repeat(100_000), "this is not YAML");
    refused(&"{a: ".repeat(200), "nested more than 32 deep");
    refused(&"- ".repeat(100_000), "nested more than 32 deep");
    refused(&format!("a: {}", "x".repeat(SCALAR_MAX + 1)), "the value has 65537 bytes");
    refused(&"x".repeat(1024 * 1024), "at most 262144 are read");
    refused(&format!("[{}]", "1,".repeat(NODES_MAX + 1)), "more than 20000 values");
    refused("a: 1\nb: 2\na: 3\n", "w.yaml:3: a: the key `a` is repeated\n  hint: it is already on line 1");
    refused("a:\n\t- b\n", "w.yaml:2");
    refused("a: 1\0b: 2", "control character U+0000");
    refused("a: 1\rb: 2", "control character U+000D");
    refused("? [a]\n: b\n", "a key must be plain text");
    refused("a: 1\n---\nb: 2\n", "second document");
    refused("", "the file is empty");
    refused("a: 'x", "this is not YAML");
    refused("a: b: c", "this is not YAML");
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
    for (text, told) in [
        (bomb.as_str(), "expand to too much"),
        (long.as_str(), "r.yaml:2: the aliases of the file expand to too much"),
        ("a: &a [*a]\n", "an alias is inside the value that it names"),
        ("a: &a x\n*a : y\n", "a key must be plain text, not an alias"),
        ("a: *b\n", "r.yaml:1"),
    ] {
        let (node, problems) = rules(text);
        assert!(node.is_none() && problems.contains(told), "{text}: {problems}");
    }
    let nested: String = (0..40).map(|n| format!("a{}: &a{} [*a{n}]\n", n + 1, n + 1)).collect();
    let (node, problems) = rules(&format!("a0: &a0 [x]\n{nested}"));
    assert!(node.is_none() && problems.contains("nested more than 32 deep"), "{problems}");
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
