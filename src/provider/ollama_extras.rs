//! What Ollama's chat API takes and genai does not send: the names of tools with their results, the ids of calls, the size of
//! the context window, and that a conversation which does not fit is refused. Left alone, Ollama cuts it in silence, from its
//! beginning, which holds what the agent is.
//!
//! Must never: change anything else in a request.

use ghost_domain::transcript::{Block, Role};
use serde_json::{Value, json};

use crate::blocks::wire_name;
use crate::model::ModelRequest;

/// What is added to one request.
#[derive(Debug)]
pub(crate) struct Extras {
    window_tokens: Option<u32>,
    /// The ids of its calls, in order.
    calls: Vec<String>,
    /// The ids and names of its results, in order.
    results: Vec<(String, String)>,
}

impl Extras {
    pub(crate) fn of(request: &ModelRequest) -> Self {
        let blocks = |role| request.messages.iter().filter(move |message| message.role == role);
        let calls = blocks(Role::Assistant).flat_map(|message| &message.blocks).filter_map(|block| match block {
            Block::ToolCall { id, .. } if !id.is_empty() => Some(id.clone()),
            _ => None,
        });
        let results = blocks(Role::Tool).flat_map(|message| &message.blocks).filter_map(|block| match block {
            Block::ToolResult { id, name, .. } => Some((id.clone(), wire_name(name))),
            _ => None,
        });
        Self { window_tokens: request.window_tokens, calls: calls.collect(), results: results.collect() }
    }

    /// The request with what is added; `None` if it is none.
    pub(crate) fn add(&self, body: &[u8]) -> Option<Vec<u8>> {
        let mut body: Value = serde_json::from_slice(body).ok()?;
        let request = body.as_object_mut()?;
        // Versions before 0.12.6 know nothing of it, and cut.
        request.insert("truncate".to_owned(), json!(false));
        if let Some(tokens) = self.window_tokens {
            let options = request.entry("options").or_insert_with(|| json!({})).as_object_mut()?;
            options.insert("num_ctx".to_owned(), json!(tokens));
        }
        let (mut calls, mut results) = (self.calls.iter(), self.results.iter());
        for message in request.get_mut("messages")?.as_array_mut()?.iter_mut().filter_map(Value::as_object_mut) {
            for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
                if let (Some(call), Some(id)) = (call.as_object_mut(), calls.next()) {
                    call.insert("id".to_owned(), json!(id));
                }
            }
            if message.get("role").is_some_and(|role| role == "tool")
                && let Some((id, name)) = results.next()
            {
                message.insert("tool_name".to_owned(), json!(name));
                message.insert("tool_call_id".to_owned(), json!(id));
            }
        }
        serde_json::to_vec(&body).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    #[test]
    fn nothing_but_what_is_missing_is_added() {
        let plain = Extras::of(&request("m", "hello"));
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "tool" }] });
        let added: Value = serde_json::from_slice(&plain.add(body.to_string().as_bytes()).unwrap()).unwrap();
        let mut expected = body.clone();
        expected["truncate"] = json!(false);
        assert_eq!(added, expected);
        for none in ["", "[]", "{}", "{\"messages\":1}"] {
            assert!(plain.add(none.as_bytes()).is_none(), "{none}");
        }
        let wide = ModelRequest { window_tokens: Some(8_192), ..request("m", "hello") };
        let added = Extras::of(&wide).add(body.to_string().as_bytes()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&added).unwrap()["options"], json!({ "num_ctx": 8_192 }));
    }
}
