//! Tests of the event stream, as a gRPC client sees it.

use ghost_domain::event::EventKind;
use ghost_domain::{Code, Refusal};
use ghost_proto::LAST_SEQ_TRAILER;
use ghost_proto::v1::events_client::EventsClient;
use ghost_proto::v1::{SubscribeRequest, SubscribeResponse};
use proptest::prelude::*;
use std::sync::Arc;
use tokio::sync::watch;
use tokio_stream::StreamExt;
use tonic::Status;

use crate::refusal::to_status;
use crate::streams::{HEARTBEAT_EVERY, LAG_CHECK_EVERY, QUEUE, filter};
use crate::testing::{TestControl, refusal_of};

type Stream = super::Subscriber;

async fn subscribe(test: &TestControl, request: SubscribeRequest) -> Result<Stream, Status> {
    super::subscribe(test.query(), request).await.map_err(to_status)
}

fn following(after: i64) -> SubscribeRequest {
    SubscribeRequest { after_seq: Some(after), follow: true, ..SubscribeRequest::default() }
}

async fn event(stream: &mut Stream) -> SubscribeResponse {
    let response = stream.next().await.expect("the stream does not end").expect("it is not a refusal");
    assert!(response.event.is_some(), "{response:?}");
    response
}

/// Reads to the end: sequence numbers of stored events, the last position, and the final status.
async fn rest(stream: &mut Stream) -> (Vec<i64>, i64, Option<Status>) {
    let (mut seqs, mut position) = (Vec::new(), 0);
    while let Some(message) = stream.next().await {
        match message {
            Ok(response) => {
                assert!(response.position_seq >= position, "a position never goes back");
                position = response.position_seq;
                seqs.extend(response.event.filter(|_| !response.ephemeral).map(|event| event.seq));
            }
            Err(status) => return (seqs, position, Some(status)),
        }
    }
    (seqs, position, None)
}

