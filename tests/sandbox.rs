//! Commands in the `local` sandbox, from outside: what an agent can do with `tool.cli` and `tool.python`, what it cannot,
//! and what is left after a kill. `docs/security.md` lists the attempts to get out; the runner's own tests make them all.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::path::Path;
use std::time::Duration;

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment, ghostd_testing};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { name: Shell }
agents: [{ id: ada, archetype: worker }, { id: bob, archetype: worker }, { id: eve, archetype: guest }]
tool_privileges: { shell: [tool.cli, tool.process, tool.python] }
sandbox: { kind: local, memory_mb: 256, pids: 64, disk_mb: 32, env: { MODE: test }, passthrough_env: [SHARED_WITH_AGENTS] }
cli_policy:
  default: deny
  tiers:
    read: { commands: [ls, cat, head, env, sleep, sh, seq, echo, setsid, python3, wc, ln, mkdir, touch, id, test, git], action: allow, unrestricted: true }
    build: { commands: [make], action: ask }
llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }
";

fn set_mode(dir: &Path, mode: u32) {
    std::fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

struct Shell {
    test_env: TestEnvironment,
    world: std::path::PathBuf,
    daemon: Option<Daemon>,
}

impl Shell {
    /// `None`, with the reason on standard error, if this machine has no sandbox and none is required.
    fn new() -> Option<Self> {
        Self::with(WORLD, "otherwise: [{ say: ok }]\n")
    }

    fn with(config: &str, script: &str) -> Option<Self> {
        let mut test_env = TestEnvironment::new(ghostd_testing());
        // If the tests run as root, commands are another user, who must reach the workspace. What a start makes lets
        // that user pass; this directory was made before.
        set_mode(test_env.path(), 0o755);
        test_env.set("SECRET_KEY", "tiger").set("SHARED_WITH_AGENTS", "lion-of-the-north");
        let world = test_env.world("shell");
        world.config(config).write("scripts/m.yaml", script);
        world.archetype("worker", "## Tool Access\nprivilege_groups: shell\n").archetype("guest", "");
        let path = world.path().to_owned();
        let daemon = test_env.up(&path, &[]);
        let shell = Self { test_env, world: path, daemon: Some(daemon) };
        let status = shell.test_env.json(&["status"]);
        match status["sandbox"]["absent"].as_str() {
            None => Some(shell),
            Some(why) => {
                assert!(std::env::var("GHOST_SANDBOX").is_err(), "GHOST_SANDBOX=required: {why}");
                #[allow(clippy::print_stderr, reason = "a skipped test says so")]
                {
                    eprintln!("skipped: {why}");
                }
                None
            }
        }
    }

    fn call(&self, agent: &str, tool: &str, arguments: &Value) -> Value {
        self.test_env.json(&["tool", "call", agent, tool, &arguments.to_string()])
    }

    fn run(&self, agent: &str, command: &str) -> Value {
        let done = self.call(agent, "tool.cli", &json!({ "command": command }));
        assert_eq!(done["status"], "ok", "{command}: {done}");
        done["result"].clone()
    }

    fn workspace(&self) -> std::path::PathBuf {
        self.test_env.data("shell").join("workspace")
    }
}

/// Waits until no `sleep` with this argument runs on this machine.
fn gone(argument: &str) {
    let wanted = format!("sleep\0{argument}\0");
    Deadline::seconds(30).until("the command to end", || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let left = processes
            .filter(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == wanted.as_bytes()));
        if left.count() == 0 { Ok(()) } else { Err(format!("sleep {argument} runs")) }
    });
}

// covers: SBX-05
#[test]
fn the_check_names_a_directory_that_commands_cannot_pass() {
    let Some(shell) = Shell::new() else { return };
    let check = || shell.test_env.ghostd(&["check", shell.world.to_str().unwrap()]).ok().out.clone();
    assert!(check().contains("protects with"), "{}", check());
    set_mode(shell.test_env.path(), 0o700);
    let closed = check();
    // Commands of a daemon that is no root are the same user, and pass.
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(closed.contains("cannot be had here"), is_root, "{closed}");
    assert_eq!(closed.contains(shell.test_env.path().to_str().unwrap()), is_root, "{closed}");
}

