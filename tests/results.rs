//! What becomes of tool results: a large one goes to a file, and what a call cost is charged.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ghost_provider::testing::{FakeAnswer, FakeCall, FakeRequest};
use ghost_testkit::blackbox::{
    Daemon, Deadline, EFFECTS, ModelServer, TestEnvironment, fresh_outcomes, ghostd_testing, mail_of,
};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { id: results, name: Results }
agents:
  - { id: ada, archetype: worker }
  - { id: bob, archetype: worker, write_acl: [output/reports/] }
llm:
  default_provider: p
  default_model: m
  prices: { m: { input: 0, output: 0 } }
  providers: { p: { kind: openai, base_url: 'BASE', api: chat } }
";

/// The answers to requests with a result, and whether they are held back.
#[derive(Default)]
struct Gate {
    held: Mutex<bool>,
    results: Mutex<Vec<String>>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self, result: String) {
        self.results.lock().unwrap().push(result);
        self.changed.notify_all();
        let held = self.held.lock().unwrap();
        drop(self.changed.wait_while(held, |held| *held).unwrap());
    }

    fn hold(&self, hold: bool) {
        *self.held.lock().unwrap() = hold;
        self.changed.notify_all();
    }

    fn wait_for(&self, count: usize) -> Vec<String> {
        let results = self.results.lock().unwrap();
        let (results, late) =
            self.changed.wait_timeout_while(results, Deadline::seconds(60).left(), |all| all.len() < count).unwrap();
        assert!(!late.timed_out(), "{} results", results.len());
        results.clone()
    }
}

struct World {
    test_env: TestEnvironment,
    world: PathBuf,
    daemon: Option<Daemon>,
    gate: Arc<Gate>,
    _server: ModelServer,
}

impl World {
    /// Agents make the call in their mail, `TOOL ARGUMENTS`, and answer with its result. An array of arguments is as many
    /// calls at once, and the answer is the last result.
    fn new() -> Self {
        let gate = Arc::new(Gate::default());
        let shared = Arc::clone(&gate);
        let server = ModelServer::start(move |request: &FakeRequest, n| {
            if let Some(outcome) = fresh_outcomes(request).pop() {
                shared.pass(outcome.content.clone());
                return FakeAnswer::say(outcome.content);
            }
            let mail = mail_of(request).pop().unwrap().body;
            let (tool, arguments) = mail.split_once(' ').unwrap();
            let all = match serde_json::from_str(arguments).unwrap() {
                Value::Array(all) => all,
                one => vec![one],
            };
            let call = |(i, arguments)| FakeCall { id: format!("c{n}-{i}"), tool: tool.to_owned(), arguments };
            let calls = all.into_iter().enumerate().map(call).collect();
            FakeAnswer::Model { text: String::new(), calls }
        });
        let mut test_env = TestEnvironment::new(ghostd_testing());
        let effects = test_env.join("effects");
        test_env.set(EFFECTS, effects);
        let world = test_env.world("results");
        world.config(&WORLD.replace("BASE", &server.base_url())).archetype("worker", "");
        let world = world.path().to_owned();
        let daemon = Some(test_env.up(&world, &[]));
        Self { test_env, world, daemon, gate, _server: server }
    }

    fn ask(&self, agent: &str, tool: &str, arguments: &Value) -> String {
        let asked = self.test_env.json(&["ask", agent, &format!("{tool} {arguments}")]);
        asked["reply"].as_str().unwrap().to_owned()
    }

    fn saved(&self) -> Vec<PathBuf> {
        let dir = self.test_env.data("results").join("workspace/agents/ada/tool-results");
        std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
    }
}

// covers: CONF-07, LIM-03, TOOL-14
#[test]
fn a_large_result_is_saved_and_a_killed_turn_sees_the_same() {
    let mut world = World::new();
    let lines: String = (0..2_000).map(|n| format!("line {n}\n")).collect();
    let arguments = json!({ "arg": lines });
    world.gate.hold(true);
    world.test_env.json(&["send", "ada", &format!("test.effect {arguments}")]);
    let before = world.gate.wait_for(1);
    world.daemon.take().unwrap().kill();
    world.gate.hold(false);
    world.daemon = Some(world.test_env.up(&world.world, &[]));
    let results = world.gate.wait_for(2);
    world.test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!(results, [before[0].clone(), before[0].clone()], "the model sees the same after a kill");
    let effects = std::fs::read_to_string(world.test_env.join("effects")).unwrap();
    assert_eq!(effects.matches("line 1999\n").count(), 1, "the call was not repeated");
    let [file] = &world.saved()[..] else { panic!("one file") };
    assert_eq!(std::fs::read_to_string(file).unwrap(), lines);
    let shown: Value = serde_json::from_str(&results[0]).unwrap();
    let text = shown["done"].as_str().unwrap();
    assert!(text.starts_with("line 0\n") && text.ends_with("line 1999\n") && results[0].len() <= 8_192, "{text}");
    assert!(text.contains(file.file_name().unwrap().to_str().unwrap()), "{text}");

    let small = world.ask("ada", "test.effect", &json!({ "arg": "x".repeat(8_000) }));
    assert!(small.contains(&"x".repeat(8_000)) && world.saved().len() == 1, "{small}");
    // An agent that may not write in its own directory sees the beginning, as before.
    let cut = world.ask("bob", "test.effect", &arguments);
    assert!(cut.contains("line 0\\n") && cut.contains("[cut: ") && !cut.contains("line 1999"), "{cut}");
}

