//! Opaque state that servers of OpenAI's chat completions attach to their answers.

use ghost_domain::model_facts::Api;

use super::*;
use crate::error::ErrorKind;
use crate::model::NoDeltas;

fn deltas(deltas: &[Value]) -> FakeReply {
    let event = |delta: &Value| json!({ "choices": [{ "index": 0, "delta": delta }] });
    let mut events: Vec<Value> = deltas.iter().map(event).collect();
    events.push(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }));
    FakeReply::new(200, "text/event-stream", sse(&events) + "data: [DONE]\n\n").in_pieces(7)
}

fn call_delta(id: &str, more: Value) -> Value {
    let mut call = json!({ "index": 0, "id": id, "type": "function",
        "function": { "name": "workspace__read", "arguments": "{}" } });
    for (key, value) in more.as_object().unwrap() {
        call[key] = value.clone();
    }
    json!({ "tool_calls": [call] })
}

fn refused(message: &str) -> FakeReply {
    let error =
        json!({ "error": { "message": message, "type": "invalid_request_error", "code": "invalid_request_error" } });
    FakeReply::new(400, "application/json", error.to_string())
}

/// The last answer in a request.
fn last(request: &FakeRequest) -> &Value {
    request.messages().iter().rev().find(|message| message["role"] == "assistant").unwrap()
}

/// The next request of a turn after an answer with one call.
fn next_request(mut turn: ModelRequest, answer: ModelAnswer) -> ModelRequest {
    let calls: Vec<Block> = answer
        .blocks
        .iter()
        .filter_map(|block| match block {
            Block::ToolCall { id, name, .. } => Some(Block::ToolResult {
                id: id.clone(),
                name: name.clone(),
                content: "content".to_owned(),
                is_error: false,
            }),
            _ => None,
        })
        .collect();
    turn.messages_mut().push(Message { role: Role::Assistant, blocks: answer.blocks }.into());
    turn.messages_mut().push(Message { role: Role::Tool, blocks: calls }.into());
    turn
}

/// Makes two calls; then a call to another model, which must get none of `attached`.
async fn rounds(server: &FakeServer, attached: &[&str]) -> FakeRequest {
    let adapter = adapter(ProviderKind::OpenAi, server.url());
    let turn = conversation("m");
    let first = ask(&adapter, &turn).await;
    let turn = next_request(turn, first);
    ask(&adapter, &turn).await;
    let sent = server.requests().pop().unwrap();
    for turn in
        [ModelRequest { model: "n".to_owned(), ..turn.clone() }, ModelRequest { provider: "q".to_owned(), ..turn }]
    {
        // Whether the server accepts that request does not matter here.
        let _ = adapter.complete(&turn, &mut NoDeltas).await;
        let sent = String::from_utf8(server.requests().pop().unwrap().raw.to_vec()).unwrap();
        for word in attached {
            assert!(!sent.contains(word), "{word} {sent}");
        }
    }
    sent
}

#[tokio::test]
async fn deepseek_gets_its_reasoning_back() {
    let server = serve(|request| {
        let lacks = request.body["messages"].as_array().unwrap().iter().skip(4).any(|message| {
            message["role"] == "assistant"
                && message.get("tool_calls").is_some()
                && message.get("reasoning_content").is_none()
        });
        match lacks {
            true => refused("The `reasoning_content` in the thinking mode must be passed back to the API."),
            false => deltas(&[
                json!({ "reasoning_content": "Let me " }),
                json!({ "reasoning_content": "think." }),
                call_delta("call_a", json!({})),
            ]),
        }
    })
    .await;
    let sent = rounds(&server, &["reasoning_content", "Let me think."]).await;
    assert_eq!(last(&sent)["reasoning_content"], "Let me think.");
    let adapter = adapter(ProviderKind::OpenAi, server.url());
    let turn = conversation("m");
    let turn = next_request(turn.clone(), ask(&adapter, &turn).await);
    let error = adapter.complete(&ModelRequest { provider: "q".to_owned(), ..turn }, &mut NoDeltas).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::StaleState);
}

#[tokio::test]
async fn google_gets_the_signature_of_a_call_back() {
    let extra = json!({ "google": { "thought_signature": "c2ln/+=" } });
    let server = serve({
        let extra = extra.clone();
        move |request| match request.rounds() > 1 && last(request)["tool_calls"][0]["extra_content"] != extra {
            true => refused("Function call is missing a thought_signature in functionCall parts."),
            false => deltas(&[call_delta(&format!("call_{}", request.rounds()), json!({ "extra_content": extra }))]),
        }
    })
    .await;
    let sent = rounds(&server, &["extra_content", "c2ln"]).await;
    assert_eq!(last(&sent)["tool_calls"][0]["extra_content"], extra);
}