// covers: BI-10, BI-12, BI-12a, BI-12b, SBX-01, SBX-05, SBX-06, SBX-07, TOOL-12
#[test]
fn commands_run_with_the_files_and_variables_that_are_theirs() {
    let Some(shell) = Shell::new() else { return };
    let done = shell.run("ada", "echo hello > note; cat note; ls; echo oops >&2; exit 3");
    assert_eq!((&done["exit_code"], &done["status"]), (&json!(3), &json!("failed")));
    assert!(done["stdout"].as_str().unwrap().starts_with("hello\n") && done["stderr"] == "oops\n", "{done}");
    assert_eq!(done["cwd"], "agents/ada");
    assert!(shell.workspace().join("agents/ada/note").exists());
    // What an agent has is what the world names.
    let env = shell.run("ada", "env")["stdout"].as_str().unwrap().to_owned();
    assert!(env.contains("MODE=test") && env.contains("SHARED_WITH_AGENTS=") && !env.contains("tiger"), "{env}");
    // A command gets what is passed through, and no record shows it.
    assert!(!env.contains("lion-of-the-north"), "{env}");
    let shared = shell.run("ada", "echo $SHARED_WITH_AGENTS | wc -c");
    assert_eq!(shared["stdout"].as_str().unwrap().trim(), "18", "{shared}");
    let python =
        shell.call("ada", "tool.python", &json!({ "code": "import sys\nprint(sys.argv[1] * 2)", "args": ["ab"] }));
    assert_eq!(python["result"]["stdout"], "abab\n", "{python}");
    // Longer than one argument of a program may be on Linux.
    let long = json!({ "code": format!("print(len('{}'))", "a".repeat(200_000)) }).to_string();
    let call = ["--json", "tool", "call", "ada", "tool.python", "-"];
    let (code, out, err) = shell.test_env.ctl_piped(&call, long.as_bytes());
    let done: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    assert_eq!((code, &done["result"]["stdout"]), (0, &json!("200000\n")), "{done}");
    if Path::new("/usr/bin/git").exists() {
        let git = "git init -q r; cd r; echo a > f; git add f; git -c user.name=a -c user.email=a@b commit -qm one; echo b > f; git diff";
        let shown = shell.run("ada", git);
        assert!(shown["stdout"].as_str().unwrap().contains("+b"), "{shown}");
    }
    // Another agent may read it, and write only its own.
    let other = shell.run("bob", "cat ../ada/note; echo x > ../ada/note; echo x > mine; ls");
    assert!(other["stdout"].as_str().unwrap().contains("hello\nmine"), "{other}");
    assert!(other["stderr"].as_str().unwrap().contains("ada/note"), "{other}");
    assert_eq!(std::fs::read_to_string(shell.workspace().join("agents/ada/note")).unwrap(), "hello\n");
}

// covers: BI-10a, EXEC-01, EXEC-11, EXEC-13, SBX-12, TOOL-05
#[test]
fn policy_and_privileges_decide_what_runs() {
    let Some(shell) = Shell::new() else { return };
    let refused = |agent: &str, command: &str| {
        let done = shell.test_env.ctl(&[
            "--json",
            "tool",
            "call",
            agent,
            "tool.cli",
            &json!({ "command": command }).to_string(),
        ]);
        assert_ne!(done.code, Some(0), "{command}: {}", done.out);
        format!("{}{}", done.out, done.err)
    };
    assert!(refused("ada", "ls; rm -rf .").contains("policy_denied"));
    assert!(!shell.call("ada", "tool.cli", &json!({ "command": "make all" })).to_string().contains("policy_denied"));
    for host in ["host", "remote"] {
        let arguments = json!({ "command": "ls", "host": host }).to_string();
        let done = shell.test_env.ctl(&["--json", "tool", "call", "ada", "tool.cli", &arguments]);
        assert!(done.out.contains("policy_denied"), "{host}: {}", done.out);
    }
    assert!(refused("eve", "ls").contains("access_denied"));
    let done = shell.test_env.ctl(&[
        "--json",
        "tool",
        "call",
        "ada",
        "tool.cli",
        &json!({ "command": "ls", "env": { "LD_PRELOAD": "x" } }).to_string(),
    ]);
    assert!(done.out.contains("policy_denied"), "{}", done.out);
    assert!(!shell.workspace().join("agents/eve/x").exists());
}

