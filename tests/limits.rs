//! Worlds whose agents never stop talking come to rest within the default limits: a ring that
//! always passes a message on, a pair that always thanks, a pair that always finds new words. The
//! events name the limit that was reached and the number of turns before it. And many asks at once
//! under one budget are all answered, one after the other.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment, ghostd_testing};
use serde_json::{Value, json};

const RING: usize = 17;

/// A world whose agents pass on every message, and its model server.
const SCRIPT: &str = r##"
rules:
  - when: { agent: "r*", round: 0 }
    do:
      - call: syscall.message.send
        with: { to: "r{{ ((agent_id | replace('r', '') | int) + 1) % 17 }}", content: "Pass it on." }
  - when: { agent: [ann, ben], round: 0 }
    do:
      - call: syscall.message.send
        with: { to: "{{ 'ben' if agent_id == 'ann' else 'ann' }}", content: "Thank you so much!" }
  - when: { agent: [ida, jim], round: 0, mail: '(?P<words>w[aw]*)' }
    do:
      - call: syscall.message.send
        with: { to: "{{ 'jim' if agent_id == 'ida' else 'ida' }}", content: "{{ match.words }}w" }
otherwise: [{ say: "{{ fresh | map(attribute='text') | join('; ') or 'Fine.' }}" }]
"##;

struct Storm {
    test_env: TestEnvironment,
    world: PathBuf,
}

impl Storm {
    fn new(limits: &str) -> Self {
        let test_env = TestEnvironment::new(ghostd_testing());
        let names: Vec<String> = (0..RING).map(|n| format!("r{n}")).collect();
        let names = names.iter().map(String::as_str).chain(["ann", "ben", "ida", "jim", "sid"]);
        let agents: String = names.map(|name| format!("  - {{ id: {name}, archetype: worker }}\n")).collect();
        let world = test_env.world("storm");
        world
            .config(&format!(
                "world: {{ name: Storm }}\nagents:\n{agents}{limits}llm:\n  default_provider: scripted\n  \
                 default_model: talk\n  providers:\n    scripted: {{ kind: scripted, dir: scripts }}\n"
            ))
            .archetype("worker", "")
            .write("scripts/talk.yaml", SCRIPT);
        let world = world.path().to_owned();
        Self { test_env, world }
    }

    fn up(&self) -> Daemon {
        self.test_env.up(&self.world, &[])
    }

    /// Sends one message and waits until the world is quiet. Returns the turns of these agents.
    fn send_and_wait(&self, agent: &str, text: &str, agents: &[&str]) -> Vec<Value> {
        self.test_env.ctl(&["send", agent, text]).ok();
        self.test_env.wait_until_quiet(Deadline::seconds(120));
        agents
            .iter()
            .flat_map(|agent| self.test_env.json(&["turn", "list", "--agent", agent]).as_array().unwrap().clone())
            .collect()
    }

    fn held(&self) -> Vec<Value> {
        self.test_env.ctl(&["--json", "events", "--kind", "limit.reached"]).ok().json_lines()
    }
}

#[test]
fn a_ring_of_agents_comes_to_rest() {
    let storm = Storm::new("");
    let daemon = storm.up();
    let ring: Vec<String> = (0..RING).map(|n| format!("r{n}")).collect();
    let names: Vec<&str> = ring.iter().map(String::as_str).collect();
    let turns = storm.send_and_wait("r0", "Pass it on.", &names);
    // The message from outside is hop 0. Its turn and the turns of hops 1 to 32 are allowed.
    assert_eq!(turns.len(), 33);
    assert!(turns.iter().all(|turn| turn["status"] == "finished"), "{turns:#?}");
    let calls = storm.test_env.json(&["ledger", "--limit", "200"]);
    let refusals = calls.as_array().unwrap().iter().filter(|call| call["error_code"] == "hop_limit");
    assert_eq!(refusals.count(), 1, "the last sender gets the reason");
    let held = storm.held();
    assert_eq!(held.len(), 1, "{held:#?}");
    let payload = &held[0]["payload"];
    assert_eq!((&payload["limit"], &payload["hop"]), (&json!("hops_max"), &json!(32)));
    assert_eq!(payload["turns"], 31, "turns of hop 1 to 31 had been opened when the last message was sent");
    let refused = storm.test_env.json(&["ledger", "--tool", "syscall.message.send", "--status", "failed"]);
    assert_eq!(refused.as_array().unwrap().len(), 1);
    assert_eq!(refused[0]["error_code"], "hop_limit");
    daemon.stop();
}

