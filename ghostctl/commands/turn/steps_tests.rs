//! What a person reads of a journal.

use ghost_proto::v1::{JournalRow, LedgerRow};
use serde_json::{Value, json};

use super::steps::{Bounds, clip, duration, indented, messages, shown, words};
use crate::output::View;

/// A journal whose rows are a second apart.
fn journal(facts: &[Value]) -> Vec<JournalRow> {
    let row = |(at, fact): (usize, &Value)| {
        let seq = i64::try_from(at).unwrap() + 1;
        JournalRow {
            seq,
            step: fact["step"].as_str().unwrap().into(),
            recorded_at_ms: seq * 1_000,
            step_json: fact.to_string(),
            ..JournalRow::default()
        }
    };
    facts.iter().enumerate().map(row).collect()
}

fn text(facts: &[Value], bounds: Bounds) -> String {
    words(&journal(facts), &[], bounds, &View::default()).text
}

fn turn() -> Vec<Value> {
    let mail = "<inbox>\n<message message_id=\"m\" kind=\"ask\" from=\"operator:local\" at=\"x\">\nWhat is 1 &lt; 2?\n</message>\n</inbox>";
    vec![
        json!({ "step": "briefed", "system": "s", "briefing": "b", "mail": mail }),
        json!({ "step": "model_started", "model": "m/one", "reservation_id": "r" }),
        json!({ "step": "model_answered", "model": "m/one", "usage": { "input": 900, "output": 20, "cache_read": 700 }, "blocks": [
            { "type": "opaque", "author": "m", "json": "SECRETSTATE" },
            { "type": "text", "text": "I look it up." },
            { "type": "tool_call", "id": "c1", "name": "workspace.read", "arguments": { "path": "notes/a.md" } },
            { "type": "tool_call", "id": "c2", "name": "tool.cli", "arguments": { "command": "ls" } },
        ] }),
        json!({ "step": "call_finished", "call_id": "k1", "id": "c1", "tool": "workspace.read",
            "outcome": { "content": { "content": "n".repeat(9_000), "path": "notes/a.md" } } }),
        json!({ "step": "call_started", "call_id": "k2", "id": "c2", "tool": "tool.cli", "effect": "outside" }),
        json!({ "step": "call_finished", "call_id": "k2", "id": "c2", "tool": "tool.cli", "outcome": {
            "content": null, "cost": 1_500_000, "refusal": { "code": "policy_denied", "error": "ls may not run", "hint": "use another" } } }),
        json!({ "step": "model_started", "model": "m/one", "reservation_id": "r" }),
        json!({ "step": "model_answered", "model": "m/one", "usage": { "input": 1, "output": 1 }, "blocks": [{ "type": "text", "text": "Yes." }] }),
    ]
}

