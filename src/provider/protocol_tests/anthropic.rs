//! Tests of Anthropic's Messages API.

use ghost_domain::transcript::TokenUsage;

use super::*;
use crate::error::ErrorKind;
use crate::model::{NoDeltas, Stop};

pub(super) fn events(list: &[Value]) -> String {
    list.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

pub(super) fn answer() -> Vec<Value> {
    let start =
        |index: u64, block: Value| json!({ "type": "content_block_start", "index": index, "content_block": block });
    let delta = |index: u64, delta: Value| json!({ "type": "content_block_delta", "index": index, "delta": delta });
    let stop = |index: u64| json!({ "type": "content_block_stop", "index": index });
    let tool = |id: &str, name: &str| json!({ "type": "tool_use", "id": id, "name": name, "input": {} });
    let piece = |index: u64, json: &str| delta(index, json!({ "type": "input_json_delta", "partial_json": json }));
    vec![
        json!({ "type": "message_start", "message": { "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
            "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": { "input_tokens": 10, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 60, "output_tokens": 1 } } }),
        start(0, json!({ "type": "thinking", "thinking": "", "signature": "" })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "Let me " })),
        delta(0, json!({ "type": "thinking_delta", "thinking": "think." })),
        delta(0, json!({ "type": "signature_delta", "signature": "c2ln" })),
        stop(0),
        start(1, json!({ "type": "redacted_thinking", "data": "opaque" })),
        stop(1),
        start(2, json!({ "type": "text", "text": "" })),
        json!({ "type": "ping" }),
        delta(2, json!({ "type": "text_delta", "text": "Two " })),
        delta(2, json!({ "type": "text_delta", "text": "files." })),
        stop(2),
        start(3, tool("toolu_a", "workspace__read")),
        piece(3, ""),
        piece(3, "{\"pa"),
        piece(3, "th\": \"ä.md\"}"),
        stop(3),
        start(4, tool("toolu_b", "workspace__list")),
        piece(4, "{\"path\": 7"),
        stop(4),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use", "stop_sequence": null }, "usage": { "output_tokens": 20 } }),
        json!({ "type": "message_stop" }),
    ]
}

