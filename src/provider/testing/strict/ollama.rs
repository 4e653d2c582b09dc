//! Ollama's chat API, with a model that reasons in its rounds of calls.

use ghost_domain::tool_catalogue::from_wire;
use ghost_domain::transcript::{Message, Role};
use serde_json::{Value, json};

use super::common::*;
use crate::testing::server::FakeRequest;

pub(super) fn read(request: &FakeRequest) -> Result<Asked, String> {
    let body = &request.body;
    check_fields(
        body,
        "body",
        &["model", "messages", "stream", "truncate", "options", "tools", "think", "keep_alive", "format"],
    )?;
    let mut asked = Asked { model: text(body, "model").into(), ..Asked::default() };
    asked.tools = list(body, "tools").iter().map(|tool| from_wire(text(&tool["function"], "name"))).collect();
    for message in list(body, "messages") {
        let content = text(message, "content");
        match text(message, "role") {
            "system" => asked.system.push_str(content),
            "user" => asked.messages.push(Message::text(Role::User, content)),
            "assistant" => {
                let mut blocks = Vec::new();
                if !content.is_empty() {
                    blocks.push(text_block(content));
                }
                for call in list(message, "tool_calls") {
                    let function = &call["function"];
                    if !function["arguments"].is_object() {
                        return Err("json: cannot unmarshal tool_calls.function.arguments".into());
                    }
                    blocks.push(call_block(text(call, "id"), text(function, "name"), function["arguments"].clone()));
                }
                asked.attached.push(vec![text(message, "thinking").to_owned()]);
                asked.messages.push(Message { role: Role::Assistant, blocks });
            }
            "tool" => {
                let found = result(text(message, "tool_call_id"), text(message, "tool_name"), content);
                push_result(&mut asked.messages, found);
            }
            other => return Err(format!("messages.role: {other}")),
        }
    }
    check_calls(&asked.messages)?;
    Ok(asked)
}

pub(super) fn write(answer: &StrictAnswer) -> (String, &'static str, Vec<String>) {
    let n = answer.number;
    let line = |message: Value| json!({ "model": answer.model, "created_at": "2026-01-01T00:00:00Z", "message": message, "done": false });
    let mut out = vec![line(json!({ "role": "assistant", "content": "", "thinking": format!("thought {n}") }))];
    if !answer.text.is_empty() {
        out.push(line(json!({ "role": "assistant", "content": answer.text })));
    }
    let call = |(id, name, arguments): &(String, String, Value)| json!({ "id": id, "function": { "name": name, "arguments": arguments } });
    if !answer.calls.is_empty() {
        out.push(line(json!({ "role": "assistant", "content": "", "tool_calls": answer.calls.iter().map(call).collect::<Vec<_>>() })));
    }
    out.push(json!({ "model": answer.model, "created_at": "2026-01-01T00:00:01Z", "message": { "role": "assistant", "content": "" },
        "done": true, "done_reason": "stop", "prompt_eval_count": answer.input.all(), "eval_count": answer.written() }));
    (out.iter().map(|line| format!("{line}\n")).collect(), "application/x-ndjson", vec![format!("thought {n}")])
}
