//! Runs the clients of `docs/clients.md`, as they are printed there, against a real daemon.
//!
//! They need Python; the second one also needs `grpcio` and `grpcio-tools`. If these are missing, the test prints
//! that and is skipped, unless `GHOST_CLIENTS=required`, as in CI. `GHOST_PYTHON` names another interpreter than
//! `python3`.

// A failure in a test is a panic with a message.
#![allow(clippy::unwrap_used, clippy::expect_used)]
// The clients are separate programs, and the test prints what it skips.
#![allow(clippy::disallowed_methods, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ghost_testkit::blackbox::{Daemon, Deadline, TestEnvironment, python};

const GUIDE: &str = include_str!("../docs/clients.md");

/// The code block of the guide with this label.
fn example(sort: &str) -> &'static str {
    let begin = format!("```python {sort}\n");
    let (_, rest) = GUIDE.split_once(&begin).unwrap_or_else(|| panic!("the guide has no {begin}"));
    let (code, _) = rest.split_once("\n```").unwrap();
    assert!(code.lines().count() <= 35, "{sort} is {} lines long", code.lines().count());
    code
}

fn run(python: &Path, at: &Path, code: &str, args: &[&str]) -> String {
    let file = at.join("client.py");
    std::fs::write(&file, code).unwrap();
    let ran = Command::new(python).arg(&file).args(args).env("PYTHONPATH", at).output().unwrap();
    stdout_of(&ran)
}

fn stdout_of(ran: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}\n{err}");
    out.into_owned()
}

fn test_env() -> (TestEnvironment, PathBuf) {
    let test_env = TestEnvironment::new(env!("CARGO_BIN_EXE_ghostd"));
    let world = test_env.world("open");
    world
        .config("agents: [{ id: ada, archetype: clerk }]\nllm: { default_provider: scripted, default_model: clerk }\n")
        .archetype("clerk", "")
        .write("scripts/clerk.yaml", "otherwise: [{ say: Well. }]\n");
    let path = world.path().to_owned();
    (test_env, path)
}

/// The address of a daemon with one TCP endpoint, from its output.
fn address(daemon: &Daemon) -> String {
    let line = daemon.wait_for_line("the endpoint", Deadline::seconds(10), |line| line.contains("127.0.0.1:"));
    line[line.find("127.0.0.1:").unwrap()..].trim_end_matches('/').to_owned()
}

// covers: CONF-29, CP-06
#[test]
fn the_http_client_does_what_the_guide_says() {
    let python = match python(&[]) {
        Ok(python) => python,
        Err(missing) => return eprintln!("skipped: {missing}"),
    };
    let (test_env, world) = test_env();
    let daemon = test_env.up(&world, &["--http", "127.0.0.1:0"]);
    let token = std::fs::read_to_string(test_env.data("open").join("token")).unwrap();
    let base = format!("http://{}", address(&daemon));
    let out = run(&python, test_env.path(), example("http"), &[&base, token.trim()]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines, ["agents: ada", "answer: Well.", "task: Say it again pending", "event: task.created"]);
    let wrong =
        Command::new(&python).arg(test_env.join("client.py")).args([&base, "not-the-token-at-all"]).output().unwrap();
    assert!(
        !wrong.status.success() && String::from_utf8_lossy(&wrong.stderr).starts_with("access_denied: "),
        "{wrong:?}"
    );
    daemon.stop();
}

// covers: CP-01
#[test]
fn the_grpc_client_does_what_the_guide_says() {
    let python = match python(&["grpc", "grpc_tools"]) {
        Ok(python) => python,
        Err(missing) => return eprintln!("skipped: {missing}"),
    };
    let (test_env, world) = test_env();
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(proto.join("ghost/v1")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let made = Command::new(&python)
        .args(["-m", "grpc_tools.protoc", "-I"])
        .arg(&proto)
        .args(["--python_out=.", "--grpc_python_out=."])
        .args(files)
        .current_dir(test_env.path())
        .output()
        .unwrap();
    stdout_of(&made);
    let daemon = test_env.up(&world, &[]);
    let socket = test_env.data("open").join("ghostd.sock");
    let out = run(&python, test_env.path(), example("grpc"), &[socket.to_str().unwrap()]);
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[..2], ["agent: ada running", "answer: Well."], "{out}");
    assert!(lines[2].starts_with("refused: NOT_FOUND not_found ") && lines[2].contains("`ada`"), "{out}");
    assert!(lines[3..].contains(&"event: turn.started") && lines[3..].contains(&"event: turn.finished"), "{out}");
    daemon.stop();
}
