//! Tests of OpenAI's Responses API: requests, and items that are sent back.

use ghost_domain::model_facts::Api;
use ghost_domain::transcript::TokenUsage;

use super::responses_server::{refusal, strict};
use super::*;
use crate::error::{Charge, ErrorKind};
use crate::model::{NoDeltas, Stop};

/// Encrypted content that the server has issued.
const ISSUED: [&str; 2] = ["gAAA1/+=", "gAAA2/+="];
/// Reasoning items with the server's own field order, spaces and escapes.
pub(super) const REASONING: [&str; 2] = [
    r#"{"type":"reasoning", "id":"rs_1",  "summary":[{"type":"summary_text","text":"Let me "},{"type":"summary_text","text":"th\u00efnk."}],"encrypted_content":"gAAA1\/+="}"#,
    r#"{"id":"rs_2","encrypted_content":"gAAA2/+=","summary":[ ],"type":"reasoning","status":"completed"}"#,
];
const SEARCH: &str =
    r#"{"type":"web_search_call","id":"ws_1","status":"completed", "action":{"type":"search","query":"x"}}"#;

pub(super) fn message(id: &str, phase: &str, words: &str) -> String {
    json!({ "type": "message", "id": id, "status": "completed", "role": "assistant", "phase": phase,
        "content": [{ "type": "output_text", "text": words, "annotations": [], "logprobs": [] }] })
    .to_string()
}

pub(super) fn call_item(n: u32, name: &str, arguments: &str) -> String {
    let (id, call_id) = (format!("fc_{n}"), format!("call_{n}"));
    json!({ "type": "function_call", "id": id, "status": "completed", "call_id": call_id, "name": name,
        "arguments": arguments })
    .to_string()
}

pub(super) fn item_added(item: Value) -> String {
    json!({ "type": "response.output_item.added", "output_index": 0, "item": item }).to_string()
}