#[test]
fn a_pair_that_repeats_its_thanks_comes_to_rest_even_over_a_kill() {
    let storm = Storm::new("");
    let daemon = storm.up();
    storm.test_env.ctl(&["send", "ann", "Thank you!"]).ok();
    daemon.kill();
    let daemon = storm.up();
    storm.test_env.wait_until_quiet(Deadline::seconds(120));
    let turns = ["ann", "ben"]
        .iter()
        .flat_map(|agent| storm.test_env.json(&["turn", "list", "--agent", agent]).as_array().unwrap().clone())
        .count();
    // Three thanks in each direction are allowed. The fourth is refused with the hint that it is not needed.
    assert_eq!(turns, 7);
    let limits: Vec<Value> = storm.held().iter().map(|event| event["payload"]["limit"].clone()).collect();
    assert_eq!(limits, [json!("echoes_max"), json!("echoes_max")], "one for each way");
    let refused = storm.test_env.json(&["ledger", "--tool", "syscall.message.send", "--status", "failed"]);
    assert_eq!(refused[0]["error_code"], "loop_guard");
    daemon.stop();
}

#[test]
fn a_pair_that_always_finds_new_words_is_stopped_by_the_hop_limit() {
    let storm = Storm::new("");
    let daemon = storm.up();
    assert_eq!(storm.send_and_wait("ida", "wa", &["ida", "jim"]).len(), 33);
    daemon.stop();
}

