//! Answers of OpenAI's Responses API: complete, truncated, interrupted, and too large.

use ghost_domain::transcript::TokenUsage;

use super::responses::{
    REASONING, adapter, call_item, first, first_blocks, item_added, item_done, message, piece, response_ended,
    serve_stream, stream, text_delta,
};
use super::*;
use crate::error::{Charge, ErrorKind, ProviderError};
use crate::model::{NoDeltas, Stop};
use crate::testing::FakeEnd;

async fn ask_for(events: &[String]) -> ModelAnswer {
    ask(&adapter(&serve_stream(stream(events)).await), &conversation("m")).await
}

async fn fails(reply: FakeReply) -> ProviderError {
    let server = serve(move |_| reply.clone()).await;
    adapter(&server).complete(&conversation("m"), &mut NoDeltas).await.expect_err("a failure")
}

#[tokio::test]
async fn the_complete_item_counts_not_its_deltas() {
    let parts = |parts: Value| {
        json!({ "type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": parts })
            .to_string()
    };
    let text_part = |text_part: &str| json!({ "type": "output_text", "text": text_part, "annotations": [] });
    // An item without deltas, an item with two parts, and a second message.
    let two = parts(json!([text_part("One."), text_part("Two.")]));
    let answer = ask_for(&[
        text_delta(0, "One."),
        text_delta(1, "Tw"),
        item_done(&two),
        item_done(&message("msg_2", "final_answer", "Three.")),
        text_delta(0, "Fo"),
        text_delta(0, "ur."),
        item_done(&message("msg_3", "final_answer", "Four.")),
        response_ended("completed", json!({})),
    ])
    .await;
    assert_eq!(
        answer.blocks.iter().filter(|block| matches!(block, Block::Text { .. })).cloned().collect::<Vec<_>>(),
        [text("One.\nTwo."), text("Three."), text("Four.")]
    );
    // Parts and citations are sent back unchanged.
    let Some(Block::Opaque(kept)) = answer.blocks.first() else { panic!("{answer:?}") };
    let kept: Value = serde_json::from_str(&kept.json).unwrap();
    assert_eq!(kept["content"], json!([text_part("One."), text_part("Two.")]));
    let cited =
        json!([{ "type": "output_text", "text": "One.", "annotations": [{ "type": "url_citation", "url": "u" }] }]);
    let answer = ask_for(&[item_done(&parts(cited.clone())), response_ended("completed", json!({}))]).await;
    let mut turn = conversation("m");
    turn.messages_mut().push(Message { role: Role::Assistant, blocks: answer.blocks }.into());
    let server = serve_stream(stream(&[
        item_done(&message("m", "final_answer", "Well.")),
        response_ended("completed", json!({})),
    ]))
    .await;
    ask(&adapter(&server), &turn).await;
    assert_eq!(server.requests()[0].body["input"][7], serde_json::from_str::<Value>(&parts(cited)).unwrap());

    // Shown text that differs from the complete item.
    let body = stream(&[
        text_delta(0, "Nonsense"),
        item_done(&message("msg_1", "final_answer", "Sense.")),
        response_ended("completed", json!({})),
    ]);
    let answer = adapter(&serve_stream(body).await).complete(&request("m", "x"), &mut NoDeltas).await.unwrap();
    assert_eq!(answer.blocks.last(), Some(&text("Sense.")));
}

#[tokio::test]
async fn full_reasoning_is_shown_and_kept() {
    let item =
        r#"{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm, well."}]}"#;
    let answer = ask_for(&[
        piece("reasoning_text", "content_index", 0, "Hm, "),
        piece("reasoning_text", "content_index", 0, "well."),
        item_done(item),
        item_done(&message("msg_1", "final_answer", "Well.")),
        response_ended("completed", json!({})),
    ])
    .await;
    assert_eq!(answer.blocks[..2], [opaque("m", item, false), thought("Hm, well.")]);
}