// covers: BI-10b, LIM-02, LIM-05, SBX-03, TEST-04, TOOL-07
#[test]
fn bounds_hold_and_whole_trees_die() {
    let Some(shell) = Shell::new() else { return };
    let done = shell.call("ada", "tool.cli", &json!({ "command": "setsid sh -c '(sleep 300; touch late) & sleep 300' & echo begun; sleep 300", "timeout_ms": 500 }));
    let result = &done["result"];
    assert_eq!((&result["status"], &result["error"]), (&json!("timed_out"), &json!("Command timed out after 500ms")));
    assert_eq!(result["stdout"], "begun\n");
    let long = shell.run("ada", "seq 1 1000000");
    assert!(long["truncated"] == true && long["stdout"].as_str().unwrap().len() < 60_000, "{}", long["stdout"]);
    assert!(long["stdout"].as_str().unwrap().ends_with("1000000\n"));
    let memory =
        shell.call("ada", "tool.python", &json!({ "code": "x = bytearray(600 << 20)\nimport time; time.sleep(5)" }));
    assert_ne!(memory["result"]["status"], "ok", "{memory}");
    let disk = shell.call(
        "ada",
        "tool.python",
        &json!({ "code": "f = open('big', 'wb')\nfor n in range(200): f.write(bytes(1 << 20)); f.flush()" }),
    );
    assert_ne!(disk["result"]["status"], "ok", "{disk}");
}

// covers: SBX-04
#[test]
fn nothing_gets_out() {
    let Some(shell) = Shell::new() else { return };
    let data = shell.test_env.data("shell");
    std::fs::write(data.join("workspace/agents/secret-of-nobody"), "x").unwrap();
    let python = |code: String| {
        let done = shell.call("ada", "tool.python", &json!({ "code": code }));
        done["result"]["stdout"].as_str().unwrap_or_default().to_owned()
    };
    let tries = format!(
        "import os, socket, signal\n\
         def t(name, f):\n    try: f(); print('OUT', name)\n    except BaseException as e: print('held', name)\n\
         t('database', lambda: open('{data}/ghost.db', 'rb').read(1))\n\
         t('control socket', lambda: socket.socket(socket.AF_UNIX).connect('{data}/ghostd.sock'))\n\
         t('tcp', lambda: socket.create_connection(('127.0.0.1', 1), 1) if False else socket.socket().connect(('127.0.0.1', 9)))\n\
         t('daemon environment', lambda: open('/proc/{pid}/environ', 'rb').read(1))\n\
         t('signal', lambda: os.kill({pid}, 0))\n\
         t('passwd shadow', lambda: open('/etc/shadow').read(1))\n\
         t('write outside', lambda: open('/var/tmp/ghost-out', 'w'))\n\
         t('mount', lambda: os.unshare(0x10000000) if hasattr(os, 'unshare') else open('/etc/shadow'))\n",
        data = data.display(),
        pid = std::fs::read_to_string(data.join("lock")).unwrap().trim(),
    );
    let shown = python(tries);
    assert!(shown.contains("held database") && shown.contains("held signal") && !shown.contains("OUT"), "{shown}");
    assert!(!Path::new("/var/tmp/ghost-out").exists());
    // A link in place of the agent's own directory gives nothing away.
    shell.run("ada", "ln -s /etc sub; mkdir -p d; ln -s ../../bob d/bob");
    let through = shell.call("ada", "tool.cli", &json!({ "command": "touch bob/x", "cwd": "agents/ada/d" }));
    assert_ne!(through["result"]["exit_code"], 0, "{through}");
}