pub(super) fn item_done(item: &str) -> String {
    format!(r#"{{"type":"response.output_item.done","output_index":0,"sequence_number":9,"item":{item}}}"#)
}

pub(super) fn piece(kind: &str, index: &str, at: u64, delta: &str) -> String {
    json!({ "type": format!("response.{kind}.delta"), "item_id": "x", index: at, "delta": delta, "obfuscation": "zz" })
        .to_string()
}

pub(super) fn text_delta(at: u64, delta: &str) -> String {
    piece("output_text", "content_index", at, delta)
}

pub(super) fn response_ended(kind: &str, fields: Value) -> String {
    let mut response = json!({ "id": "resp_1", "object": "response", "status": kind, "error": null, "output": [],
        "incomplete_details": null, "usage": { "input_tokens": 100, "output_tokens": 20, "total_tokens": 120,
            "input_tokens_details": { "cached_tokens": 64, "cache_write_tokens": 30 },
            "output_tokens_details": { "reasoning_tokens": 8 } } });
    for (key, value) in fields.as_object().unwrap() {
        response[key] = value.clone();
    }
    json!({ "type": format!("response.{kind}"), "response": response }).to_string()
}

pub(super) fn stream(events: &[String]) -> String {
    events.iter().map(|event| format!("event: x\ndata: {event}\n\n")).collect()
}

/// Reasoning, text, two calls. The items in the `added` events are incomplete.
pub(super) fn first() -> Vec<String> {
    let output = [REASONING[0], &message("msg_1", "commentary", "Two files."), &call_item(1, "workspace__read", "{}")];
    let output: Vec<Value> = output.iter().map(|item| serde_json::from_str(item).unwrap()).collect();
    vec![
        json!({ "type": "response.created", "response": { "id": "resp_1", "status": "in_progress", "output": [] } })
            .to_string(),
        json!({ "type": "response.in_progress", "response": { "id": "resp_1", "status": "in_progress" } }).to_string(),
        item_added(json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gA" })),
        piece("reasoning_summary_text", "summary_index", 0, "Let "),
        piece("reasoning_summary_text", "summary_index", 0, "me "),
        piece("reasoning_summary_text", "summary_index", 1, "thïnk."),
        item_done(REASONING[0]),
        item_added(json!({ "type": "message", "id": "msg_1", "status": "in_progress", "role": "assistant", "content": [] })),
        json!({ "type": "response.content_part.added", "content_index": 0, "part": { "type": "output_text", "text": "" } })
            .to_string(),
        text_delta(0, "Two "),
        text_delta(0, "files."),
        json!({ "type": "response.output_text.done", "content_index": 0, "text": "Two files." }).to_string(),
        item_done(&message("msg_1", "commentary", "Two files.")),
        item_added(json!({ "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "workspace__read", "arguments": "" })),
        piece("function_call_arguments", "output_index", 2, "{\"pa"),
        piece("function_call_arguments", "output_index", 2, "th\": \"ä.md\"}"),
        item_done(&call_item(1, "workspace__read", "{\"path\": \"ä.md\"}")),
        item_added(json!({ "type": "function_call", "id": "fc_2", "call_id": "call_2", "name": "workspace__list", "arguments": "" })),
        item_done(&call_item(2, "workspace__list", "{\"path\": 7")),
        response_ended("completed", json!({ "output": output })),
    ]
}

pub(super) fn plan(url: &str, api: Option<Api>) -> ProviderPlan {
    ProviderPlan {
        api_key_env: Some("THE_KEY".to_owned()),
        api,
        ..provider_plan(ProviderKind::OpenAi, Some(format!("{url}/v1")))
    }
}

pub(super) fn provider_for(plan: ProviderPlan) -> Arc<dyn Provider> {
    build(plan, &|_| Some(KEY.to_owned())).unwrap().get("p").unwrap().provider.clone()
}

pub(super) fn adapter(server: &FakeServer) -> Arc<dyn Provider> {
    provider_for(plan(&server.url(), Some(Api::Responses)))
}

pub(super) async fn serve_stream(body: String) -> FakeServer {
    serve(move |_| FakeReply::new(200, "text/event-stream", body.clone()).in_pieces(7)).await
}

fn results(ids: &[&str]) -> Message {
    let result = |id: &&str| Block::ToolResult {
        id: (*id).to_owned(),
        name: "workspace.read".to_owned(),
        content: "content".to_owned(),
        is_error: false,
    };
    Message { role: Role::Tool, blocks: ids.iter().map(result).collect() }
}

/// The input items of a request, byte for byte.
fn items(request: &FakeRequest) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Body {
        input: Vec<Box<serde_json::value::RawValue>>,
    }
    let body: Body = serde_json::from_slice(&request.raw).unwrap();
    body.input.iter().map(|item| item.get().to_owned()).collect()
}

pub(super) fn first_blocks(model: &str) -> Vec<Block> {
    vec![
        opaque(model, REASONING[0], false),
        thought("Let me \nthïnk."),
        opaque(model, r#"{"id":"msg_1","phase":"commentary","status":"completed"}"#, true),
        text("Two files."),
        opaque(model, r#"{"id":"fc_1","status":"completed"}"#, true),
        call("call_1", "workspace.read", json!({ "path": "ä.md" })),
        opaque(model, r#"{"id":"fc_2","status":"completed"}"#, true),
        call("call_2", "workspace.list", json!("{\"path\": 7")),
    ]
}

// covers: LOOP-05
#[tokio::test]
async fn a_streamed_answer_is_assembled_and_the_request_is_as_documented() {
    let body = stream(&first());
    let server =
        serve(strict(&ISSUED, move |_| FakeReply::new(200, "text/event-stream", body.clone()).in_pieces(7))).await;
    let mut request = conversation("gpt-x");
    (request.thinking, request.max_tokens) = (Some(Thinking::Low), 7);
    let answer = ask(&adapter(&server), &request).await;
    assert_eq!(answer.blocks, first_blocks("gpt-x"));
    assert_eq!(answer.stop, Stop::ToolUse);
    assert_eq!(answer.usage, Some(TokenUsage { input: 100, output: 20, cache_read: 64, cache_write: 30 }));

    let sent = server.requests().remove(0);
    assert_eq!(
        (sent.path.as_str(), sent.headers["authorization"].as_str()),
        ("/v1/responses", "Bearer test-key-0123456789")
    );
    let schema = r#"{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}"#;
    let tool = |wire: &str, name: &str| {
        format!(
            r#"{{"type":"function","name":"{wire}","description":"Does {name}.","parameters":{schema},"strict":false}}"#
        )
    };
    let expected = [
        r#"{"model":"gpt-x","stream":true,"store":false,"include":["reasoning.encrypted_content"],"#,
        r#""instructions":"You are careful.","tools":["#,
        &tool("workspace__list", "workspace.list"),
        ",",
        &tool("workspace__read", "workspace.read"),
        r#"],"input":[{"role":"user","content":"The briefing."},{"role":"user","content":"The mail."},"#,
        r#"{"role":"assistant","content":"Reading."},"#,
        r#"{"type":"function_call","call_id":"c1","name":"workspace__read","arguments":"{\"path\":\"a.md\"}"},"#,
        r#"{"type":"function_call","call_id":"c2","name":"workspace__list","arguments":"{\"path\":\"b\"}"},"#,
        r#"{"type":"function_call_output","call_id":"c1","output":"content of a"},"#,
        r#"{"type":"function_call_output","call_id":"c2","output":"{\"error\":\"no\"}"}],"#,
        r#""max_output_tokens":16,"reasoning":{"effort":"low"}}"#,
    ];
    assert_eq!(String::from_utf8(sent.raw.to_vec()).unwrap(), expected.concat());
}

#[tokio::test]
async fn two_rounds_are_sent_back_byte_for_byte_and_in_order() {
    let second = [
        item_done(REASONING[1]),
        item_done(SEARCH),
        item_done(&message("msg_2", "commentary", "One more.")),
        item_done(&call_item(3, "workspace__read", "{}")),
        response_ended("completed", json!({})),
    ];
    let third = [
        text_delta(0, "Well."),
        item_done(&message("msg_3", "final_answer", "Well.")),
        response_ended("completed", json!({})),
    ];
    let bodies = [stream(&first()), stream(&second), stream(&third)];
    let server = serve(strict(&ISSUED, move |request| {
        let rounds =
            request.body["input"].as_array().unwrap().iter().filter(|item| item["type"] == "reasoning").count();
        FakeReply::new(200, "text/event-stream", bodies[rounds].clone())
    }))
    .await;
    // Fields from the world file change nothing else in the request.
    let extra_body = json!({ "service_tier": "flex", "reasoning": { "summary": "detailed" } });
    let extra_body = extra_body.as_object().unwrap().clone();
    let adding = provider_for(ProviderPlan { extra_body, ..plan(&server.url(), Some(Api::Responses)) });
    let mut turn = conversation("gpt-x");
    (turn.thinking, turn.facts) = (Some(Thinking::High), Arc::default());
    for ids in [&["call_1", "call_2"][..], &["call_3"]] {
        let answer = ask(&adding, &turn).await;
        turn.messages_mut().push(Message { role: Role::Assistant, blocks: answer.blocks }.into());
        turn.messages_mut().push(results(ids).into());
    }
    assert_eq!(ask(&adding, &turn).await.stop, Stop::EndTurn);
    let sent = server.requests().pop().unwrap();
    assert_eq!(sent.body["reasoning"], json!({ "effort": "high", "summary": "detailed" }));
    assert_eq!((&sent.body["service_tier"], &sent.body["store"]), (&json!("flex"), &json!(false)));
    let wire = |id: &str, phase: &str, words: &str| {
        format!(
            r#"{{"type":"message","role":"assistant","content":[{{"type":"output_text","text":"{words}","annotations":[]}}],"id":"{id}","phase":"{phase}","status":"completed"}}"#
        )
    };
    let call = |n: u32, name: &str, arguments: &str| {
        format!(
            r#"{{"type":"function_call","call_id":"call_{n}","name":"{name}","arguments":"{arguments}","id":"fc_{n}","status":"completed"}}"#
        )
    };
    let result = |n: u32| format!(r#"{{"type":"function_call_output","call_id":"call_{n}","output":"content"}}"#);
    assert_eq!(
        items(&sent)[7..],
        [
            REASONING[0].to_owned(),
            wire("msg_1", "commentary", "Two files."),
            call(1, "workspace__read", r#"{\"path\":\"ä.md\"}"#),
            call(2, "workspace__list", r#"{\"_unparsed\":\"{\\\"path\\\": 7\"}"#),
            result(1),
            result(2),
            REASONING[1].to_owned(),
            SEARCH.to_owned(),
            wire("msg_2", "commentary", "One more."),
            call(3, "workspace__read", "{}"),
            result(3),
        ]
    );

    // Another model, or the same model at another provider, gets plain items, and reasoning is
    // switched off.
    let other = ModelRequest { model: "gpt-y".to_owned(), ..turn.clone() };
    for turn in [other, ModelRequest { provider: "q".to_owned(), ..turn }] {
        let facts = ModelFacts { efforts: vec!["none".to_owned(), "low".to_owned()], ..ModelFacts::default() };
        let facts = ModelFacts { thinking: ThinkingControl::Effort, ..facts };
        let turn = ModelRequest { facts: Arc::new(facts), ..turn };
        let server = serve_stream(stream(&third)).await;
        ask(&adapter(&server), &turn).await;
        let sent = server.requests().remove(0);
        assert!(refusal(&sent.body, &[]).is_none(), "{}", sent.body);
        let raw = String::from_utf8(sent.raw.to_vec()).unwrap();
        for attached in ["rs_1", "msg_1", "fc_1", "ws_1", "gAAA", "commentary"] {
            assert!(!raw.contains(attached), "{attached} {raw}");
        }
        assert_eq!((&sent.body["reasoning"], &sent.body["temperature"]), (&json!({ "effort": "none" }), &json!(0.5)));
        assert_eq!(items(&sent)[7], r#"{"role":"assistant","content":"Two files."}"#);
    }
}

#[test]
fn the_fake_server_refuses_what_openai_refuses() {
    let base = json!({ "model": "m", "stream": true, "store": false, "max_output_tokens": 16, "input": [] });
    let reasoning = |id: &str| json!({ "type": "reasoning", "id": id, "summary": [], "encrypted_content": ISSUED[0] });
    let call = json!({ "type": "function_call", "call_id": "c", "name": "n", "arguments": "{}" });
    let output = json!({ "type": "function_call_output", "call_id": "c", "output": "x" });
    let message = json!({ "role": "assistant", "content": "x", "type": "message" });
    let with = |key: &str, value: Value| {
        let mut body = base.clone();
        body[key] = value;
        refusal(&body, &ISSUED).is_some()
    };
    assert!(!with("input", json!([reasoning("r"), call, output])));
    for (key, value) in [
        ("max_output_tokens", json!(15)),
        ("max_tokens", json!(16)),
        ("input", json!([call])),
        ("input", json!([output])),
        ("input", json!([reasoning("r")])),
        ("input", json!([reasoning("r"), output])),
        ("input", json!([reasoning("r"), message, reasoning("r"), message])),
        ("input", json!([{ "type": "reasoning", "id": "r", "summary": [] }, message])),
        ("input", json!([{ "type": "reasoning", "id": "r", "summary": [], "encrypted_content": "gA" }, message])),
        ("input", json!([{ "type": "item_reference", "id": "r" }])),
        ("input", json!([{ "role": "user", "content": "x", "name": "y" }])),
    ] {
        assert!(with(key, value.clone()), "{key} {value}");
    }
}

#[tokio::test]
async fn trailing_or_unencrypted_reasoning_is_not_sent_back() {
    let bare = r#"{"type":"reasoning","id":"rs_9","summary":[{"type":"summary_text","text":"Hm."}]}"#;
    let server = serve(strict(&ISSUED, move |request| {
        let cut = request.body["input"].as_array().unwrap().len() == 7;
        let events = match cut {
            true => vec![
                item_done(bare),
                item_done(&message("msg_1", "commentary", "Half")),
                item_done(REASONING[0]),
                response_ended("incomplete", json!({ "incomplete_details": { "reason": "max_output_tokens" } })),
            ],
            false => {
                vec![item_done(&message("msg_2", "final_answer", "Whole.")), response_ended("completed", json!({}))]
            }
        };
        FakeReply::new(200, "text/event-stream", stream(&events))
    }))
    .await;
    let mut turn = conversation("m");
    let answer = ask(&adapter(&server), &turn).await;
    assert_eq!(answer.stop, Stop::MaxTokens);
    assert_eq!(answer.blocks[0], thought("Hm."));
    assert!(answer.blocks.contains(&opaque("m", REASONING[0], false)));
    turn.messages_mut().push(Message { role: Role::Assistant, blocks: answer.blocks }.into());
    turn.messages_mut().push(Message::text(Role::User, "Go on.").into());
    assert_eq!(ask(&adapter(&server), &turn).await.blocks.last(), Some(&text("Whole.")));
}

#[tokio::test]
async fn a_refusal_of_opaque_state_is_a_stale_state_error() {
    let server = serve(strict(&[], |_| FakeReply::new(500, "text/plain", "not reached"))).await;
    for json in [
        REASONING[0],
        r#"{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"x"}]}"#,
    ] {
        let mut turn = conversation("m");
        turn.messages_mut()
            .push(Message { role: Role::Assistant, blocks: vec![opaque("m", json, false), text("x")] }.into());
        let error = adapter(&server).complete(&turn, &mut NoDeltas).await.unwrap_err();
        assert_eq!((error.kind, error.charge), (ErrorKind::StaleState, Charge::Nothing), "{error}");
    }
}

#[tokio::test]
async fn pictures_are_parts_of_a_message_and_of_a_result() {
    let server = serve(strict(&[], |_| {
        FakeReply::new(
            200,
            "text/event-stream",
            stream(&[item_done(&message("m", "final_answer", "Well.")), response_ended("completed", json!({}))]),
        )
    }))
    .await;
    let picture = || Block::Image { media_type: "image/png".to_owned(), data: "aGk=".to_owned() };
    let mut turn = conversation("m");
    turn.messages_mut()[1].blocks.push(picture());
    turn.messages_mut()[3].blocks.insert(1, picture());
    turn.messages_mut()[3].blocks.insert(1, picture());
    ask(&adapter(&server), &turn).await;
    let sent = server.requests().remove(0).body;
    let image = json!({ "type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto" });
    assert_eq!(sent["input"][1]["content"], json!([{ "type": "input_text", "text": "The mail." }, image]));
    assert_eq!(sent["input"][5]["output"], json!([{ "type": "input_text", "text": "content of a" }, image, image]));
    assert_eq!(sent["input"][6]["output"], json!("{\"error\":\"no\"}"));
}

#[tokio::test]
async fn settings_match_what_the_model_accepts() {
    let server = serve(strict(&[], |_| {
        FakeReply::new(
            200,
            "text/event-stream",
            stream(&[item_done(&message("m", "final_answer", "Well.")), response_ended("completed", json!({}))]),
        )
    }))
    .await;
    let adapter = adapter(&server);
    let effort = |effort: &str| json!({ "effort": effort });
    for (control, takes, wanted, reasoning, temperature) in [
        (ThinkingControl::Unknown, true, None, Value::Null, json!(0.5)),
        (ThinkingControl::Unknown, true, Some(Thinking::None), Value::Null, json!(0.5)),
        (ThinkingControl::Unknown, true, Some(Thinking::High), effort("high"), Value::Null),
        (ThinkingControl::Effort, true, Some(Thinking::None), json!({ "effort": "none" }), json!(0.5)),
        (ThinkingControl::Effort, false, Some(Thinking::None), json!({ "effort": "none" }), Value::Null),
        (ThinkingControl::Never, true, Some(Thinking::High), Value::Null, json!(0.5)),
    ] {
        let efforts = ["none", "low", "medium", "high"].map(str::to_owned).to_vec();
        let facts = ModelFacts { thinking: control, temperature: takes, efforts, ..ModelFacts::default() };
        let turn = ModelRequest { facts: Arc::new(facts), thinking: wanted, ..conversation("m") };
        ask(&adapter, &turn).await;
        let sent = server.requests().pop().unwrap().body;
        assert_eq!((&sent["reasoning"], &sent["temperature"]), (&reasoning, &temperature), "{control:?} {wanted:?}");
        // An unknown model may refuse the setting.
        let reasons = control == ThinkingControl::Effort || reasoning != Value::Null;
        assert_eq!(sent.get("include").is_some(), reasons, "{control:?} {wanted:?}");
        assert_eq!(sent.get("prompt_cache_key"), None, "only for OpenAI's own hosts");
    }
    let long = "i".repeat(100);
    let mut turn = conversation("m");
    turn.messages_mut()[2].blocks = vec![call(&long, "n", Value::Null)];
    turn.messages_mut()[3] = results(&[&long]).into();
    ask(&adapter, &turn).await;
}