#[tokio::test]
async fn refusals_and_cut_answers_have_their_stop_reason() {
    let item = json!({ "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
        "content": [{ "type": "refusal", "refusal": "I will not." }] });
    let refusal = |delta: &str| piece("refusal", "content_index", 0, delta);
    let answer = ask_for(&[
        refusal("I will "),
        refusal("not."),
        json!({ "type": "response.refusal.done", "refusal": "I will not." }).to_string(),
        item_done(&item.to_string()),
        response_ended("completed", json!({})),
    ])
    .await;
    assert_eq!((answer.stop, answer.blocks.last()), (Stop::Refused(None), Some(&text("I will not."))));

    let cut = |reason: Value| response_ended("incomplete", json!({ "incomplete_details": { "reason": reason } }));
    for (reason, stop) in [
        (json!("max_output_tokens"), Stop::MaxTokens),
        (json!("content_filter"), Stop::Refused(None)),
        (json!("steered"), Stop::Other("steered".to_owned())),
        (Value::Null, Stop::Other("incomplete".to_owned())),
    ] {
        // Neither the text nor the call is complete.
        let begun = [item_added(json!({ "type": "message" })), text_delta(0, "Half a")];
        let call =
            [item_added(json!({ "type": "function_call" })), piece("function_call_arguments", "output_index", 1, "{")];
        let answer = ask_for(&[&begun[..], &call, &[cut(reason)]].concat()).await;
        assert_eq!((answer.stop, answer.blocks), (stop, vec![text("Half a")]));
        assert_eq!(answer.usage.map(|usage| usage.output), Some(20));
    }
    // The last event has the cut item.
    let item = json!({ "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "n", "arguments": "", "status": "incomplete" });
    let last = response_ended(
        "incomplete",
        json!({ "output": [item], "incomplete_details": { "reason": "max_output_tokens" } }),
    );
    let answer = ask_for(&[last]).await;
    assert_eq!(answer.blocks.last(), Some(&call("call_1", "n", json!(""))));
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_an_error() {
    let list = first();
    // Cut before the last event, within a call, between two calls, and at the beginning.
    for length in [list.len() - 1, 15, 17, 0] {
        for end in [FakeEnd::Cut, FakeEnd::Whole] {
            let error = fails(FakeReply::new(200, "text/event-stream", stream(&list[..length])).ending(end)).await;
            // What ends before it begins is no answer.
            let expected = match (length, end) {
                (0, FakeEnd::Whole) => (ErrorKind::Gateway, Charge::Nothing),
                _ => (ErrorKind::BrokenStream, Charge::Unknown),
            };
            assert_eq!((error.kind, error.charge), expected, "{length} {error}");
        }
    }
    let half = stream(&list[..list.len() - 1]) + "data: {\"type\":\"response.compl";
    assert_eq!(fails(FakeReply::new(200, "text/event-stream", half)).await.kind, ErrorKind::BrokenStream);
    let ended_so = stream(&list[..15]) + "data: [DONE]\n\n";
    assert_eq!(fails(FakeReply::new(200, "text/event-stream", ended_so)).await.kind, ErrorKind::BrokenStream);
    // The server reports a complete answer, but items are missing.
    let item: Value = serde_json::from_str(&call_item(1, "n", "{}")).unwrap();
    for events in [
        vec![item_done(REASONING[0]), item_added(item.clone()), response_ended("completed", json!({}))],
        vec![
            item_done(REASONING[0]),
            response_ended("completed", json!({ "output": [{ "type": "reasoning" }, item] })),
        ],
    ] {
        let error = fails(FakeReply::new(200, "text/event-stream", stream(&events))).await;
        assert_eq!((error.kind, error.charge), (ErrorKind::BrokenStream, Charge::Unknown), "{error}");
        assert_eq!(error.usage.map(|usage| usage.input), Some(100));
    }
    // The end marker is enough.
    for end in [FakeEnd::Cut, FakeEnd::Hang] {
        let server = serve(move |_| FakeReply::new(200, "text/event-stream", stream(&first())).ending(end)).await;
        assert_eq!(ask(&adapter(&server), &conversation("m")).await.blocks, first_blocks("m"));
    }
}

#[tokio::test]
async fn error_events_are_returned_and_garbage_is_a_bad_answer() {
    let begun = stream(&first()[..15]);
    let failed = |code: &str| response_ended("failed", json!({ "error": { "code": code, "message": "busy" } }));
    for (event, kind) in [
        (failed("server_error"), ErrorKind::Server),
        (failed("rate_limit_exceeded"), ErrorKind::RateLimited),
        (failed("invalid_prompt"), ErrorKind::BadRequest),
        (failed("invalid_encrypted_content"), ErrorKind::StaleState),
        (response_ended("failed", json!({ "error": null })), ErrorKind::Server),
        (
            json!({ "type": "error", "code": "context_length_exceeded", "message": "x" }).to_string(),
            ErrorKind::ContextTooLong,
        ),
        (
            json!({ "type": "error", "error": { "type": "rate_limit_error", "message": "x" } }).to_string(),
            ErrorKind::RateLimited,
        ),
        (json!({ "error": { "type": "overloaded_error", "message": "x" } }).to_string(), ErrorKind::Overloaded),
    ] {
        for body in [stream(std::slice::from_ref(&event)), begun.clone() + &stream(std::slice::from_ref(&event))] {
            for end in [FakeEnd::Whole, FakeEnd::Hang] {
                let error = fails(FakeReply::new(200, "text/event-stream", body.clone()).ending(end)).await;
                assert_eq!((error.kind, error.charge), (kind, Charge::Unknown), "{event} {error}");
                assert_eq!(error.usage.is_some(), event.contains("response.failed"), "{event}");
            }
        }
    }
    for garbage in [
        "nonsense",
        "[]",
        "{\"type\":7}",
        "{\"type\":\"response.output_item.done\"}",
        "{\"type\":\"response.output_item.done\",\"item\":[]}",
        "{\"type\":\"response.output_item.done\",\"item\":{\"type\":\"message\",\"content\":\"x\"}}",
        "{\"type\":\"response.output_item.done\",\"item\":{\"type\":\"function_call\",\"call_id\":\"x\"}}",
        "{\"type\":\"response.output_text.delta\",\"delta\":{}}",
        "{\"type\":\"response.completed\"}",
    ] {
        let body = format!("{begun}data: {garbage}\n\n");
        let error = fails(FakeReply::new(200, "text/event-stream", body).ending(FakeEnd::Hang)).await;
        assert_eq!((error.kind, error.charge), (ErrorKind::BadAnswer, Charge::Unknown), "{garbage} {error}");
    }
    for (status, body, kind) in [
        (404, r#"{"error":{"message":"Unknown request URL","code":"unknown_url"}}"#, ErrorKind::UnknownModel),
        (
            404,
            r#"{"error":{"message":"The model `m` does not exist","code":"model_not_found"}}"#,
            ErrorKind::UnknownModel,
        ),
        (401, "{}", ErrorKind::Unauthorized),
    ] {
        let error = fails(FakeReply::new(status, "application/json", body)).await;
        assert_eq!((error.kind, error.status), (kind, Some(status)), "{error}");
    }
}

#[tokio::test]
async fn an_answer_in_one_body_is_read() {
    let output = [REASONING[0].to_owned(), message("msg_1", "commentary", "Two files.")];
    let output = [
        &output[..],
        &[call_item(1, "workspace__read", "{\"path\":\"ä.md\"}"), call_item(2, "workspace__list", "{\"path\": 7")],
    ]
    .concat();
    let whole = |status: &str, more: &str| {
        format!(
            r#"{{"id":"resp_1","object":"response",{status}{more} "output":[{}],"usage":{{"input_tokens":100,"output_tokens":20}}}}"#,
            output.join(",")
        )
    };
    for (status, more, stop) in [
        (r#""status":"completed","#, "", Stop::ToolUse),
        ("", r#""error":null,"#, Stop::ToolUse),
        (r#""status":"incomplete","#, r#""incomplete_details":{"reason":"max_output_tokens"},"#, Stop::MaxTokens),
    ] {
        let body = whole(status, more);
        let server = serve(move |_| FakeReply::new(200, "application/json", body.clone()).in_pieces(7)).await;
        let answer = ask(&adapter(&server), &conversation("m")).await;
        assert_eq!((answer.blocks, answer.stop), (first_blocks("m"), stop));
        assert_eq!(answer.usage, Some(TokenUsage { input: 100, output: 20, ..TokenUsage::default() }));
    }
    for (body, kind) in [
        (whole(r#""status":"failed","#, r#""error":{"code":"server_error","message":"x"},"#), ErrorKind::Server),
        (whole(r#""status":"queued","#, ""), ErrorKind::Server),
        (r#"{"error":{"type":"overloaded_error","message":"busy"}}"#.to_owned(), ErrorKind::Overloaded),
        ("{}".to_owned(), ErrorKind::Gateway),
        ("nonsense".to_owned(), ErrorKind::Gateway),
    ] {
        let charge = if kind == ErrorKind::Gateway { Charge::Nothing } else { Charge::Unknown };
        let error = fails(FakeReply::new(200, "application/json", body.clone())).await;
        assert_eq!((error.kind, error.charge), (kind, charge), "{body} {error}");
    }
}

#[tokio::test]
async fn all_parts_of_an_answer_are_limited() {
    let many = |event: String, count: usize| stream(&vec![event; count]);
    let large = "x".repeat(1 << 16);
    let encrypted = format!(r#"{{"type":"reasoning","id":"r","summary":[],"encrypted_content":"{large}"}}"#);
    let end = stream(&[response_ended("completed", json!({}))]);
    for (body, text_part) in [
        (many(text_delta(0, &large), 33), "text"),
        (many(piece("reasoning_summary_text", "summary_index", 0, &large), 33), "text"),
        (many(item_done(&encrypted), 33), "text"),
        (many(item_done(&format!(r#"{{"type":"new","x":"{large}"}}"#)), 33), "text"),
        (many(piece("function_call_arguments", "output_index", 0, &large), 17), "arguments"),
        (many(item_done(&call_item(1, "n", &large)), 17), "arguments"),
        (many(item_done(&call_item(1, "n", "{}")), 257), "256 calls"),
        (format!("data: {}", "x".repeat(9 << 20)), "8388608 bytes"),
    ] {
        let reply = FakeReply::new(200, "text/event-stream", body).in_pieces(1 << 16).ending(FakeEnd::Hang);
        let error = fails(reply).await;
        let begun = !text_part.ends_with("bytes");
        assert_eq!(error.kind, if begun { ErrorKind::BadAnswer } else { ErrorKind::Gateway }, "{error}");
        assert!(error.message.contains(text_part), "{text_part}: {error}");
    }
    // The longest answers are accepted: deltas and the complete item are not both counted.
    let text_part = large.repeat(31);
    let body =
        many(text_delta(0, &large), 31) + &stream(&[item_done(&message("m", "final_answer", &text_part))]) + &end;
    let server = serve(move |_| FakeReply::new(200, "text/event-stream", body.clone())).await;
    assert_eq!(ask(&adapter(&server), &conversation("m")).await.blocks.last(), Some(&text(&text_part)));
}

#[tokio::test]
async fn an_empty_answer_is_refused_unless_it_follows_results() {
    let server = serve_stream(stream(&[item_done(REASONING[1]), response_ended("completed", json!({}))])).await;
    let error = adapter(&server).complete(&request("m", "x"), &mut NoDeltas).await.unwrap_err();
    assert_eq!((error.kind, error.usage.map(|usage| usage.output)), (ErrorKind::BadAnswer, Some(20)));
    assert_eq!(ask(&adapter(&server), &conversation("m")).await.blocks.last(), Some(&text("")));
}
