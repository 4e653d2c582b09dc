//! Droids from outside: what one may do, how its result comes back, and what is left after a `kill -9`, a deletion and a
//! stop.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment, ghostd_testing};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { name: Droids }
agents: [{ id: ada, archetype: lead }, { id: bob, archetype: member }]
tool_privileges: { delegator: [syscall.droid.spawn, syscall.droid.control, syscall.artifact.promote], shell: [tool.cli] }
write_acls: { ada: [agents/ada/, output/reports/], bob: [agents/bob/] }
droids: { tools: [workspace.read, workspace.write, tool.cli], model: p/droid }
limits: { droids_per_agent: 3 }
sandbox: { kind: local }
llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }
";

/// The lead: delegates, and promotes what comes back.
const LEAD: &str = r#"
let:
  done: "mail | regex_find('subject=.(droid-[0-9a-f]{8})')"
rules:
  - when: { mail: 'kind="droid_done"', round: 0, if: "'status: succeeded' in mail" }
    do: [{ call: syscall.artifact.promote, with: { from: "droids/{{ done }}/etc_passwd", to: output/reports/water.md } }]
  - when: { mail: delegate, round: 0 }
    do: [{ call: syscall.droid.spawn, with: { task: "{{ mail | regex_find('delegate ([a-z ]+)') }}", output_path: ../../../etc/passwd, label: helper } }]
otherwise: [{ say: "Done with {{ done or 'the mail' }}." }]
"#;

/// The droid: does what its task says.
const DROID: &str = r#"
rules:
  - when: { mail: write it, round: 0 }
    do:
      - { call: workspace.write, with: { path: etc_passwd, content: "Water is wet." } }
      - { call: workspace.write, with: { path: output/reports/stolen.md, content: x, scope: world } }
      - { call: workspace.write, with: { path: agents/ada/stolen.md, content: x, scope: world } }
      - { call: workspace.read, with: { path: agents/bob/note.md, scope: world } }
      - { call: syscall.message.send, with: { to: bob, content: hello } }
      - { call: syscall.droid.spawn, with: { task: more } }
  - when: { mail: linger, round: 0 }
    do: [{ call: tool.cli, with: { command: "pwd >> ran; sleep 30", timeout_ms: 60000 } }]
  - when: { mail: linger, round: 1 }
    do: [{ call: workspace.write, with: { path: etc_passwd, content: "Went on." } }]
otherwise: [{ say: "It is done." }]
"#;

struct Droids {
    test_env: TestEnvironment,
    world: std::path::PathBuf,
    daemon: Daemon,
}

