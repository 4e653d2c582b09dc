//! Coding agents as tools: their streams become live progress and a short result, whatever they print.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::fmt::Write as _;

use ghost_testkit::blackbox::{TestEnvironment, ghostd_testing};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { name: Code }
agents: [{ id: ada, archetype: coder }]
toolboxes: [{ source: toolbox/code/toolbox.yaml }]
sandbox: { kind: local }
llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }
";

/// Coding agents that print a file of the toolbox. The name says the format of the first.
const BOX: &str = "\
name: code
bin_dir: bin
tools:
  - { name: cursor-agent, description: Edit code, command: [replay, good], parameters: &p { type: object, properties: { task: { type: string } } }, stdin: \"{task}\" }
  - { name: cut, description: Edit code, command: [replay, cut], stream: cursor-json }
  - { name: broken, description: Edit code, command: [replay, broken], stream: cursor-json }
  - { name: text, description: Edit code, command: [replay, text], stream: claude-json, result: coding-agent }
";

const REPLAY: &str = "#!/bin/sh\ncat \"$(dirname \"$0\")/../$1.jsonl\"\necho 'a warning' >&2\ntest \"$1\" != cut\n";

fn call(n: usize, kind: &str, args: &Value) -> String {
    let event = json!({
        "type": "tool_call", "subtype": "started", "call_id": format!("c{n}\nx"), "tool_call": { kind: { "args": args } },
    });
    format!("{event}\n")
}

/// A run of more than 130 KB: reads, an edit, a command, and the text that nobody needs.
fn stream() -> String {
    let mut text = format!("{}\n", json!({ "type": "system", "subtype": "init", "model": "m", "session_id": "s" }));
    for n in 0..40 {
        text.push_str(&call(n, "readToolCall", &json!({ "path": format!("src/file{n}.rs") })));
        let thinking = json!({ "type": "thinking", "subtype": "delta", "text": "hm ".repeat(900) });
        writeln!(text, "{thinking}").unwrap();
    }
    text.push_str(&call(90, "editToolCall", &json!({ "path": "src/file1.rs", "streamContent": "x".repeat(20_000) })));
    text.push_str(&call(91, "shellToolCall", &json!({ "command": "cargo test" })));
    text
}

// covers: DEV-12, DEV-13, DEV-14, DEV-15, DEV-16, DEV-17, TBX-02, LIM-11, CONF-07, CONF-30, TEST-05
#[test]
fn a_run_becomes_a_short_result_and_what_is_no_stream_stays_text() {
    let test_env = TestEnvironment::new(ghostd_testing());
    std::fs::set_permissions(test_env.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let world = test_env.world("code");
    let section = "## Toolbox\nsource: toolbox/code/toolbox.yaml\n- cursor-agent\n- cut\n- broken\n- text\n";
    world.config(WORLD).archetype("coder", section).write("scripts/m.yaml", "otherwise: [{ say: ok }]\n");
    let end = json!({
        "type": "result", "subtype": "success", "is_error": false, "duration_ms": 12_340, "result": "Fixed the title.",
        "usage": { "inputTokens": 9, "outputTokens": 321 },
    });
    let long = format!("{}\n{}\u{0}\n", "m".repeat(3_000_000), "{\"type\": \"tool_call\", \"sub");
    world.write("toolbox/code/good.jsonl", format!("{}{end}\n", stream()));
    world.write("toolbox/code/cut.jsonl", stream());
    world.write("toolbox/code/broken.jsonl", format!("{long}{end}\n"));
    world.write("toolbox/code/text.jsonl", "I changed nothing.\n");
    world.write("toolbox/code/toolbox.yaml", BOX.replace("&p ", ""));
    world.write("toolbox/code/bin/replay", REPLAY);
    let path = world.path().to_owned();
    let program = path.join("toolbox/code/bin/replay");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let _daemon = test_env.up(&path, &[]);
    if !test_env.has_sandbox() {
        return;
    }
    let run = |tool: &str| -> Value {
        let done = test_env.ctl(&["--json", "tool", "call", "ada", tool, "{}"]);
        serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{tool}: {}", done.err))
    };
    let done = run("cursor-agent");
    let text = done["result"].as_str().unwrap_or_else(|| panic!("{done}"));
    assert!(text.len() <= 2_048, "{} bytes", text.len());
    assert!(text.starts_with("Cursor agent: done, 12.3 s, 321 output tokens\n"), "{text}");
    for part in [
        "Files read: src/file0.rs, src/file2.rs",
        "Files written: src/file1.rs",
        "cargo test",
        "Result:\nFixed the title.",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("hm hm") && !text.contains("a warning"), "{text}");
    let cut = run("cut");
    let text = cut["result"].as_str().unwrap();
    assert!(text.contains("no result") && text.contains("exit code 1") && text.contains("a warning"), "{text}");
    let ledger = test_env.json(&["ledger"]);
    assert_eq!((&ledger[0]["tool"], &ledger[0]["status"]), (&json!("code.cut"), &json!("failed")));
    // Megabyte lines and halves of events do no harm.
    assert!(run("broken")["result"].as_str().unwrap().contains("Fixed the title."));
    // What is no stream is the output of a command.
    assert_eq!(run("text")["result"]["stdout"], "I changed nothing.\n");
}