// covers: SBX-04
#[test]
fn a_killed_daemon_leaves_no_command_behind() {
    let Some(mut shell) = Shell::new() else { return };
    let mark = shell.workspace().join("agents/ada/mark");
    let arguments =
        json!({ "command": "touch mark; setsid sh -c 'sleep 8; touch late' & sleep 8; touch late" }).to_string();
    let client = shell.test_env.ctl_in_background(&["tool", "call", "ada", "tool.cli", &arguments]);
    Deadline::seconds(30).until("the command to begin", || if mark.exists() { Ok(()) } else { Err("no mark".into()) });
    shell.daemon.take().unwrap().kill();
    client.kill();
    // Long enough for what would go on.
    std::thread::sleep(Duration::from_secs(9));
    assert!(!shell.workspace().join("agents/ada/late").exists());
}

const ASKING: &str = "\
world: { name: Shell }
agents: [{ id: ada, archetype: worker }]
tool_privileges: { shell: [tool.cli] }
sandbox: { kind: local }
cli_policy: { default: ask, tiers: { read: { commands: [ls, cat, echo], action: allow } } }
llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }
";

const DEPLOYS: &str = "\
rules:
  - when: { mail: 'run (?P<line>[^\\n<]+)', round: 0 }
    do: [{ call: tool.cli, with: { command: '{{ match.line }}' } }]
otherwise: [{ say: Well. }]
";

