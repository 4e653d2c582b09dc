//! Answers of OpenAI's Responses API: whole, cut, broken off, and without end.

use ghost_domain::transcript::TokenUsage;

use super::responses::{
    REASONING, adapter, added, done, ended, first, first_blocks, made, message, piece, said, served, stream,
};
use super::*;
use crate::error::{Charge, ErrorKind, ProviderError};
use crate::model::{NoDeltas, Stop};
use crate::testing::FakeEnd;

async fn ask_for(events: &[String]) -> ModelAnswer {
    ask(&adapter(&served(stream(events)).await), &conversation("m")).await
}

async fn fails(reply: FakeReply) -> ProviderError {
    let server = serve(move |_| reply.clone()).await;
    adapter(&server).complete(&conversation("m"), &mut NoDeltas).await.expect_err("a failure")
}

#[tokio::test]
async fn what_is_said_when_an_item_is_done_counts() {
    let parts = |parts: Value| {
        json!({ "type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": parts })
            .to_string()
    };
    let words = |words: &str| json!({ "type": "output_text", "text": words, "annotations": [] });
    // Nothing shown on the way, parts that are apart, and a second message.
    let two = parts(json!([words("One."), words("Two.")]));
    let answer = ask_for(&[
        said(0, "One."),
        said(1, "Tw"),
        done(&two),
        done(&message("msg_2", "final_answer", "Three.")),
        said(0, "Fo"),
        said(0, "ur."),
        done(&message("msg_3", "final_answer", "Four.")),
        ended("completed", json!({})),
    ])
    .await;
    assert_eq!(
        answer.blocks.iter().filter(|block| matches!(block, Block::Text { .. })).cloned().collect::<Vec<_>>(),
        [text("One.\nTwo."), text("Three."), text("Four.")]
    );
    // Parts and citations go back as they came.
    let Some(Block::Opaque(kept)) = answer.blocks.first() else { panic!("{answer:?}") };
    let kept: Value = serde_json::from_str(&kept.json).unwrap();
    assert_eq!(kept["content"], json!([words("One."), words("Two.")]));
    let cited =
        json!([{ "type": "output_text", "text": "One.", "annotations": [{ "type": "url_citation", "url": "u" }] }]);
    let answer = ask_for(&[done(&parts(cited.clone())), ended("completed", json!({}))]).await;
    let mut turn = conversation("m");
    turn.messages.push(Message { role: Role::Assistant, blocks: answer.blocks });
    let server = served(stream(&[done(&message("m", "final_answer", "Well.")), ended("completed", json!({}))])).await;
    ask(&adapter(&server), &turn).await;
    assert_eq!(server.requests()[0].body["input"][7], serde_json::from_str::<Value>(&parts(cited)).unwrap());

    // Words that were shown and are not so.
    let body = stream(&[
        said(0, "Nonsense"),
        done(&message("msg_1", "final_answer", "Sense.")),
        ended("completed", json!({})),
    ]);
    let answer = adapter(&served(body).await).complete(&request("m", "x"), &mut NoDeltas).await.unwrap();
    assert_eq!(answer.blocks.last(), Some(&text("Sense.")));
}

#[tokio::test]
async fn thoughts_in_full_are_shown_and_kept_too() {
    let item =
        r#"{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm, well."}]}"#;
    let answer = ask_for(&[
        piece("reasoning_text", "content_index", 0, "Hm, "),
        piece("reasoning_text", "content_index", 0, "well."),
        done(item),
        done(&message("msg_1", "final_answer", "Well.")),
        ended("completed", json!({})),
    ])
    .await;
    assert_eq!(answer.blocks[..2], [opaque("m", item, false), thought("Hm, well.")]);
}

