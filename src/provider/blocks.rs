//! Raw content blocks of providers, normalised to the blocks of the domain (TOOL-10, LOOP-05).
//!
//! Must never: make a call out of a block that has no id; those are ignored.

use std::collections::BTreeSet;

use ghost_domain::tool_catalogue::from_wire;
use ghost_domain::transcript::{Block, Role, TokenUsage};
use serde_json::Value;

use crate::error::{ErrorKind, ProviderError};
use crate::model::{ModelAnswer, ModelRequest, Stop};

/// Normalises a raw block. Calls are blocks whose `type` is `toolCall`, `toolUse`, `functionCall` or a spelling of
/// those, with a non-empty `id`; their arguments are under `arguments`, `input` or `args`. Text and thinking are kept;
/// `None` is everything else, which is left out.
pub(crate) fn normalise(raw: &Value) -> Option<Block> {
    let text_of = |key: &str| raw.get(key).and_then(Value::as_str);
    match text_of("type")? {
        "text" => Some(Block::Text { text: text_of("text")?.to_owned() }),
        "thinking" | "reasoning" => Some(Block::Thinking {
            text: text_of("thinking").or_else(|| text_of("text")).unwrap_or_default().to_owned(),
            signature: text_of("signature").map(str::to_owned),
        }),
        "toolCall" | "toolUse" | "functionCall" | "tool_call" | "tool_use" | "function_call" => {
            let id = text_of("id").filter(|id| !id.is_empty())?;
            let name = text_of("name").filter(|name| !name.is_empty())?;
            let arguments = ["arguments", "input", "args"].iter().find_map(|key| raw.get(*key));
            Some(call(id.to_owned(), name, arguments.cloned().unwrap_or(Value::Null)))
        }
        _ => None,
    }
}

/// A call with its canonical name. Absent arguments are an empty object; text that is JSON is taken as what it says;
/// any other text stays text, so that validation refuses it in words the model understands.
pub(crate) fn call(id: String, wire_name: &str, arguments: Value) -> Block {
    let arguments = match arguments {
        Value::Null => Value::Object(serde_json::Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(serde_json::Map::new()),
        Value::String(text) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
        other => other,
    };
    Block::ToolCall { id, name: from_wire(wire_name), arguments }
}

/// Gives calls that came without an id, or with one that is taken in this conversation, the id `call-<n>`, counting
/// over the conversation. The same answer to the same conversation gets the same ids.
pub(crate) fn own_ids(request: &ModelRequest, blocks: &mut [Block]) {
    let earlier = request.messages.iter().flat_map(|message| message.calls().map(|(id, _, _)| id.to_owned()));
    let mut taken: BTreeSet<String> = earlier.collect();
    let mut next = request.calls_so_far();
    for block in blocks {
        let Block::ToolCall { id, .. } = block else { continue };
        next += 1;
        if id.is_empty() || taken.contains(id) {
            *id = (next..).map(|n| format!("call-{n}")).find(|own| !taken.contains(own)).unwrap_or_default();
        }
        taken.insert(id.clone());
    }
}

/// The last look at an answer: the reason to stop agrees with what it holds, and one that holds nothing is refused. A
/// model that has nothing to add to the results of its calls is the exception: it is done, and says so with silence.
pub(crate) fn settle(
    request: &ModelRequest,
    mut blocks: Vec<Block>,
    usage: Option<TokenUsage>,
    stop: Stop,
) -> Result<ModelAnswer, ProviderError> {
    let calls = blocks.iter().any(|block| matches!(block, Block::ToolCall { .. }));
    let says = blocks.iter().any(|block| matches!(block, Block::Text { .. }));
    let stop = match stop {
        Stop::EndTurn if calls => Stop::ToolUse,
        Stop::ToolUse if !calls => Stop::EndTurn,
        other => other,
    };
    if !calls && !says {
        let after_results = request.messages.last().is_some_and(|message| message.role == Role::Tool);
        if matches!(stop, Stop::EndTurn | Stop::Other(_)) && !after_results {
            let words = "the answer is empty: neither words nor a tool call";
            return Err(ProviderError::new(ErrorKind::BadAnswer, words).usage(usage));
        }
        blocks.push(Block::Text { text: String::new() });
    }
    Ok(ModelAnswer { model: request.model.clone(), blocks, usage, stop })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_spelling_of_a_call_is_one_and_those_without_id_are_none() {
        let raw = [
            json!({ "type": "text", "text": "hello" }),
            json!({ "type": "toolCall", "id": "1", "name": "workspace__read", "arguments": { "path": "a" } }),
            json!({ "type": "toolUse", "id": "2", "name": "x", "input": "{\"a\":1}" }),
            json!({ "type": "functionCall", "id": "3", "name": "x", "arguments": "not json" }),
            json!({ "type": "toolCall", "id": "", "name": "x", "arguments": {} }),
            json!({ "type": "toolCall", "name": "x", "arguments": {} }),
            json!({ "type": "toolCall", "id": 7, "name": "x", "arguments": {} }),
            json!({ "type": "thinking", "thinking": "hm", "signature": "s" }),
            json!({ "type": "image", "data": "…" }),
            json!("not even an object"),
        ];
        let call = |id: &str, name: &str, arguments: Value| Block::ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments,
        };
        assert_eq!(
            raw.iter().filter_map(normalise).collect::<Vec<_>>(),
            [
                Block::Text { text: "hello".to_owned() },
                call("1", "workspace.read", json!({ "path": "a" })),
                call("2", "x", json!({ "a": 1 })),
                call("3", "x", json!("not json")),
                Block::Thinking { text: "hm".to_owned(), signature: Some("s".to_owned()) },
            ]
        );
    }
}
