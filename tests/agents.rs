//! Agents that the world's files no longer allow to run while they have work. Their acknowledged
//! messages and open turns wait, and continue when the files allow the agent again.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment, WorldDir};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { name: Places }
agents:
  - { id: a, archetype: worker }
  - { id: c, archetype: worker }
  - { id: boss, archetype: boss }
tool_privileges:
  admin: [syscall.agent.create]
  communicator: [channel, syscall.ask]
agents_may_create: [quiet]
limits: { stop_grace_seconds: 1 }
llm: { default_provider: scripted, default_model: plain }
";

const NAMED: &str = "  - { id: c, archetype: worker }\n";

const SCRIPT: &str = r#"about: Answers, and takes its time if it is told to.
rules:
  - name: slow
    when: { mail: 'take your time', round: 0 }
    do: [{ wait: 600s }, { say: Never said. }]
otherwise: [{ say: "Here is {{ agent_id }}." }]
"#;

/// A running world and its files.
struct Places {
    test_env: TestEnvironment,
    world: WorldDir,
    daemon: Option<Daemon>,
}

impl Places {
    fn new() -> Self {
        let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
        let world = test_env.world("places");
        world.config(WORLD).archetype("worker", "").write("scripts/plain.yaml", SCRIPT);
        world.archetype("boss", "## Tool Access\nprivilege_groups: admin, communicator\n");
        let mut places = Self { test_env, world, daemon: None };
        places.quiet();
        places.up();
        places
    }

    /// Writes the archetype in its first form.
    fn quiet(&self) {
        self.world.archetype("quiet", "## Tool Access\nprivilege_groups: communicator\n- workspace.read\n");
    }

    fn up(&mut self) {
        self.daemon = Some(self.test_env.up(self.world.path(), &[]));
    }

