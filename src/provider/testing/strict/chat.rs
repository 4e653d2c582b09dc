//! Chat completions of a server that requires reasoning and signatures back, as DeepSeek and Google
//! do.

use ghost_domain::tool_catalogue::from_wire;
use ghost_domain::transcript::{Message, Role};
use serde_json::{Value, json};

use super::common::*;
use crate::testing::server::FakeRequest;

const BODY: [&str; 10] = [
    "model",
    "stream",
    "stream_options",
    "tools",
    "messages",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "reasoning_effort",
    "parallel_tool_calls",
];

pub(super) fn read(request: &FakeRequest) -> Result<Asked, String> {
    let body = &request.body;
    check_fields(body, "body", &BODY)?;
    let mut asked = Asked { model: text(body, "model").into(), ..Asked::default() };
    for tool in list(body, "tools") {
        check_fields(tool, "tools", &["type", "function"])?;
        check_name(text(&tool["function"], "name"))?;
        asked.tools.push(from_wire(text(&tool["function"], "name")));
    }
    for message in list(body, "messages") {
        let content = text(message, "content");
        match text(message, "role") {
            "system" => asked.system.push_str(content),
            "user" => asked.messages.push(Message::text(Role::User, content)),
            "assistant" => {
                let mut attached = vec![text(message, "reasoning_content").to_owned()];
                if attached[0].is_empty() {
                    return Err("The `reasoning_content` in the thinking mode must be passed back to the API.".into());
                }
                let mut blocks = Vec::new();
                if !content.is_empty() {
                    blocks.push(text_block(content));
                }
                for call in list(message, "tool_calls") {
                    let function = &call["function"];
                    let arguments =
                        serde_json::from_str(text(function, "arguments")).map_err(|_| "arguments: invalid JSON")?;
                    blocks.push(call_block(text(call, "id"), text(function, "name"), arguments));
                    attached.push(call["extra_content"].to_string());
                }
                asked.attached.push(attached);
                asked.messages.push(Message { role: Role::Assistant, blocks });
            }
            "tool" => {
                let id = text(message, "tool_call_id");
                let found = result(id, &name_of(&asked.messages, id), content);
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
    let (mut out, mut attached) = (Vec::new(), vec![format!("thought {n}")]);
    let mut chunk = |delta: Value, reason: Value| {
        out.push(
            json!({ "id": format!("c{n}"), "object": "chat.completion.chunk", "created": 1, "model": answer.model,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }] }),
        );
    };
    chunk(json!({ "role": "assistant", "reasoning_content": "thought " }), Value::Null);
    chunk(json!({ "reasoning_content": n.to_string() }), Value::Null);
    if !answer.text.is_empty() {
        chunk(json!({ "content": answer.text }), Value::Null);
    }
    for (index, (id, name, arguments)) in answer.calls.iter().enumerate() {
        let extra = json!({ "google": { "thought_signature": format!("c2ln+/{n}.{index}==") } });
        attached.push(extra.to_string());
        let call = json!({ "index": index, "id": id, "type": "function", "extra_content": extra,
            "function": { "name": name, "arguments": arguments.to_string() } });
        chunk(json!({ "tool_calls": [call] }), Value::Null);
    }
    chunk(json!({}), if answer.calls.is_empty() { "stop".into() } else { "tool_calls".into() });
    out.push(json!({ "id": format!("c{n}"), "object": "chat.completion.chunk", "created": 1, "model": answer.model, "choices": [],
        "usage": { "prompt_tokens": answer.input.all(), "prompt_tokens_details": { "cached_tokens": answer.input.read }, "completion_tokens": answer.written(), "total_tokens": answer.input.all() + answer.written() } }));
    (data(&out) + "data: [DONE]\n\n", "text/event-stream", attached)
}
