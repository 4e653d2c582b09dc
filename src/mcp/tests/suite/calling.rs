//! Calls: results, progress, errors, cancelling.

use std::sync::Mutex;
use std::time::Duration;

use super::fake::{limited, none, open, open_modern, plain, text};
use ghost_mcp::{Block, CallError, CallOptions, CallResult, ClosedReason, Limits, MediaKind};
use serde_json::{Value, json};

/// What a call gives if the server answers with `result`.
async fn called(result: Value, options: CallOptions) -> Result<CallResult, CallError> {
    let (connection, mut fake) = open(plain()).await;
    let (given, ()) = tokio::join!(connection.call("t", none(), options, |_| ()), async {
        let call = fake.expect("tools/call").await;
        fake.reply(&call, result).await;
    });
    given
}

#[tokio::test]
async fn a_call_brings_name_arguments_and_result() {
    let (connection, mut fake) = open(plain()).await;
    let arguments = json!({"b": 2, "a": 1}).as_object().unwrap().clone();
    let (result, ()) = tokio::join!(connection.call("files/read", arguments, CallOptions::default(), |_| ()), async {
        let call = fake.expect("tools/call").await;
        assert_eq!(call["params"]["name"], "files/read");
        assert_eq!(call["params"]["arguments"].to_string(), r#"{"b":2,"a":1}"#);
        let image = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        let content = json!([{"type": "text", "text": "one"}, image, {"type": "text", "text": "two"}]);
        fake.reply(&call, json!({"content": content, "structuredContent": {"n": 3}, "isError": true})).await;
    });
    let result = result.unwrap();
    assert_eq!(result.text(), "one\n[image image/png: 4 bytes of Base64]\ntwo");
    assert_eq!((result.structured, result.is_error, result.is_cut), (Some(json!({"n": 3})), true, false));
}

#[tokio::test]
async fn an_unknown_type_of_content_is_described() {
    let result =
        called(json!({"content": [{"type": "video", "x": 1}, {"type": "text", "text": "a"}]}), CallOptions::default());
    let result = result.await.unwrap();
    assert_eq!(result.blocks[0], Block::Unknown { kind: "video".to_owned(), json_bytes: 22 });
    assert_eq!(result.blocks[1], Block::Text { text: "a".to_owned() });
}

#[tokio::test]
async fn an_unknown_type_of_content_is_described_in_the_new_protocol_too() {
    let (connection, mut fake) = open_modern(plain()).await;
    let (given, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async {
        let call = fake.expect("tools/call").await;
        fake.reply(&call, json!({"resultType": "complete", "content": [{"type": "video"}]})).await;
    });
    assert_eq!(given.unwrap().blocks, [Block::Unknown { kind: "video".to_owned(), json_bytes: 16 }]);
}

#[tokio::test]
async fn a_huge_result_is_cut() {
    let image = json!({"type": "image", "data": "A".repeat(2_000), "mimeType": "image/png"});
    let content = json!([{"type": "text", "text": "x".repeat(900)}, image, {"type": "text", "text": "y".repeat(900)}]);
    let result = json!({"content": content, "structuredContent": {"all": "z".repeat(900)}});
    let result = called(result, CallOptions { result_limit: 1_000, ..CallOptions::default() }).await.unwrap();
    assert_eq!(result.blocks[0], Block::Text { text: "x".repeat(900) });
    let media = Block::Media { kind: MediaKind::Image, mime: "image/png".into(), base64_bytes: 2_000, data: None };
    assert_eq!(result.blocks[1], media);
    assert_eq!(result.blocks[2], Block::Text { text: "y".repeat(100) });
    assert_eq!((result.structured, result.is_cut), (None, true));
}

#[tokio::test]
async fn a_result_without_content_is_empty_and_a_senseless_one_is_malformed() {
    assert_eq!(called(json!({}), CallOptions::default()).await.unwrap().blocks, []);
    for senseless in [json!([1]), json!("x"), json!(null), json!({"resultType": "task", "task": {}})] {
        let error = called(senseless.clone(), CallOptions::default()).await.unwrap_err();
        assert!(matches!(error, CallError::Malformed { .. }), "{senseless} {error}");
        assert!(error.may_have_happened());
    }
}

#[tokio::test]
async fn a_refusal_has_its_code_and_its_text() {
    let (connection, mut fake) = open(plain()).await;
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async {
        let call = fake.expect("tools/call").await;
        fake.refuse(&call, -32_602, &format!("unknown tool\u{1b}[31m {}", "x".repeat(9_000))).await;
    });
    let Err(CallError::Refused { code, message }) = result else { panic!("{result:?}") };
    assert_eq!(code, -32_602);
    assert!(message.starts_with("unknown tool [31m x") && message.len() < 510, "{message}");
}