// covers: TOOL-09
#[test]
fn what_calls_cost_is_charged_and_a_spent_budget_refuses_more() {
    let world = World::new();
    world.test_env.json(&["budget", "set", "agent:ada", "--usd", "0.05"]);
    let charge = |agent: &str, micros: u64| world.ask(agent, "test.charge", &json!({ "micros": micros }));
    let charge_all = |arguments: &Value| world.ask("ada", "test.charge", arguments);
    let spent = |scope: &str| -> Value {
        let budgets = world.test_env.json(&["budget", "list"]);
        budgets.as_array().unwrap().iter().find(|budget| budget["scope"] == scope).unwrap()["spent_usd"].clone()
    };
    for _ in 0..2 {
        assert_eq!(charge("ada", 30_000), "{\"charged\":30000}");
    }
    assert_eq!((spent("agent:ada"), spent("world")), (json!(0.06), json!(0.06)));
    let refused = charge("ada", 30_000);
    assert!(refused.contains("budget_exhausted") && refused.contains("agent:ada"), "{refused}");
    assert_eq!((spent("agent:ada"), spent("world")), (json!(0.06), json!(0.06)), "it did not run");
    let ledger = world.test_env.json(&["ledger", "--agent", "ada", "--tool", "test.charge"]);
    let codes: Vec<&Value> = ledger.as_array().unwrap().iter().map(|row| &row["error_code"]).collect();
    assert_eq!(codes.iter().filter(|code| ***code == "budget_exhausted").count(), 1, "{ledger}");
    // Free calls go on, and so do other agents, until the world's budget is spent.
    assert!(world.ask("ada", "test.effect", &json!({ "arg": "free" })).contains("free"));
    assert_eq!(charge("bob", 5), "{\"charged\":5}");
    // Calls of one answer do not pass the budget together: each counts those before it.
    world.test_env.json(&["budget", "set", "agent:ada", "--usd", "0.08"]);
    let call = json!({ "micros": 30_000 });
    let last = charge_all(&json!([call, call, call]));
    assert!(last.contains("budget_exhausted"), "{last}");
    assert_eq!(spent("agent:ada"), json!(0.09));
    // A limit that is set later counts what was charged before.
    world.test_env.json(&["budget", "set", "agent:bob", "--usd", "0.000005"]);
    assert!(charge("bob", 5).contains("budget_exhausted"));
    world.test_env.json(&["budget", "set", "agent:ada", "--usd", "none"]);
    assert_eq!(charge("ada", 7), "{\"charged\":7}");
}

/// A red point.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/e+m+7wAAAABJRU5ErkJggg==";

// covers: TOOL-15
#[test]
fn an_image_that_the_provider_refuses_costs_no_turn() {
    let asked: Arc<Mutex<Vec<bool>>> = Arc::default();
    let log = Arc::clone(&asked);
    let server = ModelServer::start(move |request: &FakeRequest, _| {
        let shows = request.body.to_string().contains(&PNG[..40]);
        log.lock().unwrap().push(shows);
        if shows {
            return FakeAnswer::status(400, "Could not process image");
        }
        match fresh_outcomes(request).pop() {
            Some(outcome) => FakeAnswer::say(outcome.content),
            None => FakeAnswer::call("c1", "workspace.read", json!({ "path": "agents/ada/red.png", "scope": "world" })),
        }
    });
    let test_env = TestEnvironment::new(ghostd_testing());
    let world = test_env.world("results");
    let config = WORLD
        .replace("BASE", &server.base_url())
        .replace("default_provider", "models_file: models.yaml\n  default_provider");
    world
        .config(&config)
        .write("models.yaml", "as_of: 2026-07-02\np: { m: { vision: true } }\n")
        .archetype("worker", "");
    let path = world.path().to_owned();
    let daemon = test_env.up(&path, &[]);
    let image = test_env.data("results").join("workspace/agents/ada/red.png");
    std::fs::create_dir_all(image.parent().unwrap()).unwrap();
    std::fs::write(image, STANDARD.decode(PNG).unwrap()).unwrap();
    let reply = test_env.json(&["ask", "ada", "what is in red.png?"])["reply"].as_str().unwrap().to_owned();
    assert!(reply.contains("[image: "), "{reply}");
    assert_eq!(*asked.lock().unwrap(), [false, true, false]);
    daemon.stop();
}