fn last_seq_of(status: &Status) -> i64 {
    status.metadata().get(LAST_SEQ_TRAILER).unwrap().to_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn stored_and_new_events_have_one_order_and_a_reader_resumes_anywhere() {
    let test = TestControl::new().await;
    test.emit_many(600).await;
    let stored = test.world.store().last_seq();
    let mut stream = subscribe(&test, following(0)).await.unwrap();
    for expected in 1..=stored {
        let response = event(&mut stream).await;
        assert_eq!((response.event.unwrap().seq, response.position_seq), (expected, expected));
    }
    for next in 1..=5 {
        test.emit_many(1).await;
        assert_eq!(event(&mut stream).await.event.unwrap().seq, stored + next);
    }
    for after in [1, stored - 1, stored, stored + 4] {
        let mut resumed = subscribe(&test, following(after)).await.unwrap();
        assert_eq!(event(&mut resumed).await.event.unwrap().seq, after + 1);
    }
    // No sequence number means the oldest stored event.
    let request = SubscribeRequest::default();
    let (seqs, position, end) = rest(&mut subscribe(&test, request).await.unwrap()).await;
    assert!(seqs.into_iter().eq(1..=stored + 5) && end.is_none());
    assert_eq!(position, stored + 5);
}

#[tokio::test]
async fn filters_select_events_and_the_position_moves_past_the_rest() {
    let test = TestControl::new().await;
    let start = test.world.store().last_seq();
    test.channel("desk").await;
    test.emit(EventKind::TurnStarted, Some("ada"), None).await;
    test.emit(EventKind::TaskCreated, Some("ben"), Some("desk")).await;
    test.emit(EventKind::TurnFinished, Some("ben"), None).await;
    test.emit_many(3).await;
    let end = test.world.store().last_seq();
    let request = |kinds: &[&str], agent: Option<&str>, channel: Option<&str>| SubscribeRequest {
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        agent_id: agent.map(str::to_owned),
        channel: channel.map(str::to_owned),
        after_seq: Some(start),
        ..SubscribeRequest::default()
    };
    for (request, expected) in [
        (request(&["turn."], None, None), vec![1, 3]),
        (request(&["turn.started"], None, None), vec![1]),
        (request(&["turn.started", "task."], None, None), vec![1, 2]),
        (request(&[], Some("ben"), None), vec![2, 3]),
        (request(&["turn."], Some("ben"), None), vec![3]),
        (request(&[], None, Some("desk")), vec![2]),
        (request(&["team."], Some("ben"), None), vec![]),
    ] {
        let (seqs, position, refused) = rest(&mut subscribe(&test, request.clone()).await.unwrap()).await;
        assert_eq!(seqs, expected.iter().map(|seq| seq + start).collect::<Vec<_>>(), "{request:?}");
        assert_eq!(position, end, "{request:?}");
        assert!(refused.is_none());
    }
}

#[tokio::test]
async fn a_quiet_stream_sends_its_position() {
    let test = TestControl::new().await;
    let request = SubscribeRequest { kinds: vec!["task.".into()], ..following(test.world.store().last_seq()) };
    let mut stream = subscribe(&test, request).await.unwrap();
    test.emit_many(3).await;
    let reached = test.world.store().last_seq();
    let mut message = next_in_time(&test, &mut stream).await;
    while message.position_seq < reached {
        message = next_in_time(&test, &mut stream).await;
    }
    assert_eq!((message.event, message.position_seq), (None, reached));
}

/// The next message, while the clock advances.
async fn next_in_time(test: &TestControl, stream: &mut Stream) -> SubscribeResponse {
    loop {
        tokio::select! {
            biased;
            message = stream.next() => return message.unwrap().unwrap(),
            () = tokio::task::yield_now() => test.clock.advance(HEARTBEAT_EVERY),
        }
    }
}

#[tokio::test]
async fn ephemeral_events_are_sent_only_on_request() {
    let test = TestControl::new().await;
    let seq = test.world.store().last_seq();
    let mut with = subscribe(&test, SubscribeRequest { ephemeral: true, ..following(seq) }).await.unwrap();
    let mut without = subscribe(&test, following(seq)).await.unwrap();
    test.ephemeral(EventKind::ModelDelta);
    test.emit_many(1).await;
    let first = event(&mut with).await;
    assert_eq!((first.ephemeral, first.event.unwrap().seq, first.position_seq), (true, seq, seq));
    let second = event(&mut with).await;
    assert_eq!((second.ephemeral, second.position_seq), (false, seq + 1));
    let only = event(&mut without).await;
    assert_eq!((only.ephemeral, only.event.unwrap().seq), (false, seq + 1));
}

// covers: CP-08
#[tokio::test]
async fn a_reader_that_lags_is_cut_off_and_resumes_without_gap() {
    let test = TestControl::with("limits: { subscriber_buffer: 16 }\n").await;
    let start = test.world.store().last_seq();
    // Every feeder holds a receiver of the shutdown signal.
    let listening = test.closing.receiver_count();
    let mut stream = subscribe(&test, following(start)).await.unwrap();
    test.emit_many(QUEUE * 3).await;
    let end = test.world.store().last_seq();
    while test.closing.receiver_count() > listening {
        tokio::task::yield_now().await;
        test.clock.advance(LAG_CHECK_EVERY);
    }
    assert_eq!(test.control.readers.open(), 1, "it counts until it is dropped");
    let (seqs, position, status) = rest(&mut stream).await;
    let status = status.expect("it ends with a status");
    assert_eq!(status.code(), tonic::Code::Aborted);
    assert_eq!(last_seq_of(&status), position);
    assert_eq!(refusal_of(&status).code, Code::RateLimited);
    assert!(seqs.iter().copied().eq(start + 1..=position) && position < end);
    drop(stream);
    assert_eq!(test.control.readers.open(), 0);
    let request = SubscribeRequest { after_seq: Some(position), ..SubscribeRequest::default() };
    let (more, _, refused) = rest(&mut subscribe(&test, request).await.unwrap()).await;
    assert!(more.into_iter().eq(position + 1..=end) && refused.is_none());
}

#[tokio::test]
async fn a_slow_reader_within_its_buffer_is_not_cut_off() {
    let test = TestControl::with("limits: { reader_stall_seconds: 3600 }\n").await;
    let start = test.world.store().last_seq();
    let mut stream = subscribe(&test, following(start)).await.unwrap();
    let many = QUEUE * 3;
    test.emit_many(many).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
        test.clock.advance(LAG_CHECK_EVERY);
    }
    let mut expected = start;
    while expected < start + i64::try_from(many).unwrap() {
        let response = stream.next().await.unwrap().unwrap();
        if let Some(event) = response.event {
            expected += 1;
            assert_eq!(event.seq, expected);
        }
    }
}