impl Droids {
    fn new() -> Self {
        let test_env = TestEnvironment::new(ghostd_testing());
        std::fs::set_permissions(test_env.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let world = test_env.world("droids");
        world.config(WORLD).write("scripts/m.yaml", LEAD).write("scripts/droid.yaml", DROID);
        world.archetype("lead", "## Tool Access\nprivilege_groups: delegator\n").archetype("member", "");
        let path = world.path().to_owned();
        let daemon = test_env.up(&path, &[]);
        Self { test_env, world: path, daemon }
    }

    fn file(&self, path: &str) -> std::path::PathBuf {
        self.test_env.data("droids").join("workspace").join(path)
    }

    fn droids(&self) -> Vec<Value> {
        self.test_env.json(&["droid", "list"]).as_array().unwrap().clone()
    }

    /// Waits for the only droid to be in this state.
    fn until(&self, state: &str) -> Value {
        Deadline::seconds(60).until(state, || match self.droids().as_slice() {
            [droid] if droid["state"] == state => Ok(droid.clone()),
            droids => Err(format!("{droids:?}")),
        })
    }

    fn call(&self, agent: &str, tool: &str, arguments: &Value) -> Value {
        self.test_env.json(&["tool", "call", agent, tool, &arguments.to_string()])
    }

    /// The calls of a tool: agent and status, newest first.
    fn calls(&self, tool: &str) -> Vec<(String, String)> {
        let rows = self.test_env.json(&["ledger"]);
        let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let rows = rows.as_array().unwrap().iter().filter(|row| row["tool"] == tool);
        rows.map(|row| (text(row, "agent_id"), text(row, "status"))).collect()
    }
}

// covers: DROID-01, DROID-03, DROID-04, DROID-06, DROID-07, DROID-08, DROID-09, DROID-11, DROID-12, DROID-14, ART-05, BI-75, BI-76, BI-88, CONF-08
#[test]
fn a_droid_does_its_task_within_its_limits_and_its_parent_promotes_the_result() {
    let droids = Droids::new();
    std::fs::create_dir_all(droids.file("agents/bob")).unwrap();
    std::fs::write(droids.file("agents/bob/note.md"), "hello").unwrap();
    droids.test_env.ctl(&["send", "ada", "delegate write it"]).ok();
    let droid = droids.until("succeeded");
    droids.test_env.wait_until_quiet(Deadline::seconds(60));
    let id = droid["droid_id"].as_str().unwrap();
    assert_eq!(droid["parent_id"], "ada");
    assert_eq!(droid["output_path"], json!(format!("droids/{id}/etc_passwd")));
    assert_eq!(droid["tools"], json!(["tool.cli", "workspace.read", "workspace.write"]), "more than its parent has");
    assert_eq!(std::fs::read_to_string(droids.file(&format!("droids/{id}/etc_passwd"))).unwrap(), "Water is wet.");
    let task = std::fs::read_to_string(droids.file(&format!("droids/{id}/task.md"))).unwrap();
    assert!(task.contains(id) && task.contains("write it") && task.contains("etc_passwd"), "{task}");
    // Its prompt says where it writes, where its task is, and its time.
    let prompt = droids.test_env.ctl(&["agent", "prompt", id]).ok().out.clone();
    for limit in ["`droids/<your id>/`", "`task.md`", "`output/`", " s of work"] {
        assert!(prompt.contains(limit), "{limit} in {prompt}");
    }
    let (before_mail, _) = prompt.split_once("<message ").unwrap();
    assert!(!before_mail.contains(id), "droids share this part: {before_mail}");
    // It wrote nowhere else, read what it wanted, and had no other tool.
    assert!(!droids.file("output/reports/stolen.md").exists() && !droids.file("agents/ada/stolen.md").exists());
    let own = |tool: &str| -> Vec<String> {
        droids.calls(tool).into_iter().filter(|(agent, _)| agent == id).map(|(_, status)| status).collect()
    };
    assert_eq!(own("workspace.write"), ["failed", "failed", "ok"], "newest first");
    assert_eq!(own("workspace.read"), ["ok"]);
    let failed = vec!["failed".to_owned()];
    assert_eq!((own("syscall.message.send"), own("syscall.droid.spawn")), (failed.clone(), failed));
    // Its parent heard of it, and promoted the result.
    assert_eq!(std::fs::read_to_string(droids.file("output/reports/water.md")).unwrap(), "Water is wet.");
    let artifacts = droids.test_env.json(&["artifact", "list"]);
    assert_eq!((&artifacts[0]["agent_id"], &artifacts[0]["droid_id"]), (&json!("ada"), &json!(id)));
    let checked = droids.call("bob", "syscall.droid.check", &json!({ "droid_id": id }))["result"].clone();
    assert_eq!((&checked["status"], &checked["output_preview"]), (&json!("succeeded"), &json!("Water is wet.")));
    assert_eq!(checked["files"], json!([format!("droids/{id}/etc_passwd")]));
    for (agent, tool, arguments, word) in [
        ("bob", "syscall.droid.spawn", json!({ "task": "x" }), "delegator"),
        ("bob", "syscall.artifact.promote", json!({ "from": "a", "to": "b" }), "delegator"),
        ("ada", "syscall.droid.check", json!({ "droid_id": "droid-1234" }), "not the id"),
        ("ada", "syscall.droid.check", json!({ "droid_id": "droid-00000000" }), "droid"),
        ("ada", "syscall.droid.spawn", json!({ "task": " " }), "task"),
        ("ada", "syscall.droid.spawn", json!({ "task": "x", "timeout_seconds": 301 }), "timeout_seconds"),
        ("ada", "syscall.droid.spawn", json!({ "task": "x", "tools": ["syscall.ask"] }), "workspace.read"),
        (
            "ada",
            "syscall.artifact.promote",
            json!({ "from": format!("droids/{id}/etc_passwd"), "to": "projects/x" }),
            "projects",
        ),
        ("ada", "syscall.artifact.promote", json!({ "from": "agents/bob/note.md", "to": "output/reports/x" }), "droid"),
        ("ada", "syscall.droid.control", json!({ "action": "steer", "droid_id": id, "message": "more" }), "succeeded"),
        ("ada", "syscall.message.send", json!({ "to": id, "content": "hi" }), "droid"),
    ] {
        let refused = droids.test_env.ctl(&["tool", "call", agent, tool, &arguments.to_string()]);
        let said = format!("{}{}", refused.out, refused.err);
        assert!(refused.code != Some(0) && said.contains(word), "{tool} {arguments}: {said}");
    }
}

// covers: DROID-10, DROID-14
#[test]
fn a_killed_droid_turn_goes_on_and_its_command_does_not_run_twice() {
    let mut droids = Droids::new();
    if !droids.test_env.has_sandbox() {
        return;
    }
    droids.test_env.ctl(&["send", "ada", "delegate linger"]).ok();
    let id = droids.until("running")["droid_id"].as_str().unwrap().to_owned();
    let ran = droids.file(&format!("droids/{id}/ran"));
    Deadline::seconds(60).until("the command runs", || if ran.exists() { Ok(()) } else { Err(String::new()) });
    droids.daemon.kill();
    droids.daemon = droids.test_env.up(&droids.world, &[]);
    let droid = droids.until("succeeded");
    droids.test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!(droid["droid_id"], json!(id));
    let lines = std::fs::read_to_string(&ran).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert!(lines.trim_end().ends_with(&format!("droids/{id}")), "{lines}");
    let ledger = droids.calls("tool.cli");
    assert_eq!(ledger, [(id, "unknown".to_owned())]);
    assert_eq!(std::fs::read_to_string(droids.file("output/reports/water.md")).unwrap(), "Went on.");
    assert_eq!(droids.calls("syscall.artifact.promote").len(), 1, "one completion");
}

// covers: BI-77, DROID-15, DROID-16
#[test]
fn droids_end_with_their_parent_and_are_steered_and_killed_by_it_alone() {
    let droids = Droids::new();
    droids.test_env.ctl(&["pause"]).ok();
    let spawn = |task: &str| {
        let done = droids.call("ada", "syscall.droid.spawn", &json!({ "task": task, "mode": "session" }));
        done["result"]["droid_id"].as_str().unwrap().to_owned()
    };
    let (one, two, three) = (spawn("one"), spawn("two"), spawn("three"));
    let refused = droids.test_env.ctl(&["tool", "call", "ada", "syscall.droid.spawn", "{\"task\": \"four\"}"]);
    assert!(refused.code != Some(0) && format!("{}{}", refused.out, refused.err).contains("droids of one agent"));
    let state = |id: &str| droids.test_env.json(&["droid", "show", id])["state"].clone();
    assert_eq!(state(&one), "pending");
    droids.test_env.ctl(&["droid", "steer", &one, "write it"]).ok();
    droids.test_env.ctl(&["resume"]).ok();
    // The steered one reads both in one turn.
    Deadline::seconds(60).until("the file", || {
        if droids.file(&format!("droids/{one}/etc_passwd")).exists() { Ok(()) } else { Err(String::new()) }
    });
    droids.test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!(state(&one), "running", "a session waits for more");
    let killed = droids.test_env.json(&["droid", "kill", &one, "--reason", "enough"]);
    assert_eq!((&killed["state"], &killed["error"]["code"]), (&json!("killed"), &json!("cancelled")));
    let other = droids.test_env.ctl(&["droid", "steer", &one, "more"]);
    assert!(other.code != Some(0) && other.err.contains("killed"), "{}", other.err);
    // A parent that stops takes its droids with it, and hears of them when it starts again.
    droids.test_env.ctl(&["agent", "stop", "ada"]).ok();
    assert_eq!((state(&two), state(&three)), (json!("killed"), json!("killed")));
    droids.test_env.ctl(&["agent", "start", "ada"]).ok();
    let four = spawn("four");
    droids.test_env.ctl(&["agent", "delete", "ada"]).ok();
    assert_eq!(state(&four), "killed");
    let listed = droids.test_env.json(&["droid", "list", "--live"]);
    assert_eq!(listed, json!([]), "no droid without a parent");
}
