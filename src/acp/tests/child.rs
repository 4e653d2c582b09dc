//! Runs with `test_agent.py` as a process.
// These tests drive a real program in real time; a failure is a panic with a message.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use ghost_acp::{
    CannotResume, Capabilities, End, Host, Outcome, Permission, Session, SessionId, StartError, Stop, StopReason,
    Streams, Task, UpdateKind, Why,
};
use support::{ALL, TestHost, task};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

const DONE: End = End::Finished { stop_reason: StopReason::EndTurn };

fn spawn(options: &[&str]) -> (Child, Streams) {
    let mut child = Command::new("python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/test_agent.py"))
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let streams =
        Streams { output: Box::new(child.stdout.take().unwrap()), input: Box::new(child.stdin.take().unwrap()) };
    (child, streams)
}

fn task_in(dir: &Path, prompt: &str) -> Task {
    Task { cwd: dir.to_str().unwrap().to_owned(), ..task(prompt) }
}

async fn run(options: &[&str], task: Task, host: &Arc<TestHost>) -> Outcome {
    let (mut child, streams) = spawn(options);
    let host = Arc::clone(host) as Arc<dyn Host>;
    let outcome = Session::run(streams, task, host, CancellationToken::new()).await;
    // The pipes are closed now, so the agent ends by itself.
    child.wait().await.unwrap();
    outcome
}

#[tokio::test]
async fn the_test_agent_does_its_script_on_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let host = Arc::new(TestHost::default());
    let script = "garbage 3\nplan\nsay I begin.\nwrite a.txt hello\nread a.txt\nread none\nrun echo hi; exit 3\n\
        delete a.txt\nusage 42\nsay The end.";
    let outcome = run(&[], task_in(dir.path(), script), &host).await;
    assert_eq!(outcome.end, DONE);
    let text = outcome.compact("ACP agent", "", 2048);
    let (status, rest) = text.split_once('\n').unwrap();
    assert!(status.starts_with("ACP agent: done, ") && status.ends_with(" s, 42 output tokens"), "{status}");
    assert_eq!(rest, "Files written: a.txt (deleted)\nCommands:\n- echo hi; exit 3\nResult:\nThe end.");
    assert!(!dir.path().join("a.txt").exists());
    let notes = host.notes(UpdateKind::Message);
    assert!(notes.contains(&"exit code 3: hi".to_owned()) && notes.contains(&"a.txt: hello".to_owned()), "{notes:?}");
    assert!(host.notes(UpdateKind::Tool).contains(&"failed: Read none".to_owned()));
}

#[tokio::test]
async fn the_test_agent_uses_the_files_of_the_host() {
    let dir = tempfile::tempdir().unwrap();
    let files = Capabilities { terminal: false, ..ALL };
    let host = Arc::new(TestHost { offers: files, ..TestHost::default() });
    let outcome = run(&[], task_in(dir.path(), "write a.txt hello\nread a.txt\nwrite secret x"), &host).await;
    assert_eq!(outcome.end, DONE);
    assert_eq!(outcome.work.manifest.written, ["a.txt"]);
    assert!(!dir.path().join("a.txt").exists(), "only the host has it");
    assert_eq!(host.files.lock().unwrap()[dir.path().join("a.txt").to_str().unwrap()], "hello\n");
    assert_eq!(outcome.work.text, "error: not allowed: ".to_owned() + dir.path().join("secret").to_str().unwrap());
}

#[tokio::test]
async fn the_test_agent_does_what_it_may() {
    for (permission, answer) in [(Permission::AllowOnce, "allowed"), (Permission::RejectOnce, "rejected")] {
        let dir = tempfile::tempdir().unwrap();
        let host = Arc::new(TestHost { permission: Some(permission), ..TestHost::default() });
        let outcome = run(&["--ask"], task_in(dir.path(), "write a.txt x\nrun true\nask May I?"), &host).await;
        assert_eq!((outcome.end, outcome.work.text.as_str()), (DONE, answer));
        assert_eq!(dir.path().join("a.txt").exists(), permission == Permission::AllowOnce);
        assert_eq!(outcome.work.manifest.is_empty(), permission == Permission::RejectOnce);
        let end = if permission == Permission::AllowOnce { "done" } else { "failed" };
        assert!(host.notes(UpdateKind::Tool).contains(&format!("{end}: Write a.txt")));
        let asks = host.asks.lock().unwrap();
        let titles: Vec<_> = asks.iter().map(|ask| ask.title.as_str()).collect();
        assert_eq!(titles, ["Write a.txt", "`true`", "May I?"]);
        assert_eq!(asks[1].raw_input.as_deref(), Some("{\"command\":\"true\"}"), "the call had it before the question");
    }
}