#[test]
fn an_agent_with_too_many_turns_a_minute_waits_and_then_takes_its_mail_together() {
    let storm = Storm::new("limits: { agent_turns_per_minute: 3 }\n");
    let daemon = storm.up();
    for n in 0..3 {
        assert_eq!(storm.test_env.json(&["ask", "sid", &format!("one {n}")])["status"], "answered");
    }
    for n in 0..5 {
        storm.test_env.ctl(&["send", "sid", &format!("two {n}")]).ok();
    }
    Deadline::seconds(30).until("the agent to be held back", || match storm.held().first() {
        Some(event) if event["payload"]["limit"] == "agent_turns_per_minute" && event["agent_id"] == "sid" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let turns = storm.test_env.json(&["turn", "list", "--agent", "sid"]);
    assert_eq!(turns.as_array().unwrap().len(), 3, "what comes beyond that waits: {turns:#}");
    // A waiting agent has no work to finish, so a stop does not wait for it.
    assert_eq!(storm.test_env.json(&["agent", "stop", "sid"])["status"], "stopped");
    assert_eq!(storm.test_env.json(&["agent", "get", "sid"])["inbox_pending"], 5);
    daemon.stop();
}

#[test]
fn status_shows_which_limits_are_nearly_reached() {
    let storm = Storm::new("limits: { inbox_max: 5 }\n");
    let daemon = storm.up();
    storm.test_env.json(&["agent", "stop", "r5"]);
    assert_eq!(storm.test_env.json(&["status"])["bounds_near"], json!([]));
    for n in 0..5 {
        storm.test_env.ctl(&["send", "r5", &format!("note {n}")]).ok();
    }
    storm.test_env.ctl(&["send", "r5", "one too many"]).exits(8);
    let near = &storm.test_env.json(&["status"])["bounds_near"];
    assert_eq!(near, &json!([{ "limit": "inbox_max", "about": "r5", "value": 5, "most": 5 }]));
    let shown = storm.test_env.ctl(&["status"]).ok().out.clone();
    assert!(shown.contains("inbox_max") && shown.contains("r5"), "{shown}");
    daemon.stop();
}

/// The world's account: reserved tokens, spent tokens, limit.
fn world_budget(test_env: &TestEnvironment) -> Value {
    let all = test_env.json(&["budget", "list"]);
    all.as_array().unwrap().iter().find(|budget| budget["scope"] == "world").unwrap().clone()
}

#[test]
fn twelve_asks_at_once_are_all_answered_under_a_budget_too_small_for_all_reservations() {
    let test_env = TestEnvironment::new(ghostd_testing());
    let names: Vec<String> = (0..12).map(|n| format!("a{n}")).collect();
    let agents: String = names.iter().map(|name| format!("  - {{ id: {name}, archetype: worker }}\n")).collect();
    let world = test_env.world("crowd");
    world
        .config(&format!(
            "world: {{ name: Crowd }}\nagents:\n{agents}llm:\n  default_provider: scripted\n  default_model: slow\n  \
             providers:\n    scripted: {{ kind: scripted, dir: scripts, concurrency: 12 }}\n  \
             prices: {{ scripted/slow: {{ input: 1, output: 1 }} }}\n"
        ))
        // The reservation for each answer is far larger than the answer.
        .archetype("worker", "## LLM\nmax_tokens: 60000\n")
        .write("scripts/slow.yaml", "rules: []\notherwise: [{ wait: 300ms }, { say: Done. }]\n");
    let daemon = test_env.up(world.path(), &[]);
    test_env.json(&["ask", "a0", "Ready?"]);
    let each = world_budget(&test_env)["spent_tokens"].as_u64().unwrap();
    assert!(each < 20_000, "{each}");
    // The limit is the total cost and free budget for one more reservation. Two or three
    // reservations fit at the same time.
    let limit = 13 * each + 80_000;
    test_env.ctl(&["budget", "set", "world", "--tokens", &limit.to_string()]).ok();
    let test_env = &test_env;
    let replies: Vec<Value> = std::thread::scope(|scope| {
        let asks: Vec<_> =
            names.iter().map(|name| scope.spawn(move || test_env.json(&["ask", name, "Are you done?"]))).collect();
        asks.into_iter().map(|ask| ask.join().unwrap()).collect()
    });
    assert!(replies.iter().all(|reply| reply["reply"] == "Done."), "{replies:#?}");
    let spent = world_budget(test_env);
    assert!(spent["spent_tokens"].as_u64().unwrap() < limit && spent["reserved_tokens"] == 0, "{spent:#}");
    // No answer was shortened because of others' reservations.
    let calls = test_env.ctl(&["--json", "events", "--kind", "model.started"]).ok().json_lines();
    assert!(calls.len() == 13 && calls.iter().all(|call| call["payload"]["max_tokens"] == 60_000), "{calls:#?}");
    // Calls that wait when the daemon is killed continue after the next start, when the budget has
    // free capacity.
    let room = spent["spent_tokens"].as_u64().unwrap() + 150_000;
    test_env.ctl(&["budget", "set", "world", "--tokens", &room.to_string()]).ok();
    for name in &names {
        test_env.ctl(&["send", name, "Once more."]).ok();
    }
    Deadline::seconds(30).until("an agent to wait", || {
        let agents = test_env.json(&["agent", "list"]);
        let waits = agents.as_array().unwrap().iter().any(|agent| agent["activity"] == "queued");
        if waits { Ok(()) } else { Err(agents.to_string()) }
    });
    test_env.ctl(&["pause"]).ok();
    daemon.kill();
    let daemon = test_env.up(world.path(), &[]);
    test_env.ctl(&["budget", "set", "world", "--tokens", "none"]).ok();
    test_env.ctl(&["resume"]).ok();
    test_env.wait_until_quiet(Deadline::seconds(60));
    let turns = test_env.json(&["turn", "list"]);
    let turns = turns.as_array().unwrap();
    assert!(turns.len() == 25 && turns.iter().all(|turn| turn["text"] == "Done."), "{turns:#?}");
    assert_eq!(world_budget(test_env)["reserved_tokens"], 0);
    // A refusal because of a spent budget names the spent and the reserved tokens.
    test_env.ctl(&["budget", "set", "world", "--tokens", "100"]).ok();
    test_env.ctl(&["ask", "a0", "And now?"]).says(&["world", "100 tokens"]);
    daemon.stop();
}
