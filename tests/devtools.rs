//! The toolbox `devtools`: its own test script, and its tools in an agent's hands, inside the sandbox.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::path::Path;
use std::process::Command;

use ghost_testkit::blackbox::{TestEnvironment, ghostd_testing};
use serde_json::{Value, json};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

const WORLD: &str = "\
world: { name: Dev }
agents: [{ id: ada, archetype: coder, write_acl: [agents/ada/, repos/] }, { id: bob, archetype: coder }]
toolboxes: [{ source: toolbox/devtools/toolbox.yaml }]
sandbox: { kind: local }
llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }
";

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

// covers: ART-07, DEV-01, DEV-02, DEV-03, DEV-04, DEV-05, TEST-12
#[test]
fn every_subcommand_and_every_hostile_repository() {
    if !has("git") || !has("flock") {
        #[allow(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("skipped: there is no git or no flock");
        }
        return;
    }
    let done = Command::new("bash").arg(Path::new(ROOT).join("toolbox/devtools/tests/run")).output().unwrap();
    let shown = String::from_utf8_lossy(&done.stdout);
    let failed: Vec<&str> = shown.lines().filter(|line| !line.starts_with("ok")).collect();
    assert!(done.status.success(), "{failed:#?}\n{}", String::from_utf8_lossy(&done.stderr));
}

// covers: ART-06, ART-08, DEV-07, DEV-08
#[test]
fn an_agent_works_with_repositories_inside_the_sandbox() {
    let mut test_env = TestEnvironment::new(ghostd_testing());
    std::fs::set_permissions(test_env.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    test_env.set("GITHUB_TOKEN", "ghp_tiger_in_the_night");
    let world = test_env.world("dev");
    let section = "## Toolbox\nsource: toolbox/devtools/toolbox.yaml\n- github-repo\n- repo-git\n";
    world.config(WORLD).archetype("coder", section).write("scripts/m.yaml", "otherwise: [{ say: ok }]\n");
    let path = world.path().to_owned();
    let copied = Command::new("cp").arg("-r").arg(Path::new(ROOT).join("toolbox")).arg(&path).status().unwrap();
    assert!(copied.success());
    let _daemon = test_env.up(&path, &[]);
    if let Some(why) = test_env.json(&["status"])["sandbox"]["absent"].as_str() {
        assert!(std::env::var("GHOST_SANDBOX").is_err(), "GHOST_SANDBOX=required: {why}");
        #[allow(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("skipped: {why}");
        }
        return;
    }
    let run = |agent: &str, tool: &str, args: &[&str]| -> Value {
        let given = json!({ "args": args }).to_string();
        let done = test_env.ctl(&["--json", "tool", "call", agent, tool, &given]);
        let shown = serde_json::from_str::<Value>(&done.out).unwrap_or_else(|_| panic!("{args:?}: {}", done.err));
        assert!(!shown.to_string().contains("tiger"), "{shown}");
        shown["result"].clone()
    };
    let ok = |agent: &str, tool: &str, args: &[&str]| -> String {
        let done = run(agent, tool, args);
        assert_eq!(done["exit_code"], 0, "{args:?}: {done}");
        done["stdout"].as_str().unwrap_or_default().to_owned()
    };
    ok("ada", "devtools.repo-git", &["init", "plans"]);
    ok("ada", "devtools.repo-git", &["clone", "plans"]);
    let file = json!({ "path": "artifact-repo/plans/PLAN.md", "content": "One step.\n" }).to_string();
    test_env.ctl(&["tool", "call", "ada", "workspace.write", &file]).ok();
    let committed = ok("ada", "devtools.repo-git", &["commit", "plans", "--message", "Begin"]);
    assert!(committed.contains("committed"), "{committed}");
    ok("ada", "devtools.repo-git", &["push", "plans"]);
    // Who may not write there reads all the same, and a clone of it is the other's own.
    assert!(ok("bob", "devtools.repo-git", &["show", "plans", "main:PLAN.md"]).contains("One step."));
    // An operator reads what is in it with the same tool, over the control plane (ART-08).
    let file = json!({ "path": "artifact-repo/plans/PLAN.md", "content": "Two steps.\n" }).to_string();
    test_env.ctl(&["tool", "call", "ada", "workspace.write", &file]).ok();
    ok("ada", "devtools.repo-git", &["commit", "plans", "--message", "Go on"]);
    ok("ada", "devtools.repo-git", &["push", "plans"]);
    let log = ok("bob", "devtools.repo-git", &["log", "plans"]);
    assert!(log.contains("Begin") && log.contains("Go on"), "{log}");
    assert!(ok("bob", "devtools.repo-git", &["tree", "plans"]).contains("PLAN.md"));
    assert!(ok("bob", "devtools.repo-git", &["diff", "plans", "main~1", "main"]).contains("+Two steps."));
    let workspace = test_env.data("dev").join("workspace").canonicalize().unwrap();
    let bare = workspace.join("repos/plans.git").display().to_string();
    ok("bob", "devtools.github-repo", &["clone", &bare, "--name", "plans"]);
    assert!(workspace.join("agents/bob/repos/plans/PLAN.md").is_file());
    let pushed = run("bob", "devtools.repo-git", &["init", "mine"]);
    assert_ne!(pushed["exit_code"], 0, "{pushed}");
    for url in ["ext::sh -c touch% pwned", "file:///etc", "--upload-pack=touch pwned", "http://github.com/a/b"] {
        let refused = run("bob", "devtools.github-repo", &["clone", url]);
        assert_eq!(refused["exit_code"], 2, "{url}: {refused}");
    }
    // The token reaches the tool, and no file.
    let found = Command::new("grep").args(["-r", "tiger"]).arg(&workspace).output().unwrap();
    assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
}
