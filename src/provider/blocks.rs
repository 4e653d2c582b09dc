//! The blocks of messages between the domain and the providers: raw blocks become those of the domain, an answer is checked at
//! its end, and what is sent back takes a form that every provider accepts. Opaque state goes back to its author alone.

use std::borrow::Cow;

use ghost_domain::json_text::{joined, joined_value, readable};
use ghost_domain::text::prefix_bytes;
use ghost_domain::tool_catalogue::{DESCRIBE, from_wire, to_wire};
use ghost_domain::transcript::{Block, Message, Opaque, Role, TokenUsage, ToolSpec};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::{check_call_count, check_text};
use crate::error::{ErrorKind, ProviderError};
use crate::estimate::{counted, reported};
use crate::model::{ModelAnswer, ModelRequest, Stop};

/// Longest call id and longest tool name in a call, in bytes. A longer id is replaced; a longer
/// name is truncated.
const ID_MAX: usize = 128;
const NAME_MAX: usize = 256;
/// The longest tool name that any of the providers accepts, in bytes; some accept less.
const WIRE_NAME_MAX: usize = 128;

/// The text of the message in which the pictures of results follow, where a result itself is only text.
pub(crate) const PICTURES_OF_RESULTS: &str = "[The images of the results above, in their order.]";

/// The tool that a result of [`DESCRIBE`] describes; `None` for another result, and for a refusal.
pub(crate) fn described(block: &Block) -> Option<ToolSpec> {
    match block {
        Block::ToolResult { name, content, is_error: false, .. } if name == DESCRIBE => {
            serde_json::from_str(content).ok()
        }
        _ => None,
    }
}

