//! OpenAI's Responses API without stored items.

use ghost_domain::tool_catalogue::{DESCRIBE, from_wire};
use ghost_domain::transcript::{Block, Message, Role};
use serde_json::{Value, json};

use super::common::*;
use crate::testing::server::FakeRequest;

const BODY: [&str; 13] = [
    "model",
    "stream",
    "store",
    "include",
    "instructions",
    "input",
    "tools",
    "max_output_tokens",
    "temperature",
    "reasoning",
    "prompt_cache_key",
    "parallel_tool_calls",
    "text",
];

pub(super) fn read(request: &FakeRequest) -> Result<Asked, String> {
    let body = &request.body;
    check_fields(body, "body", &BODY)?;
    if body["store"] != json!(false) {
        return Err("store: this server stores nothing".into());
    }
    if body["max_output_tokens"].as_u64().is_some_and(|limit| limit < 16) {
        return Err("max_output_tokens: at least 16".into());
    }
    let effort = text(&body["reasoning"], "effort");
    if body.get("temperature").is_some() && !matches!(effort, "" | "none") {
        return Err("Unsupported parameter: 'temperature' is not supported with this model".into());
    }
    let mut asked = Asked { model: text(body, "model").into(), ..Asked::default() };
    asked.system = text(body, "instructions").into();
    for tool in list(body, "tools") {
        if tool["type"] == "tool_search" {
            check_fields(tool, "tools", &["type", "execution", "description", "parameters"])?;
            asked.searches = true;
            continue;
        }
        check_fields(tool, "tools", &["type", "name", "description", "parameters", "strict"])?;
        check_name(text(tool, "name"))?;
        asked.tools.push(from_wire(text(tool, "name")));
    }
    let mut after_reasoning = false;
    for item in list(body, "input") {
        after_reasoning = read_item(item, after_reasoning, &mut asked)?;
    }
    if after_reasoning {
        return Err("Item of type 'reasoning' was provided without its required following item".into());
    }
    check_calls(&asked.messages)?;
    Ok(asked)
}

/// Adds an item. Returns whether it is reasoning, after which an item of the same answer must
/// follow.
fn read_item(item: &Value, after_reasoning: bool, asked: &mut Asked) -> Result<bool, String> {
    let kind = if item.get("type").is_none() { "message" } else { text(item, "type") };
    let is_answer = matches!(kind, "reasoning" | "function_call" | "tool_search_call")
        || kind == "message" && item["role"] == "assistant";
    if after_reasoning && !is_answer {
        return Err("Item of type 'reasoning' was provided without its required following item".into());
    }
    if is_answer && asked.messages.last().is_none_or(|last| last.role != Role::Assistant) {
        asked.messages.push(Message { role: Role::Assistant, blocks: Vec::new() });
        asked.attached.push(Vec::new());
    }
    let attach = |asked: &mut Asked, what: String| {
        if let Some(last) = asked.attached.last_mut() {
            last.push(what);
        }
    };
    match kind {
        "reasoning" => {
            if text(item, "encrypted_content").is_empty() {
                return Err(format!(
                    "Item with id '{}' not found. Items are not persisted when `store` is set to false",
                    text(item, "id")
                ));
            }
            attach(asked, item.to_string());
        }
        "function_call" => {
            attach(asked, text(item, "id").to_owned());
            let arguments = serde_json::from_str(text(item, "arguments")).map_err(|_| "arguments: invalid JSON")?;
            push(asked, call_block(text(item, "call_id"), text(item, "name"), arguments));
        }
        "tool_search_call" => {
            check_fields(item, "input", &["type", "call_id", "execution", "status", "arguments"])?;
            push(asked, call_block(text(item, "call_id"), DESCRIBE, item["arguments"].clone()));
        }
        "tool_search_output" => {
            check_fields(item, "input", &["type", "call_id", "execution", "status", "tools"])?;
            for tool in list(item, "tools") {
                check_fields(tool, "tools", &["type", "name", "description", "parameters", "strict", "defer_loading"])?;
                check_name(text(tool, "name"))?;
                asked.tools.push(from_wire(text(tool, "name")));
            }
            push_result(&mut asked.messages, result(text(item, "call_id"), DESCRIBE, ""));
        }
        "message" if is_answer => {
            attach(asked, format!("{}|{}", text(item, "id"), text(item, "phase")));
            let parts_text: String = list(item, "content").iter().map(|part| text(part, "text")).collect();
            push(asked, text_block(if item["content"].is_string() { text(item, "content") } else { &parts_text }));
        }
        "message" => {
            let parts_text: String = list(item, "content").iter().map(|part| text(part, "text")).collect();
            let content = if item["content"].is_string() { text(item, "content") } else { &parts_text };
            asked.messages.push(Message::text(Role::User, content));
        }
        "function_call_output" => {
            let id = text(item, "call_id");
            let found = result(id, &name_of(&asked.messages, id), text(item, "output"));
            push_result(&mut asked.messages, found);
        }
        other => return Err(format!("Invalid value: '{other}'")),
    }
    Ok(kind == "reasoning")
}