    fn kill(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    /// Reloads. Returns the rows of the plan: action with subject, and details.
    fn reload(&self, args: &[&str]) -> Vec<(String, String)> {
        let done = self.test_env.json(&[&["reload"], args].concat());
        let text = |change: &Value, field: &str| change[field].as_str().unwrap().to_owned();
        let line = |change: &Value| (text(change, "action") + " " + &text(change, "subject"), text(change, "detail"));
        done["changes"].as_array().unwrap().iter().map(line).collect()
    }

    /// Asserts that the plan has this row for the agent, in a dry run and in the reload itself.
    fn reload_says(&self, subject: &str, detail: &str) {
        for args in [&["--dry-run"][..], &[]] {
            let plan = self.reload(args);
            assert!(plan.iter().any(|(on, what)| on == subject && what.contains(detail)), "{subject}: {plan:?}");
        }
    }

    fn agent(&self, agent: &str) -> Value {
        self.test_env.json(&["agent", "get", agent])
    }

    fn turns(&self, agent: &str) -> Vec<Value> {
        self.test_env.json(&["turn", "list", "--agent", agent]).as_array().unwrap().clone()
    }

    fn send(&self, agent: &str) {
        self.test_env.ctl(&["send", agent, "important mail"]).ok();
    }

    /// Asserts that the agent has failed with these words and accepts no messages.
    fn waits(&self, agent: &str, words: &[&str]) {
        let failed = Deadline::seconds(60).until("the agent to fail", || {
            let agent = self.agent(agent);
            if agent["status"] == "failed" { Ok(agent) } else { Err(agent.to_string()) }
        });
        let before = failed["inbox_pending"].as_u64().unwrap();
        self.send(agent);
        let failed = self.agent(agent);
        assert_eq!(failed["inbox_pending"].as_u64().unwrap(), before + 1);
        for word in words {
            assert!(failed["status_reason"].as_str().unwrap().contains(word), "{word}: {failed}");
        }
        // A start is refused with the remedy, and an ask is refused at once.
        self.test_env.ctl(&["agent", "start", agent]).exits(7).says(words);
        self.test_env.ctl(&["ask", agent, "are you there?"]).exits(7).says(words);
        assert_eq!(self.agent(agent)["inbox_pending"].as_u64().unwrap(), before + 1);
        self.nothing_failed(agent);
    }

    fn nothing_failed(&self, agent: &str) {
        for turn in self.turns(agent) {
            assert_ne!(turn["status"], "failed", "{turn}");
        }
    }

    /// Asserts that the agent handles all its messages.
    fn works_off(&self, agent: &str) {
        Deadline::seconds(60).until("the mail to be worked off", || {
            let agent = self.agent(agent);
            let done = agent["inbox_pending"] == 0 && agent["turn_id"].is_null() && agent["status"] == "running";
            if done { Ok(()) } else { Err(agent.to_string()) }
        });
        self.nothing_failed(agent);
        assert_eq!(self.turns(agent)[0]["status"], "finished");
        self.test_env.ctl(&["ask", agent, "are you there?"]).ok();
    }
}

// covers: HB-04, MEM-17, TOOL-05
#[test]
fn an_operator_sees_memory_absent_tools_and_the_heartbeats_of_new_agents() {
    let places = Places::new();
    let memory = places.test_env.data("places").join("agents/a/memory");
    std::fs::create_dir_all(&memory).unwrap();
    std::fs::write(memory.join("today.md"), "The desk is green.").unwrap();
    assert_eq!(places.test_env.json(&["agent", "inspect", "a"])["files"][0]["path"], "today.md");
    assert_eq!(places.test_env.json(&["agent", "inspect", "a", "today.md"])["content"], "The desk is green.");
    places.test_env.ctl(&["agent", "inspect", "a", "yesterday.md"]).exits(3);
    let tools = places.test_env.json(&["tool", "list", "a", "--all"]);
    let absent = |name: &str| {
        let row = tools.as_array().unwrap().iter().find(|row| row["name"] == name);
        row.and_then(|row| row["absent"].as_str()).is_some_and(|why| !why.is_empty())
    };
    assert!(absent("tts") && absent("syscall.agent.create") && !absent("workspace.read"), "{tools}");
    // The world gets heartbeats: agents that exist already and new ones have them, also after a reload.
    places.test_env.ctl(&["agent", "create", "quiet", "--id", "q1"]).ok();
    places.world.config(&format!("{WORLD}heartbeat: {{ every: 1h }}\n"));
    places.test_env.ctl(&["reload"]).ok();
    places.test_env.ctl(&["agent", "create", "quiet", "--id", "q2"]).ok();
    let heartbeats = places.test_env.ctl(&["--json", "events", "--kind", "schedule.set"]).out;
    for agent in ["a", "q1", "q2"] {
        assert!(heartbeats.contains(&format!("\"agent_id\":\"{agent}\"")), "{agent}: {heartbeats}");
    }
}

#[test]
fn an_agent_that_the_file_no_longer_names_is_not_started_and_loses_nothing() {
    let mut places = Places::new();
    places.test_env.ctl(&["send", "c", "take your time"]).ok();
    let turn = Deadline::seconds(60)
        .until("a turn of c's", || places.turns("c").first().cloned().ok_or_else(|| "none".to_owned()));
    places.send("c");
    places.world.config(&WORLD.replace(NAMED, ""));
    places.reload_says("stop agent:c", "");
    for _ in 0..2 {
        let c = Deadline::seconds(60).until("c to stop", || {
            let c = places.agent("c");
            if c["status"] == "stopped" { Ok(c) } else { Err(c.to_string()) }
        });
        assert_eq!(c["inbox_pending"], 1);
        let refused = places.test_env.ctl(&["agent", "start", "c"]);
        let words = ["`c`", "reload"];
        refused.exits(7).says(&words);
        // Every request gets the same refusal, and no hint suggests a start that would be refused.
        let call = ["tool", "call", "c", "syscall.task.list", "{}"];
        for args in [
            &["agent", "prompt", "c"][..],
            &["tool", "list", "c"],
            &["tool", "brief", "c"],
            &call,
            &["ask", "c", "are you there?"],
            &["talk", "c"],
        ] {
            let refused = places.test_env.ctl(args);
            refused.exits(7).says(&words);
            assert!(!refused.err.contains("agent start"), "{args:?}: {}", refused.err);
        }
        assert!(places.agent("c")["cannot_run"].is_string());
        let kept = places.turns("c");
        assert_eq!((kept.len(), &kept[0]["turn_id"], &kept[0]["status"]), (1, &turn["turn_id"], &json!("open")));
        // The same after a kill and a start without c.
        places.kill();
        places.up();
    }
    places.world.config(WORLD);
    places.reload_says("start agent:c", "");
    places.test_env.ctl(&["turn", "cancel", turn["turn_id"].as_str().unwrap()]).ok();
    places.works_off("c");
}

// covers: MSG-10
#[test]
fn an_agent_without_archetype_fails_and_its_mail_waits_until_the_archetype_is_back() {
    let mut places = Places::new();
    places.test_env.ctl(&["agent", "create", "quiet", "--id", "n1"]).ok();
    places.test_env.ctl(&["ask", "n1", "are you there?"]).ok();
    std::fs::remove_dir_all(places.world.path().join("archetype/quiet")).unwrap();
    places.world.config(&WORLD.replace("[quiet]", "[]"));
    places.reload_says("fail agent:n1", "`quiet`");
    let words = ["`quiet`", "reload"];
    places.waits("n1", &words);
    places.kill();
    places.up();
    places.waits("n1", &words);
    places.quiet();
    places.world.config(WORLD);
    places.reload_says("start agent:n1", "");
    places.works_off("n1");
}

#[test]
fn an_agent_keeps_the_overrides_that_a_narrowed_archetype_still_allows() {
    let mut places = Places::new();
    let create = json!({
        "archetype": "quiet", "agent_id": "n2",
        "overrides": { "tools": ["workspace.read", "syscall.ask"], "max_tokens": 4_000 },
    });
    places.test_env.ctl(&["tool", "call", "boss", "syscall.agent.create", &create.to_string()]).ok();
    let tools = |places: &Places| -> Vec<String> {
        let list = places.test_env.json(&["tool", "list", "n2"]);
        list.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(tools(&places).contains(&"syscall.ask".to_owned()));
    places.world.archetype("quiet", "## LLM\nmax_tokens: 1000\n## Tool Access\n- workspace.list\n- workspace.read\n");
    places.reload(&[]);
    places.send("n2");
    places.works_off("n2");
    places.kill();
    places.up();
    places.send("n2");
    places.works_off("n2");
    let left = tools(&places);
    let has = |name: &str| left.iter().any(|tool| tool == name);
    assert!(has("workspace.read") && !has("syscall.ask") && !has("workspace.list"), "{left:?}");
}

// covers: WORLD-07, WORLD-11
#[test]
fn an_agent_with_a_broken_archetype_takes_no_mail_until_it_is_repaired() {
    let mut places = Places::new();
    places.test_env.ctl(&["ask", "a", "are you there?"]).ok();
    places.world.archetype("worker", "## Toolbox\nsource: toolbox/nowhere/toolbox.yaml\n- dig\n");
    places.reload_says("fail agent:a", "toolbox/nowhere/toolbox.yaml");
    let words = ["toolbox/nowhere/toolbox.yaml", "reload"];
    places.waits("a", &words);
    places.kill();
    places.up();
    places.waits("a", &words);
    // An agent that is stopped in the meantime stays stopped.
    places.test_env.ctl(&["agent", "stop", "c"]).ok();
    places.world.archetype("worker", "");
    places.reload_says("start agent:a", "");
    places.works_off("a");
    assert_eq!(places.agent("c")["status"], "stopped");
}

#[test]
fn the_work_of_a_deleted_agent_is_reported_and_its_successor_does_it() {
    let places = Places::new();
    places.test_env.ctl(&["pause"]).ok();
    places.send("c");
    places.test_env.ctl(&["task", "create", "--owner", "c", "--title", "Count them"]).ok();
    let gone = places.test_env.json(&["agent", "delete", "c"]);
    assert_eq!((&gone["mail_dropped"], &gone["tasks_left"]), (&json!(2), &json!(1)), "{gone}");
    // The file names the id, so a reload creates the agent again. An existing agent is used or
    // stays unchanged.
    for (id, status) in [("c", "deleted"), ("a", "running")] {
        let refused = places.test_env.ctl(&["--json", "agent", "create", "worker", "--id", id]);
        refused.exits(7);
        let refusal: Value = serde_json::from_str(&refused.err).unwrap();
        assert_eq!(refusal["details"], json!({ "agent_id": id, "status": status, "archetype": "worker" }));
    }
    // A sender gets a refusal that says that it was deleted, and how to create it again.
    for args in [&["agent", "start", "c"][..], &["agent", "prompt", "c"], &["ask", "c", "?"], &["tool", "list", "c"]] {
        places.test_env.ctl(args).exits(3).says(&["`c`", "`ghostctl reload`"]);
    }
    let events = places.test_env.ctl(&["--json", "events", "--kind", "agent.deleted"]).json_lines();
    let left = &events.last().unwrap()["payload"];
    assert_eq!((&left["mail_dropped"], &left["tasks_left"]), (&json!(2), &json!(1)), "{left}");
    places.test_env.ctl(&["resume"]).ok();
    let plan = places.reload(&[]);
    assert!(plan.iter().any(|(on, _)| on == "create agent:c"), "{plan:?}");
    places.works_off("c");
    assert!(places.turns("c").iter().any(|turn| turn["about"].as_str().unwrap().contains("Count them")));
}

#[test]
fn a_file_that_takes_over_an_agent_shows_what_changes() {
    let places = Places::new();
    places.test_env.ctl(&["agent", "create", "quiet", "--id", "lim"]).ok();
    // The same request again finds the agent; a request for another agent names the existing one.
    let again = places.test_env.json(&["agent", "create", "quiet", "--id", "lim"]);
    assert_eq!((&again["changed"], &again["status"]), (&json!(false), &json!("running")));
    places.test_env.ctl(&["agent", "create", "worker", "--id", "lim"]).exits(7);
    places.test_env.ctl(&["agent", "create", "worker", "--id", "system"]).exits(2).says(&["`system`"]);
    places.world.config(&WORLD.replace(NAMED, &format!("{NAMED}  - {{ id: lim, archetype: boss }}\n")));
    places.reload_says("update agent:lim", "archetype, access");
}