/// Converts a raw block. A block is a call if its `type` is a spelling of `toolCall`, `toolUse` or
/// `functionCall` and its `id` is not empty; its arguments are under `arguments`, `input` or
/// `args`. Text and reasoning are kept. Other blocks give `None`.
pub(crate) fn normalise(raw: &Value) -> Option<Block> {
    let text_of = |key: &str| raw.get(key).and_then(Value::as_str);
    match text_of("type")? {
        "text" => Some(Block::Text { text: text_of("text")?.to_owned() }),
        "thinking" | "reasoning" => Some(Block::Thinking {
            text: text_of("thinking").or_else(|| text_of("text")).unwrap_or_default().to_owned(),
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

/// A call with its canonical tool name. Halves of characters in its parts are joined. Absent arguments become an empty object. Text that is JSON
/// is parsed; an object that was written into a JSON string is parsed too. Other text stays text,
/// so that validation refuses it with a message that the model understands.
pub(crate) fn call(id: String, wire_name: &str, arguments: Value) -> Block {
    let arguments = match arguments {
        Value::Null => Value::Object(serde_json::Map::new()),
        Value::String(text) if text.trim().is_empty() => Value::Object(serde_json::Map::new()),
        Value::String(text) => {
            let text = joined(&text).into_owned();
            match serde_json::from_str(&readable(&text)) {
                Ok(Value::String(inner)) => {
                    let object = serde_json::from_str(&readable(&inner)).ok().filter(Value::is_object);
                    object.unwrap_or(Value::String(text))
                }
                Ok(value) => value,
                Err(_) => Value::String(text),
            }
        }
        other => joined_value(other),
    };
    Block::ToolCall { id, name: from_wire(prefix_bytes(&joined(wire_name), NAME_MAX)), arguments }
}

/// The name of a call as it is sent back. Models invent names, and a provider refuses the whole
/// conversation if a name has characters that it does not allow.
pub(crate) fn wire_name(name: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let wire = to_wire(name);
    if !wire.is_empty() && wire.len() <= WIRE_NAME_MAX && wire.chars().all(is_allowed) {
        return wire;
    }
    let name: String = wire.chars().map(|c| if is_allowed(c) { c } else { '_' }).take(WIRE_NAME_MAX).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

/// Arguments as they are sent back, always an object. A server that cannot parse them as JSON
/// refuses the whole conversation. Anything else that the model wrote is put under a key of its
/// own, so that the model sees its mistake.
pub(crate) fn sent_arguments(arguments: &Value) -> Cow<'_, Value> {
    match arguments {
        Value::Object(_) => Cow::Borrowed(arguments),
        Value::Null => Cow::Owned(json!({})),
        other => Cow::Owned(json!({ "_unparsed": other })),
    }
}

/// Gives the id `call-<n>` to each call whose id is unusable or already used in the conversation.
/// `n` counts over the conversation. The same answer to the same conversation gets the same ids.
fn replace_unusable_ids(request: &ModelRequest, blocks: &mut [Block]) {
    let is_earlier = |id: &str| request.messages.iter().any(|message| message.calls().any(|(own, _, _)| own == id));
    let mut next = request.calls_so_far();
    for at in 0..blocks.len() {
        let (before, rest) = blocks.split_at_mut(at);
        let Some(Block::ToolCall { id, .. }) = rest.first_mut() else { continue };
        next += 1;
        let is_before =
            |id: &str| before.iter().any(|block| matches!(block, Block::ToolCall { id: own, .. } if own == id));
        let is_used = |id: &str| is_before(id) || is_earlier(id);
        let usable = (1..=ID_MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
        if !usable || is_used(id) {
            *id = (next..).map(|n| format!("call-{n}")).find(|own| !is_used(own)).unwrap_or_default();
        }
    }
}

/// The last check of an answer. It replaces unusable ids, joins halves of characters, makes the stop reason agree with the
/// content, estimates the tokens that the provider did not count (zero in `usage`), and refuses an empty answer.
/// Exception: after the results of its calls, a model may end with an empty answer.
pub(crate) fn finish_answer(
    request: &ModelRequest,
    mut blocks: Vec<Block>,
    usage: TokenUsage,
    stop: Stop,
) -> Result<ModelAnswer, ProviderError> {
    replace_unusable_ids(request, &mut blocks);
    let stop = stop.by_shape();
    let failed = |error: ProviderError, blocks: &[Block]| error.usage(reported(usage, blocks.is_empty()));
    let count = blocks.iter().filter(|block| matches!(block, Block::ToolCall { .. })).count();
    check_call_count(count).and_then(|()| check_text(&blocks)).map_err(|error| failed(error, &blocks))?;
    for block in &mut blocks {
        if let Block::Text { text } | Block::Thinking { text } | Block::Opaque(Opaque { json: text, .. }) = block
            && let Cow::Owned(whole) = joined(text)
        {
            *text = whole;
        }
    }
    let calls = count > 0;
    let says = blocks.iter().any(|block| matches!(block, Block::Text { .. }));
    let stop = match stop {
        Stop::EndTurn if calls => Stop::ToolUse,
        Stop::ToolUse if !calls => Stop::EndTurn,
        other => other,
    };
    // If an answer is truncated within the arguments of its last call, the call must not run
    // without arguments.
    if matches!(stop, Stop::MaxTokens | Stop::WindowFull)
        && let Some(Block::ToolCall { arguments, .. }) = blocks.last_mut()
        && arguments.as_object().is_some_and(serde_json::Map::is_empty)
    {
        *arguments = Value::String(String::new());
    }
    let after_results = request.messages.last().is_some_and(|message| message.role == Role::Tool);
    let lacks = |kind, what: &str| Err(failed(ProviderError::new(kind, what), &blocks));
    match &stop {
        // A reason that nobody knows is no reason to throw away an answer that can be used.
        Stop::Other(why) if !stop.is_cut() && !is_usable(&blocks) => {
            let what = format!("the answer stopped with {why}, and has neither text nor complete tool calls");
            return lacks(ErrorKind::BadAnswer, &what);
        }
        Stop::WindowFull if !calls && !says => {
            return lacks(ErrorKind::ContextTooLong, "the conversation fills the context window of the model");
        }
        Stop::EndTurn if !calls && !says && !after_results => {
            return lacks(ErrorKind::BadAnswer, "the answer is empty: neither text nor a tool call");
        }
        _ => {}
    }
    let (usage, estimated) = counted(request, &blocks, usage, stop.is_cut());
    if !calls && !says {
        blocks.push(Block::Text { text: String::new() });
    }
    Ok(ModelAnswer { model: request.model.clone(), blocks, usage, estimated, stop })
}

/// Whether an answer has text or calls, and no call that breaks off in its arguments.
fn is_usable(blocks: &[Block]) -> bool {
    let mut calls = blocks.iter().filter_map(|block| match block {
        Block::ToolCall { arguments, .. } => Some(arguments.is_object()),
        _ => None,
    });
    let says = blocks.iter().any(|block| matches!(block, Block::Text { text } if !text.trim().is_empty()));
    (says || calls.clone().next().is_some()) && calls.all(|is_complete| is_complete)
}

/// A part of an earlier answer, as it is sent back.
#[derive(Clone, Copy)]
pub(crate) enum Part<'m> {
    /// A block, with the state that is attached to it.
    Block(&'m Block, Option<&'m RawValue>),
    /// State that belongs to no block.
    Alone(&'m RawValue),
}

/// The parts of an earlier answer, for the model that `request` calls. State of other authors is
/// omitted.
pub(crate) fn parts<'m>(request: &ModelRequest, message: &'m Message) -> Vec<Part<'m>> {
    let (author, mut attached) = (request.author(), None);
    let mut parts = Vec::with_capacity(message.blocks.len());
    for block in &message.blocks {
        let Block::Opaque(opaque) = block else {
            parts.push(Part::Block(block, attached.take()));
            continue;
        };
        let json = raw(opaque).filter(|_| opaque.author == author);
        match (json, opaque.attached) {
            (Some(json), true) => attached = Some(json),
            (Some(json), false) => parts.push(Part::Alone(json)),
            (None, _) => {}
        }
    }
    parts
}

/// The state as JSON; `None` if it is not JSON, which no adapter writes.
fn raw(opaque: &Opaque) -> Option<&RawValue> {
    serde_json::from_str(&opaque.json).ok()
}

/// A block of state that is attached to the block after it.
pub(crate) fn attached(request: &ModelRequest, json: String) -> Block {
    Block::Opaque(Opaque { author: request.author(), json, attached: true })
}

/// A block of state that belongs to no other block.
pub(crate) fn alone(request: &ModelRequest, json: String) -> Block {
    Block::Opaque(Opaque { author: request.author(), json, attached: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    #[test]
    fn arguments_in_a_json_string_are_parsed_and_other_text_stays() {
        let read = |text: &str| match call("1".to_owned(), "x", json!(text)) {
            Block::ToolCall { arguments, .. } => arguments,
            other => panic!("{other:?}"),
        };
        let twice = json!(json!({ "path": "a" }).to_string()).to_string();
        assert_eq!(read(&twice), json!({ "path": "a" }));
        for text in ["\"words\"", "\"[1]\"", "{\"path\": "] {
            assert_eq!(read(text), json!(text));
        }
        assert_eq!(read("[1]"), json!([1]));
        let thrice = json!(twice).to_string();
        assert_eq!(read(&thrice), json!(thrice));
    }

    // covers: CONF-01
    #[test]
    fn names_and_arguments_are_sent_back_in_a_form_that_every_provider_accepts() {
        for (name, wire) in
            [("workspace.read", "workspace__read"), ("Read File!", "Read_File_"), ("", "_"), ("é/x", "__x")]
        {
            assert_eq!(wire_name(name), wire);
        }
        assert_eq!(wire_name(&"é.".repeat(500)).len(), 128);
        assert_eq!(*sent_arguments(&json!({ "a": 1 })), json!({ "a": 1 }));
        assert_eq!(*sent_arguments(&Value::Null), json!({}));
        assert_eq!(*sent_arguments(&json!("{\"a")), json!({ "_unparsed": "{\"a" }));
    }

    #[test]
    fn unusable_ids_are_replaced_and_names_are_cut() {
        let mut blocks: Vec<Block> =
            ["", "a", "a", "a b", "é", &"x".repeat(200)].map(|id| call(id.to_owned(), "t", json!({}))).into();
        replace_unusable_ids(&request("m", "x"), &mut blocks);
        let ids: Vec<&str> = blocks
            .iter()
            .map(|block| match block {
                Block::ToolCall { id, .. } => id.as_str(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ids, ["call-1", "a", "call-3", "call-4", "call-5", "call-6"]);
        let Block::ToolCall { name, .. } = call("1".to_owned(), &"n".repeat(100_000), json!({})) else { panic!() };
        assert_eq!(name.len(), 256);
    }

    #[test]
    fn a_cut_last_call_gets_invalid_arguments_and_too_many_calls_are_refused() {
        let calls = |count: usize| (0..count).map(|n| call(n.to_string(), "t", Value::Null)).collect::<Vec<_>>();
        let nothing = TokenUsage::default();
        let arguments =
            |stop| match finish_answer(&request("m", "x"), calls(2), nothing, stop).unwrap().blocks.as_slice() {
                [Block::ToolCall { arguments: first, .. }, Block::ToolCall { arguments: last, .. }] => {
                    (first.clone(), last.clone())
                }
                other => panic!("{other:?}"),
            };
        assert_eq!(arguments(Stop::ToolUse), (json!({}), json!({})));
        assert_eq!(arguments(Stop::MaxTokens), (json!({}), json!("")), "it was not called without arguments");
        let usage = TokenUsage { input: 9, output: 1, ..TokenUsage::default() };
        assert!(finish_answer(&request("m", "x"), calls(256), usage, Stop::ToolUse).is_ok());
        let error = finish_answer(&request("m", "x"), calls(1_000), usage, Stop::ToolUse).unwrap_err();
        assert_eq!((error.kind, error.usage), (ErrorKind::BadAnswer, Some(usage)));
    }

    // covers: TOOL-10
    #[test]
    fn every_spelling_of_a_call_is_read_and_calls_without_id_are_ignored() {
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
                Block::Thinking { text: "hm".to_owned() },
            ]
        );
    }

    #[test]
    fn only_the_author_gets_its_state_back() {
        let own = request("m", "");
        let other = ModelRequest { model: "n".to_owned(), ..request("m", "") };
        let json = "{ \"signature\" : \"\u{e4}/+=\" }";
        let thought = Block::Thinking { text: "hm".to_owned() };
        let blocks = vec![attached(&own, json.to_owned()), thought.clone(), alone(&own, "[1, 2]".to_owned()), thought];
        let message = Message { role: Role::Assistant, blocks };
        let shown = |request: &ModelRequest| -> Vec<String> {
            let text = |part: &Part<'_>| match part {
                Part::Block(_, Some(json)) => format!("thought {json}"),
                Part::Block(_, None) => "thought".to_owned(),
                Part::Alone(json) => json.to_string(),
            };
            parts(request, &message).iter().map(text).collect()
        };
        assert_eq!(shown(&own), [format!("thought {json}").as_str(), "[1, 2]", "thought"]);
        assert_eq!(shown(&other), ["thought", "thought"]);
    }
}
