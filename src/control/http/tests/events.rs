//! Tests of the event streams, with readers that keep up and readers that do not.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use ghost_domain::Code;
use serde_json::Value;
use tower::ServiceExt;

use super::asking::{TOKEN, ask, get, routes};
use crate::testing::TestControl;

// covers: CP-06
#[tokio::test]
async fn events_are_sent_with_their_ids_and_resumed_by_header() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    test.emit_many(3).await;
    let last = test.world.store().last_seq();
    let token = format!("Bearer {TOKEN}");
    let mut answer = stream(&routes, "/api/events?after=oldest", &[("authorization", &token)]).await;
    for seq in 1..=last {
        let block = answer.block().await;
        let data: Value = serde_json::from_str(block.line("data: ")).unwrap();
        assert_eq!((data["seq"].to_string(), block.line("id: ")), (seq.to_string(), seq.to_string().as_str()));
        assert_eq!(data["kind"], block.line("event: "));
        assert!(data["event_id"].is_string() && data["ts"].is_string() && data["payload"].is_object(), "{data}");
    }
    let mut resumed = stream(
        &routes,
        "/api/events/stream?after=oldest",
        &[("authorization", &token), ("last-event-id", &(last - 1).to_string())],
    )
    .await;
    assert_eq!(resumed.block().await.line("id: "), last.to_string());
    // Ephemeral events have no id to resume at.
    let mut deltas =
        stream(&routes, "/api/events?after=now&ephemeral=true&kind=model.*", &[("authorization", &token)]).await;
    test.ephemeral(ghost_domain::EventKind::ModelDelta);
    let block = deltas.block().await;
    assert_eq!(block.line("event: "), "model.delta");
    assert!(!block.0.contains("id: ") && block.line("data: ").contains("\"ephemeral\":true"), "{block:?}");
    test.closing.send_replace(true);
    let end = resumed.block().await;
    assert_eq!((end.line("event: "), end.line("id: ")), ("stopping", last.to_string().as_str()));
    let end_data: Value = serde_json::from_str(end.line("data: ")).unwrap();
    assert_eq!((&end_data["last_seq"], &end_data["error"]["code"]), (&last.into(), &"unavailable".into()));
}

#[tokio::test]
async fn events_are_sent_without_names_on_request() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    let token = format!("Bearer {TOKEN}");
    let mut answer = stream(&routes, "/api/events?after=now&unnamed=true", &[("authorization", &token)]).await;
    test.emit_many(1).await;
    let block = answer.block().await;
    let data: Value = serde_json::from_str(block.line("data: ")).unwrap();
    assert_eq!((data["kind"].as_str(), data["seq"].to_string().as_str()), (Some("world.warning"), block.line("id: ")));
    assert!(!block.0.contains("event:"), "{block:?}");
    test.closing.send_replace(true);
    let end = answer.block().await;
    assert!(!end.0.contains("event:") && end.line("data: ").contains("last_seq"), "{end:?}");
}

#[tokio::test]
async fn a_quiet_stream_sends_a_comment_that_moves_the_id() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    let token = format!("Bearer {TOKEN}");
    let mut quiet = stream(&routes, "/api/events?kind=task.&after=now", &[("authorization", &token)]).await;
    test.emit_many(2).await;
    let last = test.world.store().last_seq();
    loop {
        let block = tokio::select! {
            biased;
            block = quiet.block() => block,
            () = async { loop { tokio::task::yield_now().await; test.clock.advance(crate::streams::HEARTBEAT_EVERY); } } => unreachable!(),
        };
        assert!(block.0.starts_with(": alive") && !block.0.contains("data"), "{block:?}");
        if block.line("id: ") == last.to_string() {
            return;
        }
    }
}

// covers: CP-08
#[tokio::test]
async fn a_slow_reader_gets_the_position_to_resume_at() {
    let test = TestControl::with("limits: { subscriber_buffer: 16 }\n").await;
    let routes = routes(&test);
    let token = format!("Bearer {TOKEN}");
    let start = test.world.store().last_seq();
    let (mut slow, mut stalled) = fall_behind(&test, &routes, &token).await;
    assert_eq!(test.control.readers.open(), 2, "their bodies are not dropped yet");
    let mut seen = start;
    loop {
        let block = slow.block().await;
        if block.line("event: ") == "lagged" {
            let end_data: Value = serde_json::from_str(block.line("data: ")).unwrap();
            assert_eq!((&end_data["last_seq"], block.line("id: ")), (&seen.into(), seen.to_string().as_str()));
            break;
        }
        seen += 1;
        assert_eq!(block.line("id: "), seen.to_string());
    }
    assert!(seen < test.world.store().last_seq());
    // A reader that does not read the end of its stream either times out, or is counted until its
    // body is dropped.
    for _ in 0..10 {
        test.clock.advance(ghost_domain::Limits::seconds(30));
        tokio::task::yield_now().await;
    }
    assert!(futures_util::StreamExt::next(&mut stalled.body).await.is_none());
    drop(slow);
    assert_eq!(test.control.readers.open(), 1);
    drop(stalled);
    assert_eq!(test.control.readers.open(), 0);
}

