//! Commands in the `docker` sandbox, from outside: a world whose agent runs a command in a container, what `ghostd check`
//! and `ghostctl status` say, and what is left after a kill. The contract suite of `src/sandbox/contract` has the details.
//!
//! Needs an engine (`DOCKER_HOST`) and the toolbox image. Without them the tests are skipped and say so; with
//! `GHOST_DOCKER=required` they fail.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::process::Command;

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment, WorldDir};
use serde_json::{Value, json};

const WORLD: &str = "\
world: { name: Boxes }
agents: [{ id: ada, archetype: worker }, { id: bob, archetype: worker }]
tool_privileges: { shell: [tool.cli, tool.python] }
sandbox: { kind: docker, memory_mb: 128, pids: 64, disk_mb: 32, cpus: 1.5, env: { MODE: test } }
cli_policy:
  default: deny
  tiers:
    all: { commands: [ls, cat, env, sleep, sh, echo, setsid, touch, rg], action: allow, unrestricted: true }
llm: { default_provider: p, default_model: m, providers: { p: { kind: scripted } } }
";

const SCRIPT: &str = "\
rules:
  - when: { round: 0 }
    do: [{ call: tool.cli, with: { command: \"rg --count green ../../notes.txt\" } }]
otherwise: [{ say: \"{{ last_text }}\" }]
";

struct Boxes {
    test_env: TestEnvironment,
    world: WorldDir,
    daemon: Option<Daemon>,
}

impl Boxes {
    /// `None`, with the reason on standard error, if this machine has no engine or no image and none is required.
    fn new() -> Option<Self> {
        Self::with(WORLD)
    }

    fn with(config: &str) -> Option<Self> {
        Self::of(config, |_| {})
    }

    /// The same with more files of the world.
    fn of(config: &str, more: impl FnOnce(&WorldDir)) -> Option<Self> {
        let mut test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
        if let Ok(host) = std::env::var("DOCKER_HOST") {
            test_env.set("DOCKER_HOST", host);
        }
        test_env.set("SECRET_KEY", "tiger");
        let world = test_env.world("boxes");
        world.config(config).write("scripts/m.yaml", SCRIPT);
        world.archetype("worker", "## Tool Access\nprivilege_groups: shell\n");
        more(&world);
        let daemon = test_env.up(world.path(), &[]);
        let boxes = Self { test_env, world, daemon: Some(daemon) };
        match boxes.status()["absent"].as_str() {
            None => Some(boxes),
            Some(why) => {
                assert!(std::env::var("GHOST_DOCKER").is_err(), "GHOST_DOCKER=required: {why}");
                #[allow(clippy::print_stderr, reason = "a skipped test says so")]
                {
                    eprintln!("skipped: {why}");
                }
                None
            }
        }
    }

    fn status(&self) -> Value {
        self.test_env.json(&["status"])["sandbox"].clone()
    }

    fn run(&self, agent: &str, command: &str) -> Value {
        let arguments = json!({ "command": command }).to_string();
        let done = self.test_env.json(&["tool", "call", agent, "tool.cli", &arguments]);
        assert_eq!(done["status"], "ok", "{command}: {done}");
        done["result"].clone()
    }

    /// The containers of this data directory.
    fn containers(&self) -> Vec<String> {
        let data = self.test_env.data("boxes").canonicalize().unwrap();
        let label = format!("label=ghost.data={}", data.display());
        let done = Command::new("docker").args(["ps", "--all", "--quiet", "--filter", &label]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

// covers: SBX-01, SBX-02, SBX-05, SBX-07, TOOL-12
#[test]
fn an_agent_runs_commands_in_a_container_of_its_own() {
    let Some(mut boxes) = Boxes::new() else { return };
    let workspace = boxes.test_env.data("boxes").join("workspace");
    std::fs::write(workspace.join("notes.txt"), "green\nred\ngreen\n").unwrap();
    // A turn of the model, not only a call of the operator.
    let answer = boxes.test_env.ctl(&["ask", "ada", "how many lines are green?"]);
    assert!(answer.ok().out.contains("\"exit_code\"") && answer.out.contains("2\\n"), "{}", answer.out);
    let done = boxes.run("ada", "echo hello > note; cat note; rg -c green ../../notes.txt; env; exit 3");
    assert_eq!(
        (&done["exit_code"], &done["status"], &done["cwd"]),
        (&json!(3), &json!("failed"), &json!("agents/ada"))
    );
    let text = done["stdout"].as_str().unwrap();
    assert!(text.starts_with("hello\n2\n") && text.contains("MODE=test") && !text.contains("tiger"), "{text}");
    assert_eq!(std::fs::read_to_string(workspace.join("agents/ada/note")).unwrap(), "hello\n");
    let other = boxes.run("bob", "cat ../ada/note; echo x > ../ada/note");
    assert!(other["stdout"] == "hello\n" && other["exit_code"] != 0, "{other}");
    assert_eq!(boxes.containers().len(), 2, "one for each agent");
    let status = boxes.status();
    let protections: Vec<&str> = status["protections"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for name in ["seccomp", "files", "network", "signals", "trace", "tree", "metadata", "namespaces", "netns"] {
        assert!(protections.contains(&name), "{name}: {status}");
    }
    let image = status["image"].as_str().unwrap().to_owned();
    assert!(image.contains("ghost-toolbox") && image.contains("sha256:"), "{image}");
    let shown = boxes.test_env.ctl(&["status"]);
    assert!(shown.ok().out.contains("docker: seccomp, files") && shown.out.contains(&image), "{}", shown.out);
    // `check` says the same, and leaves nothing.
    let checked = boxes.test_env.ghostd(&["check", boxes.world.path().to_str().unwrap()]);
    let says = "The sandbox `docker` protects with: seccomp, files";
    assert!(checked.ok().out.contains(says) && checked.out.contains(&image), "{}", checked.out);
    // An orderly stop removes the containers.
    boxes.daemon.take().unwrap().stop();
    assert_eq!(boxes.containers(), Vec::<String>::new());
}

// covers: SBX-04
#[test]
fn a_killed_daemon_leaves_no_command_and_no_container() {
    let Some(mut boxes) = Boxes::new() else { return };
    let own = boxes.test_env.data("boxes").join("workspace/agents/ada");
    let arguments =
        json!({ "command": "touch mark; setsid sh -c 'sleep 8; touch late' & sleep 8; touch late" }).to_string();
    let client = boxes.test_env.ctl_in_background(&["tool", "call", "ada", "tool.cli", &arguments]);
    let is_there = |name: &str| if own.join(name).exists() { Ok(()) } else { Err("no file".to_owned()) };
    Deadline::seconds(60).until("the command to begin", || is_there("mark"));
    let begun = std::time::Instant::now();
    boxes.daemon.take().unwrap().kill();
    client.kill();
    let path = boxes.world.path().to_owned();
    boxes.daemon = Some(boxes.test_env.up(&path, &[]));
    Deadline::seconds(30).until("no container is left", || {
        let found = boxes.containers();
        if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
    });
    // Long enough for what would go on.
    std::thread::sleep(std::time::Duration::from_secs(9).saturating_sub(begun.elapsed()));
    assert!(is_there("late").is_err(), "the command ran on");
    assert_eq!(boxes.run("ada", "echo again")["stdout"], "again\n");
}

#[test]
fn without_an_engine_agents_have_no_commands_and_the_reason_is_shown() {
    let mut test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    test_env.set("DOCKER_HOST", "unix:///no/such/engine");
    let world = test_env.world("boxes");
    world.config(WORLD).write("scripts/m.yaml", SCRIPT);
    world.archetype("worker", "## Tool Access\nprivilege_groups: shell\n");
    let _daemon = test_env.up(world.path(), &[]);
    let status = test_env.json(&["status"]);
    assert!(status["sandbox"]["absent"].as_str().unwrap().contains("/no/such/engine"), "{status}");
    let refused = test_env.ctl(&["--json", "tool", "call", "ada", "tool.cli", &json!({ "command": "ls" }).to_string()]);
    assert_ne!(refused.code, Some(0), "{}", refused.out);
    let checked = test_env.ghostd(&["check", world.path().to_str().unwrap()]);
    assert!(checked.ok().out.contains("cannot be had here"), "{}", checked.out);
    assert!(checked.out.contains("/no/such/engine"), "{}", checked.out);
}

/// Pages of this machine, one connection each.
fn pages() -> std::net::SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The thread ends with the test's process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.unwrap()));
        }
    });
    address
}

fn answer(mut stream: std::net::TcpStream) {
    use std::io::{Read as _, Write as _};
    let (mut head, mut buffer) = (Vec::new(), [0; 4_096]);
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => head.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let tall = "<p style='height:3000px'>tall</p>";
    let (status, body) = match path {
        "/page" => ("200 OK", format!("<title>Shown</title><div id=a></div>{tall}<script>a.textContent = 'by a script ' + 6 * 7</script>")),
        "/leave" => ("200 OK", "<script>location = 'http://169.254.169.254/latest/'</script>".to_owned()),
        "/ask" => ("200 OK", "<title>Asked</title><script>document.title += '\\ud83d'</script><script>alert(1); document.write('after the question')</script>".to_owned()),
        "/inside" => ("200 OK", "<div id=a>waits</div><script>fetch('http://10.0.0.1/').then(r => r.text()).then(t => a.textContent = t)</script>".to_owned()),
        _ => ("404 Not Found", "nothing".to_owned()),
    };
    // The browser may have gone.
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
}

// covers: BI-14, TOOL-05
#[test]
fn an_agent_opens_pages_in_a_browser_that_is_held_to_the_rules_of_addresses() {
    let address = pages();
    let config = WORLD
        .replace("tool.python]", "tool.python, tool.browser]")
        .replace("cli_policy:", &format!("web: {{ allow: ['{address}'] }}\ncli_policy:"));
    let Some(mut boxes) = Boxes::with(&config) else { return };
    let all = boxes.test_env.json(&["tool", "list", "ada", "--all"]);
    let browser = all.as_array().unwrap().iter().find(|tool| tool["name"] == "tool.browser").unwrap().clone();
    if browser["absent"].is_string() {
        assert!(std::env::var("GHOST_CHROMIUM").is_err(), "GHOST_CHROMIUM=required: {browser}");
        #[allow(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("skipped: {browser}");
        }
        return;
    }
    let open = |arguments: Value| {
        let ran = boxes.test_env.ctl(&["--json", "tool", "call", "ada", "tool.browser", &arguments.to_string()]);
        let value: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| json!({ "error": ran.err }));
        value
    };
    let url = |path: &str| format!("http://{address}{path}");
    let page = open(json!({ "url": url("/page") }));
    let result = &page["result"];
    assert_eq!((&result["title"], &result["status"]), (&json!("Shown"), &json!(200)), "{page}");
    assert!(result["content"].as_str().unwrap().contains("by a script 42"), "{page}");
    let asked = open(json!({ "url": url("/ask"), "action": "html" }));
    assert!(asked["result"]["content"].as_str().unwrap().contains("after the question"), "{asked}");

    // Files: the agent's own by default, and nowhere that it may not write.
    let arguments = json!({ "url": url("/page"), "action": "screenshot", "full_page": true, "viewport": [800, 600], "output_path": "shot.png" });
    let shot = open(arguments)["result"].clone();
    assert_eq!((&shot["path"], &shot["width"]), (&json!("agents/ada/shot.png"), &json!(800)), "{shot}");
    assert!(shot["height"].as_u64().unwrap() > 3_000, "{shot}");
    let workspace = boxes.test_env.data("boxes").join("workspace");
    let png = std::fs::read(workspace.join("agents/ada/shot.png")).unwrap();
    assert_eq!((png.len() as u64, &png[..4]), (shot["bytes"].as_u64().unwrap(), b"\x89PNG".as_slice()));
    let side = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    assert_eq!((side(16), u64::from(side(20))), (800, shot["height"].as_u64().unwrap()));
    let pdf = open(json!({ "url": url("/page"), "action": "pdf" }))["result"].clone();
    assert!(std::fs::read(workspace.join(pdf["path"].as_str().unwrap())).unwrap().starts_with(b"%PDF-"), "{pdf}");
    let refused =
        open(json!({ "url": url("/page"), "action": "pdf", "output_path": "agents/bob/x.pdf", "scope": "world" }));
    assert!(refused.to_string().contains("path_denied"), "{refused}");

    // Addresses: at once, after a script has gone there, and for what a page loads itself.
    for (path, code) in [("http://10.0.0.1/", "policy_denied"), ("file:///etc/passwd", "invalid_arguments")] {
        let refused = open(json!({ "url": path }));
        assert!(refused.to_string().contains(code), "{path}: {refused}");
    }
    let left = open(json!({ "url": url("/leave"), "wait_ms": 1_500 }));
    assert!(left.to_string().contains("policy_denied"), "{left}");
    let inside = open(json!({ "url": url("/inside"), "wait_ms": 1_500 }));
    assert_eq!(inside["result"]["content"], "waits", "{inside}");
    Deadline::seconds(30).until("the browsers' containers are gone", || {
        let found = boxes.containers();
        if found.is_empty() { Ok(()) } else { Err(format!("{found:?}")) }
    });
    boxes.daemon.take().unwrap().stop();
}

const HELD: &str = "\
name: held
bin_dir: bin
passthrough_env: [HELD_TOKEN]
tools:
  - { name: show, description: Show the token's length, command: [show] }
  - { name: hold, description: Hold on, command: [hold] }
";

// covers: TBX-06, TBX-08
#[test]
fn a_toolbox_has_a_container_of_its_own_and_its_token_stays_there() {
    let config = format!("{WORLD}toolboxes: [{{ source: toolbox/held/toolbox.yaml }}]\n");
    let Some(mut boxes) = Boxes::with(&config) else { return };
    boxes.daemon.take().unwrap().stop();
    boxes.test_env.set("HELD_TOKEN", "tiger-in-the-night");
    boxes.world.archetype(
        "worker",
        "## Tool Access\nprivilege_groups: shell\n## Toolbox\nsource: toolbox/held/toolbox.yaml\n- *\n",
    );
    boxes.world.write("toolbox/held/toolbox.yaml", HELD);
    let bin = boxes.world.path().join("toolbox/held/bin");
    std::fs::create_dir_all(&bin).unwrap();
    for (name, text) in
        [("show", "echo ${#HELD_TOKEN}; pwd; touch /toolbox/held/x || true"), ("hold", "touch holding; sleep 60")]
    {
        std::fs::write(bin.join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(bin.join(name), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    boxes.daemon = Some(boxes.test_env.up(boxes.world.path(), &[]));
    let shown = boxes.test_env.json(&["tool", "call", "ada", "held.show", "{}"]);
    assert_eq!(shown["result"]["stdout"], "18\n/workspace/agents/ada\n", "{shown}");
    assert!(!bin.parent().unwrap().join("x").exists(), "the toolbox is read only");
    let mut held = boxes.test_env.ctl_command(&["tool", "call", "ada", "held.hold", "{}"]).spawn().unwrap();
    let holding = boxes.test_env.data("boxes").join("workspace/agents/ada/holding");
    Deadline::seconds(60)
        .until("the tool holds on", || if holding.exists() { Ok(()) } else { Err("not yet".to_owned()) });
    let looked = boxes.run(
        "ada",
        "sh -c 'cat /proc/[0-9]*/environ 2>/dev/null | tr \"\\\\0\" \"\\\\n\" | rg --count HELD_TOKEN || echo none'",
    );
    assert_eq!(looked["stdout"], "none\n", "{looked}");
    boxes.daemon.take().unwrap().kill();
    let _ = held.kill();
    let _ = held.wait();
}

const MCP: &str =
    "name: notes\nkind: mcp\nserver: { command: [python3, '{toolbox}/server.py'] }\ntimeout_seconds: 20\n";

/// A server with one tool, which says where it runs.
const SERVER: &str = r#"
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    if request["method"] == "initialize":
        version = request["params"]["protocolVersion"]
        answer = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "notes", "version": "1"}}
    elif request["method"] == "tools/list":
        answer = {"tools": [{"name": "where", "description": "Where it runs", "inputSchema": {"type": "object"}}]}
    elif request["method"] != "tools/call":
        error = {"code": -32601, "message": "unknown"}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
        continue
    else:
        open("from-server", "w").write("made")
        place = json.dumps([os.path.exists("/.dockerenv"), os.getcwd(), os.environ.get("SECRET_KEY")])
        answer = {"content": [{"type": "text", "text": place}]}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": answer}), flush=True)
"#;

const DROID: &str = "\
rules:
  - when: { round: 0 }
    do: [{ call: tool.cli, with: { command: \"sh -c 'ls /.dockerenv > where; pwd >> where; touch ../../agents/ada/stolen'\" } }]
otherwise: [{ say: Done. }]
";

// covers: SBX-14, TBX-08, TBX-09, DROID-04
#[test]
fn droids_and_mcp_servers_run_in_containers_too() {
    let config = WORLD.replace("tool.python]", "tool.python, syscall.droid.spawn]")
        + "toolboxes: [{ source: toolbox/notes/toolbox.yaml }]\ndroids: { tools: [tool.cli], model: p/droid }\n";
    let section = "## Tool Access\nprivilege_groups: shell\n## Toolbox\nsource: toolbox/notes/toolbox.yaml\n- *\n";
    let files = |world: &WorldDir| {
        world.write("scripts/droid.yaml", DROID).archetype("worker", section);
        world.write("toolbox/notes/toolbox.yaml", MCP).write("toolbox/notes/server.py", SERVER);
    };
    let Some(boxes) = Boxes::of(&config, files) else { return };
    let workspace = boxes.test_env.data("boxes").join("workspace");

    boxes.test_env.ctl(&["toolbox", "trust", "notes"]).ok();
    let place = boxes.test_env.json(&["tool", "call", "ada", "notes.where", "{}"]);
    assert_eq!(place["result"], r#"[true, "/workspace/agents/ada", null]"#, "{place}");
    assert!(workspace.join("agents/ada/from-server").is_file());

    let before = boxes.containers();
    let task = json!({ "task": "look around" }).to_string();
    let spawned = boxes.test_env.json(&["tool", "call", "ada", "syscall.droid.spawn", &task])["result"].clone();
    let id = spawned["droid_id"].as_str().unwrap_or_else(|| panic!("{spawned}"));
    Deadline::seconds(60).until("the droid has ended", || {
        let droids = boxes.test_env.json(&["droid", "list"]);
        if droids[0]["state"] == "succeeded" { Ok(()) } else { Err(droids.to_string()) }
    });
    let seen = std::fs::read_to_string(workspace.join(format!("droids/{id}/where"))).unwrap();
    assert_eq!(seen, format!("/.dockerenv\n/workspace/droids/{id}\n"));
    assert!(!workspace.join("agents/ada/stolen").exists(), "its parent's directory is not its own");
    // Its end has woken ada, whose turn may have begun a container of her own.
    let new: Vec<String> = boxes.containers().into_iter().filter(|found| !before.contains(found)).collect();
    let own = format!("{}:/workspace/droids/{id}", workspace.canonicalize().unwrap().join("droids").join(id).display());
    let mounted = new.iter().filter(|container| {
        let format = "{{range .Mounts}}{{.Source}}:{{.Destination}} {{end}}";
        let done = Command::new("docker").args(["inspect", "--format", format, container]).output().unwrap();
        String::from_utf8_lossy(&done.stdout).split(' ').any(|mount| mount == own)
    });
    assert_eq!(mounted.count(), 1, "a container of its own: {own} {new:?}");
}
