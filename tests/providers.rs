//! Whole worlds against servers that speak the providers' protocols. They refuse what the real providers refuse,
//! and demand back the state that they attached to answers.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]
// Python is a separate program, and the test prints what it skips.
#![allow(clippy::disallowed_methods, clippy::print_stderr)]

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ghost_domain::tool_catalogue::DESCRIBE;
use ghost_domain::transcript::{Block, Message, Role};
use ghost_provider::testing::{Asked, StrictServer, Wire};
use ghost_testkit::blackbox::{Daemon, Deadline, ScriptedRoles, TestEnvironment, python};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

const NEWSROOM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/worlds/newsroom");
const ROUNDS: usize = 20;

fn test_env() -> TestEnvironment {
    TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"))
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build().unwrap()
}

/// The configuration of the provider `p`.
fn provider(wire: Wire, url: &str) -> String {
    format!("p: {}", wire.provider(url, ""))
}

/// Holds back the answers of some rounds until the test releases them.
#[derive(Default)]
struct Gate {
    /// Rounds that were requested and are held back.
    held: Mutex<Vec<usize>>,
    /// Rounds that may be answered.
    open: Mutex<Vec<usize>>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self, round: usize) {
        if !matches!(round, 7 | 14) {
            return;
        }
        self.held.lock().unwrap().push(round);
        self.changed.notify_all();
        let open = self.open.lock().unwrap();
        drop(self.changed.wait_while(open, |open| !open.contains(&round)).unwrap());
    }

    fn wait_for(&self, round: usize) {
        let held = self.held.lock().unwrap();
        let (held, late) =
            self.changed.wait_timeout_while(held, Deadline::seconds(60).left(), |held| !held.contains(&round)).unwrap();
        assert!(!late.timed_out(), "round {round} was never asked for: {held:?}");
    }

    fn release(&self, round: usize) {
        self.open.lock().unwrap().push(round);
        self.changed.notify_all();
    }
}

/// A call in every round, two in every second round, text in every third round; then the end.
fn script(gate: &Gate, asked: &Asked) -> Vec<Block> {
    let round = asked.messages.iter().filter(|message: &&Message| message.role == Role::Assistant).count();
    gate.pass(round);
    let text = |text: String| Block::Text { text };
    if round == ROUNDS {
        return vec![text(format!("done after {round}"))];
    }
    let call =
        || Block::ToolCall { id: String::new(), name: "workspace.list".into(), arguments: json!({ "path": "." }) };
    let mut blocks = Vec::new();
    if round.is_multiple_of(3) {
        blocks.push(text(format!("round {round}")));
    }
    blocks.push(call());
    if round == 2 {
        // A deferred tool, which some providers load in a form of their own.
        let arguments = json!({ "name": "util.timer" });
        blocks.push(Block::ToolCall { id: String::new(), name: DESCRIBE.into(), arguments });
    }
    if round % 2 == 1 {
        blocks.push(call());
    }
    blocks
}

/// Checks requests against the request types of the official Python libraries.
fn check_types(requests: &str) {
    let modules = ["anthropic", "google.genai", "ollama", "openai", "pydantic"];
    let python = match python(&modules) {
        Ok(python) => python,
        Err(missing) => return eprintln!("skipped: {missing}"),
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), requests).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/providers/official_types.py");
    let ran = std::process::Command::new(python).arg(script).arg(file.path()).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && out.ends_with("of 5 protocols\n"), "{out}{err}");
}

