//! Whatever comes back in place of a model's answer, mail is answered, parked or held: 200 random cells of status, body,
//! protocol, and one agent or ten, over the built program. `src/agent/agent_tests/outage_matrix.rs` has all cells.

// A failure in a test is a panic with a message. The counts are for the reader of a CI run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use ghost_domain::transcript::Block;
use ghost_proto::v1::messages_client::MessagesClient;
use ghost_proto::v1::turns_client::TurnsClient;
use ghost_proto::v1::{ListTurnsRequest, RetryTurnRequest, SendRequest, Turn};
use ghost_provider::testing::{FakeReply, OWN, StrictServer, Wire, wrong_replies};
use ghost_testkit::blackbox::{Database, Deadline, TestEnvironment};
use ghost_testkit::sim::Dice;
use serde_json::json;
use tonic::transport::{Channel, Endpoint};

/// Cells of each protocol.
const CELLS: usize = 40;

/// Longest wait for one step of a cell, in seconds.
const STEP: u64 = 60;

/// One protocol: its server, its agents, and clients of the daemon.
struct Side {
    handle: tokio::runtime::Handle,
    wire: Wire,
    server: StrictServer,
    messages: MessagesClient<Channel>,
    turns: TurnsClient<Channel>,
    sent: usize,
}

impl Side {
    fn agent(&self, n: usize) -> String {
        format!("{:?}{n}", self.wire).to_lowercase()
    }

    fn send(&mut self, agents: usize) {
        for n in 0..agents {
            self.sent += 1;
            let request = SendRequest {
                request_id: format!("{:?}-{}", self.wire, self.sent),
                agent_id: self.agent(n),
                body: format!("piece {}", self.sent),
                ..SendRequest::default()
            };
            self.handle.block_on(self.messages.send(request)).unwrap();
        }
    }

    /// The newest turn of each of the first agents.
    fn newest(&mut self, agents: usize) -> Vec<Option<Turn>> {
        let mut newest = Vec::new();
        for n in 0..agents {
            let request = ListTurnsRequest { agent_id: Some(self.agent(n)), limit: 1, ..ListTurnsRequest::default() };
            newest.push(self.handle.block_on(self.turns.list(request)).unwrap().into_inner().turns.pop());
        }
        newest
    }

    /// Waits until `done` holds for the newest turns.
    fn until(&mut self, agents: usize, cell: &str, done: impl Fn(&[Option<Turn>]) -> bool) -> Vec<Turn> {
        Deadline::seconds(STEP).until(cell, || {
            let newest = self.newest(agents);
            if done(&newest) { Ok(newest.into_iter().flatten().collect()) } else { Err(format!("{newest:?}")) }
        })
    }

    /// One failure, from the first mail until all of it is answered or held. Returns how much is held.
    fn cell(&mut self, cell: &str, reply: FakeReply, agents: usize) -> usize {
        let before: Vec<String> = self.newest(agents).into_iter().flatten().map(|turn| turn.turn_id).collect();
        let is_new = |turn: &&Turn| !before.contains(&turn.turn_id);
        self.server.break_with(Some(reply));
        self.send(agents);
        let waits = |turn: &Turn| turn.parked_since_ms.is_some();
        let stuck = self.until(agents, cell, |newest| {
            let new: Vec<&Turn> = newest.iter().flatten().filter(is_new).collect();
            new.iter().any(|turn| waits(turn)) || new.len() == agents && new.iter().all(|turn| turn.status == "dead")
        });
        self.server.break_with(None);
        for turn in stuck.iter().filter(|turn| waits(turn)) {
            let request = RetryTurnRequest { request_id: turn.turn_id.clone() + cell, turn_id: turn.turn_id.clone() };
            // It may have gone on by itself.
            let _ = self.handle.block_on(self.turns.retry(request));
        }
        let ended = self.until(agents, cell, |newest| {
            let new: Vec<&Turn> = newest.iter().flatten().filter(is_new).collect();
            new.len() == agents && new.iter().all(|turn| turn.status == "dead" || turn.status == "finished")
        });
        ended.iter().filter(|turn| turn.status == "dead").count()
    }
}

