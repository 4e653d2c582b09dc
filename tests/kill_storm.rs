//! Promises 1 and 2 under many kills: twenty agents exchange two thousand messages, tasks, files and outside
//! effects, while the daemon is killed with -9 at times that a seed decides.

// A failure in a test is a panic with a message. The output is the log of the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ghost_provider::testing::{FakeAnswer, FakeCall, FakeRequest};
use ghost_testkit::blackbox::{
    Backend, Deadline, EFFECTS, ModelServer, TestEnvironment, agent_of, ghostd_testing, mail_of,
};
use serde_json::{Value, json};

const AGENTS: u32 = 20;
/// Number of messages in one chain.
const HOPS: u32 = 20;

/// Whether the receiver of this hop writes a file.
fn writes_files(hop: u32) -> bool {
    hop % 4 == 1
}
fn has_effect(hop: u32) -> bool {
    hop % 5 == 2
}
fn creates_task(hop: u32) -> bool {
    hop.is_multiple_of(5)
}

/// The agent that the receiver of a hop asks, if it asks. Its number is always higher, so that no cycle of asks exists.
fn asks(me: u32, hop: u32) -> Option<u32> {
    (hop % 10 == 3 && me + 1 < AGENTS).then(|| me + 1 + hop % (AGENTS - me - 1))
}

/// The agent that gets the message of a hop.
fn receiver(chain: u32, hop: u32) -> u32 {
    (chain % AGENTS + 1 + (hop - 1) * step(chain)) % AGENTS
}
fn step(chain: u32) -> u32 {
    1 + chain % 7
}

fn agent(number: u32) -> String {
    format!("a{:02}", number % AGENTS)
}

/// A small random number generator. The times of the kills must depend only on the seed.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// The model's answer, which depends only on the message. Ids and texts contain the number of the
/// answer, so that the journal shows which of several answers it holds.
fn answer(request: &FakeRequest, number: u64) -> FakeAnswer {
    if request.rounds() > 0 {
        return FakeAnswer::say(format!("over #{number}"));
    }
    let me: u32 = agent_of(request)[1..].parse().unwrap();
    let mut calls = Vec::new();
    let mut call = |tool: &str, arguments: Value| {
        let id = format!("c{number}-{}", calls.len());
        calls.push(FakeCall { id, tool: tool.to_owned(), arguments });
    };
    for mail in mail_of(request) {
        if let Some(list) = mail.body.strip_prefix("start ") {
            for chain in list.split(' ') {
                call("syscall.message.send", json!({ "to": agent(me + 1), "content": format!("chain={chain} hop=1") }));
            }
        } else if let Some(rest) = mail.body.strip_prefix("chain=") {
            let (chain, hop) = rest.split_once(" hop=").unwrap();
            let (chain, hop): (u32, u32) = (chain.parse().unwrap(), hop.parse().unwrap());
            let tag = format!("{chain}-{hop}");
            if writes_files(hop) {
                call("workspace.write", json!({ "path": format!("chains/{tag}.txt"), "content": format!("<{tag}>") }));
                call("workspace.write", json!({ "path": "log.txt", "content": format!("{tag}\n"), "append": true }));
            }
            if has_effect(hop) {
                call("test.effect", json!({ "arg": tag, "delay_ms": (chain + hop) % 25 }));
            }
            if creates_task(hop) {
                call("syscall.task.create", json!({ "title": format!("task {tag}"), "owner": agent(me + 3) }));
            }
            if hop < HOPS {
                let content = format!("chain={chain} hop={}", hop + 1);
                call("syscall.message.send", json!({ "to": agent(me + step(chain)), "content": content }));
            }
            if let Some(other) = asks(me, hop) {
                call("syscall.ask", json!({ "agent_id": agent(other), "message": format!("question {tag}") }));
            }
        } else if mail.kind == "task" && !mail.body.contains("\nstatus: ") {
            let id = mail.body.lines().find_map(|line| line.strip_prefix("task_id: ")).unwrap();
            call("syscall.task.update", json!({ "task_id": id, "status": "done", "result": "seen" }));
        }
    }
    if calls.is_empty() {
        FakeAnswer::say(format!("over #{number}"))
    } else {
        FakeAnswer::Model { text: String::new(), calls }
    }
}

fn world(test_env: &TestEnvironment, base_url: &str) -> std::path::PathBuf {
    let mut agents = String::new();
    for number in 0..AGENTS {
        agents.push_str(&format!("  - {{ id: {}, archetype: worker }}\n", agent(number)));
    }
    let world = test_env.world("storm");
    world.archetype("worker", "## Limits\nmax_tool_rounds: 10\n").config(&format!(
        "world: {{ name: Storm }}\nagents:\n{agents}\
         llm:\n  default_provider: storm\n  default_model: storm\n  providers:\n    \
         storm: {{ kind: openai, base_url: '{base_url}', concurrency: 16, retry_base: 10ms }}\n\
         # Chains that share a turn take over the longest one's hops, and its root: what one agent asks another then adds\n\
         # up over many chains. Twenty-eight starts in a minute are no sign of a message that cannot be worked off.\n\
         limits: {{ hops_max: 10000, reply_rounds_max: 1000, turn_mail_max: 4, stalled_boots_max: 1000, root_tokens_max: 0 }}\n{}",
        test_env.storage()
    ));
    world.path().to_owned()
}