// covers: LOOP-05
#[test]
fn attached_state_comes_back_over_twenty_rounds_and_two_kills() {
    let mut requests = String::new();
    for wire in Wire::ALL {
        let (test_env, runtime, gate) = (test_env(), runtime(), Arc::new(Gate::default()));
        let shared = Arc::clone(&gate);
        let server = runtime.block_on(StrictServer::start(wire, move |asked| script(&shared, asked))).unwrap();
        let world = test_env.world("rounds");
        world.config(&format!(
            "world: {{ name: Rounds, id: rounds }}\nagents: [{{ id: a, archetype: worker, overrides: {{ thinking: high }} }}]\nlimits: {{ turn_rounds_max: 40, loop_warn: 900, loop_block: 950, loop_stop: 990 }}\n\
             llm: {{ models_file: models.yaml, default_provider: p, default_model: model-x, providers: {{ {} }} }}\n",
            provider(wire, &server.base_url())
        ));
        world.archetype("worker", "## Tool Access\n- workspace.list\n");
        std::fs::write(world.path().join("models.yaml"), "as_of: 2026-07-02\np: { model-x: { loads_tools: true } }\n")
            .unwrap();
        let mut daemon: Daemon = test_env.up(world.path(), &[]);
        test_env.json(&["send", "a", "begin"]);
        for round in [7, 14] {
            gate.wait_for(round);
            daemon.kill();
            gate.release(round);
            daemon = test_env.up(world.path(), &[]);
        }
        test_env.wait_until_quiet(Deadline::seconds(60));
        assert_eq!(server.refusals(), Vec::<String>::new(), "{wire:?}");
        let turns = test_env.json(&["turn", "list"]);
        assert_eq!(
            (&turns[0]["status"], &turns[0]["text"]),
            (&json!("finished"), &json!("done after 20")),
            "{wire:?}: {turns}"
        );
        assert_eq!(turns.as_array().unwrap().len(), 1);
        if matches!(wire, Wire::Anthropic | Wire::Responses) {
            let (first, last) = (&server.requests()[0].body, &server.requests().pop().unwrap().body);
            assert_eq!(first["tools"], last["tools"], "{wire:?}: the front of the cached prefix");
            assert!(["tool_reference", "tool_search_output"].iter().any(|form| last.to_string().contains(form)));
        }
        for request in server.requests() {
            requests.push_str(&format!("{}\n", json!({ "wire": format!("{wire:?}"), "body": request.body })));
        }
        daemon.stop();
    }
    check_types(&requests);
}

/// A red picture of one pixel.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

/// The requests of one turn that reads an image. The daemon is killed while the model is asked with it.
fn image_turn(wire: Wire, vision: bool, change: impl Fn(&Path)) -> Vec<Value> {
    let (test_env, runtime, gate) = (test_env(), runtime(), Arc::new(Gate::default()));
    let shared = Arc::clone(&gate);
    let answer = move |asked: &Asked| {
        let round = asked.messages.iter().filter(|message: &&Message| message.role == Role::Assistant).count();
        match round {
            0 => {
                let arguments = json!({ "path": "agents/a/notes/red.png", "scope": "world" });
                vec![Block::ToolCall { id: String::new(), name: "workspace.read".into(), arguments }]
            }
            _ => {
                // The first request after the result is held back; the one after the restart is answered.
                shared.pass(7);
                vec![Block::Text { text: "red".into() }]
            }
        }
    };
    let server = runtime.block_on(StrictServer::start(wire, answer)).unwrap();
    let world = test_env.world("images");
    world.config(&format!(
        "world: {{ name: Images, id: images }}\nagents: [{{ id: a, archetype: worker, overrides: {{ thinking: high }} }}]\n\
         llm: {{ models_file: models.yaml, default_provider: p, default_model: model-x, providers: {{ {} }} }}\n",
        provider(wire, &server.base_url())
    ));
    world.archetype("worker", "## Tool Access\n- workspace.read\n");
    let models = format!("as_of: 2026-07-02\np: {{ model-x: {{ vision: {vision} }} }}\n");
    std::fs::write(world.path().join("models.yaml"), models).unwrap();
    let mut daemon: Daemon = test_env.up(world.path(), &[]);
    let file = test_env.data("images").join("workspace/agents/a/notes/red.png");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, STANDARD.decode(PNG).unwrap()).unwrap();
    test_env.json(&["send", "a", "which colour has notes/red.png?"]);
    gate.wait_for(7);
    daemon.kill();
    change(&file);
    gate.release(7);
    daemon = test_env.up(world.path(), &[]);
    test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!(server.refusals(), Vec::<String>::new(), "{wire:?}");
    // The next turn has the image as text.
    test_env.json(&["send", "a", "thanks"]);
    test_env.wait_until_quiet(Deadline::seconds(60));
    let turns = test_env.json(&["turn", "list"]);
    assert!(turns.as_array().unwrap().iter().all(|turn| turn["status"] == "finished"), "{wire:?}: {turns}");
    daemon.stop();
    server.requests().into_iter().map(|request| request.body).collect()
}

