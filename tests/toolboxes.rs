//! Toolboxes from outside: who gets their tools, how a call becomes a command, what joins a turn that runs, and what is left
//! after a `kill -9`.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment, ghostd_testing};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { name: Box }
agents: [{ id: ada, archetype: worker }, { id: bob, archetype: member }, { id: eve, archetype: guest }]
tool_privileges: { keepers: [notes.secret] }
toolboxes: [{ source: toolbox/notes/toolbox.yaml }]
sandbox: { kind: local }
llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }
";

const NOTES: &str = "\
name: notes
bin_dir: bin
env: { MODE: fast }
passthrough_env: [NOTES_TOKEN]
tools:
  - name: add
    description: Add a note
    command: [add, fixed]
    parameters: { type: object, properties: { text: { type: string }, tags: { type: array, items: { type: string } } }, required: [text] }
    args: [\"--text={text}\", \"{tags...}\"]
  - { name: secret, description: Read the secret note, command: [add] }
  - { name: report, description: Count the notes, command: [report], result: json, workspace_access: ro }
  - { name: draw, description: Draw a note, command: [add], requires: { bins: [no-such-program] } }
";

const SCRIPT: &str = "\
rules:
  - when: { mail: learn, round: 0 }
    do: [{ call: syscall.skill.acquire, with: { name: counting } }]
  - when: { mail: learn, round: 1 }
    do: [{ call: syscall.tool.call, with: { name: counter.count, arguments: { seconds: 0 } } }]
  - when: { mail: linger, round: 0 }
    do: [{ call: syscall.tool.call, with: { name: syscall.skill.acquire, arguments: { name: counting } } }]
  - when: { mail: linger, round: 1 }
    do: [{ call: syscall.tool.call, with: { name: counter.count, arguments: { seconds: 30 } } }]
  - when: { mail: linger, round: 2 }
    do: [{ call: syscall.tool.call, with: { name: counter.count, arguments: { seconds: 0 } } }]
otherwise: [{ say: Done. }]
";

fn program(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

struct Box {
    test_env: TestEnvironment,
    world: PathBuf,
    daemon: Daemon,
}

impl Box {
    /// `None`, with the reason on standard error, if this machine has no sandbox and none is required.
    fn new() -> Option<Self> {
        let mut test_env = TestEnvironment::new(ghostd_testing());
        std::fs::set_permissions(test_env.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        test_env.set("NOTES_TOKEN", "tiger-in-the-night");
        let world = test_env.world("box");
        world.config(WORLD).write("scripts/m.yaml", SCRIPT);
        let section = "## Toolbox\nsource: toolbox/notes/toolbox.yaml\n- add\n- secret\n- report\n- draw\n";
        world.archetype("worker", section).archetype("guest", "");
        world.archetype("member", "## Tool Access\nprivilege_groups: keepers\n");
        world.write("toolbox/notes/toolbox.yaml", NOTES);
        let path = world.path().to_owned();
        let add = "#!/bin/sh\necho \"$AGENT_ID|$WORLD_ID|$MODE|$NOTES_TOKEN\"\npwd\nprintf '%s\\n' \"$@\"\n";
        program(&path.join("toolbox/notes/bin/add"), add);
        let report = "#!/bin/sh\ntouch written 2>/dev/null && wrote=true || wrote=false\nprintf '{\"notes\": 3, \"wrote\": %s}' $wrote\n";
        program(&path.join("toolbox/notes/bin/report"), report);
        world.write(
            "skills/counting/SKILL.md",
            "---\nname: counting\ndescription: Counts.\nmetadata: { ghost: { toolbox: box.yaml } }\n---\nCount.\n",
        );
        world.write(
            "skills/counting/box.yaml",
            "name: counter\nbin_dir: bin\ntools:\n  - name: count\n    description: Count one more\n    command: [count]\n    parameters: { type: object, properties: { seconds: { type: integer } }, required: [seconds] }\n    args: [\"{seconds}\"]\n",
        );
        program(
            &path.join("skills/counting/bin/count"),
            "#!/bin/sh\necho x >> counted\nsleep \"$1\"\nwc -l < counted\n",
        );
        let daemon = test_env.up(&path, &[]);
        test_env.has_sandbox().then_some(Self { test_env, world: path, daemon })
    }

    fn call(&self, agent: &str, tool: &str, arguments: &Value) -> Value {
        self.test_env.json(&["tool", "call", agent, tool, &arguments.to_string()])
    }

    fn tools(&self, agent: &str) -> Vec<String> {
        let listed = self.test_env.json(&["tool", "list", agent]);
        let names = listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("notes.") || name.starts_with("counter.")).collect()
    }

    fn counted(&self) -> usize {
        let file = self.test_env.data("box").join("workspace/agents/ada/counted");
        std::fs::read_to_string(file).map_or(0, |text| text.lines().count())
    }

    fn ledger(&self) -> Vec<(String, String)> {
        let rows = self.test_env.json(&["ledger"]);
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        rows.as_array().unwrap().iter().map(|row| (text(row, "tool"), text(row, "status"))).collect()
    }
}

// covers: TBX-01, TBX-02, TBX-03, TBX-05, TBX-06, TBX-10, TOOL-02
#[test]
fn an_agent_gets_the_tools_that_are_named_for_it_and_a_call_is_one_command() {
    let Some(toolbox) = Box::new() else { return };
    // `secret` is in a group: the worker's archetype names it, which is not enough.
    assert_eq!(toolbox.tools("ada"), ["notes.add", "notes.report"]);
    assert_eq!(toolbox.tools("bob"), ["notes.secret"]);
    assert_eq!(toolbox.tools("eve"), Vec::<String>::new());
    let all = toolbox.test_env.ctl(&["tool", "list", "ada", "--all"]).ok().out.clone();
    assert!(all.contains("notes.draw") && all.contains("no-such-program") && all.contains("keepers"), "{all}");
    let hostile = "a b; touch pwned; $(touch pwned) `touch pwned`";
    let done = toolbox.call("ada", "add", &json!({ "text": hostile, "tags": ["x y", "--z"] }));
    assert_eq!((&done["status"], &done["tool"]), (&json!("ok"), &json!("notes.add")), "a short name is enough: {done}");
    let out = done["result"]["stdout"].as_str().unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].starts_with("ada|box|fast|") && !out.contains("tiger-in-the-night"), "{out}");
    assert!(lines[1].ends_with("/agents/ada"), "{out}");
    assert_eq!(lines[2..], ["fixed", &format!("--text={hostile}"), "x y", "--z"]);
    assert!(!toolbox.test_env.data("box").join("workspace/agents/ada/pwned").exists());
    // What prints JSON has it as its result, and what may only read writes nothing.
    assert_eq!(toolbox.call("ada", "notes.report", &json!({}))["result"], json!({ "notes": 3, "wrote": false }));
    for (tool, arguments, code) in [
        ("notes.add", json!({ "txt": "a" }), "`text`"),
        ("notes.secret", json!({}), "keepers"),
        ("notes.draw", json!({}), "no-such-program"),
        ("counter.count", json!({ "seconds": 0 }), "counting"),
        ("notes.ad", json!({}), "notes.add"),
    ] {
        let refused = toolbox.test_env.ctl(&["tool", "call", "ada", tool, &arguments.to_string()]);
        assert!(refused.code != Some(0) && refused.err.contains(code), "{tool}: {} {}", refused.out, refused.err);
    }
}

