//! An outage or a spent budget loses no work. A model server refuses, stalls and answers 503 and
//! 429 in turn, while messages arrive and the daemon is killed. After the outage, every message is
//! in exactly one finished turn, in order for each sender.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ghost_proto::v1::SendRequest;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_provider::testing::{FakeAnswer, FakeEnd, FakeReply, Wire, wrong_replies};
use ghost_testkit::blackbox::{Daemon, Database, Deadline, ModelServer, TestEnvironment, ghostd_testing};
use serde_json::{Value, json};
use tonic::transport::Endpoint;

/// Number of agents, and number of messages for each of them.
const AGENTS: usize = 10;
const MAIL: usize = 100;

/// Length of the outage.
const OUTAGE: Duration = Duration::from_secs(60);

const WORLD: &str = "\
world: { name: Outage }
limits: { model_seconds: 5, inbox_max: 1000, turn_mail_max: 4, agent_turns_per_minute: 10000 }
llm:
  default_provider: fake
  default_model: fake
  providers:
    fake: { kind: openai, base_url: 'BASE', attempts: 2, retry_base: 20ms, retry_cap: 200ms, idle_timeout: 1s }
agents:
";

fn agent(n: usize) -> String {
    format!("a{n:02}")
}

/// The next failure of a server that is down: it fails itself, or something in front of it answers.
fn out(number: u64) -> FakeAnswer {
    let pages = wrong_replies([200, 302, 400, 404, 422, 502][(number / 10 % 6) as usize], Wire::Chat);
    let begun = |end| FakeReply { end, ..FakeReply::new(200, "text/event-stream", "data: {\"choices\":[]}\n\n") };
    match number % 10 {
        0 => FakeAnswer::Raw(begun(FakeEnd::Cut)),
        1 => FakeAnswer::Raw(begun(FakeEnd::Hang)),
        2 => FakeAnswer::status(503, "no capacity"),
        3 => FakeAnswer::status(429, "slow down"),
        // The last one is the provider's own refusal.
        page => FakeAnswer::Raw(pages[page as usize % (pages.len() - 1)].1.clone()),
    }
}

/// A world whose model server is down while `is_out` is set.
struct Outage {
    test_env: TestEnvironment,
    world: std::path::PathBuf,
    is_out: Arc<AtomicBool>,
    server: ModelServer,
}

impl Outage {
    fn new() -> Self {
        let is_out = Arc::new(AtomicBool::new(true));
        let out_now = Arc::clone(&is_out);
        let server =
            ModelServer::start(
                move |_, number| {
                    if out_now.load(Ordering::SeqCst) { out(number) } else { FakeAnswer::say("done") }
                },
            );
        let test_env = TestEnvironment::new(ghostd_testing());
        let agents: String = (0..AGENTS).map(|n| format!("  - {{ id: {}, archetype: worker }}\n", agent(n))).collect();
        let world = test_env.world("outage");
        world.config(&format!("{}{agents}", WORLD.replace("BASE", &server.base_url()))).archetype("worker", "");
        let world = world.path().to_owned();
        Self { test_env, world, is_out, server }
    }

    fn up(&self) -> Daemon {
        self.test_env.up(&self.world, &[])
    }

    fn status(&self) -> Value {
        self.test_env.json(&["status"])
    }
}

/// Sends the messages of two senders to every agent, numbered for each sender, over one connection.
fn send_all(test_env: &TestEnvironment) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let socket = test_env.data("outage").join("ghostd.sock");
        let channel = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap().connect().await.unwrap();
        let mut client = MessagesClient::new(channel);
        for n in 0..MAIL {
            for to in 0..AGENTS {
                let body = format!("piece {n:03}");
                let request_id = format!("{to}-{n}");
                let request = SendRequest { request_id, agent_id: agent(to), body, ..SendRequest::default() };
                client.send(request).await.unwrap();
            }
        }
    });
}

// covers: LOOP-09, MSG-10
#[test]
fn every_message_survives_an_outage_and_kills_in_exactly_one_finished_turn() {
    let outage = Outage::new();
    let daemon = outage.up();
    let over = Deadline::after(OUTAGE);
    send_all(&outage.test_env);
    Deadline::seconds(60).until("the model is down", || {
        let status = outage.status();
        let down = status["models_down"].as_array().is_some_and(|down| down.len() == 1);
        if down { Ok(()) } else { Err(status.to_string()) }
    });
    let mut daemon = Some(daemon);
    for _ in 0..10 {
        if let Some(daemon) = daemon.take() {
            daemon.kill();
        }
        daemon = Some(outage.up());
        Deadline::seconds(60).until("turns are parked again", || {
            let status = outage.status();
            if status["parked_turns"].as_u64() > Some(0) { Ok(()) } else { Err(status.to_string()) }
        });
    }
    Deadline::after(OUTAGE * 2).until("the outage has lasted", || {
        if over.passed() { Ok(()) } else { Err(format!("{:?} are left", over.left())) }
    });
    let status = outage.status();
    assert!(status["parked_turns"].as_u64() <= Some(AGENTS as u64), "{status}");
    assert_eq!(status["dead_letters_held"], 0);
    assert_eq!(outage.test_env.json(&["turn", "list", "--status", "failed"]), json!([]));
    let asked = outage.server.asked().len();
    assert!(asked < 1_000, "one call at a time tries a model that is down: {asked} calls");
    outage.is_out.store(false, Ordering::SeqCst);
    outage.test_env.wait_until_quiet(Deadline::seconds(240));
    assert_eq!(outage.status()["models_down"], json!([]));
    drop(daemon);
    let database = Database::open(&outage.test_env.data("outage"));
    let turns = database.pairs(
        "SELECT to_agent || ' ' || printf('%012d', t.started_at) || ' ' || t.status, body FROM messages m \
         LEFT JOIN turns t ON t.turn_id = m.turn_id AND m.state = 'consumed' ORDER BY m.seq",
    );
    assert_eq!(turns.len(), AGENTS * MAIL, "nothing is lost and nothing comes twice");
    let mut last: BTreeMap<String, (i64, usize)> = BTreeMap::new();
    for (turn, body) in turns {
        let [agent, started, status] = turn.split(' ').collect::<Vec<_>>()[..] else { panic!("{turn}: {body}") };
        assert_eq!(status, "finished", "{agent} {body}");
        let (started, n): (i64, usize) = (started.parse().unwrap(), body[6..].parse().unwrap());
        let before = last.insert(agent.to_owned(), (started, n));
        assert!(before.is_none_or(|(at, m)| at <= started && m < n), "{agent}: {before:?} before {started} {n}");
    }
}

