//! Anthropic's Messages API.

use ghost_domain::tool_catalogue::from_wire;
use ghost_domain::transcript::{Block, Message, Role};
use serde_json::{Value, json};

use super::common::*;
use crate::testing::server::FakeRequest;

const BODY: [&str; 10] = [
    "model",
    "max_tokens",
    "stream",
    "temperature",
    "thinking",
    "output_config",
    "tools",
    "system",
    "messages",
    "metadata",
];

pub(super) fn read(request: &FakeRequest) -> Result<Asked, String> {
    let body = &request.body;
    check_fields(body, "body", &BODY)?;
    if request.headers.get("anthropic-version").is_none_or(|version| version != "2023-06-01") {
        return Err("anthropic-version: header is required".into());
    }
    let max_tokens =
        body["max_tokens"].as_u64().filter(|max_tokens| *max_tokens > 0).ok_or("max_tokens: field required")?;
    let thinking = text(&body["thinking"], "type");
    if thinking == "enabled" {
        let budget = body["thinking"]["budget_tokens"].as_u64().unwrap_or(0);
        if budget < 1_024 || budget >= max_tokens {
            return Err("thinking.budget_tokens: at least 1024 and less than max_tokens".into());
        }
    }
    if matches!(thinking, "enabled" | "adaptive") && body.get("temperature").is_some() {
        return Err("temperature may only be set to 1 when thinking is enabled".into());
    }
    if body.to_string().matches("\"cache_control\"").count() > 4 {
        return Err("a maximum of 4 blocks with cache_control may be provided".into());
    }
    let mut asked = Asked { model: text(body, "model").into(), ..Asked::default() };
    asked.system = list(body, "system").iter().map(|block| text(block, "text")).collect();
    let mut deferred = Vec::new();
    for tool in list(body, "tools") {
        check_fields(tool, "tools", &["name", "description", "input_schema", "cache_control", "defer_loading"])?;
        check_name(text(tool, "name"))?;
        if tool["defer_loading"] == true {
            if tool.get("cache_control").is_some() {
                return Err("tools: a tool with defer_loading cannot have cache_control".into());
            }
            deferred.push(text(tool, "name").to_owned());
        } else {
            asked.tools.push(from_wire(text(tool, "name")));
        }
    }
    if asked.tools.is_empty() && !deferred.is_empty() {
        return Err("At least one tool must have defer_loading=false.".into());
    }
    for message in list(body, "messages") {
        check_fields(message, "messages", &["role", "content"])?;
        read_message(message, &deferred, &mut asked)?;
    }
    check_calls(&asked.messages)?;
    let ends_with_results =
        asked.messages.last().is_some_and(|last| matches!(last.blocks.first(), Some(Block::ToolResult { .. })));
    let last = list(body, "messages").iter().rev().find(|message| message["role"] == "assistant");
    if thinking == "enabled"
        && ends_with_results
        && !last.is_some_and(|last| text(&last["content"][0], "type").contains("thinking"))
    {
        return Err("expected `thinking` or `redacted_thinking`, but found `tool_use`".into());
    }
    Ok(asked)
}

