//! `ghostd check` reports all problems of a world at once. `ghostd up` and `ghostctl reload` report the same
//! problems when they refuse.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ghost_testkit::blackbox::{Deadline, TestEnvironment, WorldDir};
use serde_json::Value;

const WORLD: &str = "\
world: { id: home }
access: { default: privileged }
agents:
  - { id: ada, archetype: clerk }
  - { id: ben, archetype: lead }
tool_privileges:
  manager: [syscall.task.create]
  everyone: [workspace.read, workspace.write, tool.google_search]
llm: { default_provider: scripted, default_model: clerk }
";

fn test_env() -> (TestEnvironment, WorldDir) {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("home");
    world
        .config(WORLD)
        .archetype("clerk", "## Tool Access\nprivilege_groups: everyone\n")
        .archetype("lead", "## Tool Access\nprivilege_groups: manager\n\n## LLM\nmodel: lead\n")
        .write("scripts/clerk.yaml", "otherwise: [{ say: Here. }]\n")
        .write("scripts/lead.yaml", "otherwise: [{ call: syscall.task.create, with: { title: x } }]\n");
    (test_env, world)
}

/// The output of `check --json`: file, line, severity, and message with hint, in its order.
fn reported(test_env: &TestEnvironment, world: &WorldDir) -> Vec<String> {
    let ran = test_env.ghostd(&["check", "--json", world.path().to_str().unwrap()]);
    let problems: Vec<Value> = serde_json::from_str(&ran.out).unwrap();
    let text = |problem: &Value, key: &str| problem[key].as_str().unwrap_or_default().to_owned();
    let line = |problem: &Value| {
        let file = text(problem, "file");
        let file = file.strip_prefix(world.path().to_str().unwrap()).expect("a path as the world was named");
        let (line, severity) = (problem["line"].as_u64().unwrap(), text(problem, "severity"));
        format!("{}:{line}: {severity}: {} {}", &file[1..], text(problem, "message"), text(problem, "hint"))
    };
    let wrong = problems.iter().any(|problem| problem["severity"] == "error");
    ran.exits(if wrong { 2 } else { 0 });
    problems.iter().map(line).collect()
}

/// Asserts that exactly these problems were found, in this order.
fn exactly(found: &[String], expected: &[&str]) {
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        let (place, words) = expected.split_once(": ").unwrap();
        assert!(found.starts_with(&format!("{place}: ")) && found.contains(words), "{expected} is not {found}");
    }
}

/// Without these checks, each of these mistakes would silently remove denials or stop turns.
#[test]
fn near_misses_are_reported_by_check_start_and_reload() {
    let (test_env, world) = test_env();
    let priced = "default_model: clerk }\nbudgets: { world: { usd: 5 } }\n";
    let local = "local: { kind: openai, base_url: 'http://127.0.0.1:9' }";
    let llm = "default_model: clerk, providers: { LOCAL } }\nbudgets: { world: { usd: 5 } }\n".replace("LOCAL", local);
    world.config(&WORLD.replace("default_model: clerk }\n", priced));
    exactly(&reported(&test_env, &world), &[]);
    world.config(&WORLD.replace("default_model: clerk }\n", &llm));
    world.archetype(
        "clerk",
        "## LLM\nprovider: local\nmodel: nobody-knows\n## Tool Access\nprivilege_groups: everyone\n",
    );
    world
        .write("scripts/clerk.yaml", "otherwise: [{ say: Here. }]\n")
        .write("laws.md", "")
        .write("law.md", "Be exact.");
    let warnings = ["archetype/clerk/config.md:3: warning: `local/nobody-knows`", "law.md:1: `laws.md`"];
    exactly(&reported(&test_env, &world), &warnings);
    let daemon = test_env.up(world.path(), &[]);
    for words in ["law.md", "`local/nobody-knows`"] {
        let logged = daemon.err.find(0, Deadline::seconds(10), |line| line.contains(words));
        assert!(logged.is_some(), "{words} is not in {}", daemon.err.text());
    }
    let reload = test_env.json(&["reload"]);
    assert_eq!(reload["problems"].as_array().unwrap().len(), 2, "{reload}");
    world.write("tool.md", "Use few.");
    let refused = test_env.ctl(&["reload"]);
    refused.exits(2);
    assert!(refused.out.contains("tool.md") && refused.out.contains("`tools.md`"), "{}", refused.out);
    daemon.kill();
}

