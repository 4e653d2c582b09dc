//! Tests of Ollama's own chat API.

use ghost_domain::transcript::TokenUsage;

use super::*;
use crate::error::{Charge, ErrorKind};
use crate::estimate::estimate_tokens;
use crate::model::{NoDeltas, Stop};

pub(super) fn answer() -> Vec<Value> {
    let line = |message: Value| json!({ "model": "llama-x", "created_at": "2025-01-01T00:00:00Z", "message": message, "done": false });
    vec![
        line(json!({ "role": "assistant", "content": "", "thinking": "Let me think." })),
        line(json!({ "role": "assistant", "content": "Two " })),
        line(json!({ "role": "assistant", "content": "files." })),
        line(json!({ "role": "assistant", "content": "", "tool_calls": [
            { "function": { "name": "workspace__read", "arguments": { "path": "ä.md" } } },
            { "function": { "name": "workspace__list", "arguments": { "path": "b" } } },
        ] })),
        json!({ "model": "llama-x", "created_at": "2025-01-01T00:00:01Z", "message": { "role": "assistant", "content": "" },
            "done": true, "done_reason": "stop", "total_duration": 9, "prompt_eval_count": 100, "eval_count": 20 }),
    ]
}

pub(super) fn lines(list: &[Value]) -> String {
    list.iter().map(|line| format!("{line}\n")).collect()
}

// covers: LOOP-05
#[tokio::test]
async fn a_streamed_answer_is_assembled_and_the_request_is_as_documented() {
    let server = serve(|_| FakeReply::new(200, "application/x-ndjson", lines(&answer())).in_pieces(13)).await;
    let adapter = adapter(ProviderKind::Ollama, server.url());
    let mut request = conversation("llama-x:8b");
    (request.thinking, request.window_tokens) = (Some(Thinking::High), Some(32_768));
    let answer = ask(&adapter, &request).await;
    assert_eq!(
        answer.blocks,
        [
            opaque("llama-x:8b", "{}", true),
            thought("Let me think."),
            text("Two files."),
            call("call-3", "workspace.read", json!({ "path": "ä.md" })),
            call("call-4", "workspace.list", json!({ "path": "b" })),
        ]
    );
    assert_eq!(answer.stop, Stop::ToolUse);
    assert_eq!(answer.usage, Some(TokenUsage { input: 100, output: 20, ..TokenUsage::default() }));

    let sent = server.requests().remove(0);
    assert_eq!(sent.path, "/api/chat");
    assert_eq!(sent.headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(sent.body["model"], "llama-x:8b");
    assert_eq!(sent.body["stream"], true);
    assert_eq!(sent.body["options"], json!({ "num_ctx": 32_768, "num_predict": 777, "temperature": 0.5 }));
    // Ollama must refuse a conversation that is too long, not truncate it.
    assert_eq!((&sent.body["truncate"], &sent.body["think"]), (&json!(false), &json!(true)));
    assert_eq!(sent.body["tools"][1]["function"]["name"], "workspace__read");
    assert_eq!(sent.body["tools"][1]["function"]["parameters"], request.tools[1].parameters);
    assert_eq!(
        sent.body["messages"],
        json!([
            { "role": "system", "content": "You are careful." },
            { "role": "user", "content": "The briefing." },
            { "role": "user", "content": "The mail." },
            { "role": "assistant", "content": "Reading.", "tool_calls": [
                { "id": "c1", "function": { "name": "workspace__read", "arguments": { "path": "a.md" } } },
                { "id": "c2", "function": { "name": "workspace__list", "arguments": { "path": "b" } } },
            ] },
            { "role": "tool", "tool_name": "workspace__read", "tool_call_id": "c1", "content": "content of a" },
            { "role": "tool", "tool_name": "workspace__list", "tool_call_id": "c2", "content": "{\"error\":\"no\"}" },
        ])
    );
}

#[tokio::test]
async fn missing_counts_of_a_whole_answer_are_estimated() {
    let estimated = estimate_tokens(&conversation("m"));
    // The thought, the text and two calls.
    let received = 27;
    for (counts, expected) in [
        (json!({ "prompt_eval_count": 100 }), (100, received)),
        (json!({ "prompt_eval_count": 0, "eval_count": 0 }), (estimated, received)),
        (json!({ "prompt_eval_count": -100, "eval_count": 20 }), (estimated, 20)),
        (json!({ "prompt_eval_count": 2_000_000_000, "eval_count": 20 }), (estimated, 20)),
        // A cached prompt is not read again, and older versions then omit its count.
        (json!({ "eval_count": 20 }), (estimated, 20)),
        (json!({ "prompt_eval_count": 0, "eval_count": 20 }), (estimated, 20)),
        (json!({ "prompt_eval_count": 7, "eval_count": 20 }), (7, 20)),
    ] {
        let mut list = answer();
        let last = list.last_mut().unwrap().as_object_mut().unwrap();
        last.retain(|key, _| !key.ends_with("eval_count"));
        last.extend(counts.as_object().unwrap().clone());
        let body = lines(&list);
        let server = serve(move |_| FakeReply::new(200, "application/x-ndjson", body.clone())).await;
        let answer = ask(&adapter(ProviderKind::Ollama, server.url()), &conversation("m")).await;
        assert_eq!(answer.usage.map(|usage| (usage.input, usage.output)), Some(expected), "{counts}");
        assert_eq!(answer.estimated, expected != (7, 20), "{counts}");
    }
    // The usage of an invalid answer is unknown.
    let mut end = answer().pop().unwrap();
    end.as_object_mut().unwrap().remove("prompt_eval_count");
    let server = serve(move |_| FakeReply::new(200, "application/x-ndjson", lines(&[end.clone()]))).await;
    let adapter = adapter(ProviderKind::Ollama, server.url());
    let error = adapter.complete(&request("m", "hello"), &mut NoDeltas).await.unwrap_err();
    assert_eq!((error.kind, error.usage, error.charge), (ErrorKind::BadAnswer, None, Charge::Unknown));
}

#[tokio::test]
async fn a_conversation_that_is_too_long_gives_that_error() {
    // Servers of different ages report it in different ways.
    for body in [
        json!({ "error": "the input length exceeds the context length" }),
        json!({ "error": json!({ "error": { "code": 400, "type": "exceed_context_size_error", "n_ctx": 4096,
            "message": "request (8889 tokens) exceeds the available context size (4096 tokens), try increasing it" } }).to_string() }),
    ] {
        let server = serve(move |_| FakeReply::new(400, "application/json", body.to_string())).await;
        let adapter = adapter(ProviderKind::Ollama, server.url());
        let error = adapter.complete(&conversation("m"), &mut NoDeltas).await.unwrap_err();
        assert_eq!((error.kind, error.charge), (ErrorKind::ContextTooLong, Charge::Nothing), "{error}");
        assert_eq!(server.requests()[0].body["options"].get("num_ctx"), None, "no window was given");
    }
}