// covers: LOOP-09
#[test]
fn mail_is_answered_or_held_whatever_comes_back_in_place_of_an_answer() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let say = |_: &_| vec![Block::Text { text: "done".to_owned() }];
    let servers = Wire::ALL.map(|wire| (wire, runtime.block_on(StrictServer::start(wire, say)).unwrap()));
    let mut config =
        "world: { name: Pages, id: pages }\nlimits: { dead_letters_max: 1000, agent_turns_per_minute: 10000 }\n\
                      agents:\n"
            .to_owned();
    for wire in Wire::ALL {
        for n in 0..10 {
            let id = format!("{wire:?}{n}").to_lowercase();
            config.push_str(&format!(
                "  - {{ id: {id}, archetype: worker, overrides: {{ provider: {wire:?}, model: m }} }}\n"
            ));
        }
    }
    config.push_str("llm:\n  default_provider: Chat\n  default_model: m\n  providers:\n");
    for (wire, server) in &servers {
        let quick = ", attempts: 2, retry_base: 1ms, retry_cap: 5ms";
        config.push_str(&format!("    {wire:?}: {}\n", wire.provider(&server.base_url(), quick)));
    }
    let world = test_env.world("pages");
    world.config(&config).archetype("worker", "");
    let daemon = test_env.up(world.path(), &[]);
    let socket = test_env.data("pages").join("ghostd.sock");
    let sides = servers.map(|(wire, server)| {
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
        let handle = runtime.handle().clone();
        std::thread::spawn(move || {
            let channel = handle.block_on(endpoint.connect()).unwrap();
            let (messages, turns) = (MessagesClient::new(channel.clone()), TurnsClient::new(channel));
            let mut side = Side { handle, wire, server, messages, turns, sent: 0 };
            let (mut dice, mut held) = (Dice::new(1, &format!("{wire:?}")), 0);
            for number in 0..CELLS {
                let status = if dice.chance(10) { 200 } else { u16::try_from(dice.between(300, 599)).unwrap() };
                let mut replies = wrong_replies(status, wire);
                let (body, reply) = replies.swap_remove(usize::try_from(dice.below(replies.len() as u64)).unwrap());
                let agents = if number % 2 == 0 { 1 } else { 10 };
                let cell = format!("{status} {body} from {wire:?}, {agents} agents");
                let dead = side.cell(&cell, reply, agents);
                // Only what the provider itself refuses, or what is too large, is the request's own fault.
                assert!(dead == 0 || body == OWN || status == 413, "{cell}: {dead} held");
                held += dead;
            }
            assert_eq!(side.server.refusals(), Vec::<String>::new(), "{wire:?}");
            // The server lives on, for what is retried later.
            (side.server, side.sent, held)
        })
    });
    let done = sides.map(|side| side.join().unwrap());
    let (sent, held) = done.iter().fold((0, 0), |sum, side| (sum.0 + side.1, sum.1 + side.2));
    test_env.wait_until_quiet(Deadline::seconds(60));
    let status = test_env.json(&["status"]);
    assert_eq!((&status["dead_letters_held"], &status["models_down"]), (&json!(held), &json!([])), "{status}");
    // An operator brings back what is held.
    let retried = test_env.json(&["turn", "retry", "--failed", "--since", "1h"]);
    assert_eq!(retried.as_array().unwrap().len(), held);
    test_env.wait_until_quiet(Deadline::seconds(60));
    daemon.stop();
    let database = Database::open(&test_env.data("pages"));
    let answered = database.number(
        "SELECT count(*) FROM messages m JOIN turns t ON t.turn_id = m.turn_id WHERE m.state = 'consumed' AND t.status = 'finished'",
    );
    assert_eq!(usize::try_from(answered).unwrap(), sent, "every message is in one finished turn");
    println!("{} cells, {sent} messages: none lost, {held} held and then answered", CELLS * Wire::ALL.len());
}
