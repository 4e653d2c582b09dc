//! Promise 3: one failure stays one failure. Each test causes one failure. It shows its effect on
//! the affected agent, and that the other agents keep answering.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ghost_provider::testing::{FakeAnswer, FakeRequest};
use ghost_testkit::blackbox::{
    CALM, Daemon, Database, Deadline, EFFECTS, ModelServer, Ran, TestEnvironment, fresh_outcomes, ghostd_testing,
    mail_of,
};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { name: Trouble }
agents:
  # One test retries what is not repaired yet; its crashes must not use up the victim's restarts meanwhile.
  - { id: victim, archetype: worker, restart: { max: 50, window: 60s, backoff: { base: 10ms, cap: 50ms } } }
  - { id: friend, archetype: worker }
  - { id: steady, archetype: worker, overrides: { provider: scripted, model: steady } }
limits: { call_seconds: 5 }
llm:
  default_provider: fake
  default_model: fake
  providers:
    fake: { kind: openai, base_url: 'BASE', attempts: 3, retry_base: 20ms, retry_cap: 100ms }
    scripted: { kind: scripted, dir: scripts }
";

/// A message with this text is answered with 300 KB.
const AT_LENGTH: &str = "at length, please";

/// `call TOOL JSON` in a message makes the model call that tool. Other messages are answered at
/// once.
fn answer(request: &FakeRequest, number: u64) -> FakeAnswer {
    if let Some(last) = fresh_outcomes(request).last() {
        return FakeAnswer::say(format!("{} gave {}", last.tool, last.content));
    }
    let mail = mail_of(request);
    if mail.iter().any(|mail| mail.body == AT_LENGTH) {
        return FakeAnswer::say("at length ".repeat(30_000));
    }
    let spec = mail.iter().find_map(|mail| mail.body.strip_prefix("call ")).and_then(|rest| rest.split_once(' '));
    match spec {
        Some((tool, arguments)) => {
            FakeAnswer::call(format!("c{number}"), tool, serde_json::from_str(arguments).unwrap())
        }
        None => FakeAnswer::say("I am well."),
    }
}

/// A file that refuses every write.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// An environment with the world in it, and its model server.
struct Trouble {
    test_env: TestEnvironment,
    world: PathBuf,
    /// Number of requests that the server still refuses.
    outage: Arc<AtomicU32>,
    server: ModelServer,
}

impl Trouble {
    /// An environment whose database can grow by this many pages from its next start on.
    fn with_room(pages: i64) -> Self {
        let mut trouble = Self::new();
        trouble.up().stop();
        let now = Database::open(&trouble.test_env.data("trouble")).number("PRAGMA page_count");
        trouble.test_env.set("GHOST_DATABASE_PAGES", (now + pages).to_string());
        trouble
    }

    /// Sends the victim messages until the disk is full. Returns the number of accepted messages,
    /// and the refusal.
    fn fill(&self) -> (i64, Ran) {
        let long = "x".repeat(20_000);
        for kept in 0..200 {
            let sent = self.test_env.ctl(&["--timeout", "1s", "send", "victim", &format!("mail {kept} {long}")]);
            if sent.code != Some(0) {
                assert!(kept > 0, "{}", sent.err);
                return (kept, sent);
            }
        }
        panic!("the disk never filled");
    }

    fn new() -> Self {
        let outage = Arc::new(AtomicU32::new(0));
        let left = Arc::clone(&outage);
        let server = ModelServer::start(move |request, number| {
            let refused = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
            if refused { FakeAnswer::status(500, "out of order") } else { answer(request, number) }
        });
        let mut test_env = TestEnvironment::new(ghostd_testing());
        let (effects, calm) = (test_env.join("effects"), test_env.join("calm"));
        test_env.set(EFFECTS, effects).set(CALM, calm);
        let world = test_env.world("trouble");
        world
            .config(&WORLD.replace("BASE", &server.base_url()))
            .archetype("worker", "## Limits\nmax_tool_rounds: 8\n")
            .write("scripts/steady.yaml", "otherwise: [{ say: I am steady. }]\n");
        let world = world.path().to_owned();
        Self { test_env, world, outage, server }
    }

    fn up(&self) -> Daemon {
        self.test_env.up(&self.world, &[])
    }

    fn send(&self, agent: &str, body: &str) {
        self.test_env.ctl(&["send", agent, body]).ok();
    }

