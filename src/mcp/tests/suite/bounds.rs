//! Servers that send too much.

use super::fake::{Fake, limited, none, open, open_modern, plain, text};
use ghost_mcp::{CallError, CallOptions, ClosedReason, Connection, Limits};
use serde_json::{Value, json};

/// The error of a call during which `server` plays, and the reason of the closing.
async fn broken<F, S>(connection: &Connection, fake: Fake, server: F) -> ClosedReason
where
    F: FnOnce(Fake, Value) -> S,
    S: Future<Output = ()>,
{
    let play = async {
        let mut fake = fake;
        let request = fake.expect("tools/call").await;
        server(fake, request).await;
    };
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), play);
    let reason = connection.closed().await;
    assert_eq!(result.unwrap_err(), CallError::Closed { reason: reason.clone(), sent: true });
    assert_eq!(connection.closed_reason(), Some(reason.clone()));
    reason
}

#[tokio::test]
async fn a_line_that_is_too_long_closes_the_connection() {
    let limits = Limits { line_bytes: 1_000, ..Limits::default() };
    let (connection, fake) = open(limited(limits)).await;
    let reason = broken(&connection, fake, async |mut fake: Fake, _| {
        // Without a line break: the bound acts before the end of the line.
        while fake.raw(&"x".repeat(600)).await {}
    });
    assert_eq!(reason.await, ClosedReason::LineTooLong { limit: 1_000 });
}

#[tokio::test]
async fn a_line_of_exactly_the_bound_is_read() {
    let id = 1; // The handshake has the number 0.
    let line = format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "result": text(&"x".repeat(500))}));
    let (connection, mut fake) = open(limited(Limits { line_bytes: line.len(), ..Limits::default() })).await;
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async {
        assert_eq!(fake.expect("tools/call").await["id"], id);
        assert!(fake.raw(&line).await);
    });
    assert_eq!(result.unwrap().text().len(), 500);
}

async fn flooded(message: Value) -> ClosedReason {
    let (connection, fake) = open(limited(Limits { messages_per_second: 50, ..Limits::default() })).await;
    broken(&connection, fake, async |mut fake: Fake, _| while fake.send(message.clone()).await {}).await
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_notifications_closes_the_connection() {
    for method in ["notifications/tools/list_changed", "notifications/message", "notifications/unknown", "odd"] {
        let params = json!({"level": "info", "data": "x"});
        let reason = flooded(json!({"jsonrpc": "2.0", "method": method, "params": params})).await;
        assert_eq!(reason, ClosedReason::Flood { limit: 50 }, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_progress_closes_the_connection() {
    let params = json!({"progressToken": 1, "progress": 1});
    let reason = flooded(json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})).await;
    assert_eq!(reason, ClosedReason::Flood { limit: 50 });
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_answers_to_nothing_closes_the_connection() {
    for id in [json!(999), json!("x"), json!(-1)] {
        let reason = flooded(json!({"jsonrpc": "2.0", "id": id, "result": {}})).await;
        assert_eq!(reason, ClosedReason::Flood { limit: 50 });
    }
    let reason = flooded(json!({"jsonrpc": "2.0", "error": {"code": 1, "message": "?"}})).await;
    assert_eq!(reason, ClosedReason::Flood { limit: 50 });
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_lines_that_are_no_message_closes_the_connection() {
    let reason = flooded(json!(["nothing"])).await;
    assert_eq!(reason, ClosedReason::Flood { limit: 50 });
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_requests_closes_the_connection() {
    for method in ["sampling/createMessage", "roots/list", "elicitation/create", "ping", "odd"] {
        let limits = Limits { server_requests: 4, ..Limits::default() };
        let (connection, fake) = open(limited(limits)).await;
        let reason = broken(&connection, fake, async |mut fake: Fake, _| {
            // In one piece, so that no answer can come between.
            let all: String = (0..100)
                .map(|id| format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}})))
                .collect();
            fake.raw(&all).await;
            while fake.try_next().await.is_some() {}
        });
        assert_eq!(reason.await, ClosedReason::TooManyRequests { limit: 4 }, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_answered_in_time_count_as_messages() {
    let limits = Limits { messages_per_second: 20, ..Limits::default() };
    let (connection, fake) = open(limited(limits)).await;
    let reason = broken(&connection, fake, async |mut fake: Fake, _| {
        for id in 0.. {
            if !fake.send(json!({"jsonrpc": "2.0", "id": id, "method": "ping"})).await
                || fake.try_next().await.is_none()
            {
                break;
            }
        }
    });
    assert_eq!(reason.await, ClosedReason::Flood { limit: 20 });
}

#[tokio::test]
async fn sampling_and_roots_are_refused_and_the_connection_stays() {
    let (connection, mut fake) = open(plain()).await;
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async {
        let call = fake.expect("tools/call").await;
        let message = json!([{"role": "user", "content": {"type": "text", "text": "x"}}]);
        let requests = [
            ("roots/list", json!({})),
            ("sampling/createMessage", json!({"messages": message, "maxTokens": 1})),
            ("elicitation/create", json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}})),
            ("odd/request", json!({})),
        ];
        for (number, (method, params)) in requests.into_iter().enumerate() {
            fake.send(json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params})).await;
            let answer = fake.next().await;
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(number), &json!(-32_601)), "{method}");
        }
        fake.reply(&call, text("done")).await;
    });
    assert_eq!(result.unwrap().text(), "done");
    assert_eq!(connection.closed_reason(), None);
}

#[tokio::test]
async fn two_open_requests_with_the_same_id_close_the_connection() {
    let (connection, fake) = open(plain()).await;
    let reason = broken(&connection, fake, async |mut fake: Fake, _| {
        let line = format!("{}\n", json!({"jsonrpc": "2.0", "id": "a", "method": "ping"}));
        fake.raw(&line.repeat(2)).await;
        while fake.try_next().await.is_some() {}
    });
    assert!(matches!(reason.await, ClosedReason::Protocol { .. }));
}

#[tokio::test]
async fn garbage_and_answers_to_nothing_do_not_disturb_a_call() {
    for connect in [true, false] {
        let (connection, mut fake) = if connect { open(plain()).await } else { open_modern(plain()).await };
        let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async {
            let call = fake.expect("tools/call").await;
            fake.raw("not json\n{\"a\":1}\n[1,2]\n\n\r\n{\"jsonrpc\":\"2.0\",\"id\":77}\n\u{feff}{}\n").await;
            fake.send(json!({"jsonrpc": "2.0", "id": 999, "result": text("wrong")})).await;
            fake.send(json!({"jsonrpc": "2.0", "id": null, "result": text("wrong")})).await;
            fake.reply(&call, text("right")).await;
            fake.reply(&call, text("second")).await;
        });
        assert_eq!(result.unwrap().text(), "right");
        assert_eq!(connection.closed_reason(), None);
    }
}

#[tokio::test]
async fn arguments_that_are_too_large_are_not_sent() {
    let (connection, _fake) = open(limited(Limits { argument_bytes: 20, ..Limits::default() })).await;
    let arguments = json!({"text": "x".repeat(20)}).as_object().unwrap().clone();
    let error = connection.call("t", arguments, CallOptions::default(), |_| ()).await.unwrap_err();
    assert_eq!(error, CallError::ArgumentsTooLarge { bytes: 31, limit: 20 });
    assert!(!error.may_have_happened());
}
