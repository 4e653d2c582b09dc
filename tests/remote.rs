//! Commands in the `remote` sandbox, from outside: a world whose agents run commands on a toolbox server, what `ghostd check`
//! and `ghostctl status` say, and what happens when the server is away. The contract suite of `src/sandbox/contract` has the
//! details.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use ghost_testkit::blackbox::{Deadline, TestEnvironment, ToolboxServer, WorldDir};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { name: Boxes }
agents: [{ id: ada, archetype: worker }, { id: bob, archetype: worker }]
tool_privileges: { shell: [tool.cli, tool.python], files: [workspace.read, workspace.write] }
sandbox: { kind: remote, url: 'URL', token_env: BOX_TOKEN, memory_mb: 128, pids: 64, disk_mb: 32, env: { MODE: test } }
cli_policy:
  default: deny
  tiers:
    all: { commands: [ls, cat, env, sleep, sh, echo, touch, test, mkdir], action: allow, unrestricted: true }
llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }
";

/// An environment with a world that uses a server, which is not started.
fn environment(url: &str) -> (TestEnvironment, WorldDir) {
    let mut test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    test_env.set("BOX_TOKEN", ToolboxServer::TOKEN).set("SECRET_KEY", "tiger");
    let world = test_env.world("boxes");
    world.config(&WORLD.replace("URL", url)).write("scripts/m.yaml", "otherwise: [{ say: ok }]\n");
    world.archetype("worker", "## Tool Access\nprivilege_groups: shell, files\n");
    (test_env, world)
}

fn call(test_env: &TestEnvironment, agent: &str, tool: &str, arguments: &Value) -> Value {
    test_env.json(&["tool", "call", agent, tool, &arguments.to_string()])
}

fn run(test_env: &TestEnvironment, agent: &str, command: &str) -> Value {
    let done = call(test_env, agent, "tool.cli", &json!({ "command": command }));
    assert_eq!(done["status"], "ok", "{command}: {done}");
    done["result"].clone()
}

// covers: TBX-07, SBX-05, SBX-07, EXEC-02, CONF-26
#[test]
fn agents_run_commands_on_a_toolbox_server() {
    // The user of commands must be able to reach the server's directory.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut server = match ToolboxServer::start(dir.path(), "127.0.0.1:0", None) {
        Ok(server) => server,
        Err(why) => {
            assert!(std::env::var("GHOST_SANDBOX").is_err(), "GHOST_SANDBOX=required: {why}");
            #[allow(clippy::print_stderr, reason = "a skipped test says so")]
            {
                eprintln!("skipped: {why}");
            }
            return;
        }
    };
    let second = ToolboxServer::start(dir.path(), "127.0.0.1:0", None);
    assert!(second.is_err(), "two servers in one directory");
    let (test_env, world) = environment(&server.url);
    let daemon = test_env.up(world.path(), &[]);
    let status = test_env.json(&["status"])["sandbox"].clone();
    let protections: Vec<&str> = status["protections"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(status["kind"], "remote", "{status}");
    for name in ["seccomp", "files", "network", "signals", "trace"] {
        assert!(protections.contains(&name), "{name}: {status}");
    }
    // A file of the workspace's tools is there for a command, and the other way round.
    let written = call(&test_env, "ada", "workspace.write", &json!({ "path": "notes/a.txt", "content": "green\n" }));
    assert_eq!(written["status"], "ok", "{written}");
    let done = run(&test_env, "ada", "cat notes/a.txt; echo hello > note; env; exit 3");
    assert_eq!((&done["exit_code"], &done["cwd"]), (&json!(3), &json!("agents/ada")), "{done}");
    let text = done["stdout"].as_str().unwrap();
    assert!(text.starts_with("green\n") && text.contains("MODE=test"), "{done}");
    assert!(!text.contains("tiger") && !text.contains(ToolboxServer::TOKEN), "{text}");
    let note = test_env.data("boxes").join("workspace/agents/ada/note");
    assert_eq!(std::fs::read_to_string(note).unwrap(), "hello\n");
    let other = run(&test_env, "bob", "cat ../ada/note; echo x > ../ada/note");
    assert!(other["stdout"] == "hello\n" && other["exit_code"] != 0, "{other}");
    let python = call(&test_env, "ada", "tool.python", &json!({ "code": "print(6 * 7)" }));
    assert_eq!(python["result"]["stdout"], "42\n", "{python}");
    let by_name = call(&test_env, "ada", "tool.cli", &json!({ "command": "echo far", "host": "remote" }));
    assert_eq!(by_name["result"]["stdout"], "far\n", "{by_name}");
    // The check says the same, and no log has the token.
    let checked = test_env.ghostd(&["check", world.path().to_str().unwrap()]);
    assert!(checked.ok().out.contains("The sandbox `remote` protects with: seccomp, files"), "{}", checked.out);
    // The server is killed in the middle of a command: an error, and the daemon goes on.
    let copies = dir.path().join("server/worlds");
    let tried = |command: &str| {
        let arguments = json!({ "command": command }).to_string();
        let ran = test_env.ctl(&["--json", "tool", "call", "ada", "tool.cli", &arguments]);
        ran.out + &ran.err
    };
    std::thread::scope(|scope| {
        let cut = scope.spawn(|| tried("touch mark; sleep 25"));
        Deadline::seconds(60).until("the command to begin", || {
            let worlds = std::fs::read_dir(&copies).unwrap().flatten();
            let is_marked =
                worlds.map(|world| world.path().join("workspace/agents/ada/mark")).any(|mark| mark.exists());
            if is_marked { Ok(()) } else { Err("no file".to_owned()) }
        });
        server.kill();
        let said = cut.join().unwrap();
        assert!(said.contains("unavailable") && said.contains("toolbox server"), "{said}");
    });
    let said = tried("echo late");
    assert!(said.contains("unavailable") && !said.contains("late\\n"), "{said}");
    let log = daemon.err.text() + &daemon.out.text();
    assert!(!log.contains(ToolboxServer::TOKEN));
    daemon.stop();
}