#[test]
fn mistakes_in_one_file_hide_none_in_another() {
    let (test_env, world) = test_env();
    exactly(&reported(&test_env, &world), &[]);
    world
        .config(&WORLD.replace("  - { id: ben", "  - { id: ben, nmae: Ben").replace("llm:", "limit: {}\nllm:"))
        .archetype("clerk", "## Limits\nmax_tool_rounds: many\n## Tool Access\nprofil: full\n")
        .write("laws.md", [0xff, 0xfe])
        .write("scripts/clerk.yaml", "rules:\n  - whn: {}\n    do: [{ say: '{{ mial }}' }]\nruls: []\n")
        .write("scripts/spare.yaml", "otherwise: [\n")
        .write("scripts/lead.yaml", "otherwise: [{ say: x }]\nrules: [{ when: { mail: '(' }, do: [{ say: x }] }]\n");
    let everything = [
        "archetype/clerk/config.md:2: many",
        "archetype/clerk/config.md:4: profile",
        "laws.md:1: error",
        "scripts/clerk.yaml:1: otherwise",
        "scripts/clerk.yaml:2: `when`",
        "scripts/clerk.yaml:3: `mail`",
        "scripts/clerk.yaml:4: `rules`",
        "scripts/lead.yaml:2: `(`",
        "scripts/spare.yaml:1: error",
        "world-config.yaml:5: `name`",
        "world-config.yaml:9: `limits`",
    ];
    exactly(&reported(&test_env, &world), &everything);
    // A refused start reports the same and starts nothing.
    let up = test_env.ghostd(&["up", world.path().to_str().unwrap()]);
    up.exits(2).says(&["laws.md:1", "clerk.yaml:3", "lead.yaml:2", "spare.yaml:1", "world-config.yaml:5", "11 errors"]);
    assert!(!test_env.data("home").exists());

    // A `world-config.yaml` that is no YAML hides its other problems, but not those of other files.
    world.config("agents: [\n");
    let mut rest: Vec<&str> = everything[..9].to_vec();
    rest.push("world-config.yaml:1: error");
    exactly(&reported(&test_env, &world), &rest);
    test_env.ghostd(&["up", world.path().to_str().unwrap()]).exits(2).says(&["clerk.yaml:3", "10 errors"]);
}

#[test]
fn tools_in_scripts_are_checked_against_their_agents_tools() {
    let (test_env, world) = test_env();
    world
        .write("scripts/clerk.yaml", "rules:\n  - when: { tool: workspace.raed }\n    do:\n      - { call: syscall.task.create }\n      - { call: workspace.wirte }\n      - { call: tts }\n      - { call: '{{ mail }}' }\notherwise: [{ say: x }]\n")
        .write("scripts/unused.yaml", "otherwise: [{ call: syscall.task.create }, { call: no.such.thing }]\n");
    let found = reported(&test_env, &world);
    exactly(
        &found,
        &[
            "scripts/clerk.yaml:2: `workspace.read`",
            "scripts/clerk.yaml:4: error: `syscall.task.create`",
            "scripts/clerk.yaml:5: `workspace.write`",
            "scripts/clerk.yaml:6: warning: `tts`",
            "scripts/unused.yaml:1: `no.such.thing`",
        ],
    );
    // If only one of two agents with the same script lacks the tool, it is a warning.
    std::fs::remove_file(world.path().join("scripts/unused.yaml")).unwrap();
    world
        .write("scripts/clerk.yaml", "otherwise: [{ call: syscall.task.create, with: { title: x } }]\n")
        .archetype("lead", "## Tool Access\nprivilege_groups: manager\n");
    exactly(&reported(&test_env, &world), &["scripts/clerk.yaml:1: warning: `syscall.task.create`"]);
    test_env.up(world.path(), &[]).stop();
}

#[test]
fn a_model_without_rule_file_is_reported_with_its_agents_and_a_suggestion() {
    let (test_env, world) = test_env();
    world.config(&WORLD.replace("default_model: clerk", "default_model: clrk"));
    let found = reported(&test_env, &world);
    exactly(&found, &["scripts/clrk.yaml:0: `clerk`"]);
    test_env.ghostd(&["up", world.path().to_str().unwrap()]).exits(2).says(&["scripts/clrk.yaml", "ada"]);
}

