//! Gemini's `streamGenerateContent`. A request has no id that Gemini did not give: Gemini matches calls without an id by their
//! order. An answer needs a reason for its end, and makes no calls if the reason says that it is invalid.

use ghost_domain::model_facts::{Thinking, ThinkingControl};
use ghost_domain::text::clip;
use ghost_domain::tool_catalogue::to_wire;
use ghost_domain::transcript::{Block, Message, Role, TokenUsage, ToolSpec};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::answer::{Draft, Gather, check_block_count, check_call_count, first, without_end};
use crate::blocks::{Part, alone, attached, call, finish_answer, parts, sent_arguments, wire_name};
use crate::error::{Charge, ErrorKind, ProviderError};
use crate::estimate::{COUNT_MAX, reported};
use crate::json::{Json, object};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Stop};

/// Gemini requires this value in place of a signature for calls that another model made.
const UNSIGNED: &str = "skip_thought_signature_validator";
/// The field of a part that carries its signature.
const SIGNATURE: &str = "thoughtSignature";

pub(super) fn body<'a>(request: &'a ModelRequest, tools: Option<&'a RawValue>) -> Json<'a> {
    let system = || vec![object! { "text": &request.system }];
    object! {
        "systemInstruction": (!request.system.is_empty()).then(|| object! { "parts": system() }),
        "contents": request.messages.iter().filter_map(|message| content(request, message)).collect::<Vec<_>>(),
        "tools": tools,
        "generationConfig": object! {
            "maxOutputTokens": request.max_tokens,
            "temperature": request.temperature.filter(|_| request.facts.temperature),
            "thinkingConfig": thinking(request),
        },
    }
}

/// A message as it is sent, unless it would be empty.
fn content<'m>(request: &ModelRequest, message: &'m Message) -> Option<Json<'m>> {
    let needs_signature = !matches!(request.facts.thinking, ThinkingControl::Budget | ThinkingControl::Never);
    let role = if message.role == Role::Assistant { "model" } else { "user" };
    let mut parts = parts(request, message);
    if message.role == Role::Tool {
        // All results of a round come first; their pictures follow in the same order.
        parts.sort_by_key(|part| matches!(part, Part::Block(Block::Image { .. }, _)));
    }
    let mut parts: Vec<Json<'_>> = parts.into_iter().filter_map(wire).collect();
    let first = parts.iter_mut().find(|part| part.has("functionCall"));
    if let Some(call) = first.filter(|call| needs_signature && !call.has(SIGNATURE)) {
        call.push(SIGNATURE, UNSIGNED);
    }
    (!parts.is_empty()).then(|| object! { "role": role, "parts": parts })
}

fn thinking(request: &ModelRequest) -> Option<Json<'_>> {
    let (wanted, facts) = (request.thinking()?, &request.facts);
    let includes = wanted != Thinking::None;
    match facts.thinking {
        ThinkingControl::Never | ThinkingControl::Switch => None,
        ThinkingControl::Budget => {
            let min = facts.thinking_tokens.map_or(0, |(min, _)| min);
            let budget = facts.thinking_budget(wanted).min(request.max_tokens / 2).max(min);
            Some(object! { "includeThoughts": includes, "thinkingBudget": budget })
        }
        ThinkingControl::Unknown
        | ThinkingControl::Effort
        | ThinkingControl::Adaptive
        | ThinkingControl::AlwaysAdaptive => {
            facts.effort(wanted).map(|level| object! { "includeThoughts": includes, "thinkingLevel": level })
        }
    }
}

pub(super) fn tools<'t>(specs: &'t [ToolSpec]) -> Json<'t> {
    let declared = |ToolSpec { name, description, parameters }: &'t ToolSpec| {
        object! { "name": to_wire(name), "description": description, "parametersJsonSchema": parameters }
    };
    Json::List(vec![object! { "functionDeclarations": specs.iter().map(declared).collect::<Vec<_>>() }])
}

