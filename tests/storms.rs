//! Agents that talk freely come to rest within the default bounds: a ring in which each always answers, a pair that thanks
//! each other for ever, a pair that always finds new words. The feed says why, and how many turns it took (issue 3, 6).

// A black-box test has nothing to recover to: what goes wrong is told by the panic that fails it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;

use ghost_testkit::blackbox::{Daemon, Deadline, House, ghostd_testing};
use serde_json::{Value, json};

const RING: usize = 17;

/// Every agent hands on what it gets, for ever, if it is let.
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
    house: House,
    world: PathBuf,
}

impl Storm {
    fn new(limits: &str) -> Self {
        let house = House::new(ghostd_testing());
        let names: Vec<String> = (0..RING).map(|n| format!("r{n}")).collect();
        let names = names.iter().map(String::as_str).chain(["ann", "ben", "ida", "jim", "sid"]);
        let agents: String = names.map(|name| format!("  - {{ id: {name}, archetype: worker }}\n")).collect();
        let world = house.world("storm");
        world
            .config(&format!(
                "world: {{ name: Storm }}\nagents:\n{agents}{limits}llm:\n  default_provider: scripted\n  \
                 default_model: talk\n  providers:\n    scripted: {{ kind: scripted, dir: scripts }}\n"
            ))
            .archetype("worker", "")
            .write("scripts/talk.yaml", SCRIPT);
        let world = world.path().to_owned();
        Self { house, world }
    }

    fn up(&self) -> Daemon {
        self.house.up(&self.world, &[])
    }

    /// Says one thing and waits until nothing moves any more. Gives the turns of those agents.
    fn set_going(&self, agent: &str, text: &str, agents: &[&str]) -> Vec<Value> {
        self.house.ctl(&["send", agent, text]).ok();
        self.house.wait_until_quiet(Deadline::seconds(120));
        agents
            .iter()
            .flat_map(|agent| self.house.json(&["turn", "list", "--agent", agent]).as_array().unwrap().clone())
            .collect()
    }

    fn held(&self) -> Vec<Value> {
        self.house.ctl(&["--json", "events", "--kind", "storm.held"]).ok().json_lines()
    }
}

#[test]
fn a_ring_that_always_answers_comes_to_rest() {
    let storm = Storm::new("");
    let daemon = storm.up();
    let ring: Vec<String> = (0..RING).map(|n| format!("r{n}")).collect();
    let names: Vec<&str> = ring.iter().map(String::as_str).collect();
    let turns = storm.set_going("r0", "Pass it on.", &names);
    // The message from outside is hop 0; its turn and those of hops 1 to 32 are all that is let through.
    assert_eq!(turns.len(), 33);
    assert!(turns.iter().all(|turn| turn["status"] == "finished"), "{turns:#?}");
    let told = turns.iter().filter(|turn| turn["text"].as_str().unwrap_or_default().contains("the limit is 32"));
    assert_eq!(told.count(), 1, "the last sender was told why");
    let held = storm.held();
    assert_eq!(held.len(), 1, "{held:#?}");
    let payload = &held[0]["payload"];
    assert_eq!((&payload["limit"], &payload["hop"]), (&json!("hops_max"), &json!(32)));
    assert_eq!(payload["turns"], 31, "turns of hop 1 to 31 had been opened when the last message was sent");
    let refused = storm.house.json(&["ledger", "--tool", "syscall.message.send", "--status", "failed"]);
    assert_eq!(refused.as_array().unwrap().len(), 1);
    assert_eq!(refused[0]["error_code"], "hop_limit");
    daemon.stop();
}

#[test]
fn a_pair_that_thanks_each_other_for_ever_comes_to_rest_even_over_a_kill() {
    let storm = Storm::new("");
    let daemon = storm.up();
    storm.house.ctl(&["send", "ann", "Thank you!"]).ok();
    daemon.kill();
    let daemon = storm.up();
    storm.house.wait_until_quiet(Deadline::seconds(120));
    let turns = ["ann", "ben"]
        .iter()
        .flat_map(|agent| storm.house.json(&["turn", "list", "--agent", agent]).as_array().unwrap().clone())
        .count();
    // Three thanks each way are let through; who would send the fourth is told that it needs none.
    assert_eq!(turns, 7);
    let limits: Vec<Value> = storm.held().iter().map(|event| event["payload"]["limit"].clone()).collect();
    assert_eq!(limits, [json!("echoes_max"), json!("echoes_max")], "one for each way");
    let refused = storm.house.json(&["ledger", "--tool", "syscall.message.send", "--status", "failed"]);
    assert_eq!(refused[0]["error_code"], "loop_guard");
    daemon.stop();
}

#[test]
fn a_pair_that_always_finds_new_words_is_ended_by_the_chain() {
    let storm = Storm::new("");
    let daemon = storm.up();
    assert_eq!(storm.set_going("ida", "wa", &["ida", "jim"]).len(), 33);
    daemon.stop();
}

#[test]
fn an_agent_that_is_woken_too_often_is_held_back_and_takes_its_mail_together() {
    let storm = Storm::new("limits: { agent_turns_per_minute: 3 }\n");
    let daemon = storm.up();
    for n in 0..3 {
        assert_eq!(storm.house.json(&["ask", "sid", &format!("one {n}")])["status"], "answered");
    }
    for n in 0..5 {
        storm.house.ctl(&["send", "sid", &format!("two {n}")]).ok();
    }
    Deadline::seconds(30).until("the agent to be held back", || match storm.held().first() {
        Some(event) if event["payload"]["limit"] == "agent_turns_per_minute" && event["agent_id"] == "sid" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let turns = storm.house.json(&["turn", "list", "--agent", "sid"]);
    assert_eq!(turns.as_array().unwrap().len(), 3, "what comes beyond that waits: {turns:#}");
    // Waiting is no work: a stop does not wait for it.
    assert_eq!(storm.house.json(&["agent", "stop", "sid"])["status"], "stopped");
    assert_eq!(storm.house.json(&["agent", "get", "sid"])["inbox_pending"], 5);
    daemon.stop();
}

#[test]
fn status_says_which_bounds_are_near() {
    let storm = Storm::new("limits: { inbox_max: 5 }\n");
    let daemon = storm.up();
    storm.house.json(&["agent", "stop", "r5"]);
    assert_eq!(storm.house.json(&["status"])["bounds_near"], json!([]));
    for n in 0..5 {
        storm.house.ctl(&["send", "r5", &format!("note {n}")]).ok();
    }
    storm.house.ctl(&["send", "r5", "one too many"]).exits(8);
    let near = &storm.house.json(&["status"])["bounds_near"];
    assert_eq!(near, &json!([{ "limit": "inbox_max", "about": "r5", "value": 5, "most": 5 }]));
    let shown = storm.house.ctl(&["status"]).ok().out.clone();
    assert!(shown.contains("inbox_max of r5: 5 of 5"), "{shown}");
    daemon.stop();
}