#[tokio::test]
async fn progress_comes_in_order_grows_and_ends_with_the_call() {
    let (connection, mut fake) = open(plain()).await;
    let seen = Mutex::new(Vec::new());
    let note = |progress: ghost_mcp::Progress| seen.lock().unwrap().push((progress.done, progress.total));
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), note), async {
        let call = fake.expect("tools/call").await;
        for done in [1.0, 2.0, 1.5, 2.0, 4.0, 3.0, 5.0] {
            fake.progress(&call, done).await;
        }
        fake.reply(&call, text("done")).await;
        for done in [6.0, 7.0] {
            fake.progress(&call, done).await;
        }
    });
    result.unwrap();
    // The next call shows that the late events were read before.
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async {
        let call = fake.expect("tools/call").await;
        fake.reply(&call, text("again")).await;
    });
    assert_eq!(result.unwrap().text(), "again");
    let expected: Vec<_> = [1.0, 2.0, 4.0, 5.0].map(|done| (done, Some(9.0))).to_vec();
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test]
async fn progress_of_one_call_does_not_reach_another() {
    let (connection, mut fake) = open(plain()).await;
    let (first, second) = (Mutex::new(0), Mutex::new(0));
    let (one, two, ()) = tokio::join!(
        connection.call("one", none(), CallOptions::default(), |_| *first.lock().unwrap() += 1),
        connection.call("two", none(), CallOptions::default(), |_| *second.lock().unwrap() += 1),
        async {
            let calls = [fake.expect("tools/call").await, fake.expect("tools/call").await];
            let of = |name: &str| calls.iter().find(|call| call["params"]["name"] == name).unwrap();
            fake.progress(of("one"), 1.0).await;
            fake.progress(of("one"), 2.0).await;
            fake.reply(of("two"), text("2")).await;
            fake.reply(of("one"), text("1")).await;
        }
    );
    assert_eq!((one.unwrap().text(), two.unwrap().text()), ("1".to_owned(), "2".to_owned()));
    assert_eq!((*first.lock().unwrap(), *second.lock().unwrap()), (2, 0));
}