// covers: ACC-10, SKILL-41, TOOL-03
#[test]
fn a_tool_that_joins_a_running_turn_is_called_in_it_and_leaves_with_its_skill() {
    let Some(toolbox) = Box::new() else { return };
    toolbox.test_env.ctl(&["send", "ada", "learn"]).ok();
    toolbox.test_env.wait_until_quiet(Deadline::seconds(60));
    assert!(toolbox.ledger().contains(&("counter.count".to_owned(), "ok".to_owned())), "{:?}", toolbox.ledger());
    assert_eq!((toolbox.counted(), toolbox.tools("ada")[0].as_str()), (1, "counter.count"));
    assert!(!toolbox.tools("bob").contains(&"counter.count".to_owned()));
    toolbox.call("ada", "syscall.skill.drop", &json!({ "name": "counting" }));
    assert_eq!(toolbox.tools("ada"), ["notes.add", "notes.report"]);
    // A reload changes what there is, without a restart.
    let manifest = toolbox.world.join("toolbox/notes/toolbox.yaml");
    std::fs::write(&manifest, NOTES.replace("requires: { bins: [no-such-program] }", "requires: { bins: [sh] }"))
        .unwrap();
    toolbox.test_env.ctl(&["reload"]).ok();
    assert_eq!(toolbox.tools("ada"), ["notes.add", "notes.draw", "notes.report"]);
    // A variable that is new would not be redacted before a restart.
    std::fs::write(&manifest, NOTES.replace("[NOTES_TOKEN]", "[NOTES_TOKEN, HOME]")).unwrap();
    toolbox.test_env.ctl(&["reload"]).ok();
    assert_eq!(toolbox.tools("ada"), Vec::<String>::new());
    assert!(toolbox.test_env.ctl(&["tool", "list", "ada", "--all"]).ok().out.contains("HOME"));
    std::fs::write(&manifest, NOTES.replace("requires: { bins: [no-such-program] }", "requires: { bins: [sh] }"))
        .unwrap();
    toolbox.test_env.ctl(&["reload"]).ok();
    // A manifest with a mistake changes nothing.
    std::fs::write(&manifest, NOTES.replace("command: [report]", "command: report | head")).unwrap();
    let refused = toolbox.test_env.ctl(&["reload"]);
    assert!(
        refused.code != Some(0) && format!("{}{}", refused.out, refused.err).contains("toolbox.yaml"),
        "{}",
        refused.err
    );
    assert_eq!(toolbox.tools("ada"), ["notes.add", "notes.draw", "notes.report"]);
}

// covers: TOOL-03
#[test]
fn a_killed_turn_goes_on_with_the_tools_that_it_saw_and_runs_no_command_twice() {
    let Some(mut toolbox) = Box::new() else { return };
    toolbox.test_env.ctl(&["send", "ada", "linger"]).ok();
    Deadline::seconds(60).until("the command runs", || {
        if toolbox.counted() == 1 { Ok(()) } else { Err(format!("{:?}", toolbox.ledger())) }
    });
    toolbox.daemon.kill();
    toolbox.daemon = toolbox.test_env.up(&toolbox.world, &[]);
    toolbox.test_env.wait_until_quiet(Deadline::seconds(60));
    let ledger = toolbox.ledger();
    let calls: Vec<&str> =
        ledger.iter().filter(|(tool, _)| tool == "counter.count").map(|(_, status)| status.as_str()).collect();
    assert_eq!(calls, ["ok", "unknown"], "newest first: {ledger:?}");
    assert_eq!(toolbox.counted(), 2, "the call that was cut off did not run again");
}