// covers: TBX-07
#[test]
fn without_its_server_a_world_has_no_commands_and_the_reason_is_shown() {
    let (test_env, world) = environment("http://127.0.0.1:9");
    let _daemon = test_env.up(world.path(), &[]);
    let status = test_env.json(&["status"]);
    assert!(status["sandbox"]["absent"].as_str().unwrap().contains("cannot be reached"), "{status}");
    let refused = test_env.ctl(&["--json", "tool", "call", "ada", "tool.cli", &json!({ "command": "ls" }).to_string()]);
    assert_ne!(refused.code, Some(0), "{}", refused.out);
    let checked = test_env.ghostd(&["check", world.path().to_str().unwrap()]);
    assert!(checked.ok().out.contains("The sandbox `remote` cannot be had here"), "{}", checked.out);
    // A server that others reach without TLS is an error of the world file.
    world.config(&WORLD.replace("URL", "http://box.example:9090"));
    let checked = test_env.ghostd(&["check", world.path().to_str().unwrap()]);
    assert!(checked.code != Some(0) && (checked.out + &checked.err).contains("sandbox.url"));
}

/// A world without a sandbox, whose toolbox has a server of its own.
const LENT: &str = "\
world: { name: Lent }
agents: [{ id: ada, archetype: worker }]
toolboxes: [{ source: toolbox/lent/toolbox.yaml }]
llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }
";

const LENT_BOX: &str = "\
name: lent
runtime: { kind: remote, url: 'URL', token_env: BOX_TOKEN }
env: { MODE: lent }
tools:
  - { name: note, description: Write a note, command: [sh, -c, 'printf %s \"$1\" > note && echo $MODE $AGENT_ID', sh], args: [\"{text}\"], parameters: { type: object, properties: { text: { type: string } } } }
  - { name: absent, description: Absent, command: [no-such-program-anywhere] }
";

// covers: TBX-04, TBX-10
#[test]
fn a_toolbox_runs_on_a_server_of_its_own_and_without_it_its_tools_are_absent() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut server = match ToolboxServer::start(dir.path(), "127.0.0.1:0", None) {
        Ok(server) => server,
        Err(why) => {
            assert!(std::env::var("GHOST_SANDBOX").is_err(), "GHOST_SANDBOX=required: {why}");
            #[allow(clippy::print_stderr, reason = "a skipped test says so")]
            {
                eprintln!("skipped: {why}");
            }
            return;
        }
    };
    let mut test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    test_env.set("BOX_TOKEN", ToolboxServer::TOKEN);
    let world = test_env.world("lent");
    world.config(LENT).write("scripts/m.yaml", "otherwise: [{ say: ok }]\n");
    world.archetype("worker", "## Toolbox\nsource: toolbox/lent/toolbox.yaml\n- note\n- absent\n");
    world.write("toolbox/lent/toolbox.yaml", LENT_BOX.replace("URL", &server.url));
    let daemon = test_env.up(world.path(), &[]);
    let done = call(&test_env, "ada", "lent.note", &json!({ "text": "a b; $(id)" }));
    assert_eq!((&done["status"], &done["result"]["stdout"]), (&json!("ok"), &json!("lent ada\n")), "{done}");
    let note = test_env.data("lent").join("workspace/agents/ada/note");
    assert_eq!(std::fs::read_to_string(note).unwrap(), "a b; $(id)");
    let reason = |tool: &str| -> String {
        let all = test_env.ctl(&["tool", "list", "ada", "--all"]).ok().out.clone();
        all.lines().find(|line| line.contains(tool)).unwrap_or_else(|| panic!("{all}")).to_owned()
    };
    assert!(reason("lent.absent").contains("no-such-program-anywhere"), "{}", reason("lent.absent"));
    // Without its server, the tools are absent, and the world works.
    server.kill();
    test_env.ctl(&["reload"]).ok();
    assert!(reason("lent.note").contains("its server cannot be used"), "{}", reason("lent.note"));
    assert!(!test_env.json(&["tool", "list", "ada"]).to_string().contains("lent."));
    assert_eq!(call(&test_env, "ada", "syscall.task.list", &json!({}))["status"], "ok", "the agent works without it");
    daemon.stop();
}
