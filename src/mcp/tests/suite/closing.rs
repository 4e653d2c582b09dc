//! The end of a connection.

use std::time::Duration;

use super::fake::{link_with, none, open, plain};
use ghost_mcp::{CallError, CallOptions, ClosedReason, Connection};
use serde_json::json;

#[tokio::test]
async fn closing_ends_the_calls_and_the_stream_of_the_server() {
    let (connection, mut fake) = open(plain()).await;
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async {
        fake.expect("tools/call").await;
        connection.close().await;
    });
    assert_eq!(result.unwrap_err(), CallError::Closed { reason: ClosedReason::Here, sent: true });
    assert_eq!(fake.try_next().await, None);
    assert_eq!(connection.closed().await, ClosedReason::Here);
    connection.close().await;
}

#[tokio::test]
async fn dropping_a_connection_ends_the_stream_of_the_server() {
    let (connection, mut fake) = open(plain()).await;
    drop(connection);
    assert_eq!(fake.try_next().await, None);
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_a_server_that_never_reads() {
    let (link, mut fake) = link_with(2_048);
    let (connection, _) = tokio::join!(Connection::open(link, plain()), fake.initialize());
    let connection = connection.unwrap();
    let arguments = json!({"x": "y".repeat(100_000)}).as_object().unwrap().clone();
    let options = CallOptions { timeout: Duration::from_secs(3), ..CallOptions::default() };
    let begin = tokio::time::Instant::now();
    let error = connection.call("t", arguments, options, |_| ()).await.unwrap_err();
    assert_eq!(error, CallError::Timeout { what: "answer", after: Duration::from_secs(3) });
    assert_eq!(begin.elapsed().as_secs(), 3);
    connection.close().await;
    assert!(begin.elapsed() < Duration::from_secs(6), "{:?}", begin.elapsed());
    drop(fake);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_reads_loses_the_connection() {
    let (link, mut fake) = link_with(2_048);
    let (connection, _) = tokio::join!(Connection::open(link, plain()), fake.initialize());
    let connection = connection.unwrap();
    let arguments = json!({"x": "y".repeat(100_000)}).as_object().unwrap().clone();
    let error = connection.call("t", arguments, CallOptions::default(), |_| ()).await.unwrap_err();
    let reason = ClosedReason::NotReading { after: Duration::from_secs(10) };
    assert_eq!(error, CallError::Closed { reason: reason.clone(), sent: true });
    assert_eq!(connection.closed().await, reason);
    drop(fake);
}

#[tokio::test]
async fn the_end_of_the_server_is_seen_without_a_call() {
    let (connection, fake) = open(plain()).await;
    assert_eq!(connection.closed_reason(), None);
    drop(fake);
    assert_eq!(connection.closed().await, ClosedReason::Ended);
    assert_eq!(connection.changed().await, Err(ClosedReason::Ended));
}
