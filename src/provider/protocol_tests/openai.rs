//! Tests of OpenAI's chat completions.

use ghost_domain::transcript::TokenUsage;

use super::*;
use crate::model::Stop;
use crate::testing::{FakeAnswer, FakeEnd, FakeOpenAi};

fn chunk(delta: Value, reason: Value) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-x-2025",
        "choices": [{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason }], "usage": null,
    })
}

fn answer() -> String {
    let call = |index: u64, id: &str, name: &str| json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": { "name": name, "arguments": "" } }] });
    let more = |index: u64, fragment: &str| json!({ "tool_calls": [{ "index": index, "function": { "arguments": fragment } }] });
    sse(&[
        chunk(json!({ "role": "assistant", "content": "" }), Value::Null),
        chunk(json!({ "reasoning_content": "Let me " }), Value::Null),
        chunk(json!({ "reasoning_content": "think." }), Value::Null),
        chunk(json!({ "content": "Two " }), Value::Null),
        chunk(json!({ "content": "files." }), Value::Null),
        chunk(call(0, "call_a", "workspace__read"), Value::Null),
        chunk(more(0, "{\"pa"), Value::Null),
        chunk(call(1, "call_b", "workspace__list"), Value::Null),
        chunk(more(0, "th\":\"ä.md\"}"), Value::Null),
        chunk(more(1, "{\"path\": 7"), Value::Null),
        chunk(json!({}), json!("tool_calls")),
        json!({
            "id": "chatcmpl-1", "choices": [],
            "usage": { "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
                "prompt_tokens_details": { "cached_tokens": 64, "audio_tokens": 0 } },
        }),
    ]) + "data: [DONE]\n\n"
}