// covers: LOOP-05
#[tokio::test]
async fn a_streamed_answer_is_assembled_and_the_request_is_as_documented() {
    let server = serve(|_| FakeReply::new(200, "text/event-stream", events(&answer())).in_pieces(11)).await;
    let adapter = adapter(ProviderKind::Anthropic, server.url());
    let mut request = conversation("claude-x");
    let answer = ask(&adapter, &request).await;
    assert_eq!(
        answer.blocks,
        [
            opaque("claude-x", r#"{"signature":"c2ln"}"#, true),
            thought("Let me think."),
            opaque("claude-x", r#"{"data":"opaque","type":"redacted_thinking"}"#, false),
            text("Two files."),
            call("toolu_a", "workspace.read", json!({ "path": "ä.md" })),
            call("toolu_b", "workspace.list", json!("{\"path\": 7")),
        ]
    );
    assert_eq!(answer.stop, Stop::ToolUse);
    assert_eq!(answer.usage, Some(TokenUsage { input: 100, output: 20, cache_read: 60, cache_write: 30 }));

    let sent = server.requests().remove(0);
    assert_eq!(sent.path, "/v1/messages");
    assert_eq!(sent.headers["x-api-key"], KEY);
    assert_eq!(sent.headers["anthropic-version"], "2023-06-01");
    let parameters = &request.tools[0].parameters;
    let tool = |name: &str, what: &str| json!({ "name": name, "description": what, "input_schema": parameters });
    let cached = |text: &str| json!([{ "type": "text", "text": text, "cache_control": { "type": "ephemeral" } }]);
    let marked = |mut value: Value| {
        value["cache_control"] = json!({ "type": "ephemeral" });
        value
    };
    let body = json!({
        "model": "claude-x", "stream": true, "max_tokens": 777, "temperature": 0.5,
        "system": cached("You are careful."),
        "tools": [tool("workspace__list", "Does workspace.list."), marked(tool("workspace__read", "Does workspace.read."))],
        "messages": [
            { "role": "user", "content": cached("The briefing.") },
            { "role": "user", "content": [{ "type": "text", "text": "The mail." }] },
            { "role": "assistant", "content": [
                { "type": "text", "text": "Reading." },
                { "type": "tool_use", "id": "c1", "name": "workspace__read", "input": { "path": "a.md" } },
                { "type": "tool_use", "id": "c2", "name": "workspace__list", "input": { "path": "b" } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "c1", "content": "content of a" },
                marked(json!({ "type": "tool_result", "tool_use_id": "c2", "content": "{\"error\":\"no\"}", "is_error": true })),
            ] },
        ],
    });
    assert_eq!(sent.body, body);

    // Sent back, reasoning keeps its signature and its position; other providers' signatures are
    // not sent.
    let foreign = vec![opaque("other", r#"{"signature":"abc"}"#, true), thought("x")];
    request.messages_mut().push(Message { role: Role::Assistant, blocks: [foreign, answer.blocks].concat() }.into());
    ask(&adapter, &request).await;
    let sent = server.requests().remove(1);
    assert_eq!(
        sent.body["messages"][4]["content"],
        json!([
            { "type": "thinking", "thinking": "Let me think.", "signature": "c2ln" },
            { "type": "redacted_thinking", "data": "opaque" },
            { "type": "text", "text": "Two files." },
            { "type": "tool_use", "id": "toolu_a", "name": "workspace__read", "input": { "path": "ä.md" } },
            marked(json!({ "type": "tool_use", "id": "toolu_b", "name": "workspace__list", "input": { "_unparsed": "{\"path\": 7" } })),
        ])
    );
}

#[tokio::test]
async fn a_reasoning_budget_leaves_room_for_the_answer() {
    let server = serve(|_| FakeReply::new(200, "text/event-stream", events(&answer()))).await;
    let adapter = adapter(ProviderKind::Anthropic, server.url());
    let facts = ModelFacts { thinking: ThinkingControl::Budget, ..ModelFacts::default() };
    for (max_tokens, effort, budget) in [
        (60_000, Thinking::High, Some(24_576)),
        (9_000, Thinking::High, Some(4_500)),
        (4_096, Thinking::Low, Some(2_048)),
        (1_500, Thinking::Low, Some(1_024)),
        (500, Thinking::Low, None),
        (60_000, Thinking::None, None),
    ] {
        let mut request = request("claude-3-7-sonnet-20250219", "hello");
        (request.max_tokens, request.thinking, request.temperature) = (max_tokens, Some(effort), Some(0.5));
        request.facts = Arc::new(facts.clone());
        ask(&adapter, &request).await;
        let sent = server.requests().pop().unwrap().body;
        assert_eq!(sent["thinking"]["budget_tokens"].as_u64(), budget, "{max_tokens} {effort}: {sent}");
        assert_eq!(sent["thinking"]["type"], if budget.is_some() { "enabled" } else { "disabled" });
        assert_eq!(sent.get("temperature").is_some(), budget.is_none());
    }
}

#[tokio::test]
async fn newer_models_get_an_effort_and_no_temperature() {
    let server = serve(|_| FakeReply::new(200, "text/event-stream", events(&answer()))).await;
    let adapter = adapter(ProviderKind::Anthropic, server.url());
    let efforts = ["low", "medium", "high", "max"].map(str::to_owned).to_vec();
    let adaptive = json!({ "type": "adaptive", "display": "summarized" });
    for (thinking, wanted, mode, effort) in [
        (ThinkingControl::Adaptive, Thinking::High, Some(adaptive.clone()), Some("high")),
        (ThinkingControl::Adaptive, Thinking::None, Some(json!({ "type": "disabled" })), None),
        (ThinkingControl::AlwaysAdaptive, Thinking::Low, Some(adaptive), Some("low")),
        (ThinkingControl::AlwaysAdaptive, Thinking::None, None, Some("low")),
        (ThinkingControl::Never, Thinking::High, None, None),
    ] {
        let facts = ModelFacts { thinking, efforts: efforts.clone(), temperature: false, ..ModelFacts::default() };
        let mut request = request("claude-x", "hello");
        (request.thinking, request.temperature, request.facts) = (Some(wanted), Some(0.5), Arc::new(facts));
        ask(&adapter, &request).await;
        let sent = server.requests().pop().unwrap().body;
        assert_eq!(sent.get("thinking").cloned(), mode, "{thinking:?} {wanted}");
        assert_eq!(sent["output_config"]["effort"].as_str(), effort, "{thinking:?} {wanted}");
        assert_eq!(sent.get("temperature"), None);
    }
}

#[tokio::test]
async fn a_call_cut_before_its_arguments_gets_invalid_arguments() {
    let mut list = answer();
    list.truncate(15);
    list.push(json!({ "type": "content_block_stop", "index": 3 }));
    list.push(
        json!({ "type": "message_delta", "delta": { "stop_reason": "max_tokens" }, "usage": { "output_tokens": 20 } }),
    );
    list.push(json!({ "type": "message_stop" }));
    let server = serve(move |_| FakeReply::new(200, "text/event-stream", events(&list))).await;
    let answer = ask(&adapter(ProviderKind::Anthropic, server.url()), &conversation("m")).await;
    assert_eq!(answer.stop, Stop::MaxTokens);
    assert_eq!(answer.blocks.last(), Some(&call("toolu_a", "workspace.read", json!(""))));
}

#[tokio::test]
async fn hidden_blocks_count_towards_the_limit() {
    let mut list = answer();
    let block = json!({ "type": "redacted_thinking", "data": "x".repeat(1 << 20) });
    let start = json!({ "type": "content_block_start", "index": 1, "content_block": block });
    list.splice(6..6, std::iter::repeat_n(start, 33));
    let body = events(&list);
    let server = serve(move |_| FakeReply::new(200, "text/event-stream", body.clone())).await;
    let adapter = adapter(ProviderKind::Anthropic, server.url());
    let error = adapter.complete(&conversation("m"), &mut crate::model::NoDeltas).await.unwrap_err();
    assert!(error.kind == crate::ErrorKind::BadAnswer, "{error}");
}

/// Blocks of Anthropic's own tools and citations, as documented.
const SERVER_TOOL_EVENTS: &str = r#"event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"query\":\"x\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: content_block_start
data: {"type":"content_block_start","index":3,"content_block":{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","title":"t","url":"https://example.com","encrypted_content":"e"}]}}

event: content_block_stop
data: {"type":"content_block_stop","index":3}

event: content_block_start
data: {"type":"content_block_start","index":4,"content_block":{"type":"text","text":"","citations":[]}}

event: content_block_delta
data: {"type":"content_block_delta","index":4,"delta":{"type":"citations_delta","citation":{"type":"web_search_result_location","cited_text":"c","url":"https://example.com","title":"t","encrypted_index":"i"}}}

event: content_block_delta
data: {"type":"content_block_delta","index":4,"delta":{"type":"text_delta","text":"One, "}}

event: content_block_stop
data: {"type":"content_block_stop","index":4}

"#;

#[tokio::test]
async fn blocks_of_the_provider_are_kept_at_their_position() {
    let list = answer();
    // After the reasoning, before the text.
    let body = format!("{}{SERVER_TOOL_EVENTS}{}", events(&list[..8]), events(&list[8..]));
    let mut expected = ask_for(events(&list)).await;
    let kept = [
        r#"{"input":{"query":"x"},"id":"srvtoolu_1","name":"web_search","type":"server_tool_use"}"#,
        r#"{"content":[{"type":"web_search_result","title":"t","url":"https://example.com","encrypted_content":"e"}],"tool_use_id":"srvtoolu_1","type":"web_search_tool_result"}"#,
    ];
    let cited = r#"{"citations":[{"type":"web_search_result_location","cited_text":"c","url":"https://example.com","title":"t","encrypted_index":"i"}]}"#;
    let [first, second] = kept.map(|json| opaque("m", json, false));
    expected.blocks.splice(3..3, [first, second, opaque("m", cited, true), text("One, ")]);
    for size in [1, 11, 1 << 20] {
        let body = body.clone();
        let server = serve(move |_| FakeReply::new(200, "text/event-stream", body.clone()).in_pieces(size)).await;
        let answer = ask(&adapter(ProviderKind::Anthropic, server.url()), &conversation("m")).await;
        assert_eq!(answer, expected, "{size}");
    }
}

async fn ask_for(body: String) -> ModelAnswer {
    let server = serve(move |_| FakeReply::new(200, "text/event-stream", body.clone())).await;
    ask(&adapter(ProviderKind::Anthropic, server.url()), &conversation("m")).await
}

#[tokio::test]
async fn a_paused_answer_counts_as_cut() {
    let mut list = answer();
    list.drain(13..21);
    let last = list.len() - 2;
    list[last]["delta"]["stop_reason"] = json!("pause_turn");
    let answer = ask_for(events(&list)).await;
    assert_eq!(answer.stop, Stop::Other("pause_turn".to_owned()));
    assert!(answer.stop.is_cut() && answer.blocks.last() == Some(&text("Two files.")), "{answer:?}");
    list.drain(1..last);
    let server = serve(move |_| FakeReply::new(200, "text/event-stream", events(&list))).await;
    let adapter = adapter(ProviderKind::Anthropic, server.url());
    assert!(adapter.complete(&request("m", "hello"), &mut NoDeltas).await.unwrap().stop.is_cut());
}

#[tokio::test]
async fn a_refusal_and_an_event_without_a_field_are_reported() {
    let mut list = answer();
    let last = list.len() - 2;
    list[last]["delta"]["stop_reason"] = json!("refusal");
    assert_eq!(ask_for(events(&list)).await.stop, Stop::Refused(None));
    list[10]["delta"] = json!({ "type": "text_delta" });
    let server = serve(move |_| FakeReply::new(200, "text/event-stream", events(&list))).await;
    let adapter = adapter(ProviderKind::Anthropic, server.url());
    let error = adapter.complete(&conversation("m"), &mut NoDeltas).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::BadAnswer);
}

#[tokio::test]
async fn blank_text_and_trailing_reasoning_are_not_sent_back() {
    let server = serve(|_| FakeReply::new(200, "text/event-stream", events(&answer()))).await;
    let adapter = adapter(ProviderKind::Anthropic, server.url());
    let signed = || opaque("m", r#"{"signature":"s"}"#, true);
    let redacted = opaque("m", r#"{"type":"redacted_thinking","data":"d"}"#, false);
    let answer_of = |blocks| Message { role: Role::Assistant, blocks };
    let mut turn = request("m", "hello");
    turn.messages_mut().push(answer_of(vec![signed(), thought("cut"), redacted, text("")]).into());
    turn.messages_mut().push(Message::text(Role::User, "Go on.").into());
    turn.messages_mut().push(answer_of(vec![text("\n\n"), signed(), thought("kept"), text("Done.")]).into());
    turn.messages_mut().push(Message::text(Role::User, "More.").into());
    ask(&adapter, &turn).await;
    let sent = server.requests().remove(0).body["messages"].clone();
    let roles: Vec<&str> = sent.as_array().unwrap().iter().filter_map(|message| message["role"].as_str()).collect();
    assert_eq!(roles, ["user", "user", "assistant", "user"], "an answer with reasoning only is left out");
    let kept = json!([
        { "type": "thinking", "thinking": "kept", "signature": "s" },
        { "type": "text", "text": "Done." },
    ]);
    assert_eq!(sent[2]["content"], kept);
}