/// The tags `<chain>-<hop>` of the hops for which `wanted` is true.
fn tags_of(chains: u32, wanted: impl Fn(u32) -> bool) -> BTreeSet<String> {
    (0..chains)
        .flat_map(|chain| {
            (1..=HOPS).filter(|hop| wanted(*hop)).map(move |hop| format!("{chain}-{hop}")).collect::<Vec<_>>()
        })
        .collect()
}

/// Counts equal texts.
fn counted(texts: impl IntoIterator<Item = String>) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for text in texts {
        *counts.entry(text).or_default() += 1;
    }
    counts
}

fn once(wanted: BTreeSet<String>) -> BTreeMap<String, u32> {
    wanted.into_iter().map(|tag| (tag, 1)).collect()
}

// covers: MSG-10, STORE-03, TOOL-16
#[test]
fn a_world_does_everything_once_over_many_kills() {
    // Two thousand messages.
    does_everything_once(Backend::Sqlite, 100, 28);
}

// covers: STORE-01, STORE-03
#[test]
fn a_world_on_postgresql_does_everything_once_over_many_kills() {
    // Fewer, because each statement is a journey to the server, and both storms run beside each other.
    does_everything_once(Backend::Postgres, 50, 10);
}

fn does_everything_once(backend: Backend, chains: u32, kills: u32) {
    let tags = |wanted: fn(u32) -> bool| tags_of(chains, wanted);
    let Some(mut test_env) = TestEnvironment::on(backend, ghostd_testing()) else { return };
    let server = ModelServer::start(answer);
    let effects = test_env.join("effects.txt");
    test_env.set(EFFECTS, &effects);
    let world = world(&test_env, &server.base_url());
    let seed = std::env::var("GHOST_STORM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(2_026);
    eprintln!("GHOST_STORM_SEED={seed}");
    let mut chance = Seeded(seed);

    let mut daemon = test_env.up(&world, &[]);
    for number in 0..AGENTS {
        let started: Vec<String> = (number..chains).step_by(AGENTS as usize).map(|chain| chain.to_string()).collect();
        test_env.ctl(&["send", &agent(number), &format!("start {}", started.join(" "))]).ok();
    }
    let mut clients = Vec::new();
    for kill in 0..kills {
        // A client sends while the daemon dies. It repeats its request, and the message exists once.
        clients.push(test_env.ctl_in_background(&[
            "--wait",
            "60s",
            "--world",
            "storm",
            "send",
            &agent(kill),
            &format!("extra={kill}"),
        ]));
        if kill % 5 == 4 {
            // At any time, also during the start.
            let pause = Deadline::after(Duration::from_millis(chance.below(600)));
            let _ = daemon.out.find(usize::MAX, pause, |_| false);
        } else {
            daemon.wait_until_ready();
            let answers = usize::try_from(4 + chance.below(36)).unwrap();
            server.wait_for(server.asked().len() + answers, Deadline::seconds(20));
            let pause = Deadline::after(Duration::from_millis(chance.below(40)));
            let _ = daemon.out.find(usize::MAX, pause, |_| false);
        }
        daemon.kill();
        daemon = test_env.start(&world, &[]);
    }
    let asked_when_the_kills_ended = server.asked().len();
    daemon.wait_until_ready();
    for mut client in clients {
        assert_eq!(client.wait(), 0, "{}", client.err.text());
    }
    test_env.wait_until_quiet(Deadline::seconds(900));
    let reported = test_env.json(&["ledger", "--tool", "test.effect", "--status", "unknown"]);
    daemon.stop();
    let asked = server.asked();
    assert!(asked.len() > asked_when_the_kills_ended + 100, "the work was over before the kills were");

    let database = test_env.database("storm");
    assert_eq!(database.integrity(), "ok");
    // Every message exists once and was consumed by a finished turn.
    assert_eq!(database.texts("SELECT DISTINCT state FROM messages"), ["consumed"]);
    assert_eq!(database.texts("SELECT DISTINCT status FROM turns"), ["finished"]);
    let orphans =
        "SELECT count(*) FROM messages m WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.turn_id = m.turn_id)";
    assert_eq!(database.number(orphans), 0);
    assert_eq!(database.number("SELECT count(*) FROM dead_letters"), 0);
    // Failed calls are reported first, because other missing things follow from them.
    let failed = database.texts("SELECT record FROM ledger WHERE tool <> 'test.effect' AND status <> 'ok'");
    assert!(failed.is_empty(), "{failed:#?}");
    let passed_on = counted(database.texts("SELECT body FROM messages WHERE body LIKE 'chain=%'"));
    let wanted: BTreeSet<String> =
        tags(|_| true).iter().map(|tag| format!("chain={}", tag.replace('-', " hop="))).collect();
    assert_eq!(wanted.len(), usize::try_from(chains * HOPS).unwrap());
    assert_eq!(passed_on, once(wanted));
    let extras = counted(database.texts("SELECT body FROM messages WHERE body LIKE 'extra=%'"));
    assert_eq!(extras, once((0..kills).map(|kill| format!("extra={kill}")).collect()));
    // Every ask was made once and answered, however often the daemon was killed meanwhile.
    let questions = counted(database.texts("SELECT body FROM messages WHERE kind = 'ask'"));
    let wanted: BTreeSet<String> = tags(|_| true)
        .into_iter()
        .filter(|tag| {
            let (chain, hop) = tag.split_once('-').unwrap();
            let (chain, hop) = (chain.parse().unwrap(), hop.parse().unwrap());
            asks(receiver(chain, hop), hop).is_some()
        })
        .map(|tag| format!("question {tag}"))
        .collect();
    assert!(wanted.len() > usize::try_from(chains * 3 / 2).unwrap());
    assert_eq!(questions, once(wanted));
    assert_eq!(database.texts("SELECT DISTINCT status FROM asks"), ["answered"]);
    // Every effect in the world exists once.
    let tasks = counted(database.texts("SELECT json_extract(record, '$.title') FROM tasks WHERE status = 'done'"));
    assert_eq!(tasks, once(tags(creates_task).iter().map(|tag| format!("task {tag}")).collect()));
    assert_eq!(database.number("SELECT count(*) FROM tasks WHERE status <> 'done'"), 0);
    let (mut logged, mut written) = (Vec::new(), BTreeSet::new());
    for number in 0..AGENTS {
        let dir = test_env.data("storm").join("workspace/agents").join(agent(number));
        logged.extend(std::fs::read_to_string(dir.join("log.txt")).unwrap_or_default().lines().map(str::to_owned));
        for entry in std::fs::read_dir(dir.join("chains")).into_iter().flatten() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            written.insert(text.trim_matches(['<', '>']).to_owned());
        }
    }
    assert_eq!(counted(logged), once(tags(writes_files)));
    assert_eq!(written, tags(writes_files));
    // Every outside effect happened at most once. Calls with an unknown outcome are recorded as such.
    let lines = std::fs::read_to_string(&effects).unwrap();
    let happened = counted(lines.lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()));
    let ledger =
        database.pairs("SELECT status, json_extract(record, '$.arguments') FROM ledger WHERE tool = 'test.effect'");
    let mut statuses = BTreeMap::new();
    for (status, arguments) in ledger {
        let arguments: Value = serde_json::from_str(&arguments).unwrap();
        let tag = arguments["arg"].as_str().unwrap().to_owned();
        let times = happened.get(&tag).copied().unwrap_or(0);
        match status.as_str() {
            "ok" => assert_eq!(times, 1, "{tag}"),
            "unknown" => assert!(times <= 1, "{tag} happened {times} times"),
            other => panic!("{tag} is {other}"),
        }
        assert_eq!(statuses.insert(tag.clone(), status), None, "{tag} was called twice");
    }
    assert_eq!(statuses.keys().cloned().collect::<BTreeSet<_>>(), tags(has_effect));
    let unknown = statuses.values().filter(|status| *status == "unknown").count();
    assert_eq!(reported.as_array().unwrap().len(), unknown, "calls with an unknown outcome are reported");
    // The event feed has no gap.
    let last = database.number("SELECT max(seq) FROM events");
    assert_eq!(database.number("SELECT min(seq) FROM events"), 1);
    assert_eq!(database.number("SELECT count(*) FROM events"), last);
    assert_eq!(database.number("SELECT count(*) FROM events WHERE kind = 'world.sweep_found'"), 0);
    // No budget is reserved for a finished call.
    assert_eq!(database.number("SELECT count(*) FROM turns WHERE json_extract(record, '$.held') IS NOT NULL"), 0);
    assert_eq!(database.number("SELECT count(*) FROM turns WHERE status = 'open'"), 0);

    // No journaled answer was requested again.
    let mut journaled = BTreeSet::new();
    for step in database.texts("SELECT step FROM journal WHERE json_extract(step, '$.step') = 'model_answered'") {
        let number = step
            .split_once("\"id\":\"c")
            .and_then(|(_, rest)| rest.split('-').next())
            .or_else(|| step.split_once("over #").and_then(|(_, rest)| rest.split('"').next()))
            .unwrap_or_else(|| panic!("whose answer is {step}"));
        assert!(journaled.insert(number.parse::<u64>().unwrap()), "answer {number} is in the journal twice");
    }
    let mut latest: BTreeMap<&str, u64> = BTreeMap::new();
    for question in &asked {
        let before = latest.insert(&question.conversation, question.number);
        if let Some(before) = before {
            assert!(
                !journaled.contains(&before),
                "{} asked as number {} what answer {before} in the journal says",
                question.agent,
                question.number
            );
        }
    }
    eprintln!(
        "{kills} kills, {} questions for {} journaled answers, {unknown} effects of unknown outcome",
        asked.len(),
        journaled.len()
    );
}