// covers: LOOP-05
#[tokio::test]
async fn a_streamed_answer_is_assembled_and_the_request_is_as_documented() {
    // In pieces of 7 bytes, so that events, characters and fragments are split everywhere.
    let server = serve(|_| FakeReply::new(200, "text/event-stream", answer()).in_pieces(7)).await;
    let adapter = adapter(ProviderKind::OpenAi, format!("{}/v1", server.url()));
    let mut request = conversation("gpt-x");
    request.thinking = Some(Thinking::Low);
    let answer = ask(&adapter, &request).await;
    assert_eq!(
        answer.blocks,
        [
            opaque("gpt-x", r#"{"field":"reasoning_content"}"#, true),
            thought("Let me think."),
            text("Two files."),
            call("call_a", "workspace.read", json!({ "path": "ä.md" })),
            call("call_b", "workspace.list", json!("{\"path\": 7")),
        ]
    );
    assert_eq!(answer.stop, Stop::ToolUse);
    assert_eq!(answer.usage, Some(TokenUsage { input: 100, output: 20, cache_read: 64, cache_write: 0 }));

    let sent = server.requests().remove(0);
    assert_eq!(sent.path, "/v1/chat/completions");
    assert_eq!(sent.headers["authorization"], format!("Bearer {KEY}"));
    let parameters = &request.tools[0].parameters;
    let function = |name: &str, what: &str| json!({ "name": name, "description": what, "parameters": parameters });
    let made = |id: &str, name: &str, path: &str| {
        let arguments = json!({ "path": path }).to_string();
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    };
    assert_eq!(
        sent.body,
        json!({
            "model": "gpt-x", "stream": true, "stream_options": { "include_usage": true },
            "max_tokens": 777, "temperature": 0.5, "reasoning_effort": "low",
            "tools": [
                { "type": "function", "function": function("workspace__list", "Does workspace.list.") },
                { "type": "function", "function": function("workspace__read", "Does workspace.read.") },
            ],
            "messages": [
                { "role": "system", "content": "You are careful." },
                { "role": "user", "content": "The briefing." },
                { "role": "user", "content": "The mail." },
                { "role": "assistant", "content": "Reading.", "tool_calls": [
                    made("c1", "workspace__read", "a.md"), made("c2", "workspace__list", "b"),
                ] },
                { "role": "tool", "tool_call_id": "c1", "content": "content of a" },
                { "role": "tool", "tool_call_id": "c2", "content": "{\"error\":\"no\"}" },
            ],
        })
    );
}

#[tokio::test]
async fn deviations_of_compatible_servers_are_handled() {
    let delta = |name: &str, id: Value, index: Value| {
        let function = json!({ "name": name, "arguments": { "path": name } });
        chunk(json!({ "tool_calls": [{ "index": index, "id": id, "function": function }] }), Value::Null)
    };
    let end = chunk(json!({}), json!("stop"));
    let args = |name: &str| json!({ "path": name });
    for (events, blocks) in [
        // Every call has the same index, with different ids.
        (
            vec![delta("a", json!("x"), json!(0)), delta("b", json!("y"), json!(0)), end.clone()],
            vec![call("x", "a", args("a")), call("y", "b", args("b"))],
        ),
        // No ids: Ghost's ids continue the count of the conversation, which has two calls already.
        (
            vec![delta("a", Value::Null, json!(0)), delta("b", json!(""), json!(1)), end.clone()],
            vec![call("call-3", "a", args("a")), call("call-4", "b", args("b"))],
        ),
        // No ids, and every call has the same index.
        (
            vec![delta("a", Value::Null, json!(0)), delta("b", json!(""), json!(0)), end.clone()],
            vec![call("call-3", "a", args("a")), call("call-4", "b", args("b"))],
        ),
        // An id that the conversation has already.
        (vec![delta("a", json!("c1"), Value::Null), end.clone()], vec![call("call-3", "a", args("a"))]),
        // A huge index allocates no memory.
        (vec![delta("a", json!("x"), json!(u64::MAX)), end.clone()], vec![call("x", "a", args("a"))]),
        // Parts instead of text.
        (
            vec![chunk(json!({ "content": [{ "type": "text", "text": "hi" }] }), Value::Null), end.clone()],
            vec![text("hi")],
        ),
        // Calls among the parts, in every spelling; the one without an id is dropped.
        (
            vec![
                chunk(
                    json!({ "content": [
                        { "type": "toolCall", "id": "x", "name": "a", "arguments": args("a") },
                        { "type": "tool_use", "id": "y", "name": "b", "input": "{\"path\": \"b\"}" },
                        { "type": "functionCall", "id": "", "name": "c", "args": {} },
                        { "type": "image", "data": "x" },
                    ] }),
                    Value::Null,
                ),
                end.clone(),
            ],
            vec![call("x", "a", args("a")), call("y", "b", args("b"))],
        ),
        // An empty answer after results.
        (vec![end.clone()], vec![text("")]),
    ] {
        // Some servers end without `[DONE]`; the finish reason was received.
        let body = sse(&events);
        let server = serve(move |_| FakeReply::new(200, "text/event-stream", body.clone())).await;
        let adapter = adapter(ProviderKind::OpenAi, server.url());
        let answer = ask(&adapter, &conversation("m")).await;
        assert_eq!(answer.blocks, blocks);
        assert!(answer.estimated);
    }
}

#[tokio::test]
async fn invented_names_and_arguments_are_sent_back_in_a_valid_form() {
    let server = FakeOpenAi::start(|_| FakeAnswer::say("well")).await.unwrap();
    let mut turn = conversation("m");
    turn.messages_mut()[2].blocks =
        vec![call("c1", "Read the File!", json!("{\"pa")), call("c2", "workspace.list", Value::Null)];
    ask(&adapter(ProviderKind::OpenAi, server.base_url()), &turn).await;
    let sent = server.requests().remove(0).body["messages"][3]["tool_calls"].clone();
    let function = |n: usize| (sent[n]["function"]["name"].clone(), sent[n]["function"]["arguments"].clone());
    assert_eq!(function(0), (json!("Read_the_File_"), json!("{\"_unparsed\":\"{\\\"pa\"}")));
    assert_eq!(function(1), (json!("workspace__list"), json!("{}")));
}

#[tokio::test]
async fn unusable_counts_are_estimated_and_missing_ones_are_derived() {
    let tokens_of = |input, output| Some(TokenUsage { input, output, ..TokenUsage::default() });
    let input = crate::estimate::estimate_tokens(&conversation("m"));
    for (usage, expected) in [
        (json!({}), tokens_of(input, 4)),
        (Value::Null, tokens_of(input, 4)),
        (json!({ "total_tokens": 105 }), tokens_of(input, 4)),
        (json!({ "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 }), tokens_of(input, 4)),
        (json!({ "prompt_tokens": 100, "completion_tokens": null }), tokens_of(100, 4)),
        (json!({ "prompt_tokens": -100, "completion_tokens": 5 }), tokens_of(input, 5)),
        (json!({ "prompt_tokens": 1e300, "completion_tokens": 5 }), tokens_of(input, 5)),
        (json!({ "prompt_tokens": 100, "completion_tokens": null, "total_tokens": 105 }), tokens_of(100, 5)),
        (
            json!({ "prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 605,
                "completion_tokens_details": { "reasoning_tokens": 500 } }),
            tokens_of(100, 505),
        ),
    ] {
        let events = [
            chunk(json!({ "content": "Two files." }), Value::Null),
            chunk(json!({}), json!("stop")),
            json!({ "choices": [], "usage": usage }),
        ];
        let body = sse(&events) + "data: [DONE]\n\n";
        let server = serve(move |_| FakeReply::new(200, "text/event-stream", body.clone())).await;
        let answer = ask(&adapter(ProviderKind::OpenAi, server.url()), &conversation("m")).await;
        assert_eq!((answer.blocks, answer.usage), (vec![text("Two files.")], expected), "{usage}");
    }
}

#[tokio::test]
async fn counts_of_a_broken_answer_are_not_used() {
    let so_far = json!({ "choices": [{ "index": 0, "delta": { "content": "Two" } }],
        "usage": { "prompt_tokens": 100, "completion_tokens": 1 } });
    let body = sse(&[so_far]) + "data: {\"choices\": nonsense\n\n";
    let server = serve(move |_| FakeReply::new(200, "text/event-stream", body.clone())).await;
    let adapter = adapter(ProviderKind::OpenAi, server.url());
    let error = adapter.complete(&conversation("m"), &mut crate::model::NoDeltas).await.unwrap_err();
    assert_eq!((error.kind, error.usage), (crate::ErrorKind::BadAnswer, None));
}

#[tokio::test]
async fn an_answer_in_one_body_and_a_cut_answer_are_read() {
    let whole = json!({ "choices": [{ "message": { "role": "assistant", "content": "Half a" }, "finish_reason": "length" }],
        "usage": { "prompt_tokens": 1, "completion_tokens": 2 } });
    let server = serve(move |_| FakeReply::new(200, "application/json", whole.to_string())).await;
    let answer = ask(&adapter(ProviderKind::OpenAi, server.url()), &request("m", "x")).await;
    assert_eq!((answer.blocks, answer.stop), (vec![text("Half a")], Stop::MaxTokens));
}

#[tokio::test]
async fn the_answer_is_complete_at_the_end_marker() {
    for end in [FakeEnd::Cut, FakeEnd::Hang] {
        let server = serve(move |_| FakeReply::new(200, "text/event-stream", answer()).ending(end)).await;
        let answer = ask(&adapter(ProviderKind::OpenAi, server.url()), &conversation("m")).await;
        assert_eq!(answer.blocks.len(), 5);
    }
}

#[tokio::test]
async fn the_adapter_reads_the_fake_servers_answers() {
    let server = FakeOpenAi::start(|request| match request.rounds() {
        0 => FakeAnswer::call("c-1", "workspace.read", json!({ "path": request.last_of("user") })),
        _ => FakeAnswer::say(format!("It says:\n{}", request.last_of("tool"))),
    })
    .await
    .unwrap();
    let adapter = adapter(ProviderKind::OpenAi, server.base_url());
    let mut turn = ModelRequest { tools: conversation("m").tools, ..request("m", "a.md") };
    let first = ask(&adapter, &turn).await;
    assert_eq!(first.blocks, [call("c-1", "workspace.read", json!({ "path": "a.md" }))]);
    turn.messages_mut().push(Message { role: Role::Assistant, blocks: first.blocks }.into());
    let content = "words".to_owned();
    let result =
        Block::ToolResult { id: "c-1".to_owned(), name: "workspace.read".to_owned(), content, is_error: false };
    turn.messages_mut().push(Message { role: Role::Tool, blocks: vec![result] }.into());
    let second = ask(&adapter, &turn).await;
    assert_eq!((second.blocks, second.stop), (vec![text("It says:\nwords")], Stop::EndTurn));
    assert!(second.usage.unwrap().input > 0);
    let log = server.requests();
    assert_eq!((log.len(), log[0].tools()), (2, vec!["workspace.list".to_owned(), "workspace.read".to_owned()]));
    server.idle().await;
}

#[tokio::test]
async fn cached_tool_lists_are_not_mixed_up() {
    let server = FakeOpenAi::start(|request| FakeAnswer::say(request.tools().join(" "))).await.unwrap();
    let adapter = adapter(ProviderKind::OpenAi, server.base_url());
    let both = conversation("m");
    let one = ModelRequest { tools: Arc::from([both.tools[1].clone()]), ..both.clone() };
    let none = ModelRequest { tools: Arc::from([]), ..both.clone() };
    for _ in 0..2 {
        assert_eq!(ask(&adapter, &both).await.blocks, [text("workspace.list workspace.read")]);
        assert_eq!(ask(&adapter, &one).await.blocks, [text("workspace.read")]);
        // An empty list is omitted, because OpenAI refuses it.
        assert_eq!(ask(&adapter, &none).await.blocks, [text("")]);
    }
    assert_eq!(server.requests().last().unwrap().body.get("tools"), None);
}