#[tokio::test]
async fn a_session_goes_on_after_its_process_was_killed() {
    for options in [&[][..], &["--no-resume"]] {
        let dir = tempfile::tempdir().unwrap();
        let host = Arc::new(TestHost::default());
        let died = run(options, task_in(dir.path(), "write a.txt one\ndie\nwrite b.txt two\nrecall"), &host).await;
        assert_eq!(died.end, End::Died { why: Why::Ended });
        assert_eq!(died.work.manifest.written, ["a.txt"]);
        assert!(died.work.may_have_acted && !dir.path().join("b.txt").exists());
        let id = died.work.session_id.unwrap();
        assert_eq!(host.sessions.lock().unwrap().join(" "), id.0);

        let host = Arc::new(TestHost::default());
        let resumed = Task { resume: Some(id.clone()), ..task_in(dir.path(), "continue") };
        let outcome = run(options, resumed, &host).await;
        assert_eq!(outcome.end, DONE);
        assert_eq!(outcome.work.session_id, Some(id));
        assert_eq!(outcome.work.manifest.written, ["b.txt"], "the replay does not count");
        assert_eq!(outcome.work.text, "1 prompts before");
        assert_eq!(host.notes(UpdateKind::Tool), ["Write b.txt", "done: Write b.txt"]);
    }
}

#[tokio::test]
async fn a_session_that_is_lost_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let host = Arc::new(TestHost::default());
    let resumed = || Task { resume: Some(SessionId("lost".to_owned())), ..task_in(dir.path(), "write a.txt x") };
    let end = run(&["--no-resume", "--no-load"], resumed(), &host).await.end;
    assert_eq!(end, End::CannotResume { why: CannotResume::NotDeclared });
    let end = run(&[], resumed(), &host).await.end;
    assert!(matches!(end, End::CannotResume { why: CannotResume::Refused { .. } }), "{end:?}");
    assert!(!dir.path().join("a.txt").exists());
}

#[tokio::test]
async fn a_cancelled_test_agent_stops_between_its_lines() {
    let dir = tempfile::tempdir().unwrap();
    let host = Arc::new(TestHost::default());
    let (mut child, streams) = spawn(&[]);
    let cancel = CancellationToken::new();
    let task = task_in(dir.path(), "write a.txt x\nask now\nsleep 1000\nwrite b.txt x");
    let mut run = tokio::spawn(Session::run(streams, task, Arc::clone(&host) as Arc<dyn Host>, cancel.clone()));
    tokio::select! {
        () = host.asked.notified() => cancel.cancel(),
        outcome = &mut run => panic!("the run ended before the question: {outcome:?}"),
    }
    let outcome = run.await.unwrap();
    assert_eq!(outcome.end, End::Cancelled { stop: Stop::Confirmed });
    assert_eq!((outcome.work.text.as_str(), outcome.work.manifest.written), ("cancelled", vec!["a.txt".to_owned()]));
    child.wait().await.unwrap();
}

#[tokio::test]
async fn the_test_agent_fails_in_the_ways_that_tests_need() {
    let dir = tempfile::tempdir().unwrap();
    let host = Arc::new(TestHost::default());
    let end = run(&["--auth"], task_in(dir.path(), "say x"), &host).await.end;
    let methods = vec!["Log in to nothing".to_owned()];
    assert_eq!(end, End::StartFailed { why: StartError::AuthNeeded { methods } });
    let end = run(&["--version", "2"], task_in(dir.path(), "say x"), &host).await.end;
    assert_eq!(end, End::StartFailed { why: StartError::WrongVersion { offered: 2 } });
    let end = run(&[], task_in(dir.path(), "exit 7"), &host).await.end;
    assert_eq!(end, End::Died { why: Why::Ended });
    let end = run(&[], task_in(dir.path(), "stop refusal"), &host).await.end;
    assert_eq!(end, End::Refused);
    let end = run(&[], task_in(dir.path(), "fail no model"), &host).await.end;
    assert_eq!(end, End::Died { why: Why::Failed { code: -32603, message: "no model".to_owned() } });
    let outcome = run(&[], task_in(dir.path(), "flood 2000\nsay ok"), &host).await;
    assert_eq!((outcome.end, outcome.work.text.as_str()), (DONE, "ok"));
    assert_eq!(outcome.work.manifest.read.len() + outcome.work.manifest.more_read, 2000);
}