fn push(asked: &mut Asked, block: Block) {
    if let Some(last) = asked.messages.last_mut() {
        last.blocks.push(block);
    }
}

pub(super) fn write(answer: &StrictAnswer) -> (String, &'static str, Vec<String>) {
    let n = answer.number;
    let (mut out, mut items, mut attached) = (Vec::new(), Vec::new(), Vec::new());
    out.push(json!({ "type": "response.created", "response": { "id": format!("resp_{n}"), "status": "in_progress", "output": [] } }));
    let add_reasoning = |which: &str, out: &mut Vec<Value>, items: &mut Vec<Value>, attached: &mut Vec<String>| {
        let item = json!({ "type": "reasoning", "id": format!("rs_{n}{which}"), "encrypted_content": format!("gAAAA+/{n}{which}=="),
            "summary": [{ "type": "summary_text", "text": format!("thought {n}{which}") }] });
        let begun = json!({ "type": "reasoning", "id": format!("rs_{n}{which}"), "encrypted_content": "gAAAA-not-whole", "summary": [] });
        out.push(json!({ "type": "response.output_item.added", "output_index": items.len(), "item": begun }));
        out.push(
            json!({ "type": "response.reasoning_summary_text.delta", "output_index": items.len(), "summary_index": 0,
            "item_id": format!("rs_{n}{which}"), "delta": format!("thought {n}{which}") }),
        );
        out.push(json!({ "type": "response.output_item.done", "output_index": items.len(), "item": item }));
        attached.push(item.to_string());
        items.push(item);
    };
    add_reasoning("a", &mut out, &mut items, &mut attached);
    if !answer.text.is_empty() {
        let phase = if answer.calls.is_empty() { "final_answer" } else { "commentary" };
        let content = json!([{ "type": "output_text", "text": answer.text, "annotations": [] }]);
        let item = json!({ "type": "message", "id": format!("msg_{n}"), "role": "assistant", "status": "completed", "phase": phase,
            "content": content });
        out.push(json!({ "type": "response.output_item.added", "output_index": items.len(),
            "item": { "type": "message", "id": format!("msg_{n}"), "role": "assistant", "status": "in_progress", "content": [] } }));
        out.push(json!({ "type": "response.output_text.delta", "output_index": items.len(), "content_index": 0,
            "item_id": format!("msg_{n}"), "delta": answer.text }));
        out.push(json!({ "type": "response.output_item.done", "output_index": items.len(), "item": item }));
        attached.push(format!("msg_{n}|{phase}"));
        items.push(item);
    }
    if !answer.calls.is_empty() && !answer.text.is_empty() {
        add_reasoning("b", &mut out, &mut items, &mut attached);
    }
    for (at, (id, name, arguments)) in answer.calls.iter().enumerate() {
        if answer.searches && from_wire(name) == DESCRIBE {
            let item = json!({ "type": "tool_search_call", "id": format!("tsc_{n}_{at}"), "call_id": id,
                "execution": "client", "arguments": arguments, "status": "completed" });
            out.push(json!({ "type": "response.output_item.added", "output_index": items.len(), "item": item }));
            out.push(json!({ "type": "response.output_item.done", "output_index": items.len(), "item": item }));
            items.push(item);
            continue;
        }
        let item = json!({ "type": "function_call", "id": format!("fc_{n}_{at}"), "call_id": id, "name": name,
            "arguments": arguments.to_string(), "status": "completed" });
        let mut begun = item.clone();
        begun["arguments"] = json!("");
        out.push(json!({ "type": "response.output_item.added", "output_index": items.len(), "item": begun }));
        out.push(json!({ "type": "response.function_call_arguments.delta", "output_index": items.len(),
            "item_id": format!("fc_{n}_{at}"), "delta": arguments.to_string() }));
        out.push(json!({ "type": "response.output_item.done", "output_index": items.len(), "item": item }));
        attached.push(format!("fc_{n}_{at}"));
        items.push(item);
    }
    let usage = json!({ "input_tokens": answer.input.all(), "input_tokens_details": { "cached_tokens": answer.input.read },
        "output_tokens": answer.written(), "output_tokens_details": { "reasoning_tokens": 5 }, "total_tokens": answer.input.all() + answer.written() });
    out.push(json!({ "type": "response.completed", "response": { "id": format!("resp_{n}"), "status": "completed",
        "model": answer.model, "output": items, "usage": usage } }));
    (events(&out), "text/event-stream", attached)
}