#[tokio::test]
async fn a_reader_that_stalls_is_cut_off_even_if_it_is_close() {
    let test = TestControl::with("limits: { reader_stall_seconds: 5 }\n").await;
    let start = test.world.store().last_seq();
    let listening = test.closing.receiver_count();
    let mut stream = subscribe(&test, following(start)).await.unwrap();
    test.emit_many(QUEUE * 2).await;
    for _ in 0..100 {
        if test.closing.receiver_count() == listening {
            break;
        }
        tokio::task::yield_now().await;
        test.clock.advance(LAG_CHECK_EVERY);
    }
    assert_eq!(test.closing.receiver_count(), listening, "its feeder has not ended");
    assert_eq!(test.control.readers.cut_off(), 1);
    let (seqs, position, status) = rest(&mut stream).await;
    let status = status.expect("it ends with a status");
    assert_eq!((status.code(), last_seq_of(&status)), (tonic::Code::Aborted, position));
    assert!(status.message().contains("5s"), "{status:?}");
    assert!(seqs.into_iter().eq(start + 1..=position));
}

#[tokio::test]
async fn a_reader_that_the_feed_has_overtaken_resumes_without_a_gap() {
    let test = TestControl::with("limits: { subscriber_buffer: 1000000 }\n").await;
    let start = test.world.store().last_seq();
    let mut stream = subscribe(&test, following(start)).await.unwrap();
    test.emit_many(4_096 + QUEUE * 2 + 10).await;
    let end = test.world.store().last_seq();
    let (seqs, position, status) = rest(&mut stream).await;
    let status = status.expect("it ends with a status");
    assert_eq!((status.code(), last_seq_of(&status)), (tonic::Code::Aborted, position));
    assert!(seqs.into_iter().eq(start + 1..=position) && position < end);
    let request = SubscribeRequest { after_seq: Some(position), ..SubscribeRequest::default() };
    let (more, _, _) = rest(&mut subscribe(&test, request).await.unwrap()).await;
    assert!(more.into_iter().eq(position + 1..=end));
}

#[tokio::test]
async fn readers_are_limited_and_one_that_leaves_frees_a_slot() {
    let test = TestControl::with("limits: { subscribers_max: 2 }\n").await;
    let after = test.world.store().last_seq();
    let first = subscribe(&test, following(after)).await.unwrap();
    let _second = subscribe(&test, following(after)).await.unwrap();
    let status = subscribe(&test, following(after)).await.map(drop).unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert!(refusal_of(&status).hint.unwrap().contains("subscribers_max"));
    drop(first);
    while test.control.readers.open() > 1 {
        tokio::task::yield_now().await;
    }
    assert!(subscribe(&test, following(after)).await.is_ok());
    // A refused subscription releases its permit too.
    let readers = test.control.readers.open();
    let _ = subscribe(&test, following(after + 1_000)).await.map(drop).unwrap_err();
    assert_eq!(test.control.readers.open(), readers);
}

#[tokio::test]
async fn a_stopping_daemon_ends_streams_after_their_last_event() {
    let test = TestControl::new().await;
    let after = test.world.store().last_seq();
    let mut stream = subscribe(&test, following(after)).await.unwrap();
    test.emit_many(3).await;
    test.closing.send_replace(true);
    let (seqs, position, status) = rest(&mut stream).await;
    let status = status.expect("it ends with a status");
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(seqs.into_iter().eq(after + 1..=after + 3));
    assert_eq!(last_seq_of(&status), position);
}

#[tokio::test]
async fn invalid_filters_are_refused_with_their_field() {
    let test = TestControl::new().await;
    let last = test.world.store().last_seq();
    let with = |kind: &str| SubscribeRequest { kinds: vec![kind.into()], ..SubscribeRequest::default() };
    for (request, field) in [
        (with("turn.startd"), "kinds"),
        (with("turn"), "kinds"),
        (with("."), "kinds"),
        (with(""), "kinds"),
        (with("nothing."), "kinds"),
        (SubscribeRequest { kinds: vec!["turn.".into(); 65], ..SubscribeRequest::default() }, "kinds"),
        (SubscribeRequest { agent_id: Some("A B".into()), ..SubscribeRequest::default() }, "agent_id"),
        (SubscribeRequest { channel: Some("a\nb".into()), ..SubscribeRequest::default() }, "channel"),
        (SubscribeRequest { channel: Some("x".repeat(129)), ..SubscribeRequest::default() }, "channel"),
    ] {
        let status = subscribe(&test, request.clone()).await.map(drop).unwrap_err();
        let refusal = refusal_of(&status);
        let long = request.channel.as_ref().is_some_and(|channel| channel.len() > 128);
        let code = if long { tonic::Code::ResourceExhausted } else { tonic::Code::InvalidArgument };
        assert_eq!(status.code(), code, "{request:?}");
        assert_eq!(refusal.details.unwrap()["field"], field, "{request:?}");
    }
    let near = refusal_of(&subscribe(&test, with("turn.startd")).await.map(drop).unwrap_err());
    assert!(near.hint.as_deref().unwrap().contains("`turn.started`"));
    let near = refusal_of(&subscribe(&test, with("trun.")).await.map(drop).unwrap_err());
    assert!(near.hint.as_deref().unwrap().contains("`turn.`"));
    for (after, code, refused) in [
        (-1, tonic::Code::InvalidArgument, Code::InvalidArguments),
        (i64::MIN, tonic::Code::InvalidArgument, Code::InvalidArguments),
        (last + 1, tonic::Code::OutOfRange, Code::CursorAhead),
        (i64::MAX, tonic::Code::OutOfRange, Code::CursorAhead),
    ] {
        let status = subscribe(&test, following(after)).await.map(drop).unwrap_err();
        assert_eq!((status.code(), refusal_of(&status).code), (code, refused), "{after}");
    }
    // With an unknown channel the stream would stay silent.
    test.channel("desk").await;
    let misspelled = SubscribeRequest { channel: Some("dsek".into()), ..SubscribeRequest::default() };
    let status = subscribe(&test, misspelled).await.map(drop).unwrap_err();
    let refusal = refusal_of(&status);
    assert_eq!(status.code(), tonic::Code::NotFound);
    assert!(refusal.hint.unwrap().contains("`desk`"));
    assert_eq!(test.control.readers.open(), 0);
}