/// The part as it is sent: unchanged as Gemini sent it, or built from a block; `None` if it is not sent.
fn wire(part: Part<'_>) -> Option<Json<'_>> {
    let (block, attached) = match part {
        Part::Alone(json) => return Some(json.into()),
        Part::Block(block, attached) => (block, attached),
    };
    let id_of = |id| (!is_own(id)).then_some(id);
    let mut json = match block {
        Block::Text { text } if !text.is_empty() => object! { "text": text },
        Block::Thinking { text } if attached.is_some() => object! { "text": text, "thought": true },
        Block::ToolCall { id, name, arguments } if !id.is_empty() => {
            let call = object! { "name": wire_name(name), "args": sent_arguments(arguments), "id": id_of(id) };
            object! { "functionCall": call }
        }
        Block::ToolResult { id, name, content, is_error } => {
            let said = match is_error {
                true => object! { "error": content },
                false => object! { "output": content },
            };
            object! { "functionResponse": object! { "name": wire_name(name), "response": said, "id": id_of(id) } }
        }
        Block::Image { media_type, data } => {
            object! { "inlineData": object! { "mimeType": media_type, "data": data } }
        }
        _ => return None,
    };
    json.attach(attached, |name| name == SIGNATURE);
    Some(json)
}

/// Whether Ghost made the id.
fn is_own(id: &str) -> bool {
    id.strip_prefix("call-").is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// The answer so far.
pub(super) struct Gathered<'r> {
    draft: Draft<'r>,
    pieces: Vec<Piece>,
    usage: Option<Counts>,
    reason: Option<String>,
    blocked: Option<String>,
}

enum Piece {
    Text(String),
    /// The text, and its signature if there is one.
    Thinking(String, Option<String>),
    /// Id, name, arguments, signature.
    Call(String, String, Value, Option<String>),
    /// A part that only Gemini reads.
    Other(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(default, deserialize_with = "listed")]
    candidates: Option<Option<Candidate>>,
    prompt_feedback: Option<Feedback>,
    usage_metadata: Option<Counts>,
    error: Option<Value>,
}

/// `Some` if the field is present, with the first element of the list.
fn listed<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Option<Candidate>>, D::Error> {
    first(deserializer).map(Some)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    content: Option<Content>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    parts: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    total_token_count: Option<u64>,
}

/// The fields of a part. Parts with other content are kept for Gemini only.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartFields {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    thought_signature: Option<String>,
    function_call: Option<FunctionCall>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Deserialize)]
struct FunctionCall {
    id: Option<String>,
    name: String,
    args: Option<Value>,
}

impl<'r> Gathered<'r> {
    pub(super) fn new(draft: Draft<'r>) -> Self {
        Self { draft, pieces: Vec::new(), usage: None, reason: None, blocked: None }
    }

    fn add_event(&mut self, event: Event, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        if let Some(error) = event.error {
            return Err(self.draft.reported(&json!({ "error": error })));
        }
        if event.candidates.is_none() && event.prompt_feedback.is_none() && event.usage_metadata.is_none() {
            return Err(self.draft.bad("the provider sent an event that is not of its protocol"));
        }
        self.draft.begun = true;
        self.usage = event.usage_metadata.or(self.usage.take());
        self.blocked = event.prompt_feedback.and_then(|feedback| feedback.block_reason).or(self.blocked.take());
        // Ghost asks for one candidate only.
        let Some(candidate) = event.candidates.flatten() else { return Ok(()) };
        for part in candidate.content.map(|content| content.parts).unwrap_or_default() {
            self.part(&part, deltas)?;
        }
        self.reason = candidate.finish_reason.or(self.reason.take());
        Ok(())
    }

    fn part(&mut self, raw: &RawValue, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        let PartFields { text, thought, thought_signature: signature, function_call, rest } =
            self.draft.read(raw.get())?;
        check_block_count(self.pieces.len() + 1)?;
        self.draft.bytes.add_text(signature.as_ref().map_or(0, String::len))?;
        if let Some(FunctionCall { id, name, args }) = function_call {
            let calls = self.pieces.iter().filter(|piece| matches!(piece, Piece::Call(..))).count();
            check_call_count(calls + 1)?;
            let args = args.unwrap_or_default();
            self.draft.bytes.add_arguments(name.len() + args.to_string().len())?;
            self.pieces.push(Piece::Call(id.unwrap_or_default(), name, args, signature));
            return Ok(());
        }
        let Some(text) = text else {
            // For example code that Gemini ran itself.
            if !rest.is_empty() || signature.is_some() {
                self.draft.bytes.add_text(raw.get().len())?;
                self.pieces.push(Piece::Other(raw.get().to_owned()));
            }
            return Ok(());
        };
        self.draft.bytes.add_text(text.len())?;
        if thought {
            if !text.is_empty() {
                deltas.thinking(&text);
            }
            match self.pieces.last_mut() {
                Some(Piece::Thinking(before, proof @ None)) => {
                    before.push_str(&text);
                    *proof = signature;
                }
                _ => self.pieces.push(Piece::Thinking(text, signature)),
            }
            return Ok(());
        }
        if !text.is_empty() {
            if self.pieces.iter().any(|piece| matches!(piece, Piece::Text(_)))
                && !matches!(self.pieces.last(), Some(Piece::Text(_)))
            {
                // Separate texts begin on new lines.
                deltas.text("\n");
            }
            deltas.text(&text);
            match self.pieces.last_mut() {
                Some(Piece::Text(before)) => before.push_str(&text),
                _ => self.pieces.push(Piece::Text(text)),
            }
        }
        if let Some(signature) = signature {
            self.pieces.push(Piece::Other(json!({ "text": "", SIGNATURE: signature }).to_string()));
        }
        Ok(())
    }
}

