//! Servers that lie: what they send is never written where it must not be, kept without a bound, or waited for without
//! an end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use ghost_config::plan::SandboxPlan;
use ghost_domain::{Code, Refusal};
use ghost_sandbox::{Finished, Owner, Remote, Sandbox as _};
use serde_json::{Value, json};

use crate::place::{Kind, SystemClock, open_dir, plan, remote_plan, runtime, sh};

/// SHA-256 of `abc`.
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

/// What a server says.
#[derive(Clone, Default)]
struct Script {
    /// The answer to `/health`.
    health: Value,
    /// The lines of `/exec-stream`.
    exec: Vec<Value>,
    /// The entries that it lists after the command.
    entries: Vec<Value>,
    /// The lines with which it answers to a request for files.
    files: Vec<Value>,
    /// Whether an answer goes on for ever after these lines, without an end of a line.
    endless: bool,
}

struct Server {
    script: Script,
    ran: AtomicBool,
    asked: Mutex<Vec<Value>>,
}

fn body(lines: Vec<Value>, endless: bool) -> Body {
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let text = stream::iter([Ok::<_, std::convert::Infallible>(text)]);
    if endless {
        let more = stream::repeat_with(|| Ok("x".repeat(64 * 1024)));
        return Body::from_stream(futures_util::StreamExt::chain(text, more));
    }
    Body::from_stream(text)
}

async fn read(State(server): State<Arc<Server>>, Json(request): Json<Value>) -> Body {
    server.asked.lock().unwrap().push(request.clone());
    if request.get("files").is_some() {
        return body(server.script.files.clone(), server.script.endless);
    }
    let mut lines = vec![json!({ "list": { "epoch": "e", "same": false } })];
    if server.ran.load(Ordering::Relaxed) {
        lines.extend(server.script.entries.iter().map(|entry| json!({ "entry": entry })));
    }
    lines.push(json!("end"));
    body(lines, false)
}

async fn write(request: Body) -> Json<Value> {
    axum::body::to_bytes(request, 1 << 20).await.unwrap();
    Json(json!({ "skipped": [] }))
}

async fn exec(State(server): State<Arc<Server>>) -> Body {
    server.ran.store(true, Ordering::Relaxed);
    body(server.script.exec.clone(), server.script.endless)
}

fn health() -> Value {
    let protections = ["seccomp", "files", "network", "signals", "trace"];
    json!({ "version": 1, "program": "0", "protections": protections, "missing": [], "workspace": "/w" })
}

fn output(text: &str) -> Value {
    json!({ "text": text, "bytes": text.len(), "truncated": false })
}

fn ended(stdout: &str) -> Value {
    let done = json!({ "end": { "exited": 0 }, "duration_ms": 1, "cpu_ms": 1, "stdout": output(stdout), "stderr": output(""),
                       "protections": [] });
    json!({ "ended": done })
}

fn file(size: u64) -> Value {
    json!({ "file": { "sha256": ABC, "size": size, "executable": false } })
}

/// The files of a directory, with their contents.
fn files_of(dir: &std::path::Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(at) = dirs.pop() {
        for entry in std::fs::read_dir(&at).unwrap().map(Result::unwrap) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            if kind.is_dir() {
                dirs.push(path);
            } else if kind.is_symlink() {
                found.insert(name, "a link".to_owned());
            } else {
                found.insert(name, std::fs::read_to_string(path).unwrap());
            }
        }
    }
    found
}

/// The result of a command, and the files that there are afterwards.
type Ran = (Result<Finished, Refusal>, BTreeMap<String, String>);

/// Runs a command of ada at a server.
fn run(script: Script) -> Result<Ran, String> {
    let (dir, runtime) = (open_dir(), runtime());
    let data = dir.path().join("data");
    std::fs::write(data.join("workspace/shared.txt"), "shared").unwrap();
    runtime.block_on(async {
        let server = Arc::new(Server { script, ran: AtomicBool::new(false), asked: Mutex::default() });
        let health = server.script.health.clone();
        let router = Router::new()
            .route("/health", get(|| async move { Json(health) }))
            .route("/workspace/read", post(read))
            .route("/workspace/write", post(write))
            .route("/exec-stream", post(exec))
            .with_state(Arc::clone(&server));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, router).await });
        let plan = SandboxPlan { remote: Some(remote_plan(&url)), ..plan(Kind::Remote) };
        let owner = Owner { world_id: "contract", data_dir: &data };
        let token = Some("a-token-for-a-liar");
        let sandbox = Remote::open(&plan, token, owner, &data.join("workspace"), Arc::new(SystemClock)).await?;
        let mut command = sh("ada", "true");
        command.writable = vec!["agents/ada/".to_owned()];
        command.stdout_limit = 1_000;
        let done = sandbox.run(command, &|_| {}).await;
        let mut files = files_of(dir.path());
        files.remove("data/remote-workspace");
        Ok((done, files))
    })
}

fn honest() -> Script {
    Script { health: health(), exec: vec![ended("out")], ..Script::default() }
}

/// What there is if nothing was written.
fn untouched() -> BTreeMap<String, String> {
    BTreeMap::from([("data/workspace/shared.txt".to_owned(), "shared".to_owned())])
}

