//! Coding agents that speak ACP: their questions reach an operator, their files and commands stay in the sandbox, and their
//! sessions go on after a crash.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::path::PathBuf;

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment, ghostd_testing};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { name: Acp }
agents: [{ id: ada, archetype: coder }, { id: bob, archetype: coder }]
toolboxes: [{ source: toolbox/code/toolbox.yaml }]
sandbox: { kind: local }
coding: { run_budget: 0.50 }
budgets: { world: { usd: LIMIT } }
llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }
";

const BOX: &str = "\
name: code
bin_dir: bin
tools:
  - { name: agent, description: Edit code, command: [agent], stream: acp, stdin: \"{task}\", timeout_seconds: 60, parameters: PARAMETERS }
  - { name: forgetful, description: Edit code, command: [agent, --no-resume, --no-load], stream: acp, stdin: \"{task}\", timeout_seconds: 60, parameters: PARAMETERS }
  - { name: hasty, description: Edit code, command: [agent], stream: acp, stdin: \"{task}\", timeout_seconds: 2, parameters: PARAMETERS }
  - { name: mute, description: Edit code, command: [cat], stream: acp, stdin: \"{task}\", timeout_seconds: 5, parameters: PARAMETERS }
";

/// The agent of the tests of `ghost-acp`: it does what its prompt says, line by line.
const AGENT: &str = include_str!("../src/acp/test_agent.py");

const SCRIPT: &str = "\
rules:
  - when: { mail: build, round: 0 }
    do: [{ call: code.agent, with: { task: \"write a.txt one\\nsleep 600\\nwrite b.txt two\\nsay All is built.\" } }]
  - when: { mail: forget, round: 0 }
    do: [{ call: code.forgetful, with: { task: \"write c.txt one\\nsleep 600\" } }]
otherwise: [{ say: Done. }]
";

struct Acp {
    test_env: TestEnvironment,
    world: PathBuf,
    daemon: Daemon,
}

impl Acp {
    /// `None`, with the reason on standard error, if this machine has no sandbox and none is required.
    fn new(limit: &str) -> Option<Self> {
        let test_env = TestEnvironment::new(ghostd_testing());
        std::fs::set_permissions(test_env.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let world = test_env.world("acp");
        let section = "## Toolbox\nsource: toolbox/code/toolbox.yaml\n- agent\n- forgetful\n- hasty\n- mute\n";
        world.config(&WORLD.replace("LIMIT", limit)).archetype("coder", section).write("scripts/m.yaml", SCRIPT);
        let parameters = "{ type: object, properties: { task: { type: string } }, required: [task] }";
        world.write("toolbox/code/toolbox.yaml", BOX.replace("PARAMETERS", parameters));
        world.write("toolbox/code/bin/agent", AGENT);
        let path = world.path().to_owned();
        let program = path.join("toolbox/code/bin/agent");
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let daemon = test_env.up(&path, &[]);
        test_env.has_sandbox().then_some(Self { test_env, world: path, daemon })
    }

    /// The text of a run, and the last row of the ledger.
    fn run(&self, tool: &str, task: &str) -> (String, Value) {
        let arguments = json!({ "task": task }).to_string();
        let done = self.test_env.ctl(&["--json", "tool", "call", "ada", tool, &arguments]);
        let shown: Value = serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{tool}: {}", done.err));
        let row = self.test_env.json(&["ledger"])[0].clone();
        (shown["result"].as_str().unwrap_or_else(|| panic!("{shown}")).to_owned(), row)
    }

    fn file(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.test_env.data("acp").join("workspace").join(path)).ok()
    }

    /// The question that waits, as soon as it is there.
    fn question(&self) -> Value {
        Deadline::seconds(60).until("a question waits", || {
            let rows = self.test_env.json(&["approval", "list"]);
            rows.get(0).cloned().ok_or_else(|| rows.to_string())
        })
    }

    /// Kills the daemon and starts it again.
    fn restarted(self) -> Self {
        let Self { test_env, world, daemon } = self;
        daemon.kill();
        let daemon = test_env.up(&world, &[]);
        Self { test_env, world, daemon }
    }

    fn row(&self, tool: &str) -> Option<Value> {
        let rows = self.test_env.json(&["ledger"]);
        rows.as_array().unwrap().iter().find(|row| row["tool"] == tool).cloned()
    }

    /// Waits until the call of `tool` has ended.
    fn ended(&self, tool: &str) -> Value {
        Deadline::seconds(60).until("the call ended", || {
            let row = self.row(tool).filter(|row| row["status"] != "started");
            row.ok_or_else(|| self.test_env.json(&["ledger"]).to_string())
        })
    }

    fn spent(&self) -> f64 {
        let rows = self.test_env.json(&["budget", "list"]);
        let world = rows.as_array().unwrap().iter().find(|row| row["scope"] == "world").unwrap().clone();
        world["spent_usd"].as_f64().unwrap_or_else(|| panic!("{world}"))
    }
}

// covers: DEV-11, DEV-15, DEV-17
#[test]
fn a_run_works_in_the_sandbox_and_its_cost_is_charged() {
    let Some(acp) = Acp::new("2.00") else { return };
    let bob = acp.test_env.data("acp").join("workspace/agents/bob");
    std::fs::create_dir_all(&bob).unwrap();
    std::fs::set_permissions(&bob, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let task = "write sub/a.txt hello\nread sub/a.txt\nread none.txt\nrun pwd; exit 3\nwrite ../bob/x.txt no\n\
        write /etc/ghost-acp no\nrun touch ../bob/y.txt\ncost 0.25\nusage 42\nsay The end.";
    let (text, row) = acp.run("code.agent", task);
    assert!(text.starts_with("code.agent: done, ") && text.contains(", 42 output tokens\n"), "{text}");
    assert!(text.contains("Files written: sub/a.txt\nCommands:\n- ") && text.ends_with("\nThe end."), "{text}");
    assert_eq!(acp.file("agents/ada/sub/a.txt").as_deref(), Some("hello\n"));
    assert!(!bob.join("x.txt").exists() && !bob.join("y.txt").exists(), "the sandbox holds the agent's write rules");
    assert!(!std::path::Path::new("/etc/ghost-acp").exists());
    let left: Vec<_> = std::fs::read_dir(acp.test_env.data("acp").join("workspace/agents/ada/sub")).unwrap().collect();
    assert_eq!(left.len(), 1, "no part of a write is left: {left:?}");
    assert_eq!((&row["status"], acp.spent()), (&json!("ok"), 0.25));
    // What tells no cost is charged all of it, and what would pass the limit does not start.
    let (_, row) = acp.run("code.agent", "say nothing of money");
    assert_eq!((row["status"].clone(), acp.spent()), (json!("ok"), 0.75));
    let (text, row) = acp.run("code.agent", "cost 0.75\nsleep 50");
    assert!(text.contains("It was stopped"), "{text}");
    assert_eq!((&row["error_code"], acp.spent()), (&json!("budget_exhausted"), 1.5));
    let (_, row) = acp.run("code.agent", "cost 0.10\nsay cheap");
    assert_eq!((row["status"].clone(), acp.spent()), (json!("ok"), 1.6));
    let refused = acp.test_env.ctl(&["--json", "tool", "call", "ada", "code.agent", "{\"task\": \"say no\"}"]);
    assert_eq!(refused.error()["code"], "budget_exhausted", "{}", refused.err);
    assert_eq!(acp.spent(), 1.6);
}

/// What the program says of paths decides nothing: it gets what a command of its agent would get, and no more.
// covers: DEV-11
#[test]
fn an_agent_that_asks_for_what_is_elsewhere_gets_nothing() {
    let Some(acp) = Acp::new("20.00") else { return };
    let data = acp.test_env.data("acp");
    let bob = data.join("workspace/agents/bob");
    std::fs::create_dir_all(&bob).unwrap();
    std::fs::set_permissions(&bob, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::write(data.join("secret.txt"), "a-secret-of-the-daemon").unwrap();
    let (passwd, secret) = (std::fs::read("/etc/passwd").unwrap(), data.join("secret.txt"));
    let said = |before: &str, requests: &[(&str, Value)]| -> Vec<String> {
        let lines: Vec<String> = requests.iter().map(|(method, params)| format!("rpc {method} {params}")).collect();
        let (text, row) = acp.run("code.agent", &format!("{before}\n{}\ncost 0.01", lines.join("\n")));
        assert_eq!(row["status"], "ok", "{text}");
        let said = text.lines().filter(|line| line.starts_with("ok ") || line.starts_with("error "));
        let said: Vec<String> = said.map(str::to_owned).collect();
        assert_eq!(said.len(), requests.len(), "{text}");
        said
    };
    let made = "run mkdir -p sub && ln -s ../bob friend && ln -s /etc/passwd users && ln -s / top";
    let write = |path: &str| ("fs/write_text_file", json!({ "path": path, "content": "mine" }));
    let writes = [
        "CWD/../bob/a.txt",
        "../bob/b.txt",
        "CWD/friend/c.txt",
        "CWD/sub/../friend/d.txt",
        "CWD/top/etc/ghost-acp",
        "/etc/ghost-acp",
        "/proc/self/cwd/../bob/e.txt",
        "CWD/../ada2/f.txt",
        "CWD/../../f.txt",
        "CWD/sub",
        "CWD/friend",
        "CWD/top",
        "CWD/nul\u{0}.txt",
    ];
    for (answer, path) in said(made, &writes.map(write)).iter().zip(writes) {
        assert!(answer.starts_with("error "), "{path}: {answer}");
    }
    // A link to a file is replaced, and not written through; an address is a name like any other.
    said("", &[write("CWD/users"), write("file:///etc/ghost-acp")]);
    assert_eq!(acp.file("agents/ada/users").as_deref(), Some("mine"));
    let read = |path: &str| ("fs/read_text_file", json!({ "path": path }));
    let secret = secret.to_string_lossy();
    let reads = [
        &*secret,
        &format!("file://{secret}"),
        &format!("/proc/1/root{secret}"),
        &format!("CWD/top{secret}"),
        "CWD/../../../secret.txt",
        "/etc/shadow",
        "CWD/sub",
    ];
    for (answer, path) in said("", &reads.map(read)).iter().zip(reads) {
        assert!(answer.starts_with("error "), "{path}: {answer}");
    }
    let run = |cwd: &str| ("terminal/create", json!({ "command": "touch made-here", "cwd": cwd }));
    let places = [
        "/",
        "/etc",
        "/tmp",
        "sub",
        "",
        "file://CWD",
        "CWD/../../..",
        "CWD/sub/../../bob",
        "//etc",
        "CWD/\u{0}/../bob",
    ];
    for (answer, place) in said("", &places.map(run)).iter().zip(places) {
        assert!(answer.starts_with("error "), "{place}: {answer}");
    }
    // What cannot be run ends alone: the sandbox goes on for what runs beside it.
    let odd = [
        json!({ "command": "a\u{0}b" }),
        json!({ "command": "true", "args": ["\u{0}"] }),
        json!({ "command": "true", "env": [{ "name": "A\u{0}", "value": "b" }, { "name": "", "value": "=" }] }),
        json!({ "command": "", "args": [""] }),
    ];
    let mut requests = vec![("terminal/create", json!({ "command": "sleep 3; echo survived > survived.txt" }))];
    requests.extend(odd.map(|command| ("terminal/create", command)));
    requests.extend((2..6).map(|n| ("terminal/wait_for_exit", json!({ "terminalId": format!("terminal-{n}") }))));
    requests.push(("terminal/wait_for_exit", json!({ "terminalId": "terminal-1" })));
    let answers = said("", &requests);
    assert_eq!(answers.last().unwrap(), "ok {\"exitCode\": 0}", "{answers:?}");
    assert!(acp.file("agents/ada/survived.txt").is_some());
    let left = |dir: &std::path::Path| -> Vec<String> {
        let names = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    };
    assert_eq!((left(&bob), left(&data.join("workspace/agents/ada/sub"))), (vec![], vec![]));
    assert!(!std::path::Path::new("/etc/ghost-acp").exists() && std::fs::read("/etc/passwd").unwrap() == passwd);
    assert!(!acp.test_env.json(&["ledger"]).to_string().contains("a-secret-of-the-daemon"));
}

#[test]
fn what_does_not_speak_the_protocol_or_has_no_time_ends_with_a_reason() {
    let Some(acp) = Acp::new("2.00") else { return };
    let (text, row) = acp.run("code.hasty", "write t.txt x\nsleep 50");
    assert!(text.contains("stopped at its time limit") && text.contains("Files written: t.txt"), "{text}");
    assert_eq!(row["error_code"], "timeout");
    let spent = acp.spent();
    // `cat` sends back what it gets: requests of another client.
    let (text, row) = acp.run("code.mute", "say hello");
    assert!(text.starts_with("code.mute: failed (it did not start)"), "{text}");
    assert_eq!(
        (&row["error_code"], acp.spent()),
        (&json!("exec_failed"), spent),
        "nothing was done, so nothing is charged"
    );
}

// covers: EXEC-10
#[test]
fn a_question_waits_for_an_operator_and_ends_with_its_run() {
    let Some(acp) = Acp::new("2.00") else { return };
    let arguments = json!({ "task": "ask Delete the branch\nask Push\nask Pull\nsay I have my answers." }).to_string();
    let mut call = acp.test_env.ctl_in_background(&["--json", "tool", "call", "ada", "code.agent", &arguments]);
    let first = acp.question();
    assert_eq!((&first["tool"], &first["status"]), (&json!("code.agent"), &json!("pending")));
    let shown = acp.test_env.json(&["approval", "show", first["approval_id"].as_str().unwrap()]);
    assert_eq!(shown["arguments"]["asks"], "Delete the branch", "{shown}");
    let id = |question: &Value| question["approval_id"].as_str().unwrap().to_owned();
    acp.test_env.ctl(&["approval", "approve", &id(&first), "--always"]).exits(2);
    acp.test_env.ctl(&["approval", "approve", &id(&first)]).ok();
    let next = |before: &Value| {
        Deadline::seconds(60).until("the next question", || match acp.question() {
            question if id(&question) != id(before) => Ok(question),
            question => Err(question.to_string()),
        })
    };
    let second = next(&first);
    acp.test_env.ctl(&["approval", "deny", &id(&second)]).ok();
    let third = next(&second);
    acp.test_env.ctl(&["approval", "approve", &id(&third)]).ok();
    assert_eq!(call.wait(), 0);
    let row = acp.ended("code.agent");
    assert_eq!(row["status"], "ok", "{row}");
    assert!(row["result"].as_str().unwrap_or_default().contains("I have my answers"), "{row}");
    // A run that ends takes its question back.
    let (text, _) = acp.run("code.hasty", "ask Anything else");
    assert!(text.contains("stopped at its time limit"), "{text}");
    let rows = acp.test_env.json(&["approval", "list", "--status", "all"]);
    let states: Vec<&Value> = rows.as_array().unwrap().iter().map(|row| &row["status"]).collect();
    assert!(!states.contains(&&json!("pending")), "{rows}");
    assert_eq!(states.iter().filter(|state| **state == "approved").count(), 2, "{rows}");
}

// covers: DEV-21
#[test]
fn a_session_goes_on_after_a_crash_and_what_cannot_go_on_is_uncertain() {
    let Some(acp) = Acp::new("9.00") else { return };
    // The agent dies, and the daemon lives.
    let (text, _) = acp.run("code.agent", "write once.txt x\ndie\nsay Here I am again.");
    assert!(text.contains("Here I am again.") && text.contains("continued session"), "{text}");
    let (text, row) = acp.run("code.forgetful", "write twice.txt x\ndie\nsay Never said.");
    assert!(text.contains("the outcome is uncertain") && !text.contains("Never said"), "{text}");
    assert_eq!(row["error_code"], "exec_failed");
    // The daemon dies.
    acp.test_env.ctl(&["send", "ada", "build"]).ok();
    Deadline::seconds(60).until("the first file", || match acp.file("agents/ada/.acp-session.json") {
        Some(session) if session.contains("\"done\": 1") && session.contains("a.txt") => Ok(()),
        session => Err(session.unwrap_or_default()),
    });
    assert!(acp.file("agents/ada/a.txt").is_some());
    let spent = acp.spent();
    let acp = acp.restarted();
    let row = acp.ended("code.agent");
    assert_eq!((&row["status"], acp.file("agents/ada/b.txt").as_deref()), (&json!("ok"), Some("two\n")), "{row}");
    // The first half told no cost, and the second half neither.
    assert_eq!(acp.spent() - spent, 1.0);
    acp.test_env.ctl(&["send", "ada", "forget"]).ok();
    Deadline::seconds(60).until("its file", || acp.file("agents/ada/c.txt").ok_or_else(String::new));
    let acp = acp.restarted();
    let row = acp.ended("code.forgetful");
    assert_eq!((&row["status"], &row["error_code"]), (&json!("unknown"), &json!("outcome_unknown")), "{row}");
    acp.daemon.stop();
}
