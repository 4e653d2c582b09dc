//! Failures, for every protocol.

use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use super::*;
use crate::error::{Charge, ErrorKind, ProviderError};
use crate::model::NoDeltas;
use crate::testing::FakeEnd;

pub(super) const KINDS: [ProviderKind; 4] =
    [ProviderKind::OpenAi, ProviderKind::Anthropic, ProviderKind::Gemini, ProviderKind::Ollama];

/// The content type of a stream, and a stream that ends within a tool call, by protocol.
pub(super) fn half(kind: ProviderKind) -> (&'static str, String) {
    match kind {
        ProviderKind::Anthropic => ("text/event-stream", anthropic::events(&anthropic::answer()[..16])),
        ProviderKind::Gemini => ("text/event-stream", sse(&gemini::answer()[..4])),
        ProviderKind::Ollama => ("application/x-ndjson", ollama::lines(&ollama::answer()[..4])),
        _ => {
            let function = json!({ "name": "workspace__read", "arguments": "{\"pa" });
            let delta = json!({ "tool_calls": [{ "index": 0, "id": "a", "function": function }] });
            let text = json!({ "choices": [{ "index": 0, "delta": { "content": "Reading." } }] });
            ("text/event-stream", sse(&[text, json!({ "choices": [{ "index": 0, "delta": delta }] })]))
        }
    }
}

async fn fails(kind: ProviderKind, reply: FakeReply) -> ProviderError {
    let server = serve(move |_| reply.clone()).await;
    let failed = adapter(kind, server.url()).complete(&conversation("m"), &mut NoDeltas).await;
    let error = failed.expect_err("a failure");
    assert!(!error.message.contains(KEY), "{error}");
    assert!(error.message.len() <= crate::error::MESSAGE_MAX, "{error}");
    error
}