#[test]
fn a_turn_says_who_said_what_what_was_called_what_came_back_and_how_long_it_took() {
    let text = text(&turn(), Bounds::BRIEF);
    for part in [
        "operator:local (ask)",
        "What is 1 < 2?",
        "m/one answered after 1.0s: 900 tokens in (700 from the cache), 20 out",
        "said: I look it up.",
        "called: workspace.read, tool.cli",
        "workspace.read returned",
        "path: notes/a.md",
        "tool.cli was refused: policy_denied after 1.0s, $1.50",
        "command: ls",
        "ls may not run",
        "hint: use another",
        "said: Yes.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Not JSON, not what only the provider can read, and no step twice.
    assert!(!text.contains("{\"") && !text.contains("SECRETSTATE"), "{text}");
    assert_eq!(text.matches("m/one answered").count(), 2);
}

#[test]
fn each_step_is_bounded_and_says_what_was_cut() {
    let mut facts = turn();
    facts.push(json!({ "step": "note", "text": "y".repeat(50_000) }));
    facts.push(json!({ "step": "of_tomorrow", "text": "z".repeat(50_000) }));
    facts.push(json!({ "step": "model_answered", "blocks": [
        { "type": "thinking", "text": "t".repeat(50_000) },
        { "type": "text", "text": "u".repeat(50_000) },
        { "type": "tool_call", "id": "c9", "name": "a", "arguments": { "x": "v".repeat(50_000) } } ] }));
    let rows = facts.len();
    let brief = text(&facts, Bounds::BRIEF);
    assert!(brief.chars().count() < rows * 2_400, "{}", brief.chars().count());
    assert!(brief.contains("8400 characters cut") && brief.contains("49400 characters cut"), "{brief}");
    let full = text(&facts, Bounds::NONE);
    for c in ["n", "y", "z", "t", "u", "v"] {
        assert!(full.contains(&c.repeat(9_000)), "{c}");
    }
}

#[test]
fn what_has_no_outcome_is_named() {
    let facts = [
        json!({ "step": "model_started", "model": "m/one" }),
        json!({ "step": "model_started", "model": "m/two" }),
        json!({ "step": "model_answered", "model": "m/two", "blocks": [
            { "type": "tool_call", "id": "c1", "name": "syscall.agent.ask", "arguments": { "to": "ben" } },
            { "type": "tool_call", "id": "c2", "name": "tool.cli", "arguments": { "command": "ls" } } ] }),
        json!({ "step": "call_started", "call_id": "k", "id": "c1", "tool": "syscall.agent.ask", "effect": "wait" }),
        json!({ "step": "approval_requested", "approval_id": "0197", "id": "c2" }),
        json!({ "step": "model_started", "model": "m/three" }),
    ];
    let text = text(&facts, Bounds::BRIEF);
    assert!(text.contains("m/one was asked") && text.contains("m/three was asked"), "{text}");
    assert!(!text.contains("m/two was asked") && text.contains("m/two answered after 1.0s"), "{text}");
    assert!(text.contains("syscall.agent.ask has run since") && text.contains("to: ben"), "{text}");
    assert!(text.contains("tool.cli waits for an operator: approval 0197"), "{text}");
}

#[test]
fn the_ledger_adds_durations_and_the_arguments_of_an_operators_call() {
    let facts = [json!({ "step": "call_finished", "call_id": "k", "id": "operator", "tool": "workspace.read",
        "outcome": { "content": "seven" } })];
    let call = LedgerRow {
        call_id: "k".into(),
        arguments_json: r#"{"path":"n.md"}"#.into(),
        duration_ms: Some(12),
        ..LedgerRow::default()
    };
    let text = words(&journal(&facts), &[call], Bounds::BRIEF, &View::default()).text;
    assert!(text.contains("after 12ms") && text.contains("path: n.md") && text.contains("seven"), "{text}");
}

#[test]
fn the_last_words_are_known_only_if_they_are_whole() {
    let said = |text: &str| {
        let answer = json!({ "step": "model_answered", "model": "m", "blocks": [{ "type": "text", "text": text }] });
        words(&journal(&[answer]), &[], Bounds::BRIEF, &View::default()).said
    };
    assert_eq!(said("short").as_deref(), Some("short"));
    assert_eq!(said(&"x".repeat(601)), None);
}

#[test]
fn a_step_in_full_loses_nothing_and_keeps_its_line_breaks() {
    let long = "x".repeat(1_000);
    let fact = json!({ "text": "one\ntwo", "calls": [{ "tool": "t", "n": 1 }], "long": long, "none": null, "of": { "a": [1, 2] } });
    let mut text = String::new();
    indented(&fact, 2, &mut text);
    for part in ["  text:\n    one\n    two\n", "  calls:\n    -\n", "      tool: t\n", long.as_str(), "    a: [1,2]\n"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("none"), "{text}");
}

#[test]
fn a_clipped_text_says_how_much_is_missing() {
    assert_eq!(clip("äöü", 3), "äöü");
    assert!(clip("äöüß", 1).starts_with("ä…") && clip("äöüß", 1).contains('3'));
    // The first long field does not hide the others.
    let value = json!({ "content": "x".repeat(5_000), "path": "a.md" });
    let text = shown(value.clone(), Bounds::BRIEF);
    assert!(text.contains("4400") && text.contains("path: a.md"), "{text}");
    assert!(shown(value, Bounds::NONE).contains(&"x".repeat(5_000)));
    let many = Value::Array(vec![json!("y".repeat(100)); 100]);
    assert!(shown(many, Bounds::BRIEF).chars().count() < 2_100);
}

#[test]
fn a_duration_has_the_unit_that_fits() {
    assert_eq!([12, 2_345, 185_000].map(duration), ["12ms", "2.3s", "3m 5s"]);
}

#[test]
fn messages_are_read_back_as_they_were_sent() {
    let mail = "<inbox>\n<message message_id=\"1\" kind=\"ask\" from=\"operator:local\" at=\"x\" subject=\"a &amp; b\">\n\
                1 &lt; 2 &amp;amp;\nand on\n</message>\n<message message_id=\"2\" kind=\"cron\" from=\"cron\" at=\"x\">\n\n</message>\n</inbox>";
    let found = messages(mail);
    assert_eq!((found.len(), found[0].kind.as_str(), found[0].from.as_str()), (2, "ask", "operator:local"));
    assert_eq!((found[0].subject.as_deref(), found[0].body.as_str()), (Some("a & b"), "1 < 2 &amp;\nand on"));
    assert_eq!((found[1].subject.as_deref(), found[1].body.as_str()), (None, ""));
    assert_eq!(messages("the texts of a job"), []);
    assert_eq!(messages("<message from=\"x\">\ncut"), []);
}