    /// Asserts that the other agents answer.
    fn assert_others_answer(&self) {
        self.reply("steady", "I am steady.");
        self.reply("friend", "I am well.");
        for agent in ["friend", "steady"] {
            let agent = self.test_env.json(&["agent", "get", agent]);
            assert_eq!((&agent["status"], &agent["restarts"]), (&json!("running"), &json!(0)), "{agent}");
        }
        for turn in self.turns("friend").iter().chain(&self.turns("steady")) {
            assert_eq!((&turn["status"], &turn["crashes"]), (&json!("finished"), &json!(0)), "{turn}");
        }
    }

    fn reply(&self, agent: &str, words: &str) {
        assert_eq!(self.test_env.json(&["ask", agent, "how are you"])["reply"], words);
    }

    fn turns(&self, agent: &str) -> Vec<Value> {
        self.test_env.json(&["turn", "list", "--agent", agent]).as_array().unwrap().clone()
    }

    fn victim(&self) -> Value {
        self.test_env.json(&["agent", "get", "victim"])
    }

    fn held(&self) -> Vec<Value> {
        self.test_env.json(&["dead", "list"]).as_array().unwrap().clone()
    }

    /// Waits until the victim's latest turn has ended, and returns it.
    fn ended(&self) -> Value {
        Deadline::seconds(60).until("the victim's turn to end", || {
            let last = self.turns("victim").first().cloned().ok_or("no turn")?;
            if last["status"] == "open" || self.victim()["inbox_pending"] != 0 {
                Err(last.to_string())
            } else {
                Ok(last)
            }
        })
    }

    fn wait_for_dead_letter(&self) -> Value {
        Deadline::seconds(60)
            .until("a dead letter", || self.held().first().cloned().ok_or_else(|| self.victim().to_string()))
    }
}

// covers: TEST-08, WORLD-12
#[test]
fn a_panic_in_a_tool_restarts_its_agent_and_the_turn_resumes() {
    let trouble = Trouble::new();
    let daemon = trouble.up();
    trouble.send("victim", r#"call test.panic {"words": "on purpose"}"#);
    trouble.assert_others_answer();
    let turn = trouble.ended();
    // The outcome is unknown. The tool does not run again, and the model gets that result.
    assert_eq!((&turn["status"], &turn["crashes"]), (&json!("finished"), &json!(1)), "{turn}");
    assert!(turn["text"].as_str().unwrap().contains("outcome_unknown"), "{turn}");
    let calls = trouble.test_env.json(&["ledger", "--agent", "victim"]);
    assert_eq!((calls.as_array().unwrap().len(), &calls[0]["status"]), (1, &json!("unknown")), "{calls}");
    let victim = trouble.victim();
    assert_eq!((&victim["status"], &victim["restarts"]), (&json!("running"), &json!(1)), "{victim}");
    let crashes = trouble.test_env.ctl(&["--json", "events", "--kind", "agent.*", "--agent", "victim"]).json_lines();
    let kinds: Vec<&str> = crashes.iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds[kinds.len() - 2..], ["agent.crashed", "agent.restarted"], "{kinds:?}");
    assert!(crashes.iter().any(|event| event["payload"].to_string().contains("on purpose")));
    assert!(trouble.held().is_empty());
    trouble.reply("victim", "I am well.");
    trouble.assert_others_answer();
    daemon.stop();
}

// covers: TOOL-20
#[test]
fn a_hung_tool_is_ended_at_its_deadline() {
    let trouble = Trouble::new();
    let daemon = trouble.up();
    trouble.send("victim", "call test.hang {}");
    trouble.assert_others_answer();
    let turn = trouble.ended();
    assert_eq!((&turn["status"], &turn["crashes"]), (&json!("finished"), &json!(0)), "{turn}");
    assert!(turn["text"].as_str().unwrap().contains("timeout"), "{turn}");
    let calls = trouble.test_env.json(&["ledger", "--agent", "victim"]);
    assert_eq!(calls[0]["error_code"], "timeout");
    assert!(calls[0]["duration_ms"].as_u64().unwrap() >= 2_000, "{calls}");
    assert_eq!(trouble.victim()["restarts"], 0);
    trouble.reply("victim", "I am well.");
    trouble.assert_others_answer();
    daemon.stop();
}