fn read_message(message: &Value, deferred: &[String], asked: &mut Asked) -> Result<(), String> {
    let is_answer = message["role"] == "assistant";
    if list(message, "content").is_empty() {
        return Err("messages.content: all messages must have non-empty content".into());
    }
    let last = list(message, "content").last().map_or("", |block| text(block, "type"));
    if is_answer && last.contains("thinking") {
        return Err("The final block in an assistant message cannot be `thinking`".into());
    }
    let (mut blocks, mut attached) = (Vec::new(), Vec::new());
    for block in list(message, "content") {
        match text(block, "type") {
            "text" if text(block, "text").trim().is_empty() => {
                return Err("text content blocks must contain non-whitespace text".into());
            }
            "text" => blocks.push(text_block(text(block, "text"))),
            "tool_use" if is_answer => {
                check_fields(block, "tool_use", &["type", "id", "name", "input", "cache_control", "caller"])?;
                if !block["input"].is_object() {
                    return Err("tool_use.input: input should be a valid dictionary".into());
                }
                blocks.push(call_block(text(block, "id"), text(block, "name"), block["input"].clone()));
            }
            "tool_result" if !is_answer => {
                check_fields(block, "tool_result", &["type", "tool_use_id", "content", "is_error", "cache_control"])?;
                let id = text(block, "tool_use_id");
                for reference in list(block, "content").iter().filter(|part| part["type"] == "tool_reference") {
                    check_fields(reference, "tool_reference", &["type", "tool_name"])?;
                    let name = text(reference, "tool_name");
                    if !deferred.iter().any(|known| known == name) {
                        return Err(format!("Tool reference '{name}' has no corresponding tool definition"));
                    }
                    asked.tools.push(from_wire(name));
                }
                blocks.push(result(id, &name_of(&asked.messages, id), text(block, "content")));
            }
            "image" if !is_answer => {}
            "thinking" if is_answer && block.get("cache_control").is_none() => {
                attached.push(format!("{}|{}", text(block, "thinking"), text(block, "signature")));
            }
            "redacted_thinking" if is_answer => attached.push(text(block, "data").to_owned()),
            other => return Err(format!("content of type {other} is not expected here")),
        }
    }
    if is_answer {
        asked.attached.push(attached);
    }
    let role = if is_answer { Role::Assistant } else { Role::User };
    match asked.messages.last_mut().filter(|last| last.role == role) {
        // The API merges neighbouring messages of the same role.
        Some(last) => last.blocks.extend(blocks),
        None => asked.messages.push(Message { role, blocks }),
    }
    Ok(())
}

pub(super) fn write(answer: &StrictAnswer) -> (String, &'static str, Vec<String>) {
    let n = answer.number;
    let usage = json!({ "input_tokens": answer.input.uncached, "cache_read_input_tokens": answer.input.read,
        "cache_creation_input_tokens": answer.input.written, "output_tokens": 1 });
    let message = json!({ "id": format!("msg_{n}"), "type": "message", "role": "assistant", "model": answer.model,
        "content": [], "stop_reason": null, "usage": usage });
    let (mut out, mut index, mut attached) =
        (vec![json!({ "type": "message_start", "message": message })], 0, Vec::new());
    let mut block = |start: Value, pieces: Vec<Value>| {
        out.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        for delta in pieces {
            out.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        out.push(json!({ "type": "content_block_stop", "index": index }));
        index += 1;
    };
    let mut add_thinking = |block: &mut dyn FnMut(Value, Vec<Value>), which: &str| {
        let (thought, signature) = (format!("thought {n}{which}"), format!("c2ln+/{n}{which}=="));
        attached.push(format!("{thought}|{signature}"));
        let pieces = vec![
            json!({ "type": "thinking_delta", "thinking": thought }),
            json!({ "type": "signature_delta", "signature": signature }),
        ];
        block(json!({ "type": "thinking", "thinking": "", "signature": "" }), pieces);
    };
    add_thinking(&mut block, "a");
    if !answer.text.is_empty() {
        block(json!({ "type": "text", "text": "" }), vec![json!({ "type": "text_delta", "text": answer.text })]);
    }
    let (calls, mut redactions) = (!answer.calls.is_empty(), Vec::new());
    if calls {
        // Interleaved reasoning: between text and calls.
        add_thinking(&mut block, "b");
        let redacted = format!("redacted{n}");
        block(json!({ "type": "redacted_thinking", "data": redacted }), Vec::new());
        redactions.push(redacted);
    }
    for (id, name, arguments) in &answer.calls {
        let pieces = vec![json!({ "type": "input_json_delta", "partial_json": arguments.to_string() })];
        block(json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), pieces);
    }
    attached.extend(redactions);
    let reason = if calls { "tool_use" } else { "end_turn" };
    out.push(json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": { "output_tokens": answer.written() } }));
    out.push(json!({ "type": "message_stop" }));
    (events(&out), "text/event-stream", attached)
}