#[tokio::test]
async fn progress_that_nobody_takes_is_bounded() {
    let limits = Limits { progress_events: 3, messages_per_second: 10_000, ..Limits::default() };
    let (connection, mut fake) = open(limited(limits)).await;
    let count = Mutex::new(0);
    let (result, ()) =
        tokio::join!(connection.call("t", none(), CallOptions::default(), |_| *count.lock().unwrap() += 1), async {
            let call = fake.expect("tools/call").await;
            let token = &call["params"]["_meta"]["progressToken"];
            let line = |done: usize| {
                let params = json!({"progressToken": token, "progress": done});
                format!("{}\n", json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
            };
            // In one piece, so that the caller cannot take any of it before the end.
            let all: String = (0..200).map(line).collect();
            let answer = json!({"jsonrpc": "2.0", "id": call["id"], "result": text("done")});
            fake.raw(&format!("{all}{answer}\n")).await;
        });
    assert_eq!(result.unwrap().text(), "done");
    assert!((1..200).contains(&*count.lock().unwrap()), "{count:?}");
}

#[tokio::test]
async fn a_dropped_call_is_cancelled_at_the_server() {
    let (connection, mut fake) = open(plain()).await;
    let id = tokio::select! {
        _ = connection.call("t", none(), CallOptions::default(), |_| ()) => panic!("it cannot end"),
        call = fake.expect("tools/call") => call["id"].clone(),
    };
    let cancelled = fake.expect("notifications/cancelled").await;
    assert_eq!(cancelled["params"]["requestId"], id);
    // Its late answer disturbs nothing.
    fake.send(json!({"jsonrpc": "2.0", "id": id, "result": text("late")})).await;
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async {
        let call = fake.expect("tools/call").await;
        fake.reply(&call, text("next")).await;
    });
    assert_eq!(result.unwrap().text(), "next");
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_ends_in_time_and_is_cancelled() {
    let (connection, mut fake) = open(plain()).await;
    let after = Duration::from_secs(7);
    let options = CallOptions { timeout: after, ..CallOptions::default() };
    let (result, ()) = tokio::join!(connection.call("t", none(), options, |_| ()), async {
        let call = fake.expect("tools/call").await;
        let cancelled = fake.expect("notifications/cancelled").await;
        assert_eq!(cancelled["params"]["requestId"], call["id"]);
    });
    let error = result.unwrap_err();
    assert_eq!(error, CallError::Timeout { what: "answer", after });
    assert!(error.may_have_happened());
}

#[tokio::test(start_paused = true)]
async fn progress_extends_the_idle_time_and_not_the_total_one() {
    let (connection, mut fake) = open(plain()).await;
    let (idle, total) = (Duration::from_secs(5), Duration::from_secs(20));
    let options = CallOptions { timeout: total, idle: Some(idle), ..CallOptions::default() };
    let begin = tokio::time::Instant::now();
    let (result, ()) = tokio::join!(connection.call("t", none(), options.clone(), |_| ()), async {
        let call = fake.expect("tools/call").await;
        for done in 1..=3 {
            tokio::time::advance(Duration::from_secs(4)).await;
            fake.progress(&call, f64::from(done)).await;
        }
    });
    assert_eq!(result.unwrap_err(), CallError::Timeout { what: "progress", after: idle });
    assert_eq!(begin.elapsed().as_secs(), 17);
    fake.expect("notifications/cancelled").await;
    let (result, ()) = tokio::join!(connection.call("t", none(), options, |_| ()), async {
        let call = fake.expect("tools/call").await;
        for done in 1..=5 {
            tokio::time::advance(Duration::from_secs(4)).await;
            fake.progress(&call, f64::from(done)).await;
        }
    });
    assert_eq!(result.unwrap_err(), CallError::Timeout { what: "answer", after: total });
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_ends_it_at_once() {
    let (connection, mut fake) = open(plain()).await;
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async move {
        fake.expect("tools/call").await;
    });
    let error = result.unwrap_err();
    assert_eq!(error, CallError::Closed { reason: ClosedReason::Ended, sent: true });
    assert!(error.may_have_happened());
    let again = connection.call("t", none(), CallOptions::default(), |_| ()).await.unwrap_err();
    assert_eq!(again, CallError::Closed { reason: ClosedReason::Ended, sent: false });
    assert!(!again.may_have_happened());
}

#[tokio::test]
async fn a_server_that_answers_and_dies_has_answered() {
    let (connection, mut fake) = open(plain()).await;
    let (result, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async move {
        let call = fake.expect("tools/call").await;
        fake.reply(&call, text("last words")).await;
    });
    assert_eq!(result.unwrap().text(), "last words");
    assert_eq!(connection.closed().await, ClosedReason::Ended);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_calls_at_once_get_their_own_answers_and_progress() {
    const CALLS: usize = 200;
    let limits = Limits { messages_per_second: 100_000, ..Limits::default() };
    let (connection, mut fake) = open(limited(limits)).await;
    let server = tokio::spawn(async move {
        let mut waiting = Vec::new();
        for _ in 0..CALLS {
            waiting.push(fake.expect("tools/call").await);
            // Every tenth time, the waiting calls are answered from behind.
            if waiting.len() == 10 {
                for call in waiting.drain(..).rev() {
                    fake.progress(&call, call["params"]["arguments"]["n"].as_f64().unwrap()).await;
                    fake.reply(&call, text(&call["params"]["arguments"]["n"].to_string())).await;
                }
            }
        }
        fake
    });
    let calls = (0..CALLS).map(|n| {
        let connection = &connection;
        async move {
            let seen = Mutex::new(Vec::new());
            let arguments = json!({"n": n}).as_object().unwrap().clone();
            let note = |progress: ghost_mcp::Progress| seen.lock().unwrap().push(progress.done as usize);
            let result = connection.call("t", arguments, CallOptions::default(), note).await.unwrap();
            assert_eq!((result.text(), seen.into_inner().unwrap()), (n.to_string(), vec![n]));
        }
    });
    futures_util::future::join_all(calls).await;
    drop(server.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_read_ends_its_call_with_what_is_wrong() {
    let line = |id: &Value, result: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
    for (result, what) in [
        (r#"{"content":[],"structuredContent":{"x":NaN}}"#, "NaN"),
        (r#"{"content":[],"structuredContent":{"x":1e400}}"#, "number out of range"),
        (r#"{"content":[{"type":"text","text":"a"b"}]}"#, "b"),
    ] {
        let (connection, mut fake) = open(plain()).await;
        // Two calls wait: the line has the number of one.
        let first = connection.call("one", none(), CallOptions::default(), |_| ());
        let second = connection.call("two", none(), CallOptions::default(), |_| ());
        let (first, second, ()) = tokio::join!(first, second, async {
            let (one, two) = (fake.expect("tools/call").await, fake.expect("tools/call").await);
            assert!(fake.raw(&line(&one["id"], result)).await);
            fake.reply(&two, text("right")).await;
        });
        let error = first.unwrap_err();
        assert!(matches!(&error, CallError::Malformed { detail } if detail.contains(what)), "{error:?}");
        assert!(error.may_have_happened());
        assert_eq!(second.unwrap().text(), "right");
        // The connection goes on.
        let (third, ()) = tokio::join!(connection.call("three", none(), CallOptions::default(), |_| ()), async {
            let three = fake.expect("tools/call").await;
            assert!(fake.raw(&line(&three["id"], r#"{"content":[{"type":"text","text":"\ud83d"}]}"#)).await);
        });
        assert_eq!(third.unwrap().text(), "\u{fffd}", "a half of a character is no fault");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_cut_ends_the_only_call_and_other_lines_do_not() {
    let limits = Limits { messages_per_second: 100_000, ..Limits::default() };
    let (connection, mut fake) = open(limited(limits)).await;
    let whole = json!({"jsonrpc": "2.0", "id": 0, "result": text("right")}).to_string();
    let result = whole.find("\"result\"").unwrap();
    for end in 1..whole.len() {
        let (called, ()) = tokio::join!(connection.call("t", none(), CallOptions::default(), |_| ()), async {
            let call = fake.expect("tools/call").await;
            let line = json!({"jsonrpc": "2.0", "id": call["id"], "result": text("right")}).to_string();
            let end = line.len() - (whole.len() - end);
            // Lines of logs, a question that cannot be read, and an answer to nothing.
            assert!(fake.raw("{\"level\":\"error\",\"error\": NaN}\nready\n").await);
            assert!(fake.raw("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":NaN}\n").await);
            assert!(fake.raw("{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":NaN}\n").await);
            assert!(fake.raw(&format!("{}\n", &line[..end])).await);
            fake.reply(&call, text("late")).await;
        });
        match called {
            Err(CallError::Malformed { .. }) => {}
            // Too little of it is there to know it.
            Ok(late) => assert!(end <= result && late.text() == "late", "{end}: {}", late.text()),
            Err(other) => panic!("{end}: {other:?}"),
        }
    }
    assert_eq!(connection.closed_reason(), None);
}