/// The meaning of a stop reason. Some reasons say that the answer is invalid.
fn stop(reason: &str) -> Result<Stop, ProviderError> {
    let invalid = |kind| {
        let message = format!("the model's answer is invalid: it stopped with {}", clip(reason, 80));
        Err(ProviderError::new(kind, message).charge(Charge::Unknown))
    };
    match reason {
        "STOP" => Ok(Stop::EndTurn),
        "MAX_TOKENS" => Ok(Stop::MaxTokens),
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => Ok(Stop::Refused(Some(reason.to_owned()))),
        // The request lacks a signature.
        "MISSING_THOUGHT_SIGNATURE" => invalid(ErrorKind::StaleState),
        "FINISH_REASON_UNSPECIFIED"
        | "MALFORMED_FUNCTION_CALL"
        | "MALFORMED_RESPONSE"
        | "OTHER"
        | "TOO_MANY_TOOL_CALLS"
        | "UNEXPECTED_TOOL_CALL" => invalid(ErrorKind::BadAnswer),
        _ => Ok(Stop::Other(clip(reason, 80))),
    }
}

impl Gather for Gathered<'_> {
    fn event(&mut self, data: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        match data.trim() {
            // Gateways end streams with `[DONE]`.
            "" | "[DONE]" => Ok(()),
            data => {
                let event = self.draft.read(data)?;
                self.add_event(event, deltas)
            }
        }
    }

    fn has_begun(&self) -> bool {
        self.draft.begun
    }

    fn is_done(&self) -> bool {
        false
    }

    fn has_ended(&self) -> bool {
        self.reason.is_some()
    }

    fn finish(self) -> Result<ModelAnswer, ProviderError> {
        let (request, usage) = (self.draft.request, self.usage.as_ref().map(Counts::tokens).unwrap_or_default());
        let stop = match (self.blocked, self.reason.as_deref()) {
            (Some(why), _) => Stop::Refused(Some(clip(&format!("the prompt was blocked: {why}"), 80))),
            (None, None) => return Err(without_end()),
            (None, Some(reason)) => {
                stop(reason).map_err(|error| error.usage(reported(usage, self.pieces.is_empty())))?
            }
        };
        let mut blocks = Vec::with_capacity(self.pieces.len());
        let signed = |signature: String| json!({ SIGNATURE: signature }).to_string();
        for piece in self.pieces {
            let (block, signature) = match piece {
                Piece::Text(text) => (Block::Text { text }, None),
                Piece::Thinking(text, signature) => (Block::Thinking { text }, signature),
                Piece::Call(id, name, args, signature) => (call(id, &name, args), signature),
                Piece::Other(json) => {
                    blocks.push(alone(request, json));
                    continue;
                }
            };
            if let Some(signature) = signature {
                blocks.push(attached(request, signed(signature)));
            }
            blocks.push(block);
        }
        finish_answer(request, blocks, usage, stop)
    }
}

impl Counts {
    /// The token counts; zero for a count that is missing or not plausible.
    fn tokens(&self) -> TokenUsage {
        let plausible = |count: &u64| *count <= COUNT_MAX;
        let input = self.prompt_token_count.and_then(|count| count.checked_add(self.tool_use_prompt_token_count?));
        let input = input.or(self.prompt_token_count).filter(plausible).unwrap_or(0);
        let thoughts = self.thoughts_token_count.unwrap_or(0);
        let rest = self.total_token_count.filter(|_| input > 0).map(|total| total.saturating_sub(input));
        let output = match self.candidates_token_count.filter(|count| *count > 0) {
            Some(candidates) => candidates.checked_add(thoughts),
            None => rest.filter(|rest| *rest > 0),
        };
        let output = output.filter(plausible).unwrap_or(0);
        let cache_read = self.cached_content_token_count.unwrap_or(0).min(input);
        TokenUsage { input, output, cache_read, cache_write: 0 }
    }
}