#[tokio::test]
async fn openrouter_gets_its_reasoning_details_back_joined() {
    let detail = |index: u64, kind: &str, more: Value| {
        let mut detail = json!({ "type": kind, "index": index, "format": "f" });
        for (key, value) in more.as_object().unwrap() {
            detail[key] = value.clone();
        }
        json!({ "reasoning_details": [detail] })
    };
    let list = [
        detail(0, "reasoning.text", json!({ "text": "Let me " })),
        json!({ "reasoning": "Let me " }),
        detail(0, "reasoning.text", json!({ "text": "think." })),
        json!({ "reasoning": "think." }),
        detail(0, "reasoning.text", json!({ "signature": "c2ln" })),
        detail(1, "reasoning.encrypted", json!({ "data": "opa" })),
        detail(1, "reasoning.encrypted", json!({ "data": "que" })),
        call_delta("call_a", json!({})),
    ];
    let server = serve(move |_| deltas(&list)).await;
    let sent = rounds(&server, &["reasoning_details", "c2ln", "opaque", "Let me think."]).await;
    assert_eq!(
        last(&sent)["reasoning_details"],
        json!([
            { "type": "reasoning.text", "index": 0, "format": "f", "text": "Let me think.", "signature": "c2ln" },
            { "type": "reasoning.encrypted", "index": 1, "format": "f", "data": "opaque" },
        ])
    );
    assert_eq!(last(&sent).get("reasoning"), None, "the details replace the text");
}

#[tokio::test]
async fn a_conversation_can_continue_through_the_other_api() {
    let server = serve(|_| FakeReply::new(500, "text/plain", "")).await;
    let responses_blocks = vec![
        opaque("m", r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gA"}"#, false),
        thought("Hm."),
        opaque("m", r#"{"id":"msg_1","status":"completed"}"#, true),
        text("Words."),
        opaque("m", r#"{"id":"fc_1","status":"completed"}"#, true),
        call("call_1", "workspace.read", json!({})),
    ];
    let chat_blocks = vec![
        opaque("m", r#"{"reasoning_details":[]}"#, false),
        opaque("m", r#"{"field":"reasoning"}"#, true),
        thought("Hm."),
        opaque("m", r#"{"extra_content":{}}"#, true),
        call("call_1", "workspace.read", json!({})),
    ];
    for (api, blocks, expected) in [
        (
            Api::Chat,
            responses_blocks,
            json!([{ "role": "assistant", "content": "Words.", "tool_calls": [{ "id": "call_1", "type": "function",
                "function": { "name": "workspace__read", "arguments": "{}" } }] }]),
        ),
        (
            Api::Responses,
            chat_blocks,
            json!([{ "type": "function_call", "call_id": "call_1", "name": "workspace__read", "arguments": "{}" }]),
        ),
    ] {
        let plan = ProviderPlan { api: Some(api), ..provider_plan(ProviderKind::OpenAi, Some(server.url())) };
        let adapter = build(plan, &|_| None).unwrap().get("p").unwrap().provider.clone();
        let turn = ModelRequest {
            messages: Arc::new(vec![Message { role: Role::Assistant, blocks }.into()]),
            ..request("m", "")
        };
        adapter.complete(&turn, &mut NoDeltas).await.unwrap_err();
        let sent = server.requests().pop().unwrap().body;
        assert_eq!(sent[if api == Api::Chat { "messages" } else { "input" }], expected);
    }
}

#[tokio::test]
async fn a_model_with_a_reasoning_switch_gets_it_and_an_empty_reasoning_field() {
    let server = serve(|_| deltas(&[json!({ "content": "Done." })])).await;
    let adapter = adapter(ProviderKind::OpenAi, server.url());
    let facts = ModelFacts { thinking: ThinkingControl::Switch, ..ModelFacts::default() };
    for (wanted, switch) in [
        (Some(Thinking::High), json!({ "type": "enabled" })),
        (Some(Thinking::None), json!({ "type": "disabled" })),
        (None, Value::Null),
    ] {
        let turn = ModelRequest { facts: Arc::new(facts.clone()), thinking: wanted, ..conversation("m") };
        ask(&adapter, &turn).await;
        let sent = server.requests().pop().unwrap().body;
        assert_eq!((&sent["thinking"], sent.get("reasoning_effort")), (&switch, None), "{wanted:?}");
        // The answer is another model's and has no reasoning.
        assert_eq!(sent["messages"][3]["reasoning_content"], "", "{wanted:?}");
    }
}