// covers: WORLD-12
#[test]
fn a_poisoned_message_becomes_a_dead_letter_that_can_be_read_retried_and_dropped() {
    let trouble = Trouble::new();
    let daemon = trouble.up();
    trouble.send("victim", r#"call test.poison {"text": "poison one"}"#);
    trouble.assert_others_answer();
    let letter = trouble.wait_for_dead_letter();
    assert_eq!((&letter["agent_id"], &letter["crashes"]), (&json!("victim"), &json!(3)), "{letter}");
    assert!(letter["reason"].as_str().unwrap().contains("poison one"), "{letter}");
    // The agent still runs: the message became a dead letter before the agent reached its own limit.
    trouble.reply("victim", "I am well.");
    assert_eq!(trouble.victim()["status"], "running");
    let id = letter["dead_letter_id"].as_str().unwrap();
    let shown = trouble.test_env.json(&["dead", "show", id]);
    assert!(shown.to_string().contains("call test.poison"), "{shown:#}");
    assert_eq!(trouble.test_env.json(&["status"])["dead_letters_held"], 1);

    // The cause still exists, so it becomes a dead letter again.
    let retried = trouble.test_env.json(&["dead", "retry", id]);
    assert_eq!((&retried["status"], &retried["changed"]), (&json!("retried"), &json!(true)));
    trouble.test_env.ctl(&["dead", "retry", id]).exits(7);
    let second = trouble.wait_for_dead_letter();
    let id = second["dead_letter_id"].as_str().unwrap().to_owned();
    // The cause is gone, so the turn resumes from its journal.
    let asked_before = trouble.turns("victim").len();
    std::fs::write(trouble.test_env.join("calm"), "").unwrap();
    trouble.test_env.json(&["dead", "retry", &id]);
    Deadline::seconds(60).until("the retried message to be worked off", || {
        let calls = trouble.test_env.json(&["ledger", "--tool", "test.poison", "--status", "ok"]);
        if calls.as_array().unwrap().len() == 1 { Ok(()) } else { Err(trouble.victim().to_string()) }
    });
    assert_eq!(trouble.ended()["status"], "finished");
    assert!(trouble.turns("victim").len() >= asked_before);
    assert!(trouble.held().is_empty());

    // A second one is retried in a new turn, and a third is dropped.
    std::fs::remove_file(trouble.test_env.join("calm")).unwrap();
    trouble.send("victim", r#"call test.poison {"text": "poison two"}"#);
    let letter = trouble.wait_for_dead_letter();
    std::fs::write(trouble.test_env.join("calm"), "").unwrap();
    let turns = trouble.turns("victim").len();
    trouble.test_env.json(&["dead", "retry", "--fresh", letter["dead_letter_id"].as_str().unwrap()]);
    Deadline::seconds(60).until("a fresh turn", || {
        let now = trouble.turns("victim");
        let fresh = now.len() > turns && now[0]["status"] == "finished";
        if fresh { Ok(()) } else { Err(now[0].to_string()) }
    });
    std::fs::remove_file(trouble.test_env.join("calm")).unwrap();
    trouble.send("victim", r#"call test.poison {"text": "poison three"}"#);
    let letter = trouble.wait_for_dead_letter();
    let dropped = trouble.test_env.json(&["dead", "drop", letter["dead_letter_id"].as_str().unwrap()]);
    assert_eq!(dropped["status"], "dropped");
    assert!(trouble.held().is_empty());
    assert!(trouble.test_env.json(&["dead", "list", "--status", "all"]).as_array().unwrap().len() >= 4);
    trouble.assert_others_answer();
    daemon.stop();
}

// covers: MSG-02
#[test]
fn an_ask_that_crashes_its_target_ends_with_the_reason() {
    let trouble = Trouble::new();
    let daemon = trouble.up();
    let asked = trouble.test_env.ctl(&["--json", "ask", "victim", r#"call test.poison {"text": "poison asked"}"#]);
    assert!(matches!(asked.code, Some(1 | 5)), "{:?} {}", asked.code, asked.err);
    assert_eq!(trouble.wait_for_dead_letter()["agent_id"], "victim");
    trouble.assert_others_answer();
    daemon.stop();
}

// covers: LOOP-09
#[test]
fn a_provider_outage_parks_a_turn_and_fails_no_agent() {
    let trouble = Trouble::new();
    let daemon = trouble.up();
    // During a short outage the call is retried.
    trouble.outage.store(2, Ordering::SeqCst);
    trouble.reply("victim", "I am well.");
    let failures = trouble.test_env.ctl(&["--json", "events", "--kind", "model.failed"]).json_lines();
    assert_eq!(failures.len(), 2);
    assert!(failures[0]["payload"]["error"].as_str().unwrap().contains("out of order"), "{}", failures[0]);
    // A long outage parks the turn, and the asker gets the reason at the deadline.
    trouble.outage.store(u32::MAX, Ordering::SeqCst);
    let asked = trouble.test_env.ctl(&["--json", "--timeout", "2s", "ask", "victim", "how are you"]);
    asked.exits(6);
    assert_eq!(asked.error()["code"], "timeout");
    trouble.reply("steady", "I am steady.");
    let parked = trouble.test_env.json(&["turn", "list", "--status", "parked"]);
    assert_eq!((&parked[0]["agent_id"], &parked[0]["crashes"]), (&json!("victim"), &json!(0)), "{parked}");
    assert_eq!(trouble.test_env.json(&["status"])["models_down"][0]["model"], "fake");
    let victim = trouble.victim();
    assert_eq!((&victim["status"], &victim["restarts"]), (&json!("running"), &json!(0)), "{victim}");
    assert!(trouble.held().is_empty());
    trouble.outage.store(0, Ordering::SeqCst);
    trouble.test_env.ctl(&["turn", "retry", parked[0]["turn_id"].as_str().unwrap()]).ok();
    trouble.reply("victim", "I am well.");
    trouble.assert_others_answer();
    daemon.stop();
}

// covers: STORE-04
#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    let mut trouble = Trouble::with_room(60);
    let daemon = trouble.up();
    trouble.test_env.ctl(&["pause"]);
    let (kept, refused) = trouble.fill();
    refused.exits(5).says(&["full"]);
    // Reads still work.
    assert_eq!(trouble.test_env.json(&["status"])["inbox_total"], kept);
    assert_eq!(trouble.victim()["inbox_pending"], kept);
    // `status` and the log report it, the log only once.
    assert!(trouble.test_env.json(&["status"])["warnings"].to_string().contains("full"));
    let soon = Deadline::seconds(5);
    trouble.test_env.ctl(&["--timeout", "2s", "ask", "friend", &"x".repeat(60_000)]).exits(5).says(&["full"]);
    assert!(!soon.passed(), "an ask of two seconds");
    let lines = daemon.err.text().matches(" batches=").count();
    assert!((1..=3).contains(&lines), "{lines}: {}", daemon.err.text());
    daemon.kill();

    // When there is free space again, everything acknowledged is there, and the work continues.
    trouble.test_env.unset("GHOST_DATABASE_PAGES");
    let daemon = trouble.up();
    trouble.test_env.ctl(&["resume"]).ok();
    trouble.test_env.wait_until_quiet(Deadline::seconds(60));
    trouble.reply("victim", "I am well.");
    trouble.assert_others_answer();
    daemon.stop();
    let database = Database::open(&trouble.test_env.data("trouble"));
    assert_eq!(database.integrity(), "ok");
    assert_eq!(database.number("SELECT count(*) FROM messages WHERE body LIKE 'mail %' AND state = 'consumed'"), kept);
    assert_eq!(database.number("SELECT count(*) FROM messages WHERE body LIKE 'mail %'"), kept);
    let last = database.number("SELECT max(seq) FROM events");
    assert_eq!(database.number("SELECT count(*) FROM events"), last);
}

/// `ghostd up ... 2>> LOG`, with the log on the full disk.
#[test]
fn a_full_disk_under_the_log_does_not_end_the_daemon() {
    let mut trouble = Trouble::with_room(60);
    let mut daemon = trouble.test_env.start_into(&trouble.world, Stdio::piped(), full());
    daemon.wait_until_ready();
    trouble.test_env.ctl(&["pause"]).ok();
    let (kept, refused) = trouble.fill();
    refused.exits(5).says(&["full"]);
    // The writer logs each failure and continues. A store that had ended would report that it is closed.
    let long = "x".repeat(60_000);
    for _ in 0..3 {
        trouble.test_env.ctl(&["--timeout", "1s", "send", "victim", &long]).exits(5).says(&["full"]);
    }
    assert_eq!(trouble.test_env.json(&["status"])["inbox_total"], kept);
    // There is no free space for a single row, and a stop request works anyway.
    let small = || trouble.test_env.ctl(&["--timeout", "1s", "send", "friend", "small"]).code == Some(0);
    let more = std::iter::repeat_with(small).take_while(|kept| *kept).count();
    assert_eq!(trouble.test_env.json(&["status"])["inbox_total"], kept + i64::try_from(more).unwrap());
    trouble.test_env.ctl(&["--timeout", "30s", "shutdown", "--grace", "1s"]).ok();
    assert_eq!(daemon.wait(), 0, "an orderly stop");

    trouble.test_env.unset("GHOST_DATABASE_PAGES");
    let daemon = trouble.up();
    trouble.test_env.ctl(&["resume"]).ok();
    trouble.test_env.wait_until_quiet(Deadline::seconds(60));
    trouble.assert_others_answer();
    daemon.stop();
    let database = Database::open(&trouble.test_env.data("trouble"));
    assert_eq!(database.number("SELECT count(*) FROM messages WHERE body LIKE 'mail %' AND state = 'consumed'"), kept);
}

#[test]
fn a_failed_store_ends_the_daemon_and_the_next_one_continues() {
    let trouble = Trouble::new();
    let mut daemon = trouble.up();
    trouble.send("victim", "call test.break_store {}");
    // Publishing any commit makes the writer panic. A message would also stream events from the task
    // of its agent, which could panic instead.
    Deadline::seconds(60).until("the store to fail", || {
        let sent = trouble.test_env.ctl(&["--timeout", "1s", "state", "set", "k", "1"]);
        if daemon.has_ended() || sent.code != Some(0) { Ok(()) } else { Err(sent.out) }
    });
    assert_eq!(daemon.wait(), 1);
    let text = daemon.err.text();
    for words in ["error: ", "test.break_store", "hint: "] {
        assert!(text.contains(words), "{text}");
    }

    let daemon = trouble.up();
    trouble.test_env.wait_until_quiet(Deadline::seconds(60));
    trouble.assert_others_answer();
    trouble.reply("victim", "I am well.");
    daemon.stop();
    let database = Database::open(&trouble.test_env.data("trouble"));
    assert_eq!(database.integrity(), "ok");
}

#[test]
fn an_answer_without_room_on_the_disk_is_requested_once() {
    let mut trouble = Trouble::with_room(40);
    let daemon = trouble.up();
    trouble.send("victim", AT_LENGTH);
    let failed = |count: usize| {
        Deadline::seconds(60).until("the answer to wait for room", || {
            let failures = trouble.test_env.ctl(&["--json", "events", "--kind", "model.failed"]).json_lines();
            if failures.len() == count { Ok(failures[count - 1].clone()) } else { Err(format!("{failures:?}")) }
        })
    };
    let waits = failed(1)["payload"]["error"].as_str().unwrap().to_owned();
    assert!(waits.contains("full"), "{waits}");
    // An earlier version requested it again every second.
    assert!(!trouble.server.wait_for(2, Deadline::seconds(5)), "{:?}", trouble.server.asked().len());
    daemon.kill();
    assert_eq!(trouble.server.asked().len(), 1);

    // The answer that was lost with the daemon is requested again, now that there is free space.
    trouble.test_env.unset("GHOST_DATABASE_PAGES");
    let daemon = trouble.up();
    let turn = trouble.ended();
    assert_eq!((&turn["status"], &turn["crashes"]), (&json!("finished"), &json!(0)), "{turn}");
    assert_eq!(trouble.server.asked().len(), 2);
    trouble.assert_others_answer();
    daemon.stop();
}

#[test]
fn a_file_at_its_size_limit_refuses_writes_and_loses_nothing() {
    let trouble = Trouble::new();
    // The log file has reached the limit, too.
    let mut daemon = trouble.test_env.start_into(&trouble.world, Stdio::piped(), full());
    daemon.wait_until_ready();
    trouble.test_env.ctl(&["pause"]).ok();
    let pid = i32::try_from(daemon.pid()).ok().and_then(rustix::process::Pid::from_raw);
    let limit = |bytes| {
        let limits = rustix::process::Rlimit { current: bytes, maximum: None };
        rustix::process::prlimit(pid, rustix::process::Resource::Fsize, limits).unwrap();
    };
    limit(Some(1_500_000));
    let (kept, refused) = trouble.fill();
    refused.exits(5).says(&["ghost.db"]);
    assert_eq!(trouble.test_env.json(&["status"])["inbox_total"], kept);
    // When there is free space again, the same daemon continues, and reports the time of its failed
    // writes.
    limit(None);
    trouble.test_env.ctl(&["resume"]).ok();
    Deadline::seconds(30).until("the trouble in the feed", || {
        let warnings = trouble.test_env.ctl(&["--json", "events", "--kind", "world.warning"]).json_lines();
        let reported = warnings
            .iter()
            .any(|warning| warning["payload"]["warning"].is_string() && warning["payload"]["since"].as_i64() > Some(0));
        if reported { Ok(()) } else { Err(format!("{warnings:?}")) }
    });
    trouble.test_env.wait_until_quiet(Deadline::seconds(60));
    trouble.reply("victim", "I am well.");
    trouble.assert_others_answer();
    daemon.terminate();
    assert_eq!(daemon.wait(), 0);
    let database = Database::open(&trouble.test_env.data("trouble"));
    assert_eq!(database.integrity(), "ok");
    assert_eq!(database.number("SELECT count(*) FROM messages WHERE body LIKE 'mail %' AND state = 'consumed'"), kept);
}