/// Two readers of new events that do not read until they are disconnected.
async fn fall_behind(test: &TestControl, routes: &Router, token: &str) -> (Flow, Flow) {
    let start = test.world.store().last_seq();
    // Every feeder holds a receiver of the shutdown signal.
    let listening = test.closing.receiver_count();
    let path = format!("/api/events?after={start}");
    let one = stream(routes, &path, &[("authorization", token)]).await;
    let two = stream(routes, &path, &[("authorization", token)]).await;
    test.emit_many(crate::streams::QUEUE * 3).await;
    while test.closing.receiver_count() > listening {
        tokio::task::yield_now().await;
        test.clock.advance(crate::streams::LAG_CHECK_EVERY);
    }
    (one, two)
}

#[tokio::test]
async fn a_misspelled_parameter_beside_a_valid_ticket_is_reported() {
    let test = TestControl::new().await;
    let routes = routes(&test);
    let bearer = format!("Bearer {TOKEN}");
    let issued = ask(&routes, "POST", "/api/events/ticket", &[("authorization", &bearer)]).await;
    let issued: Value = serde_json::from_str(&issued.body).unwrap();
    let path = format!("/api/events?afer=now&ticket={}", issued["ticket"].as_str().unwrap());
    let answer = ask(&routes, "GET", &path, &[]).await;
    assert_eq!((answer.status, answer.refusal().code), (StatusCode::BAD_REQUEST, Code::InvalidArguments));
    assert!(answer.refusal().hint.as_deref().unwrap().contains("`after`"));
}

#[tokio::test]
async fn refused_streams_have_their_own_http_statuses() {
    let test = TestControl::with("limits: { subscribers_max: 1 }\n").await;
    let routes = routes(&test);
    let last = test.world.store().last_seq();
    for (path, status) in [
        (format!("/api/events?after={}", last + 1), StatusCode::RANGE_NOT_SATISFIABLE),
        ("/api/events?kind=turn.startd".into(), StatusCode::BAD_REQUEST),
        ("/api/events?kind=".into(), StatusCode::BAD_REQUEST),
        ("/api/events?agent=adda".into(), StatusCode::NOT_FOUND),
        ("/api/events?agnt=ada".into(), StatusCode::BAD_REQUEST),
        ("/api/events/ws".into(), StatusCode::BAD_REQUEST),
    ] {
        let answer = get(&routes, &path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.refusal().hint.is_some(), "{path}: {}", answer.body);
    }
    assert_eq!(test.control.readers.open(), 0);
    let token = format!("Bearer {TOKEN}");
    let one = stream(&routes, "/api/events", &[("authorization", &token)]).await;
    assert_eq!(get(&routes, "/api/events").await.status, StatusCode::TOO_MANY_REQUESTS);
    drop(one);
    while test.control.readers.open() > 0 {
        tokio::task::yield_now().await;
    }
    // A position whose events retention has deleted is GONE.
    test.clock.advance(ghost_domain::Limits::days(8));
    ghost_operations::retention::sweep(test.world.store(), test.world.ctx()).await.unwrap();
    let gone = get(&routes, "/api/events?after=1").await;
    assert_eq!((gone.status, gone.refusal().code), (StatusCode::GONE, ghost_domain::Code::CursorExpired));
}

/// A response body that goes on.
struct Flow {
    body: axum::body::BodyDataStream,
    text: String,
}

/// One block of server-sent events.
#[derive(Debug)]
struct Block(String);

async fn stream(routes: &Router, path: &str, headers: &[(&str, &str)]) -> Flow {
    let mut request = Request::builder().uri(path).header("host", "localhost:8080");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = routes.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{path}");
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    Flow { body: response.into_body().into_data_stream(), text: String::new() }
}

impl Flow {
    async fn block(&mut self) -> Block {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = Block(block.to_owned());
                self.text = rest.to_owned();
                return block;
            }
            let chunk = futures_util::StreamExt::next(&mut self.body).await.expect("the stream does not end").unwrap();
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}

impl Block {
    fn line(&self, name: &str) -> &str {
        self.0.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}