#[tokio::test]
async fn an_unknown_agent_is_refused_and_a_deleted_one_has_its_events() {
    let test = TestControl::new().await;
    let about = |agent: &str| SubscribeRequest { agent_id: Some(agent.into()), ..SubscribeRequest::default() };
    let status = subscribe(&test, about("bne")).await.map(drop).unwrap_err();
    let refusal = refusal_of(&status);
    assert_eq!((status.code(), refusal.code), (tonic::Code::NotFound, Code::NotFound));
    assert!(refusal.hint.as_deref().unwrap().contains("`ben`"));
    assert_eq!(test.control.readers.open(), 0);
    let ben = "ben".parse().unwrap();
    let by = ghost_domain::Party::Operator("tester".into());
    let gone = test.world.write(move |w| ghost_operations::agents::delete(w, &by, &ben));
    gone.await.unwrap();
    let mut stream = subscribe(&test, about("ben")).await.unwrap();
    let mut kinds = Vec::new();
    while let Some(message) = stream.next().await {
        kinds.extend(message.unwrap().event.map(|event| event.kind));
    }
    assert!(kinds.contains(&"agent.created".to_owned()) && kinds.contains(&"agent.deleted".to_owned()), "{kinds:?}");
}

#[tokio::test]
async fn over_a_socket_a_reader_resumes_with_the_trailer() {
    let test = TestControl::with("limits: { subscriber_buffer: 16 }\n").await;
    let path = test.dir().join("g.sock");
    let bound = crate::bind(crate::ControlOptions {
        listeners: vec![crate::ListenAddress::Unix(path.clone())],
        http: None,
        data_dir: test.dir().to_owned(),
        token: None,
        tls: None,
        on_shutdown: Arc::new(|_| {}),
    })
    .await
    .unwrap();
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(bound.serve(Arc::clone(&test.world), async move {
        let mut stopped = stopped;
        let _ = stopped.wait_for(|stop| *stop).await;
    }));
    let endpoint = tonic::transport::Endpoint::from_shared(format!("unix:{}", path.display())).unwrap();
    let mut client = EventsClient::new(endpoint.connect().await.unwrap());
    let mut stream = client.subscribe(following(0)).await.unwrap().into_inner();
    test.emit_many(40).await;
    let last = test.world.store().last_seq();
    let mut seen = 0;
    while seen < last {
        let message = stream.message().await.unwrap().unwrap();
        if let Some(event) = message.event {
            seen += 1;
            assert_eq!(event.seq, seen);
        }
    }
    stop.send_replace(true);
    let status = stream.message().await.unwrap_err();
    assert_eq!((status.code(), last_seq_of(&status)), (tonic::Code::Unavailable, last));
    assert_eq!(refusal_of(&status).code, Code::Unavailable);
    drop((stream, client));
    serving.await.unwrap().unwrap();
}

proptest! {
    #[test]
    fn any_request_is_checked_without_a_panic(
        kinds in prop::collection::vec(".{0,20}", 0..70), agent in prop::option::of(".{0,80}"),
        channel in prop::option::of(".{0,150}"),
    ) {
        let request = SubscribeRequest { kinds, agent_id: agent, channel, ..SubscribeRequest::default() };
        let checked: Result<_, Refusal> = filter(&request);
        if let Err(refusal) = checked {
            prop_assert_eq!(refusal.code, Code::InvalidArguments);
        }
    }
}