#[test]
fn a_rule_for_one_agent_demands_no_tools_of_the_others() {
    let (test_env, world) = test_env();
    let rule = "rules:\n  - when: { agent: ben }\n    do: [{ call: syscall.task.create, with: { title: x } }]\notherwise: [{ say: Here. }]\n";
    world
        .config(&WORLD.replace("llm:", "agents_may_create: [clerk]\nllm:"))
        .write("scripts/clerk.yaml", rule)
        .archetype("lead", "## Tool Access\nprivilege_groups: manager\n");
    exactly(&reported(&test_env, &world), &[]);
    // A target of the rule must have the tool. An unknown id in the rule may be an agent that is created later.
    world.write("scripts/clerk.yaml", rule.replace("agent: ben", "agent: [a*]"));
    exactly(&reported(&test_env, &world), &["scripts/clerk.yaml:3: error: `syscall.task.create`"]);
    world.write("scripts/clerk.yaml", rule.replace("agent: ben", "agent: ada"));
    exactly(&reported(&test_env, &world), &["scripts/clerk.yaml:3: error: `syscall.task.create`"]);
}

#[test]
fn a_wrong_flag_is_reported_as_a_flag() {
    let (test_env, world) = test_env();
    let path = world.path().to_str().unwrap();
    let ran = test_env.ghostd(&["up", path, "--provider", "scriptd"]);
    ran.exits(2).says(&["--provider", "`scriptd`", "`scripted`"]);
    assert!(!ran.err.contains("world-config.yaml"), "{}", ran.err);
    test_env
        .ghostd(&["up", path, "--provider", "openai", "--model", "m", "--base-url", "x"])
        .exits(2)
        .says(&["--base-url: "]);
}

#[test]
fn a_fall_back_model_without_provider_is_reported_once_at_its_place() {
    let (test_env, world) = test_env();
    let with = |models: &str| {
        let config = format!("## Tool Access\nprivilege_groups: everyone\n## LLM\nfallback_models: {models}\n");
        world.archetype("clerk", &config);
        reported(&test_env, &world)
    };
    exactly(&with("nowhere/x, scripted/gone"), &["archetype/clerk/config.md:4: `nowhere`"]);
    // Files are compared with each other once the configuration has no error.
    exactly(&with("scripted/gone"), &["scripts/gone.yaml:0: error"]);
}

fn worlds_newsroom() -> String {
    concat!(env!("CARGO_MANIFEST_DIR"), "/worlds/newsroom").to_owned()
}

// covers: WORLD-02, WORLD-16
#[test]
fn every_shipped_world_has_no_problems() {
    let mut test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    // One of them has a search, and warns if there is no key for it.
    test_env.set("BRAVE_API_KEY", "not-a-key-of-anybody");
    for world in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/worlds")).unwrap() {
        let world = world.unwrap().path();
        let ran = test_env.ghostd(&["check", "--json", world.to_str().unwrap()]);
        assert_eq!(serde_json::from_str::<Value>(&ran.ok().out).unwrap(), serde_json::json!([]));
    }
}