// covers: CONF-14, EXEC-01, EXEC-02, EXEC-03, EXEC-10, EXEC-11, TEST-14
#[test]
fn a_command_that_needs_an_approval_runs_exactly_as_it_was_shown() {
    let Some(mut shell) = Shell::with(ASKING, DEPLOYS) else { return };
    let script = |text: &str| {
        let path = shell.workspace().join("agents/ada/deploy.sh");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    let pending = || {
        Deadline::seconds(60).until("an approval waits", || {
            let rows = shell.test_env.json(&["approval", "list"]);
            rows.as_array().unwrap().first().cloned().ok_or_else(|| rows.to_string())
        })
    };
    let made = |name: &str| shell.workspace().join("agents/ada").join(name).exists();
    // The agent's directory exists from its first command on.
    shell.run("ada", "ls");
    script("echo one > one");
    for (change, file) in [(false, "one"), (true, "two")] {
        shell.test_env.ctl(&["send", "ada", "run ./deploy.sh; echo done"]).ok();
        let approval = pending();
        let id = approval["approval_id"].as_str().unwrap();
        let shown = shell.test_env.json(&["approval", "show", id]);
        assert_eq!(shown["argv"][4], "./deploy.sh; echo done", "{shown}");
        assert_eq!((&shown["dir"], &shown["sandbox"]), (&json!("agents/ada"), &json!("local")));
        assert_eq!(shown["files"][0]["path"], "agents/ada/deploy.sh");
        assert!(shown["reason"].as_str().unwrap().contains("deploy.sh"), "{shown}");
        if change {
            // What was shown is not what would run.
            script("echo two > two");
        }
        shell.test_env.ctl(&["approval", "approve", id]).ok();
        shell.test_env.wait_until_quiet(Deadline::seconds(60));
        let ledger = shell.test_env.json(&["ledger"]);
        assert_eq!(made(file), !change, "{ledger}");
        assert_eq!(ledger[0]["error_code"], if change { json!("conflict") } else { Value::Null });
    }
    // What the policy allows does not wait, and what it denies cannot be approved.
    shell.test_env.ctl(&["send", "ada", "run echo plain"]).ok();
    shell.test_env.wait_until_quiet(Deadline::seconds(60));
    assert_eq!(shell.test_env.json(&["ledger"])[0]["status"], "ok");
    assert_eq!(shell.test_env.json(&["approval", "list"]), json!([]));
    shell.daemon.take().unwrap().stop();
}

// covers: BI-10, BI-11, BI-11a
#[test]
fn a_background_command_outlives_its_call_and_is_lost_with_the_daemon() {
    let Some(mut shell) = Shell::new() else { return };
    let process = |agent: &str, arguments: Value| shell.call(agent, "tool.process", &arguments)["result"].clone();
    let begun = |command: &str| {
        let done = shell.call("ada", "tool.cli", &json!({ "command": command, "background": true }))["result"].clone();
        assert_eq!(done["status"], "running", "{done}");
        done["session_id"].as_str().unwrap().to_owned()
    };
    // It is fed, and its output is polled piece by piece.
    let id = begun("while read line; do echo got $line; done; exit 7");
    process("ada", json!({ "action": "write", "session_id": id, "data": "one\n" }));
    let piece = process("ada", json!({ "action": "poll", "session_id": id, "timeout_ms": 30_000 }));
    assert_eq!((&piece["output"], &piece["status"]), (&json!("got one\n"), &json!("running")));
    process("ada", json!({ "action": "write", "session_id": id, "data": "two\n", "end": true }));
    let ended = Deadline::seconds(30).until("the command ends", || {
        let piece = process("ada", json!({ "action": "poll", "session_id": id, "timeout_ms": 1_000 }));
        if piece["status"] == "running" { Err(piece.to_string()) } else { Ok(piece) }
    });
    assert_eq!((&ended["status"], &ended["exit_code"]), (&json!("failed"), &json!(7)), "{ended}");
    let log = process("ada", json!({ "action": "log", "session_id": id, "offset": 0 }));
    assert_eq!(log["output"], "got one\ngot two\n");
    // It is its agent's alone.
    let arguments = json!({ "action": "poll", "session_id": id }).to_string();
    shell.test_env.ctl(&["tool", "call", "bob", "tool.process", &arguments]).exits(3);
    assert_eq!(process("bob", json!({ "action": "list" }))["count"], 0);
    assert_eq!(process("ada", json!({ "action": "clear" }))["removed"], 1);

    // A command that takes longer goes on in the background; killed, its whole tree dies.
    let slow =
        shell.call("ada", "tool.cli", &json!({ "command": "sleep 300 & echo begun; sleep 301", "yield_ms": 500 }));
    assert_eq!(
        (&slow["result"]["status"], &slow["result"]["output"]),
        (&json!("running"), &json!("begun\n")),
        "{slow}"
    );
    let id = slow["result"]["session_id"].as_str().unwrap().to_owned();
    assert_eq!(process("ada", json!({ "action": "kill", "session_id": id }))["status"], "killed");
    gone("300");
    gone("301");

    // A stopped agent leaves nothing behind, and neither does a killed daemon, which reports what was lost.
    begun("sleep 302");
    shell.test_env.ctl(&["agent", "stop", "ada"]).ok();
    gone("302");
    shell.test_env.ctl(&["agent", "start", "ada"]).ok();
    let id = begun("sleep 303");
    shell.daemon.take().unwrap().kill();
    gone("303");
    let daemon = shell.test_env.up(&shell.world, &[]);
    let arguments = json!({ "action": "poll", "session_id": id }).to_string();
    let lost = shell.test_env.ctl(&["--json", "tool", "call", "ada", "tool.process", &arguments]);
    assert!(lost.out.contains("outcome_unknown"), "{}", lost.out);
    daemon.stop();
}

const BUILDS: &str = "\
rules:
  - when: { mail: 'build it', round: 0 }
    do: [{ call: tool.cli, with: { command: 'echo step one; sleep 1; echo step two' } }]
otherwise: [{ say: Built. }]
";

// covers: TOOL-19
#[test]
fn a_person_sees_what_a_command_reports_while_it_runs() {
    let Some(mut shell) = Shell::with(WORLD, BUILDS) else { return };
    let (code, out, err) = shell.test_env.ctl_piped(&["--json", "--timeout", "60s", "talk", "ada"], b"build it\n");
    assert_eq!(code, 0, "{err}");
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let place = |wanted: &dyn Fn(&Value) -> bool| lines.iter().position(wanted).unwrap_or_else(|| panic!("{out}"));
    let progress = place(&|line| line["type"] == "progress" && line["text"] == "step one");
    let answer = place(&|line| line["type"] == "entry" && line["content"] == "Built.");
    assert!(progress < answer, "{out}");
    // The model gets the result of the command, and no progress.
    assert_eq!(shell.test_env.json(&["ledger"]).as_array().unwrap().len(), 1);
    shell.daemon.take().unwrap().stop();
}
