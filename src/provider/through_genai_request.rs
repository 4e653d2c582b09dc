//! A request in genai's words.
//!
//! Must never: send a provider the signature of another, or an argument that is not an object.

use genai::chat::{
    CacheControl, ChatMessage, ChatOptions, ChatRequest, ContentPart, MessageContent, ReasoningEffort, Tool, ToolCall,
    ToolResponse,
};
use ghost_domain::tool_catalogue::to_wire;
use ghost_domain::transcript::{Block, Message, Role, ToolSpec};
use serde_json::json;

use crate::blocks::{sent_arguments, wire_name};
use crate::genai_protocol::Protocol;
use crate::model::ModelRequest;

/// What stands before the data of a thinking block that Anthropic keeps to itself.
pub(crate) const REDACTED: &str = "redacted:";

/// Tokens that Anthropic's older models think for at each effort; an answer must have room for more than that.
const THINKING: [(&str, u64); 3] = [("high", 24_000), ("medium", 8_000), ("low", 1_024)];

pub(crate) fn chat_options(protocol: Protocol, request: &ModelRequest, bearer: Option<&str>) -> ChatOptions {
    let mut options = ChatOptions::default()
        .with_capture_usage(true)
        .with_capture_content(true)
        .with_capture_tool_calls(true)
        .with_capture_reasoning_content(true)
        .with_max_tokens(u32::try_from(request.max_tokens).unwrap_or(u32::MAX));
    let effort = request.thinking.as_deref().and_then(|effort| match protocol {
        Protocol::Anthropic => THINKING
            .iter()
            .skip_while(|(name, _)| *name != effort)
            .find(|(_, tokens)| *tokens < request.max_tokens)
            .and_then(|(name, _)| ReasoningEffort::from_keyword(name)),
        Protocol::Gemini | Protocol::Ollama => ReasoningEffort::from_keyword(effort),
    });
    // Anthropic takes no temperature together with thinking.
    let temperature = request.temperature.filter(|_| effort.is_none() || protocol != Protocol::Anthropic);
    if let Some(temperature) = temperature {
        options = options.with_temperature(temperature);
    }
    if let Some(effort) = effort {
        options = options.with_reasoning_effort(effort);
    }
    if let Some(bearer) = bearer {
        options = options.with_extra_headers(("Authorization", bearer));
    }
    options
}

pub(crate) fn chat_request(protocol: Protocol, request: &ModelRequest) -> ChatRequest {
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    let cached = protocol == Protocol::Anthropic;
    if !request.system.is_empty() {
        let system = ChatMessage::system(request.system.as_str());
        messages.push(if cached { system.with_options(CacheControl::Ephemeral) } else { system });
    }
    let mut briefed = false;
    for message in &request.messages {
        match message.role {
            Role::User => {
                let text = ChatMessage::user(message.visible_text());
                let first = !std::mem::replace(&mut briefed, true);
                messages.push(if cached && first { text.with_options(CacheControl::Ephemeral) } else { text });
            }
            Role::Assistant => {
                let content = assistant(protocol, message);
                if !content.is_empty() {
                    messages.push(ChatMessage::assistant(MessageContent::from_parts(content)));
                }
            }
            Role::Tool => messages.extend(results(protocol, message)),
        }
    }
    let chat = ChatRequest::from_messages(messages);
    if request.tools.is_empty() { chat } else { chat.with_tools(request.tools.iter().map(tool)) }
}

fn tool(spec: &ToolSpec) -> Tool {
    Tool::new(to_wire(&spec.name)).with_description(spec.description.as_str()).with_schema(spec.parameters.clone())
}

fn assistant(protocol: Protocol, message: &Message) -> Vec<ContentPart> {
    let mut parts = Vec::new();
    let mut of_call: Option<String> = None;
    for block in &message.blocks {
        match block {
            Block::Text { text } if text.is_empty() => {}
            Block::Text { text } => parts.push(ContentPart::from_text(text.as_str())),
            Block::Thinking { text, signature } => {
                let own = signature.as_deref().and_then(|signature| signature.strip_prefix(protocol.mark()));
                match (protocol, own) {
                    (Protocol::Anthropic, Some(signature)) => match signature.strip_prefix(REDACTED) {
                        Some(data) => parts
                            .push(ContentPart::from_custom(json!({ "type": "redacted_thinking", "data": data }), None)),
                        None => {
                            parts.push(ContentPart::ThoughtSignature(signature.to_owned()));
                            parts.push(ContentPart::ReasoningContent(text.clone()));
                        }
                    },
                    (Protocol::Gemini, Some(signature)) => of_call = Some(signature.to_owned()),
                    // Reasoning that nobody signed is not sent back.
                    _ => {}
                }
            }
            Block::ToolCall { id, name, arguments } if !id.is_empty() => parts.push(ContentPart::ToolCall(ToolCall {
                call_id: wire_id(protocol, id, name),
                fn_name: wire_name(name),
                fn_arguments: sent_arguments(arguments).into_owned(),
                thought_signatures: of_call.take().map(|signature| vec![signature]),
            })),
            Block::ToolCall { .. } | Block::ToolResult { .. } => {}
        }
    }
    parts
}

/// The results of one round. For Anthropic and Gemini they are one message; Ollama takes one message each.
fn results(protocol: Protocol, message: &Message) -> Vec<ChatMessage> {
    let mut parts = Vec::new();
    for block in &message.blocks {
        let Block::ToolResult { id, name, content, is_error } = block else { continue };
        parts.push(match protocol {
            // genai's tool response cannot say that it is an error.
            Protocol::Anthropic if *is_error => ContentPart::from_custom(
                json!({ "type": "tool_result", "tool_use_id": wire_id(protocol, id, name), "content": content, "is_error": true }),
                None,
            ),
            _ => ContentPart::ToolResponse(
                ToolResponse::new(wire_id(protocol, id, name), content.as_str()).with_fn_name(wire_name(name)),
            ),
        });
    }
    match protocol {
        Protocol::Ollama => {
            parts.into_iter().map(|part| ChatMessage::tool(MessageContent::from_parts(vec![part]))).collect()
        }
        Protocol::Anthropic | Protocol::Gemini if parts.is_empty() => Vec::new(),
        Protocol::Anthropic | Protocol::Gemini => vec![ChatMessage::tool(MessageContent::from_parts(parts))],
    }
}

/// The id as the provider gave it. Ids of our own making are told to Gemini in the form that genai leaves out, because
/// Gemini matches calls without an id by their order. Anthropic refuses what other providers have in theirs.
fn wire_id(protocol: Protocol, id: &str, name: &str) -> String {
    let own = id.strip_prefix("call-").filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    match (protocol, own) {
        (Protocol::Gemini, Some(n)) => format!("call#{}#{n}", wire_name(name)),
        (Protocol::Anthropic, _) => {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            id.chars().map(|c| if fits(c) { c } else { '_' }).collect()
        }
        _ => id.to_owned(),
    }
}