#[tokio::test]
async fn refusals_and_cut_answers_are_told() {
    let item = json!({ "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
        "content": [{ "type": "refusal", "refusal": "I will not." }] });
    let refusal = |delta: &str| piece("refusal", "content_index", 0, delta);
    let answer = ask_for(&[
        refusal("I will "),
        refusal("not."),
        json!({ "type": "response.refusal.done", "refusal": "I will not." }).to_string(),
        done(&item.to_string()),
        ended("completed", json!({})),
    ])
    .await;
    assert_eq!((answer.stop, answer.blocks.last()), (Stop::Refused(None), Some(&text("I will not."))));

    let cut = |reason: Value| ended("incomplete", json!({ "incomplete_details": { "reason": reason } }));
    for (reason, stop) in [
        (json!("max_output_tokens"), Stop::MaxTokens),
        (json!("content_filter"), Stop::Refused(None)),
        (json!("steered"), Stop::Other("steered".to_owned())),
        (Value::Null, Stop::Other("incomplete".to_owned())),
    ] {
        // Neither the words nor the call came to their end.
        let begun = [added(json!({ "type": "message" })), said(0, "Half a")];
        let call =
            [added(json!({ "type": "function_call" })), piece("function_call_arguments", "output_index", 1, "{")];
        let answer = ask_for(&[&begun[..], &call, &[cut(reason)]].concat()).await;
        assert_eq!((answer.stop, answer.blocks), (stop, vec![text("Half a")]));
        assert_eq!(answer.usage.map(|usage| usage.output), Some(20));
    }
    // The last event has what was cut.
    let item = json!({ "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "n", "arguments": "", "status": "incomplete" });
    let last =
        ended("incomplete", json!({ "output": [item], "incomplete_details": { "reason": "max_output_tokens" } }));
    let answer = ask_for(&[last]).await;
    assert_eq!(answer.blocks.last(), Some(&call("call_1", "n", json!(""))));
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_no_answer() {
    let list = first();
    // Before the last event, in the middle of a call, between two calls, and at once.
    for length in [list.len() - 1, 15, 17, 0] {
        for end in [FakeEnd::Cut, FakeEnd::Whole] {
            let error = fails(FakeReply::new(200, "text/event-stream", stream(&list[..length])).ending(end)).await;
            assert_eq!((error.kind, error.charge), (ErrorKind::BrokenStream, Charge::Unknown), "{length} {error}");
        }
    }
    let half = stream(&list[..list.len() - 1]) + "data: {\"type\":\"response.compl";
    assert_eq!(fails(FakeReply::new(200, "text/event-stream", half)).await.kind, ErrorKind::BrokenStream);
    let ended_so = stream(&list[..15]) + "data: [DONE]\n\n";
    assert_eq!(fails(FakeReply::new(200, "text/event-stream", ended_so)).await.kind, ErrorKind::BrokenStream);
    // Complete, it says, and not all of it came.
    let item: Value = serde_json::from_str(&made(1, "n", "{}")).unwrap();
    for events in [
        vec![done(REASONING[0]), added(item.clone()), ended("completed", json!({}))],
        vec![done(REASONING[0]), ended("completed", json!({ "output": [{ "type": "reasoning" }, item] }))],
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
async fn errors_in_the_stream_are_those_errors_and_garbage_is_a_bad_answer() {
    let begun = stream(&first()[..15]);
    let failed = |code: &str| ended("failed", json!({ "error": { "code": code, "message": "busy" } }));
    for (event, kind) in [
        (failed("server_error"), ErrorKind::Server),
        (failed("rate_limit_exceeded"), ErrorKind::RateLimited),
        (failed("invalid_prompt"), ErrorKind::BadRequest),
        (failed("invalid_encrypted_content"), ErrorKind::StaleState),
        (ended("failed", json!({ "error": null })), ErrorKind::Server),
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
        (404, r#"{"error":{"message":"Unknown request URL","code":"unknown_url"}}"#, ErrorKind::BadRequest),
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
async fn an_answer_in_one_piece_is_read_too() {
    let output = [REASONING[0].to_owned(), message("msg_1", "commentary", "Two files.")];
    let output =
        [&output[..], &[made(1, "workspace__read", "{\"path\":\"ä.md\"}"), made(2, "workspace__list", "{\"path\": 7")]]
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
        ("{}".to_owned(), ErrorKind::BadAnswer),
        ("nonsense".to_owned(), ErrorKind::BadAnswer),
    ] {
        let error = fails(FakeReply::new(200, "application/json", body.clone())).await;
        assert_eq!((error.kind, error.charge), (kind, Charge::Unknown), "{body} {error}");
    }
}

#[tokio::test]
async fn everything_that_is_kept_or_under_way_is_bounded() {
    let many = |event: String, count: usize| stream(&vec![event; count]);
    let large = "x".repeat(1 << 16);
    let encrypted = format!(r#"{{"type":"reasoning","id":"r","summary":[],"encrypted_content":"{large}"}}"#);
    let end = stream(&[ended("completed", json!({}))]);
    for (body, words) in [
        (many(said(0, &large), 33), "words"),
        (many(piece("reasoning_summary_text", "summary_index", 0, &large), 33), "words"),
        (many(done(&encrypted), 33), "words"),
        (many(done(&format!(r#"{{"type":"new","x":"{large}"}}"#)), 33), "words"),
        (many(piece("function_call_arguments", "output_index", 0, &large), 17), "arguments"),
        (many(done(&made(1, "n", &large)), 17), "arguments"),
        (many(done(&made(1, "n", "{}")), 257), "256 calls"),
        (format!("data: {}", "x".repeat(9 << 20)), "8388608 bytes"),
    ] {
        let reply = FakeReply::new(200, "text/event-stream", body).in_pieces(1 << 16).ending(FakeEnd::Hang);
        let error = fails(reply).await;
        assert_eq!((error.kind, error.charge), (ErrorKind::BadAnswer, Charge::Unknown), "{error}");
        assert!(error.message.contains(words), "{words}: {error}");
    }
    // The longest answers are taken. Deltas and the finished item are not both kept.
    let words = large.repeat(31);
    let body = many(said(0, &large), 31) + &stream(&[done(&message("m", "final_answer", &words))]) + &end;
    let server = serve(move |_| FakeReply::new(200, "text/event-stream", body.clone())).await;
    assert_eq!(ask(&adapter(&server), &conversation("m")).await.blocks.last(), Some(&text(&words)));
}

#[tokio::test]
async fn an_empty_answer_is_a_bad_one_unless_it_follows_results() {
    let server = served(stream(&[done(REASONING[1]), ended("completed", json!({}))])).await;
    let error = adapter(&server).complete(&request("m", "x"), &mut NoDeltas).await.unwrap_err();
    assert_eq!((error.kind, error.usage.map(|usage| usage.output)), (ErrorKind::BadAnswer, Some(20)));
    assert_eq!(ask(&adapter(&server), &conversation("m")).await.blocks.last(), Some(&text("")));
}
