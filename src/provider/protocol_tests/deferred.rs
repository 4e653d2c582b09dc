//! Deferred tools, loaded in the form of each provider that has one.

use ghost_domain::tool_catalogue::{CALL, DESCRIBE};

use super::*;
use crate::model::Stop;
use crate::testing::{StrictServer, Wire};

fn spec(name: &str) -> ToolSpec {
    let parameters = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    ToolSpec { name: name.to_owned(), description: format!("Does {name}."), parameters }
}

pub(super) fn adapter_for(wire: Wire, url: String) -> Arc<dyn Provider> {
    let api = (wire == Wire::Responses).then_some(Api::Responses);
    let plan = ProviderPlan { api_key_env: Some("THE_KEY".to_owned()), api, ..provider_plan(wire.kind(), Some(url)) };
    build(plan, &|_| Some(KEY.to_owned())).unwrap().get("p").unwrap().provider.clone()
}

/// A request of a model that loads tools, with two deferred ones.
fn turn(loads_tools: bool) -> ModelRequest {
    ModelRequest {
        facts: Arc::new(ModelFacts { loads_tools, ..ModelFacts::default() }),
        tools: Arc::from([spec(CALL), spec(DESCRIBE), spec("workspace.read")]),
        deferred: Arc::from([spec("util.cron"), spec("util.timer")]),
        max_tokens: 2_000,
        ..request("model-x", "the briefing")
    }
}

fn described(id: &str, content: &str, is_error: bool) -> Block {
    Block::ToolResult { id: id.to_owned(), name: DESCRIBE.to_owned(), content: content.to_owned(), is_error }
}

/// A round in which the model asks for a description, and the next in which it calls the tool.
async fn two_rounds(wire: Wire, loads_tools: bool, result: impl Fn(&str) -> Block) -> Vec<Value> {
    let server = StrictServer::start(wire, |asked| match asked.messages.len() {
        1 => vec![call("", DESCRIBE, json!({ "name": "util.timer" }))],
        3 => vec![call("", "util.timer", json!({ "path": "x" }))],
        _ => vec![text("done")],
    })
    .await
    .unwrap();
    let (adapter, mut turn) = (adapter_for(wire, server.base_url()), turn(loads_tools));
    for (at, name) in [DESCRIBE, "util.timer"].into_iter().enumerate() {
        let answer = ask(&adapter, &turn).await;
        assert_eq!(answer.stop, Stop::ToolUse, "{wire:?}");
        let message = Message { role: Role::Assistant, blocks: answer.blocks };
        let calls: Vec<(String, String, Value)> =
            message.calls().map(|(id, name, arguments)| (id.into(), name.into(), arguments.clone())).collect();
        let [(id, called, arguments)] = calls.as_slice() else { panic!("{wire:?}: one call") };
        assert_eq!(called, name, "{wire:?}");
        assert_eq!(arguments[if at == 0 { "name" } else { "path" }], if at == 0 { "util.timer" } else { "x" });
        let outcome = if at == 0 {
            result(id)
        } else {
            Block::ToolResult { id: id.clone(), name: name.into(), content: "{}".into(), is_error: false }
        };
        turn.messages_mut().push(message.into());
        turn.messages_mut().push(Message { role: Role::Tool, blocks: vec![outcome] }.into());
    }
    assert_eq!(ask(&adapter, &turn).await.stop, Stop::EndTurn, "{wire:?}");
    assert_eq!(server.refusals(), Vec::<String>::new(), "{wire:?}");
    server.requests().into_iter().map(|request| request.body).collect()
}

fn good(id: &str) -> Block {
    described(id, &serde_json::to_string(&spec("util.timer")).unwrap(), false)
}

#[tokio::test]
async fn anthropic_gets_all_tools_and_references_to_those_that_were_described() {
    let bodies = two_rounds(Wire::Anthropic, true, good).await;
    assert!(bodies.iter().all(|body| body["tools"] == bodies[0]["tools"]), "the front of the cached prefix");
    let tools = bodies[0]["tools"].as_array().unwrap();
    let deferred: Vec<bool> = tools.iter().map(|tool| tool["defer_loading"] == true).collect();
    assert_eq!(deferred, [false, false, false, true, true]);
    assert!(tools[2]["cache_control"].is_object(), "the mark is at the end of what is in the prefix");
    let result = &bodies[1]["messages"][2]["content"][0];
    assert_eq!(result["content"], json!([{ "type": "tool_reference", "tool_name": "util__timer" }]));
    let refused =
        two_rounds(Wire::Anthropic, true, |id| described(id, "{\"code\":\"not_found\",\"error\":\"no\"}", true));
    assert!(refused.await[1]["messages"][2]["content"][0]["content"].is_string());
    let other = two_rounds(Wire::Anthropic, true, |id| {
        described(id, &serde_json::to_string(&spec("workspace.read")).unwrap(), false)
    });
    assert!(
        other.await[1]["messages"][2]["content"][0]["content"].is_string(),
        "a tool that is sent needs no reference"
    );
}

#[tokio::test]
async fn openai_searches_and_the_result_adds_the_tool() {
    let bodies = two_rounds(Wire::Responses, true, good).await;
    assert!(bodies.iter().all(|body| body["tools"] == bodies[0]["tools"]));
    let kinds: Vec<&str> =
        bodies[0]["tools"].as_array().unwrap().iter().map(|tool| tool["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["function", "tool_search", "function"]);
    let items: Vec<&Value> = bodies[1]["input"].as_array().unwrap().iter().rev().take(2).collect();
    assert_eq!((items[1]["type"].as_str(), items[1]["execution"].as_str()), (Some("tool_search_call"), Some("client")));
    assert_eq!((items[0]["type"].as_str(), &items[0]["call_id"]), (Some("tool_search_output"), &items[1]["call_id"]));
    let tool = &items[0]["tools"][0];
    assert_eq!((tool["name"].as_str(), &tool["defer_loading"]), (Some("util__timer"), &json!(true)));
    let refused =
        two_rounds(Wire::Responses, true, |id| described(id, "{\"code\":\"not_found\",\"error\":\"no\"}", true));
    assert_eq!(refused.await[1]["input"].as_array().unwrap().last().unwrap()["tools"], json!([]));
}

#[tokio::test]
async fn other_models_get_the_description_as_text() {
    for wire in Wire::ALL {
        let loads = !matches!(wire, Wire::Anthropic | Wire::Responses);
        for body in two_rounds(wire, loads, good).await {
            let body = body.to_string();
            for word in ["defer_loading", "tool_reference", "tool_search", "util__cron", "util.cron"] {
                assert!(!body.contains(word), "{wire:?}: {word} in {body}");
            }
        }
    }
}
