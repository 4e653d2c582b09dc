//! The provider `recorded`: each agent gets its answers of an earlier run, without a model, over a reload and over
//! `kill -9`.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ghost_testkit::blackbox::{TestEnvironment, WorldDir};

const WORLD: &str = "\
world: { name: Again, id: WORLD_ID }
agents: [{ id: a, archetype: worker }, { id: b, archetype: worker }]
llm: { default_provider: PROVIDER, default_model: plain, providers: { earlier: { kind: recorded, dir: 'DIR' } } }
";

const SCRIPT: &str = r#"about: Writes down what it is told, and says so.
rules:
  - name: writes
    when: { mail: 'kind="ask"[^>]*>\n(?P<word>\w+)', round: 0 }
    do: [{ call: workspace.write, with: { path: heard.md, content: "{{ match.word }}" } }]
  - name: says
    when: { mail: 'kind="ask"[^>]*>\n(?P<word>\w+)' }
    do: [{ say: "{{ agent_id }} heard {{ match.word }}." }]
otherwise: [{ say: "Nobody asked." }]
"#;

fn world(test_env: &TestEnvironment, id: &str, provider: &str, dir: &str) -> WorldDir {
    let world = test_env.world(id);
    let config = WORLD.replace("WORLD_ID", id).replace("PROVIDER", provider).replace("DIR", dir);
    // The first run has no recording.
    let config = if dir.is_empty() {
        config.replace(", providers: { earlier: { kind: recorded, dir: '' } }", "")
    } else {
        config
    };
    world.config(&config).write("scripts/plain.yaml", SCRIPT);
    world.archetype("worker", "## Tool Access\n- workspace.read\n- workspace.write\n");
    world
}

fn ask(test_env: &TestEnvironment, agent: &str, text: &str) -> String {
    test_env.json(&["ask", agent, text])["reply"].as_str().unwrap().to_owned()
}

// covers: LOOP-05
#[test]
fn a_recorded_run_continues_over_reloads_and_kills() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let first = world(&test_env, "first", "scripted", "");
    let daemon = test_env.up(first.path(), &[]);
    for text in ["one", "two", "three", "four"] {
        assert_eq!(ask(&test_env, "a", text), format!("a heard {text}."));
    }
    assert_eq!(ask(&test_env, "b", "one"), "b heard one.");
    daemon.stop();

    let earlier = test_env.data("first").to_str().unwrap().to_owned();
    let second = world(&test_env, "second", "earlier", &earlier);
    let daemon = test_env.up(second.path(), &[]);
    assert_eq!(ask(&test_env, "a", "anything"), "a heard one.");
    let written = test_env.json(&["tool", "call", "a", "workspace.read", r#"{"path":"heard.md"}"#]);
    assert!(written.to_string().contains("one"), "its calls are made again: {written}");
    assert_eq!(test_env.json(&["reload"])["changes"].as_array().unwrap().len(), 1, "only that all stay as they are");
    assert_eq!(ask(&test_env, "a", "anything"), "a heard two.");
    daemon.kill();
    let daemon = test_env.up(second.path(), &[]);
    assert_eq!(ask(&test_env, "a", "anything"), "a heard three.");
    assert_eq!(ask(&test_env, "b", "anything"), "b heard one.");
    // A recording that the reload reads for the first time continues at its position, too.
    let text = std::fs::read_to_string(second.path().join("world-config.yaml")).unwrap();
    second.config(&text.replace("dir: '", "dir: '/"));
    test_env.json(&["reload"]);
    assert_eq!(ask(&test_env, "a", "anything"), "a heard four.");
    test_env.ctl(&["ask", "a", "anything"]).exits(5);

    // A missing recording changes nothing.
    second.config(&text.replace(&earlier, "/nowhere"));
    let refused = test_env.ctl(&["reload"]);
    let problem = "world-config.yaml:3: llm.providers.earlier.dir: there is no run in /nowhere";
    assert!(refused.exits(2).out.contains(problem), "{}", refused.out);
    test_env.json(&["status"]);
    daemon.stop();

    // An agent with another model needs no recording.
    let daemon = test_env.up(second.path(), &["--provider", "scripted", "--model", "plain"]);
    assert_eq!(ask(&test_env, "a", "five"), "a heard five.");
    daemon.stop();
}
