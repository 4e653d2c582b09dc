//! Tests of retries against a daemon that is unreachable, dies or hangs.

use std::os::unix::net::UnixListener;

use ghost_proto::v1::AskResponse;
use tonic::{Code, Status};

use super::fake::{End, Fake};
use super::ran::ghostctl;

fn unavailable() -> End {
    End::Status(Status::unavailable("booting"))
}

#[tokio::test]
async fn an_unavailable_daemon_gets_the_same_request_again() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default().first([unavailable(), unavailable()]);
    let daemon = fake.serve(&dir.path().join("g.sock"));
    let ran = ghostctl(&daemon.endpoint, &["send", "chora", "hello"]).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
    let asked = fake.asked();
    assert_eq!(asked.len(), 3);
    assert!(asked[0].1.contains("request_id: \"") && asked.iter().all(|one| *one == asked[0]), "{asked:?}");
    ghostctl(&daemon.endpoint, &["send", "chora", "hello"]).await;
    assert_ne!(fake.asked()[3], asked[0], "another command is another request");
}

#[tokio::test]
async fn other_errors_are_not_retried() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default().first([End::Status(Status::new(Code::FailedPrecondition, "no"))]);
    let daemon = fake.serve(&dir.path().join("g.sock"));
    assert_eq!(ghostctl(&daemon.endpoint, &["pause"]).await.code, 7);
    assert_eq!(fake.asked().len(), 1);
}

#[tokio::test]
async fn a_request_is_repeated_after_the_daemon_was_killed() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("g.sock");
    let reply = AskResponse { status: "answered".into(), reply: Some("42".into()), ..AskResponse::default() };
    let fake = Fake::default().first([End::Hold]).reply(reply);
    let daemon = fake.serve(&socket);
    let endpoint = daemon.endpoint.clone();
    let (ran, _second) = tokio::join!(ghostctl(&endpoint, &["ask", "chora", "?"]), async {
        fake.held.notified().await;
        daemon.kill();
        fake.serve(&socket)
    });
    assert_eq!((ran.code, ran.out.as_str()), (0, "42\n"), "{}", ran.err);
    let asked = fake.asked();
    assert_eq!((asked.len(), &asked[0]), (2, &asked[1]));
}

#[tokio::test]
async fn an_unreachable_daemon_is_unavailable_and_a_hanging_one_is_a_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("g.sock");
    let endpoint = format!("unix:{}", socket.display());
    let soon = crate::wait::Deadline::after(std::time::Duration::from_secs(4));
    let ran = ghostctl(&endpoint, &["--json", "status"]).await;
    assert_eq!((ran.code, ran.refusal()["code"].as_str()), (5, Some("unavailable")));
    assert!(ran.refusal()["hint"].as_str().unwrap().contains("--wait"));

    drop(UnixListener::bind(&socket).unwrap());
    assert_eq!(ghostctl(&endpoint, &["status"]).await.code, 5, "a stale socket");
    std::fs::remove_file(&socket).unwrap();
    assert!(!soon.remaining().is_zero(), "2 s for each");

    let daemon = Fake::default().first([End::Hold]).serve(&socket);
    let ran = ghostctl(&daemon.endpoint, &["--timeout", "500ms", "status"]).await;
    assert_eq!(ran.code, 6, "{}", ran.err);
}

#[tokio::test]
async fn a_named_world_that_was_shut_down_is_said_to_be_so() {
    let state = tempfile::tempdir().unwrap();
    let dir = state.path().join("desk");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("world.id"), "desk\n").unwrap();
    std::fs::write(dir.join("world.dir"), "/srv/worlds/desk\n").unwrap();
    let environment = crate::discovery::Environment { state_dir: Some(state.path().to_owned()), ..Default::default() };
    let run = async |args: &[&str]| {
        let args = std::iter::once(&"ghostctl").chain(args).map(std::ffi::OsString::from);
        let (mut err, out) = (Vec::new(), &mut crate::output::Output::new(Box::new(std::io::sink()), None));
        let code = crate::cli::run(args, &environment, out, &mut err).await;
        (code, serde_json::from_slice::<serde_json::Value>(&err).unwrap())
    };
    let (code, refusal) = run(&["--world", "desk", "--json", "status"]).await;
    assert_eq!((code, refusal["code"].as_str()), (5, Some("unavailable")));
    let message = refusal["error"].as_str().unwrap();
    assert!(message.contains("`desk`") && !message.contains("refused") && !message.contains("os error"), "{message}");
    assert!(refusal["hint"].as_str().unwrap().contains("`ghostd up /srv/worlds/desk`"), "{refusal}");
}

#[tokio::test]
async fn the_wait_option_waits_for_a_daemon_that_starts_later() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("g.sock");
    let endpoint = format!("unix:{}", socket.display());
    let (ran, _daemon) = tokio::join!(ghostctl(&endpoint, &["--wait", "60s", "pause"]), async {
        crate::wait::pause(std::time::Duration::from_millis(1_500)).await;
        Fake::default().serve(&socket)
    });
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = ghostctl("unix:/nowhere/at/all.sock", &["--wait", "0s", "--json", "status"]).await;
    assert_eq!(ran.refusal()["code"], "unavailable");
}

#[tokio::test]
async fn shutdown_returns_when_the_daemon_has_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default();
    let daemon = fake.serve(&dir.path().join("g.sock"));
    let endpoint = daemon.endpoint.clone();
    let (ran, ()) = tokio::join!(ghostctl(&endpoint, &["shutdown", "--json"]), async {
        fake.held.notified().await;
        daemon.kill();
    });
    assert_eq!(ran.json()["stopped"], true);
}

#[tokio::test]
async fn a_daemon_that_dies_during_its_shutdown_counts_as_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default().first([End::Done, End::Hold]);
    let daemon = fake.serve(&dir.path().join("g.sock"));
    let endpoint = daemon.endpoint.clone();
    let (ran, ()) = tokio::join!(ghostctl(&endpoint, &["shutdown"]), async {
        fake.held.notified().await;
        daemon.kill();
    });
    assert!(ran.code == 0 && ran.out.contains("newsroom"), "{} {}", ran.out, ran.err);
}
