//! Tests of `events` over broken connections: no gaps, no repetition.

use tonic::{Code, Status};

use super::fake::{End, Fake, Feed};
use super::ran::{Ran, ghostctl};

fn feed(upto: i64, end: End) -> Feed {
    Feed { upto, repeats: true, end }
}

fn seqs(ran: &Ran) -> Vec<i64> {
    ran.lines().iter().map(|event| event["seq"].as_i64().unwrap()).collect()
}

fn lagged(seq: i64) -> Status {
    let mut status = Status::new(Code::Aborted, "lagged");
    status.metadata_mut().insert(ghost_proto::LAST_SEQ_TRAILER, seq.into());
    status
}

#[tokio::test]
async fn each_event_is_one_object_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default().feeds([feed(3, End::Done), feed(3, End::Done)]);
    let daemon = fake.serve(&dir.path().join("g.sock"));
    let ran = ghostctl(&daemon.endpoint, &["--json", "events"]).await;
    assert_eq!((ran.code, seqs(&ran)), (0, vec![1, 2, 3]));
    let first = &ran.lines()[0];
    assert_eq!(first["ts"], "1970-01-01T00:00:00.001Z");
    assert_eq!((first["kind"].as_str(), first["payload"]["n"].as_i64()), (Some("turn.started"), Some(1)));
    let plain = ghostctl(&daemon.endpoint, &["events", "--kind", "turn.*,task.created", "--agent", "chora"]).await;
    assert_eq!(plain.out.lines().count(), 3);
    let asked = &fake.asked()[1].1;
    assert!(asked.contains(r#"kinds: ["turn.", "task.created"], agent_id: Some("chora")"#), "{asked}");
}

#[tokio::test]
async fn ephemeral_kinds_need_ephemeral_and_follow() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default().feeds([feed(1, End::Done)]);
    let daemon = fake.serve(&dir.path().join("g.sock"));
    for (args, missing) in [
        (&["events", "--follow", "--kind", "model.delta"][..], "--ephemeral"),
        (&["events", "--kind", "turn.finished,model.delta"], "--ephemeral"),
        (&["events", "--ephemeral", "--kind", "tool.progress"], "--follow"),
    ] {
        let ran = ghostctl(&daemon.endpoint, args).await;
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
        assert!(ran.err.contains(missing), "{}", ran.err);
    }
    assert!(fake.asked().is_empty());
    let ran = ghostctl(&daemon.endpoint, &["events", "--ephemeral", "--kind", "model.delta,turn.started"]).await;
    assert_eq!(ran.code, 0, "{}", ran.err);
}

#[tokio::test]
async fn a_broken_stream_continues_after_the_last_event() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default().feeds([
        feed(3, End::Status(Status::unavailable("restarting"))),
        feed(5, End::Status(lagged(5))),
        feed(7, End::Done),
    ]);
    let daemon = fake.serve(&dir.path().join("g.sock"));
    let ran = ghostctl(&daemon.endpoint, &["--json", "events"]).await;
    assert_eq!((ran.code, seqs(&ran)), (0, (1..=7).collect()), "{}", ran.err);
    let after: Vec<bool> =
        fake.asked().iter().zip(["None", "Some(3)", "Some(5)"]).map(|(asked, at)| asked.1.contains(at)).collect();
    assert_eq!(after, [true; 3]);
}

#[tokio::test]
async fn following_survives_a_restart_of_the_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("g.sock");
    let fake = Fake::default().feeds([
        feed(3, End::Hold),
        // An orderly stop ends the stream without an error.
        feed(4, End::Done),
        feed(6, End::Status(Status::invalid_argument("the end of this test"))),
    ]);
    let daemon = fake.serve(&socket);
    let endpoint = daemon.endpoint.clone();
    let (ran, _second) = tokio::join!(ghostctl(&endpoint, &["--json", "events", "--follow"]), async {
        fake.held.notified().await;
        daemon.kill();
        fake.serve(&socket)
    });
    assert_eq!((ran.code, seqs(&ran)), (2, (1..=6).collect()), "{}", ran.err);
}

#[tokio::test]
async fn following_a_daemon_that_stays_away_ends_as_unavailable() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default().feeds([feed(2, End::Hold)]);
    let daemon = fake.serve(&dir.path().join("g.sock"));
    let endpoint = daemon.endpoint.clone();
    let (ran, ()) = tokio::join!(ghostctl(&endpoint, &["--timeout", "3s", "--json", "events", "--follow"]), async {
        fake.held.notified().await;
        daemon.kill();
    });
    assert_eq!(ran.code, 5, "{}", ran.err);
}

#[tokio::test]
async fn now_starts_after_the_newest_event() {
    let dir = tempfile::tempdir().unwrap();
    let fake = Fake::default().feeds([feed(4, End::Done)]);
    let daemon = fake.serve(&dir.path().join("g.sock"));
    let ran = ghostctl(&daemon.endpoint, &["--json", "events", "--after", "now"]).await;
    assert_eq!(seqs(&ran), [3, 4], "the daemon said that 2 was the last");
}
