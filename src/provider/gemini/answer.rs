//! Assembles an answer of Gemini from its events.
//!
//! This module must never accept an end without a reason. It must never make calls when the reason
//! says that the answer is invalid.

use ghost_domain::redact::Redactor;
use ghost_domain::text::clip;
use ghost_domain::transcript::{Block, TokenUsage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::answer_bounds::AnswerBytes;
use crate::attached::{alone, attached};
use crate::blocks::{call, check_block_count, check_call_count, finish_answer, replace_unusable_ids};
use crate::error::{Charge, ErrorKind, ProviderError};
use crate::estimate::reported;
use crate::exchange::{Gather, first, read};
use crate::http::event_error;
use crate::model::{Deltas, ModelAnswer, ModelRequest, Stop};
use crate::openai::COUNT_MAX;

/// The answer so far.
pub(super) struct Gathered<'r> {
    redactor: &'r Redactor,
    bytes: AnswerBytes,
    pieces: Vec<Piece>,
    usage: Option<Counts>,
    reason: Option<String>,
    blocked: Option<String>,
    /// Whether an event of the protocol was received.
    begun: bool,
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
    pub(super) fn new(request: &ModelRequest, redactor: &'r Redactor) -> Self {
        let bytes = AnswerBytes::new(request);
        Self { redactor, bytes, pieces: Vec::new(), usage: None, reason: None, blocked: None, begun: false }
    }

    fn add_event(&mut self, event: Event, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        if let Some(error) = event.error {
            return Err(event_error(&json!({ "error": error }), self.redactor));
        }
        if event.candidates.is_none() && event.prompt_feedback.is_none() && event.usage_metadata.is_none() {
            return Err(ProviderError::new(
                ErrorKind::BadAnswer,
                "the provider sent an event that is not of its protocol",
            ));
        }
        self.begun = true;
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
            read(raw.get(), self.redactor)?;
        check_block_count(self.pieces.len() + 1)?;
        self.bytes.add_text(signature.as_ref().map_or(0, String::len))?;
        if let Some(FunctionCall { id, name, args }) = function_call {
            let calls = self.pieces.iter().filter(|piece| matches!(piece, Piece::Call(..))).count();
            check_call_count(calls + 1)?;
            let args = args.unwrap_or_default();
            self.bytes.add_arguments(name.len() + args.to_string().len())?;
            self.pieces.push(Piece::Call(id.unwrap_or_default(), name, args, signature));
            return Ok(());
        }
        let Some(text) = text else {
            // For example code that Gemini ran itself.
            if !rest.is_empty() || signature.is_some() {
                self.bytes.add_text(raw.get().len())?;
                self.pieces.push(Piece::Other(raw.get().to_owned()));
            }
            return Ok(());
        };
        self.bytes.add_text(text.len())?;
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
            self.pieces.push(Piece::Other(json!({ "text": "", "thoughtSignature": signature }).to_string()));
        }
        Ok(())
    }

    /// The answer, if it is complete.
    pub(super) fn finish(self, request: &ModelRequest) -> Result<ModelAnswer, ProviderError> {
        let usage = self.usage.as_ref().map(Counts::tokens).unwrap_or_default();
        let stop = match (self.blocked, self.reason.as_deref()) {
            (Some(why), _) => Stop::Refused(Some(clip(&format!("the prompt was blocked: {why}"), 80))),
            (None, None) => {
                let message = "the stream ended without its end marker, in the middle of the answer";
                return Err(ProviderError::new(ErrorKind::BrokenStream, message).charge(Charge::Unknown));
            }
            (None, Some(reason)) => {
                stop(reason).map_err(|error| error.usage(reported(usage, self.pieces.is_empty())))?
            }
        };
        let mut blocks = Vec::with_capacity(self.pieces.len());
        let signed = |signature: String| json!({ "thoughtSignature": signature }).to_string();
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
        replace_unusable_ids(request, &mut blocks);
        finish_answer(request, blocks, usage, stop)
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
                let event = read(data, self.redactor)?;
                self.add_event(event, deltas)
            }
        }
    }

    fn whole(&mut self, body: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        self.event(body, deltas)
    }

    fn has_begun(&self) -> bool {
        self.begun
    }

    fn is_done(&self) -> bool {
        false
    }

    fn has_ended(&self) -> bool {
        self.reason.is_some()
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