// covers: LOOP-09
#[test]
fn a_turn_over_a_spent_budget_waits_until_it_is_raised() {
    let outage = Outage::new();
    outage.is_out.store(false, Ordering::SeqCst);
    let mut daemon = outage.up();
    outage.test_env.ctl(&["budget", "set", "agent:a00", "--tokens", "20"]).ok();
    for n in 0..5 {
        outage.test_env.ctl(&["send", "a00", &format!("piece {n}")]).ok();
    }
    let parked = |outage: &Outage| {
        Deadline::seconds(30).until("its turn is parked", || {
            let turns = outage.test_env.json(&["turn", "list", "--status", "parked"]);
            match turns.as_array().map(Vec::len) {
                Some(1) => Ok(turns[0].clone()),
                _ => Err(turns.to_string()),
            }
        })
    };
    let before = parked(&outage);
    assert!(before["reason"].as_str().unwrap().starts_with("budget_exhausted"), "{before}");
    assert_eq!(outage.test_env.json(&["ask", "a01", "are you well?"])["reply"], "done", "others go on");
    // A retry by an operator changes nothing while the budget is spent.
    outage.test_env.ctl(&["turn", "retry", before["turn_id"].as_str().unwrap()]).ok();
    daemon.kill();
    daemon = outage.up();
    assert_eq!(parked(&outage)["turn_id"], before["turn_id"]);
    outage.test_env.ctl(&["budget", "set", "agent:a00", "--tokens", "100000000"]).ok();
    outage.test_env.wait_until_quiet(Deadline::seconds(60));
    let turns = outage.test_env.json(&["turn", "list", "--agent", "a00"]);
    assert!(turns.as_array().unwrap().iter().all(|turn| turn["status"] == "finished"), "{turns}");
    daemon.stop();
}

#[test]
fn a_client_that_waits_for_a_parked_agent_is_notified_once() {
    let outage = Outage::new();
    outage.is_out.store(false, Ordering::SeqCst);
    let daemon = outage.up();
    let test_env = &outage.test_env;
    test_env.ctl(&["budget", "set", "agent:a00", "--tokens", "20"]).ok();
    let notices = |err: &str| err.lines().filter(|line| line.starts_with("a00 waits: budget_exhausted")).count();
    let asked = test_env.ctl(&["--timeout", "8s", "ask", "a00", "are you well?"]);
    asked.exits(6);
    assert_eq!((notices(&asked.err), asked.out.as_str()), (1, ""), "{}", asked.err);
    let (code, _, err) = test_env.ctl_piped(&["--timeout", "8s", "talk", "a00"], b"hello\n");
    assert_eq!((code, notices(&err)), (6, 1), "{err}");
    assert!(test_env.json(&["agent", "get", "a00"])["waits"].as_str().unwrap().starts_with("budget_exhausted"));
    // A program gets only its answer or its failure.
    let program = test_env.ctl(&["--json", "--timeout", "5s", "ask", "a00", "are you well?"]);
    assert_eq!(program.exits(6).err.lines().count(), 1, "{}", program.err);
    // A client that gets an answer sees no other message.
    let well = test_env.ctl(&["ask", "a01", "are you well?"]);
    assert_eq!((well.ok().out.trim(), well.err.as_str()), ("done", ""));
    test_env.ctl(&["budget", "set", "agent:a00", "--tokens", "100000000"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!(test_env.json(&["agent", "get", "a00"])["waits"], Value::Null);
    daemon.stop();
}

#[test]
fn a_client_that_waits_for_an_agent_with_a_model_down_is_notified() {
    let outage = Outage::new();
    let daemon = outage.up();
    // Its own turn is parked, or it opens none because another agent's calls have found the model down.
    for agent in ["a00", "a01"] {
        let asked = outage.test_env.ctl(&["--timeout", "12s", "ask", agent, "are you well?"]);
        let notices = asked.err.lines().filter(|line| line.starts_with(&format!("{agent} waits: ")));
        assert_eq!((asked.exits(6).out.as_str(), notices.count() > 0), ("", true), "{}", asked.err);
    }
    daemon.stop();
}
