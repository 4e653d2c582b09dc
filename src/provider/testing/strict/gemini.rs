//! Gemini's `streamGenerateContent`, with a model that requires its signatures back.

use ghost_domain::tool_catalogue::from_wire;
use ghost_domain::transcript::{Block, Message, Role};
use serde_json::{Value, json};

use super::common::*;
use crate::testing::server::FakeRequest;

pub(super) fn read(request: &FakeRequest) -> Result<Asked, String> {
    let body = &request.body;
    check_fields(body, "body", &["systemInstruction", "contents", "tools", "generationConfig", "toolConfig"])?;
    let model =
        request.path.split("/models/").nth(1).and_then(|rest| rest.strip_suffix(":streamGenerateContent?alt=sse"));
    let model = model.ok_or_else(|| format!("{}: not found", request.path))?;
    check_fields(&body["generationConfig"], "generationConfig", &["maxOutputTokens", "temperature", "thinkingConfig"])?;
    let mut asked = Asked { model: model.into(), ..Asked::default() };
    asked.system = list(&body["systemInstruction"], "parts").iter().map(|part| text(part, "text")).collect();
    for tool in list(&body["tools"][0], "functionDeclarations") {
        check_fields(tool, "functionDeclarations", &["name", "description", "parametersJsonSchema"])?;
        check_name(text(tool, "name"))?;
        asked.tools.push(from_wire(text(tool, "name")));
    }
    let (mut ids, mut open) = (0, Vec::new());
    for content in list(body, "contents") {
        let is_answer = content["role"] == "model";
        let (mut blocks, mut attached) = (Vec::new(), Vec::new());
        if list(content, "parts").is_empty() {
            return Err("contents.parts must not be empty".into());
        }
        for (at, part) in list(content, "parts").iter().enumerate() {
            let known = ["text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData"];
            check_fields(part, "parts", &known)?;
            let signature = text(part, "thoughtSignature");
            if let Some(call) = part.get("functionCall") {
                let first = !blocks.iter().any(|block| matches!(block, Block::ToolCall { .. }));
                if first && signature.is_empty() {
                    return Err(format!(
                        "Function call `{}` in the {at}. content block is missing a `thought_signature`",
                        text(call, "name")
                    ));
                }
                // Calls without ids are matched by their order.
                ids += 1;
                let id = format!("by-order-{ids}");
                open.push((id.clone(), text(call, "name").to_owned()));
                blocks.push(call_block(&id, text(call, "name"), call["args"].clone()));
            } else if let Some(response) = part.get("functionResponse") {
                if open.is_empty() || open[0].1 != text(response, "name") {
                    return Err("function response parts must equal the function call parts of the turn before".into());
                }
                let (id, name) = open.remove(0);
                let found = &response["response"];
                let content = if found.get("error").is_some() { text(found, "error") } else { text(found, "output") };
                blocks.push(result(&id, &name, content));
            } else if !text(part, "text").is_empty() && part["thought"] != json!(true) {
                blocks.push(text_block(text(part, "text")));
            }
            if !signature.is_empty() && signature != "skip_thought_signature_validator" {
                attached.push(signature.to_owned());
            }
        }
        if is_answer {
            asked.attached.push(attached);
        }
        let has_results = matches!(blocks.first(), Some(Block::ToolResult { .. }));
        let role = if is_answer {
            Role::Assistant
        } else if has_results {
            Role::Tool
        } else {
            Role::User
        };
        asked.messages.push(Message { role, blocks });
    }
    check_calls(&asked.messages)?;
    Ok(asked)
}

pub(super) fn write(answer: &StrictAnswer) -> (String, &'static str, Vec<String>) {
    let n = answer.number;
    let (mut out, mut attached) = (Vec::new(), Vec::new());
    let mut parts = |parts: Value| {
        out.push(json!({ "candidates": [{ "index": 0, "content": { "role": "model", "parts": parts } }] }))
    };
    parts(json!([{ "text": format!("thought {n}"), "thought": true }]));
    if !answer.text.is_empty() {
        parts(json!([{ "text": answer.text }]));
    }
    for (at, (_, name, arguments)) in answer.calls.iter().enumerate() {
        let mut part = json!({ "functionCall": { "name": name, "args": arguments } });
        // Only the first of several parallel calls has a signature.
        if at == 0 {
            let signature = format!("c2ln{n:04}");
            part["thoughtSignature"] = json!(signature);
            attached.push(signature);
        }
        parts(json!([part]));
    }
    if answer.calls.is_empty() {
        let signature = format!("ZW5k{n:04}");
        parts(json!([{ "text": "", "thoughtSignature": signature }]));
        attached.push(signature);
    }
    let (input, written) = (answer.input.all(), answer.written());
    out.push(json!({ "candidates": [{ "index": 0, "content": { "role": "model", "parts": [] }, "finishReason": "STOP" }],
        "usageMetadata": { "promptTokenCount": input, "cachedContentTokenCount": answer.input.read, "candidatesTokenCount": written, "totalTokenCount": input + written },
        "modelVersion": answer.model }));
    (data(&out), "text/event-stream", attached)
}