#[tokio::test]
async fn statuses_map_to_error_kinds_and_waits_are_read() {
    let body = format!("{{\"error\":{{\"message\":\"No, {KEY}! maximum context length {}\"}}}}", "x".repeat(5_000));
    for kind in KINDS {
        for (status, wait, expected) in [
            (401, None, ErrorKind::Unauthorized),
            (400, None, ErrorKind::ContextTooLong),
            (429, Some(("retry-after", "7")), ErrorKind::RateLimited),
            (429, Some(("retry-after-ms", "7000")), ErrorKind::RateLimited),
            (500, None, ErrorKind::Server),
            (529, Some(("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT")), ErrorKind::Overloaded),
        ] {
            let mut reply = FakeReply::new(status, "application/json", body.clone());
            if let Some((name, value)) = wait {
                reply = reply.header(name, value).header("date", "Sun, 06 Nov 1994 08:49:30 GMT");
            }
            let error = fails(kind, reply).await;
            assert_eq!((error.kind, error.status), (expected, Some(status)), "{kind:?} {error}");
            assert_eq!(error.retry_after, wait.map(|_| Duration::from_secs(7)), "{kind:?} {status}");
            assert!(error.message.contains("[redacted]"), "{kind:?} {error}");
        }
        let error = fails(kind, FakeReply::new(302, "text/html", "").header("location", "http://127.0.0.1:1/")).await;
        assert_eq!((error.kind, error.charge), (ErrorKind::Gateway, Charge::Nothing), "a redirect is not followed");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_in_a_call_is_an_error() {
    for kind in KINDS {
        let (content_type, body) = half(kind);
        for end in [FakeEnd::Cut, FakeEnd::Whole] {
            let error = fails(kind, FakeReply::new(200, content_type, body.clone()).ending(end)).await;
            assert_eq!(
                (error.kind, error.charge),
                (ErrorKind::BrokenStream, Charge::Unknown),
                "{kind:?} {end:?} {error}"
            );
        }
        let error = fails(kind, FakeReply::new(200, content_type, "")).await;
        assert_eq!((error.kind, error.charge), (ErrorKind::Gateway, Charge::Nothing), "{kind:?}: an empty body");
    }
}

#[tokio::test]
async fn garbage_is_a_bad_answer() {
    for kind in KINDS {
        let (content_type, body) = half(kind);
        let garbage = match kind {
            ProviderKind::Ollama => "{\"message\": nonsense}\n".to_owned(),
            ProviderKind::Anthropic => "event: content_block_delta\ndata: {\"type\": nonsense\n\n".to_owned(),
            _ => "data: {\"choices\": nonsense\n\n".to_owned(),
        };
        // Garbage after a part of an answer is the provider's own. Garbage alone is from something in between.
        for (body, expected) in [
            (format!("{body}{garbage}"), ErrorKind::BadAnswer),
            (garbage.clone(), ErrorKind::Gateway),
            ("data: \u{fffd}\n\n".to_owned(), ErrorKind::Gateway),
        ] {
            let error = fails(kind, FakeReply::new(200, content_type, body)).await;
            assert_eq!(error.kind, expected, "{kind:?} {error}");
        }
        let error = fails(kind, FakeReply::new(200, content_type, b"data: \xff\xfe\n\n".to_vec())).await;
        assert_eq!(error.kind, ErrorKind::Gateway, "{kind:?} {error}");
    }
}

#[tokio::test]
async fn an_error_event_in_the_stream_is_returned() {
    for kind in KINDS {
        let (content_type, body) = half(kind);
        let (event, expected) = match kind {
            ProviderKind::Anthropic => (
                anthropic::events(&[
                    json!({ "type": "error", "error": { "type": "overloaded_error", "message": "busy" } }),
                ]),
                ErrorKind::Overloaded,
            ),
            ProviderKind::Gemini => (
                sse(&[json!({ "error": { "code": 503, "message": "busy", "status": "UNAVAILABLE" } })]),
                ErrorKind::Overloaded,
            ),
            ProviderKind::Ollama => (ollama::lines(&[json!({ "error": "busy" })]), ErrorKind::Server),
            _ => (sse(&[json!({ "error": { "message": "busy", "type": "server_error" } })]), ErrorKind::Server),
        };
        for end in [FakeEnd::Whole, FakeEnd::Cut, FakeEnd::Hang] {
            // Ollama ends the stream after an error.
            if (kind, end) == (ProviderKind::Ollama, FakeEnd::Hang) {
                continue;
            }
            let error = fails(kind, FakeReply::new(200, content_type, format!("{body}{event}")).ending(end)).await;
            assert_eq!((error.kind, error.charge), (expected, Charge::Unknown), "{kind:?} {end:?} {error}");
            assert!(error.message.contains("busy"), "{kind:?} {end:?} {error}");
        }
    }
}

#[tokio::test]
async fn an_error_body_with_status_200_is_returned_as_an_error() {
    for kind in KINDS {
        let body = json!({ "error": { "type": "overloaded_error", "message": "busy" } }).to_string();
        let error = fails(kind, FakeReply::new(200, "application/json", body)).await;
        assert_eq!((error.kind, error.charge), (ErrorKind::Overloaded, Charge::Unknown), "{kind:?} {error}");
        assert!(error.message.contains("busy"), "{kind:?} {error}");
        let error = fails(kind, FakeReply::new(200, "text/html", "<html>Log in first.</html>")).await;
        assert_eq!((error.kind, error.charge), (ErrorKind::Gateway, Charge::Nothing), "{kind:?} {error}");
    }
}

#[tokio::test]
async fn endless_events_and_endless_error_bodies_are_cut_off() {
    let long_arguments = "x".repeat(9 << 20);
    for kind in KINDS {
        let (content_type, body) = half(kind);
        let line = match kind {
            ProviderKind::Ollama => format!("{body}{{\"message\": {{\"content\": \"{long_arguments}"),
            // Lines, but no empty line that ends the event.
            ProviderKind::Gemini => format!("{body}{}", format!("data: {}\n", "x".repeat(1_000)).repeat(9 << 10)),
            _ => format!("{body}data: {long_arguments}"),
        };
        let reply = FakeReply::new(200, content_type, line).in_pieces(1 << 16).ending(FakeEnd::Hang);
        let error = fails(kind, reply).await;
        assert_eq!((error.kind, error.charge), (ErrorKind::BadAnswer, Charge::Unknown), "{kind:?} {error}");
        assert!(error.message.contains("8388608"), "{kind:?} {error}");
        let error = fails(kind, FakeReply::new(500, "text/plain", long_arguments.clone()).ending(FakeEnd::Hang)).await;
        assert_eq!((error.kind, error.status), (ErrorKind::Server, Some(500)), "{kind:?} {error}");
    }
}

#[tokio::test]
async fn compressed_answers_are_refused() {
    for kind in KINDS {
        let (content_type, body) = half(kind);
        let server = serve(move |_| FakeReply::new(200, content_type, body.clone()).header("content-encoding", "gzip"));
        let server = server.await;
        let failed = adapter(kind, server.url()).complete(&conversation("m"), &mut NoDeltas).await;
        let error = failed.expect_err("a failure");
        assert_eq!((error.kind, error.charge), (ErrorKind::BadAnswer, Charge::Unknown), "{kind:?} {error}");
        assert!(error.message.contains("`gzip`"), "{kind:?} {error}");
        assert_eq!(
            server.requests()[0].headers.get("accept-encoding").map(String::as_str),
            Some("identity"),
            "{kind:?}"
        );
        let error =
            fails(kind, FakeReply::new(529, "text/plain", b"\x1f\x8b".to_vec()).header("content-encoding", "gzip"))
                .await;
        assert_eq!((error.kind, error.status), (ErrorKind::Overloaded, Some(529)), "{kind:?} {error}");
    }
}

#[tokio::test]
async fn line_ends_comments_and_split_characters_make_no_difference() {
    for kind in KINDS {
        let (content_type, body) = match kind {
            ProviderKind::Anthropic => ("text/event-stream", anthropic::events(&anthropic::answer())),
            ProviderKind::Gemini => ("text/event-stream", sse(&gemini::answer())),
            ProviderKind::Ollama => ("application/x-ndjson", ollama::lines(&ollama::answer())),
            _ => {
                let expected =
                    json!({ "choices": [{ "index": 0, "delta": { "content": "ä€" }, "finish_reason": "stop" }] });
                ("text/event-stream", sse(&[expected]) + "data: [DONE]\n\n")
            }
        };
        let mut answers = Vec::new();
        for end in ["\n", "\r\n", "\r"] {
            let comment = if kind == ProviderKind::Ollama { String::new() } else { format!(": ä{end}{end}") };
            for size in [1, 2, 3, 5] {
                let body = format!("{comment}{}", body.replace('\n', end));
                let server = serve(move |_| FakeReply::new(200, content_type, body.clone()).in_pieces(size)).await;
                let answer = adapter(kind, server.url()).complete(&conversation("m"), &mut NoDeltas).await;
                answers.push(answer.unwrap_or_else(|error| panic!("{kind:?} {end:?} {size}: {error}")));
            }
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "{kind:?} {answers:?}");
    }
}

#[tokio::test]
async fn an_answer_with_a_thousand_calls_is_refused() {
    for kind in KINDS {
        let many = |call: Value| std::iter::repeat_n(call, 1_000);
        let (content_type, body) = match kind {
            ProviderKind::Anthropic => {
                let mut list = anthropic::answer();
                let call: Vec<Value> = list[18..21].to_vec();
                list.splice(18..21, many(Value::Null).flat_map(|_| call.clone()));
                ("text/event-stream", anthropic::events(&list))
            }
            ProviderKind::Gemini => {
                let part = json!({ "functionCall": { "name": "workspace__list", "args": {} } });
                let content = json!({ "parts": many(part).collect::<Vec<_>>(), "role": "model" });
                let mut list = gemini::answer();
                list.insert(3, json!({ "candidates": [{ "content": content, "index": 0 }] }));
                ("text/event-stream", sse(&list))
            }
            ProviderKind::Ollama => {
                let call = json!({ "function": { "name": "workspace__list", "arguments": {} } });
                let mut list = ollama::answer();
                list[3]["message"]["tool_calls"] = many(call).collect();
                ("application/x-ndjson", ollama::lines(&list))
            }
            _ => {
                let call = json!({ "id": "", "function": { "name": "workspace__list", "arguments": "{}" } });
                let calls: Vec<Value> = many(call)
                    .enumerate()
                    .map(|(n, mut call)| {
                        call["index"] = n.into();
                        call
                    })
                    .collect();
                let delta = json!({ "choices": [{ "index": 0, "delta": { "tool_calls": calls } }] });
                ("text/event-stream", sse(&[delta]) + "data: [DONE]\n\n")
            }
        };
        let error = fails(kind, FakeReply::new(200, content_type, body)).await;
        assert!(error.kind == ErrorKind::BadAnswer && error.message.contains("256 calls"), "{kind:?} {error}");
    }
}

#[tokio::test]
async fn an_empty_answer_is_refused_unless_it_follows_results() {
    for kind in KINDS {
        let (content_type, body) = match kind {
            ProviderKind::Anthropic => {
                let mut list = anthropic::answer();
                list.drain(1..list.len() - 2);
                list[1]["delta"]["stop_reason"] = json!("end_turn");
                ("text/event-stream", anthropic::events(&list))
            }
            ProviderKind::Gemini => ("text/event-stream", sse(&gemini::answer()[4..])),
            ProviderKind::Ollama => ("application/x-ndjson", ollama::lines(&ollama::answer()[4..])),
            _ => {
                let end = json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] });
                let usage = json!({ "choices": [], "usage": { "prompt_tokens": 100, "completion_tokens": 20 } });
                ("text/event-stream", sse(&[end, usage]) + "data: [DONE]\n\n")
            }
        };
        let server = serve(move |_| FakeReply::new(200, content_type, body.clone())).await;
        let adapter = adapter(kind, server.url());
        let error = adapter.complete(&request("m", "hello"), &mut NoDeltas).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadAnswer, "{kind:?} {error}");
        // The charge is what the provider reports.
        assert_eq!(error.usage.map(|usage| (usage.input, usage.output)), Some((100, 20)), "{kind:?}");
        assert_eq!(ask(&adapter, &conversation("m")).await.blocks, [text("")], "{kind:?}");
    }
}