// covers: TBX-07
#[test]
fn a_server_of_another_version_or_kind_is_refused() {
    for (health, says) in [
        (json!({ "version": 2 }), "version 2"),
        (json!({ "hello": "world" }), "none of this kind"),
        (json!({ "version": 1, "program": "0", "protections": [], "missing": [], "workspace": "/w" }), "seccomp"),
        (json!({ "version": 1, "program": "0", "protections": ["files"], "missing": [] }), "workspace"),
        (json!({ "version": 1, "program": "x".repeat(3_000_000), "protections": [], "missing": [] }), "too long"),
    ] {
        let why = run(Script { health, ..honest() }).unwrap_err();
        assert!(why.contains(says) && why.len() < 2_000, "{says}: {why}");
    }
    let (done, files) = run(honest()).unwrap();
    assert_eq!((done.unwrap().stdout.text, files), ("out".to_owned(), untouched()));
}

// covers: TBX-07
#[test]
fn garbage_and_endless_answers_to_a_command_are_errors() {
    let large = ended(&"x".repeat(100_000));
    let secretive =
        json!({ "refused": { "code": "internal", "error": "a\u{1b}[31mb".to_owned() + &"x".repeat(9_000) } });
    for (exec, endless) in [
        (vec![json!({ "started": 1 })], false),
        (vec![json!({ "output": "not base64!" })], false),
        (vec![], false),
        (vec![json!("beat")], false),
        (vec![json!("beat")], true),
        (vec![large], false),
        (vec![secretive], false),
    ] {
        let (done, files) = run(Script { exec: exec.clone(), endless, ..honest() }).unwrap();
        let refused = done.unwrap_err();
        assert_eq!(refused.code, Code::Unavailable, "{exec:?}: {refused}");
        assert!(refused.message.len() < 2_000 && !refused.message.contains('\u{1b}'), "{refused}");
        assert_eq!(files, untouched());
    }
}

// covers: TBX-07
#[test]
fn entries_outside_the_places_of_the_command_are_never_written() {
    let sent = vec![json!({ "file": { "path": "agents/ada/f", "size": 3 } }), json!({ "data": "YWJj" }), json!("end")];
    let with =
        |entries: Vec<Value>, files: &[Value]| run(Script { entries, files: files.to_vec(), ..honest() }).unwrap();
    let dir = json!("dir");
    // Names that no workspace has end the exchange.
    for path in ["../out", "/tmp/x", "agents/ada/../../x", "agents/ada//f", "agents/ada/.ghost-world", "", "a\0b"] {
        let (done, files) = with(vec![json!([path, file(3)])], &sent);
        assert_eq!(done.unwrap_err().code, Code::OutcomeUnknown, "{path}");
        assert_eq!(files, untouched(), "{path}");
    }
    // Places of others, links and special files are left where they are.
    for (path, node) in [
        ("shared.txt", file(3)),
        ("new", file(3)),
        ("agents/bob/f", file(3)),
        ("agents/adam", file(3)),
        ("agents/ada/f", json!({ "link": { "target": "/etc/passwd" } })),
        ("agents/ada/f", json!("other")),
    ] {
        let (done, files) = with(vec![json!([path, node])], &sent);
        assert!(done.is_ok(), "{path}: {done:?}");
        assert_eq!(files, untouched(), "{path}");
    }
    let own = vec![json!(["agents", dir]), json!(["agents/ada", dir]), json!(["agents/ada/f", file(3)])];
    let mut wanted = untouched();
    wanted.insert("data/workspace/agents/ada/f".to_owned(), "abc".to_owned());
    let (done, files) = with(own.clone(), &sent);
    assert!(done.is_ok());
    assert_eq!(files, wanted);
    // Another content, another file, another size, too much, nothing.
    let head = |path: &str, size: u64| json!({ "file": { "path": path, "size": size } });
    for answer in [
        vec![head("agents/ada/f", 3), json!({ "data": "YWJk" }), json!("end")],
        vec![head("agents/ada/g", 3), json!({ "data": "YWJj" }), json!("end")],
        vec![head("shared.txt", 3), json!({ "data": "YWJj" }), json!("end")],
        vec![head("agents/ada/f", 4), json!({ "data": "YWJjZA==" }), json!("end")],
        vec![head("agents/ada/f", 3), json!({ "data": "YWJjZA==" }), json!("end")],
        vec![head("agents/ada/f", 3), json!({ "data": "YWI=" })],
        vec![json!({ "gone": "agents/ada/f" }), json!("end")],
        vec![json!("end")],
        vec![],
    ] {
        let (done, files) = with(own.clone(), &answer);
        match done {
            Ok(done) => assert!(done.stderr.text.contains("agents/ada/f"), "{answer:?}: {}", done.stderr.text),
            Err(refused) => assert_eq!(refused.code, Code::OutcomeUnknown, "{answer:?}: {refused}"),
        }
        assert_eq!(files, untouched(), "{answer:?}");
    }
    // More than the command may have written is not even asked for.
    let (done, files) = with(vec![json!(["agents/ada/f", file(1 << 60)])], &sent);
    assert!(done.unwrap().stderr.text.contains("sandbox.disk_mb"));
    assert_eq!(files, untouched());
    // More entries than a workspace may have.
    let many = (0..50_002).map(|number| json!([format!("agents/ada/f{number}"), dir])).collect();
    let (done, _) = with(many, &sent);
    assert_eq!(done.unwrap_err().code, Code::OutcomeUnknown);
    // An answer without an end.
    let (done, files) = run(Script { entries: own, files: vec![], endless: true, ..honest() }).unwrap();
    assert!(done.is_err());
    assert_eq!(files, untouched());
}