// covers: WORLD-08
#[test]
fn all_mistakes_are_reported_at_once_with_their_lines_and_nothing_starts() {
    let (test_env, world) = test_env();
    let path = world.path().to_str().unwrap();
    test_env.ghostd(&["check", path]).ok();
    let wrong = WORLD
        .replace("archetype: lead", "archetype: leed")
        .replace("id: ada, archetype: clerk", "id: ada, archetype: clerk, team: pear")
        .replace("[syscall.task.create]", "[syscall.task.crate]");
    world
        .config(&format!(
            "{wrong}limits: {{ mesage_bytes: 2000, hops_max: 0 }}\nteams: [{{ name: pair, agents: [ada] }}]\n"
        ))
        .write("archetype/clerk/config.md", "## Tool Access\nprivilege_groups: evryone\n")
        .write("scripts/clerk.yaml", "rules: []\n");
    test_env.ghostd(&["check", path]).exits(2).says(&[
        "world-config.yaml:4:",
        "pear",
        "`pair`",
        "world-config.yaml:5:",
        "leed",
        "world-config.yaml:7:",
        "`syscall.task.create`",
        "world-config.yaml:10:",
        "`message_bytes`",
        "hops_max",
        "archetype/clerk/config.md:2:",
        "`everyone`",
        "scripts/clerk.yaml",
    ]);
    let problems: Value = serde_json::from_str(&test_env.ghostd(&["check", "--json", path]).exits(2).out).unwrap();
    let problems = problems.as_array().unwrap();
    assert!(problems.len() >= 6, "{problems:#?}");
    for problem in problems {
        for key in ["severity", "file", "line", "message"] {
            assert!(problem.get(key).is_some(), "no `{key}` in {problem:#}");
        }
    }
    // A refused start reports the same and starts nothing.
    test_env.ghostd(&["up", path]).exits(2).says(&["world-config.yaml:4:"]);
    assert!(!test_env.data("home").exists());
    // A missing directory and a missing file have the same exit code.
    test_env.ghostd(&["check", "/nowhere/at/all"]).exits(3).says(&["/nowhere/at/all"]);
    test_env.ghostd(&["up", "/nowhere/at/all"]).exits(3).says(&["/nowhere/at/all"]);
    let world = worlds_newsroom();
    test_env.ghostd(&["up", &world, "--input", "/nowhere/at/all"]).exits(3).says(&["/nowhere/at/all"]);
}

#[test]
fn a_world_from_init_is_checked_and_does_its_job() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let dir = test_env.join("first");
    let path = dir.to_str().unwrap();
    test_env.ghostd(&["init", path]).ok();
    let checked = test_env.ghostd(&["check", "--json", path]);
    assert_eq!(serde_json::from_str::<Value>(&checked.ok().out).unwrap(), serde_json::json!([]));
    // `init` never overwrites.
    test_env.ghostd(&["init", path]).exits(7);
    // An editor gets the schema that this program has.
    let schema = test_env.ghostd(&["schema"]);
    assert_eq!(schema.ok().out, std::fs::read_to_string(dir.join("world-config.schema.json")).unwrap());
    for file in ["config.md", "toolbox.yaml"] {
        let schema: Value = serde_json::from_str(&test_env.ghostd(&["schema", file]).ok().out).unwrap();
        assert_eq!(schema["type"].as_str().or(schema["type"][0].as_str()), Some("object"), "{file}");
    }
    test_env.ghostd(&["schema", "laws.md"]).exits(2);
    let daemon = test_env.up(&dir, &[]);
    let line = daemon.wait_for_line("the result", Deadline::seconds(60), |line| line.starts_with("  result  "));
    let briefing = std::fs::read_to_string(line.trim_start_matches("  result  ")).unwrap();
    assert!(briefing.contains("## harbour.md") && briefing.contains("## library.md"), "{briefing}");
    daemon.stop();
}

/// A world from `init` reads more files than one answer may contain calls, and describes itself
/// when asked.
#[test]
fn a_world_from_init_reads_many_files_and_says_what_it_is() {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let dir = test_env.join("first");
    test_env.ghostd(&["init", dir.to_str().unwrap()]).ok();
    let script = std::fs::read_to_string(dir.join("scripts/default.yaml")).unwrap();
    assert!(script.lines().count() <= 36, "it is there to be read");
    let input = test_env.join("many");
    std::fs::create_dir(&input).unwrap();
    for n in 0..70 {
        std::fs::write(input.join(format!("file-{n}.md")), format!("# Number {n}\n\nIt grew by {n} %.\n")).unwrap();
    }
    let daemon = test_env.up(&dir, &["--input", input.to_str().unwrap()]);
    let line = daemon.wait_for_line("the result", Deadline::seconds(120), |line| line.starts_with("  result  "));
    let briefing = std::fs::read_to_string(line.trim_start_matches("  result  ")).unwrap();
    for n in 0..70 {
        let reported = format!("## file-{n}.md\n\n- It grew by {n} %.");
        assert!(briefing.contains(&reported), "{reported}: {briefing}");
    }
    let asked = test_env.json(&["--timeout", "60s", "ask", "lead", "What can you do?"]);
    assert!(asked["reply"].as_str().unwrap().contains("scripts/default.yaml"), "{asked}");
    daemon.stop();
}