// covers: LOOP-05, TOOL-15
#[test]
fn an_image_reaches_the_model_over_every_protocol_and_a_kill() {
    let mut requests = String::new();
    for wire in Wire::ALL {
        let bodies = image_turn(wire, true, |_| ());
        assert_eq!(bodies.len(), 4, "{wire:?}: a call, the same request before and after the kill, the next turn");
        let has = |body: &Value| body.to_string().contains(PNG);
        assert_eq!(bodies.iter().map(has).collect::<Vec<_>>(), [false, true, true, false], "{wire:?}");
        assert_eq!(bodies[1], bodies[2], "{wire:?}: a resumed turn asks the same");
        assert!(bodies[3].to_string().contains("[image: "), "{wire:?}: earlier turns have its text");
        for body in bodies {
            requests.push_str(&format!("{}\n", json!({ "wire": format!("{wire:?}"), "body": body })));
        }
    }
    check_types(&requests);
}

// covers: TOOL-15
#[test]
fn an_image_that_is_not_seen_or_not_there_any_more_becomes_text() {
    let blind = image_turn(Wire::Chat, false, |_| ());
    assert!(blind.iter().all(|body| !body.to_string().contains(PNG)));
    assert!(blind[1].to_string().contains("[image: 70 bytes, image/png, 1x1, saved at agents/a/notes/red.png"));
    let changed = image_turn(Wire::Anthropic, true, |file| std::fs::write(file, "other").unwrap());
    let gone = image_turn(Wire::Gemini, true, |file| std::fs::remove_file(file).unwrap());
    for bodies in [changed, gone] {
        assert!(bodies[1].to_string().contains(PNG) && !bodies[2].to_string().contains(PNG));
        assert!(bodies[2].to_string().contains("[image: 70 bytes"));
    }
}

// covers: LOOP-05
#[test]
fn the_newsroom_does_its_job_over_every_protocol() {
    for wire in Wire::ALL {
        let (test_env, runtime) = (test_env(), runtime());
        let roles = ScriptedRoles::load(&Path::new(NEWSROOM).join("scripts"));
        let server = runtime.block_on(StrictServer::start(wire, move |asked| roles.answer_to(asked))).unwrap();
        let world = test_env.copy_of(Path::new(NEWSROOM), "newsroom");
        let file = world.join("world-config.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        const LLM: &str = "    scripted: { kind: scripted, dir: scripts }\n";
        assert!(text.contains(LLM), "{text}");
        let text = text.replace(LLM, &format!("    {}\n", provider(wire, &server.base_url())));
        std::fs::write(&file, text.replace("default_provider: scripted", "default_provider: p")).unwrap();
        let daemon = test_env.up(&world, &[]);
        daemon.wait_for_line("the end of the job", Deadline::seconds(180), |line| line.starts_with("  result  "));
        test_env.wait_until_quiet(Deadline::seconds(60));
        assert_eq!(server.refusals(), Vec::<String>::new(), "{wire:?}");
        for turn in test_env.json(&["turn", "list"]).as_array().unwrap() {
            assert_eq!(turn["status"], "finished", "{wire:?}: {turn}");
        }
        daemon.stop();
    }
}
