//! A fake server of OpenAI's documented Responses API. It refuses each request that OpenAI refuses.
//!
//! The server must never accept a request that OpenAI refuses.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::testing::{FakeReply, FakeRequest};

/// The request fields that these tests use.
const FIELDS: [&str; 12] = [
    "model",
    "stream",
    "store",
    "include",
    "instructions",
    "tools",
    "input",
    "max_output_tokens",
    "temperature",
    "reasoning",
    "prompt_cache_key",
    "service_tier",
];

/// The reply with which OpenAI would refuse `request`, if it would. `issued` is the encrypted
/// content that the server has issued.
pub(super) fn refusal(request: &Value, issued: &[&str]) -> Option<FakeReply> {
    let (status, code, message) = check(request, issued).err()?;
    let error = json!({ "message": message, "type": "invalid_request_error", "param": "input", "code": code });
    Some(FakeReply::new(status, "application/json", json!({ "error": error }).to_string()))
}

/// Answers with `answer`, unless the request is refused.
pub(super) fn strict(
    issued: &'static [&'static str],
    answer: impl Fn(&FakeRequest) -> FakeReply + Send + Sync + 'static,
) -> impl Fn(&FakeRequest) -> FakeReply + Send + Sync + 'static {
    move |request| refusal(&request.body, issued).unwrap_or_else(|| answer(request))
}

type Refused = (u16, &'static str, String);

fn bad(message: impl Into<String>) -> Refused {
    (400, "", message.into())
}

fn check_fields(object: &Value, fields: &[&str], at: &str) -> Result<(), Refused> {
    let object = object.as_object().ok_or_else(|| bad(format!("Invalid type for '{at}'.")))?;
    match object.keys().find(|key| !fields.contains(&key.as_str())) {
        Some(key) => Err((400, "unknown_parameter", format!("Unknown parameter: '{at}{key}'."))),
        None => Ok(()),
    }
}

fn check(request: &Value, issued: &[&str]) -> Result<(), Refused> {
    check_fields(request, &FIELDS, "")?;
    if request["max_output_tokens"].as_u64().is_some_and(|limit| limit < 16) {
        return Err((
            400,
            "integer_below_min_value",
            "Invalid 'max_output_tokens': expected a value >= 16.".to_owned(),
        ));
    }
    if let Some(reasoning) = request.get("reasoning") {
        check_fields(reasoning, &["effort", "summary"], "reasoning.")?;
        if reasoning["effort"] != "none" && request.get("temperature").is_some() {
            return Err(bad("Unsupported parameter: 'temperature' is not supported with this model."));
        }
    }
    for tool in request["tools"].as_array().into_iter().flatten() {
        check_fields(tool, &["type", "name", "description", "parameters", "strict"], "tools.")?;
        name(&tool["name"])?;
    }
    items(request["input"].as_array().ok_or_else(|| bad("Invalid type for 'input'."))?, issued)
}

fn name(name: &Value) -> Result<(), Refused> {
    let fits = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    match name.as_str().is_some_and(|name| !name.is_empty() && fits(name)) {
        true => Ok(()),
        false => Err(bad("Invalid 'name': string does not match pattern.")),
    }
}

fn items(items: &[Value], issued: &[&str]) -> Result<(), Refused> {
    let (mut ids, mut open, mut calls) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (at, item) in items.iter().enumerate() {
        let place = format!("input[{at}].");
        let kind = item.get("type").map_or(Some("message"), Value::as_str).unwrap_or_default();
        match kind {
            "message" if item["content"].is_array() && item["role"] == "assistant" => {
                check_fields(item, &["type", "role", "content", "id", "status", "phase"], &place)?;
                for part in item["content"].as_array().into_iter().flatten() {
                    check_fields(part, &["type", "text", "annotations", "logprobs", "refusal"], &place)?;
                    if !matches!(part["type"].as_str(), Some("output_text" | "refusal")) {
                        return Err(bad(format!("Invalid value: '{place}content'.")));
                    }
                }
            }
            "message" => {
                check_fields(item, &["type", "role", "content", "phase"], &place)?;
                for part in item["content"].as_array().into_iter().flatten() {
                    check_fields(part, &["type", "text", "image_url", "detail"], &place)?;
                }
            }
            "function_call" => {
                check_fields(item, &["type", "id", "status", "call_id", "name", "arguments"], &place)?;
                name(&item["name"])?;
                let id = item["call_id"].as_str().unwrap_or_default();
                if id.is_empty() || id.len() > 64 || !item["arguments"].is_string() || !calls.insert(id) {
                    return Err(bad(format!("Invalid '{place}call_id'.")));
                }
                open.insert(id);
            }
            "function_call_output" => {
                check_fields(item, &["type", "call_id", "output"], &place)?;
                let id = item["call_id"].as_str().unwrap_or_default();
                if !open.remove(id) {
                    return Err(bad(format!("No tool call found for function call output with call_id {id}.")));
                }
                for part in item["output"].as_array().into_iter().flatten() {
                    check_fields(part, &["type", "text", "image_url", "detail"], &place)?;
                }
            }
            "reasoning" => {
                check_fields(item, &["type", "id", "summary", "encrypted_content", "content", "status"], &place)?;
                let id = item["id"].as_str().unwrap_or_default();
                match item["encrypted_content"].as_str() {
                    None => {
                        return Err((
                            404,
                            "",
                            format!(
                                "Item with id '{id}' not found. Items are not persisted when `store` is set to false."
                            ),
                        ));
                    }
                    Some(content) if !issued.contains(&content) => {
                        let message = format!("The encrypted content {content} could not be verified.");
                        return Err((400, "invalid_encrypted_content", message));
                    }
                    Some(_) => {}
                }
                let led_to = items.get(at + 1).and_then(|next| next["type"].as_str());
                if !matches!(led_to, Some("message" | "function_call" | "reasoning" | "web_search_call")) {
                    let message =
                        format!("Item '{id}' of type 'reasoning' was provided without its required following item.");
                    return Err(bad(message));
                }
            }
            "web_search_call" => check_fields(item, &["type", "id", "status", "action"], &place)?,
            other => return Err(bad(format!("Invalid value: '{other}'."))),
        }
        if let Some(id) = item["id"].as_str()
            && !ids.insert(id)
        {
            return Err(bad(format!("Duplicate item found with id {id}.")));
        }
    }
    match open.first() {
        Some(id) => Err(bad(format!("No tool output found for function call {id}."))),
        None => Ok(()),
    }
}