/// An answer whose calls have 2.5 MiB of arguments, in pieces of 64 KiB.
fn long_arguments(kind: ProviderKind) -> (&'static str, String) {
    const PIECES: usize = 40;
    let piece = "x".repeat(65_536);
    match kind {
        ProviderKind::Anthropic => {
            let mut list = anthropic::answer();
            let delta = json!({ "type": "content_block_delta", "index": 3,
                "delta": { "type": "input_json_delta", "partial_json": piece } });
            // Inserted into the first of the two calls.
            list.splice(16..16, std::iter::repeat_n(delta, PIECES));
            ("text/event-stream", anthropic::events(&list))
        }
        ProviderKind::Gemini => {
            let mut list = gemini::answer();
            let part = json!({ "functionCall": { "name": "workspace__read", "args": { "path": piece } } });
            let call = json!({ "candidates": [{ "content": { "parts": [part], "role": "model" }, "index": 0 }] });
            list.splice(1..1, std::iter::repeat_n(call, PIECES));
            ("text/event-stream", sse(&list))
        }
        ProviderKind::Ollama => {
            let mut list = ollama::answer();
            let call = json!({ "function": { "name": "workspace__read", "arguments": { "path": piece } } });
            let line =
                json!({ "message": { "role": "assistant", "content": "", "tool_calls": [call] }, "done": false });
            list.splice(1..1, std::iter::repeat_n(line, PIECES));
            ("application/x-ndjson", ollama::lines(&list))
        }
        _ => {
            let delta = json!({ "tool_calls": [{ "index": 0, "id": "a",
                "function": { "name": "workspace__read", "arguments": piece } }] });
            let mut list = vec![json!({ "choices": [{ "index": 0, "delta": delta }] }); PIECES];
            list.push(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] }));
            ("text/event-stream", sse(&list) + "data: [DONE]\n\n")
        }
    }
}

#[tokio::test]
async fn arguments_beyond_the_limit_are_refused() {
    for kind in KINDS {
        let (content_type, body) = long_arguments(kind);
        let server = serve(move |_| FakeReply::new(200, content_type, body.clone())).await;
        let adapter = adapter(kind, server.url());
        let turn = |calls_bytes| ModelRequest { calls_bytes, ..conversation("m") };
        // The limit is never below 1 MiB: calls that are too large for their tool are refused
        // later.
        for limit in [0, 2 << 20] {
            let error = adapter.complete(&turn(limit), &mut NoDeltas).await.unwrap_err();
            assert_eq!((error.kind, error.charge), (ErrorKind::BadAnswer, Charge::Unknown), "{kind:?} {error}");
            let expected = format!("more than {} bytes", limit.max(1 << 20));
            assert!(error.message.contains(&expected), "{kind:?} {error}");
        }
        let answer = adapter.complete(&turn(3 << 20), &mut NoDeltas).await.unwrap();
        assert!(!answer.blocks.is_empty(), "{kind:?}");
    }
}

/// A complete answer whose text comes in this many pieces of 64 KiB.
fn long_text(kind: ProviderKind, pieces: usize) -> (&'static str, String) {
    let piece = "word ".repeat(13_107);
    match kind {
        ProviderKind::Anthropic => {
            let mut list = anthropic::answer();
            let at = list.iter().position(|event| event["delta"]["type"] == "text_delta").unwrap();
            let mut delta = list[at].clone();
            delta["delta"]["text"] = json!(piece);
            list.splice(at..at, std::iter::repeat_n(delta, pieces));
            ("text/event-stream", anthropic::events(&list))
        }
        ProviderKind::Gemini => {
            let mut list = gemini::answer();
            let expected =
                json!({ "candidates": [{ "content": { "parts": [{ "text": piece }], "role": "model" }, "index": 0 }] });
            list.splice(1..1, std::iter::repeat_n(expected, pieces));
            ("text/event-stream", sse(&list))
        }
        ProviderKind::Ollama => {
            let mut list = ollama::answer();
            let line = json!({ "message": { "role": "assistant", "content": piece }, "done": false });
            list.splice(1..1, std::iter::repeat_n(line, pieces));
            ("application/x-ndjson", ollama::lines(&list))
        }
        _ => {
            let expected = json!({ "choices": [{ "index": 0, "delta": { "content": piece } }] });
            let mut list = vec![expected; pieces];
            list.push(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }));
            ("text/event-stream", sse(&list) + "data: [DONE]\n\n")
        }
    }
}

#[tokio::test]
async fn text_beyond_the_limit_is_refused_and_the_longest_answers_are_accepted() {
    for kind in KINDS {
        let (content_type, body) = long_text(kind, 33);
        let error = fails(kind, FakeReply::new(200, content_type, body)).await;
        assert_eq!((error.kind, error.charge), (ErrorKind::BadAnswer, Charge::Unknown), "{kind:?} {error}");
        assert!(error.message.contains("2097152"), "{kind:?} {error}");
        // The adapter does not wait for the rest.
        let (content_type, body) = long_text(kind, 40);
        let half = body.len() * 9 / 10;
        let reply = FakeReply::new(200, content_type, body[..half].to_owned()).ending(FakeEnd::Hang);
        assert_eq!(fails(kind, reply).await.kind, ErrorKind::BadAnswer, "{kind:?}");
        let (content_type, body) = long_text(kind, 31);
        let server = serve(move |_| FakeReply::new(200, content_type, body.clone())).await;
        let answer = adapter(kind, server.url()).complete(&conversation("m"), &mut NoDeltas).await.unwrap();
        let expected: usize = answer
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::Text { text } => Some(text.len()),
                _ => None,
            })
            .sum();
        assert!(expected >= 31 * 65_535, "{kind:?} {expected}");
    }
}

#[tokio::test]
async fn a_refused_connection_is_a_network_error_without_charge() {
    for kind in KINDS {
        // A port that was just free, so nothing listens on it.
        let free = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
        let adapter = adapter(kind, format!("http://{free}/v1"));
        let error = adapter.complete(&conversation("m"), &mut NoDeltas).await.unwrap_err();
        assert_eq!((error.kind, error.charge), (ErrorKind::Network, Charge::Nothing), "{kind:?} {error}");
    }
}

/// Notifies when the first piece is shown.
struct FirstPiece(Option<oneshot::Sender<()>>);

impl Deltas for FirstPiece {
    fn text(&mut self, _: &str) {
        if let Some(sender) = self.0.take() {
            sender.send(()).unwrap();
        }
    }
    fn thinking(&mut self, text: &str) {
        self.text(text);
    }
}

#[tokio::test]
async fn dropping_a_call_closes_its_connection() {
    for kind in KINDS {
        let (content_type, body) = half(kind);
        let server = serve(move |_| FakeReply::new(200, content_type, body.clone()).ending(FakeEnd::Hang)).await;
        let adapter = adapter(kind, server.url());
        let (sender, shown) = oneshot::channel();
        let (turn, mut deltas) = (conversation("m"), FirstPiece(Some(sender)));
        let answer = adapter.complete(&turn, &mut deltas);
        match select(answer, shown).await {
            Either::Left((answer, _)) => panic!("{kind:?} ended: {answer:?}"),
            Either::Right((_, answer)) => drop(answer),
        }
        server.idle().await;
    }
}
