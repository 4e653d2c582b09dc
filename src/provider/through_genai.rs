//! Anthropic, Gemini and Ollama through genai: the call, its stream and its failures.
//!
//! genai is told the protocol and the key outright and guesses nothing from the model's name. Its chunks differ by
//! provider, so an answer is read from the end of the stream alone; what came before is only shown. It makes up an end
//! for streams of Gemini and Ollama that broke off, which is told from a real one by the reason to stop. It bounds
//! nothing, so its requests go through a rim of ours. It looks at an event anew with every read that brings more of it, so
//! that a long one takes long, and gives nothing back before; so it reads on threads that nothing else needs. It adds counts
//! without looking at their size and reads numbers that a provider chose, so a panic in it is caught and becomes a bad answer.
//!
//! Must never: retry, or trust an end that has no reason.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt;
use genai::chat::{
    ChatFrameSink, ChatOptions, ChatRequest, ChatStreamEvent, ContentPart, StopReason, StreamEnd, Usage,
};
use genai::resolver::{AuthData, Endpoint};
use genai::{ModelIden, ServiceTarget};
use ghost_domain::redact::Redactor;
use ghost_domain::text::clip;
use ghost_domain::transcript::{Block, TokenUsage};
use ghost_domain::{Clock, Code, Refusal};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::aside::Aside;
use crate::blocks::{call, own_ids, settle};
use crate::error::{Charge, ErrorKind, ProviderError};
use crate::estimate::estimate_tokens;
use crate::genai_events::BLOCKED;
use crate::genai_protocol::Protocol;
use crate::http::{base_url, chain, event_error, redactor, status_error, transport_error};
use crate::idle::IdleLimit;
use crate::model::{Deltas, ModelAnswer, ModelRequest, Provider, Stop};
use crate::ollama_extras::Extras;
use crate::openai_usage::COUNT_MAX;
use crate::rim::{LOST, Passage, Rim};
use crate::through_genai_bounds::{Counted, Wire};
use crate::through_genai_request::{REDACTED, chat_options, chat_request};

/// Most pieces of an answer that wait to be shown.
const PIECES: usize = 64;

/// The adapter.
pub(crate) struct ThroughGenai {
    reader: Arc<Reader>,
    aside: Aside,
}

/// What makes calls and reads their answers.
struct Reader {
    client: genai::Client,
    protocol: Protocol,
    rim: Rim,
    auth: AuthData,
    /// For Ollama, which genai sends no key to.
    bearer: Option<String>,
    redactor: Redactor,
    clock: Arc<dyn Clock>,
}

/// One call.
struct Call {
    model: String,
    request: ChatRequest,
    options: ChatOptions,
    counted: Counted,
    extras: Option<Extras>,
    /// What the request reads at most, in tokens.
    input: u64,
}

/// A piece of an answer that is shown while the rest is made.
enum Piece {
    Text(String),
    Thinking(String),
}

/// What was read of an answer.
struct Read {
    blocks: Vec<Block>,
    usage: Option<TokenUsage>,
    /// Whether a count of it is an estimate.
    estimated: bool,
    stop: Stop,
}

impl ThroughGenai {
    pub(crate) fn new(
        name: &str,
        protocol: Protocol,
        base: Option<&str>,
        key: Option<SecretString>,
        idle: IdleLimit,
    ) -> Result<Self, Refusal> {
        let (home, bare) = protocol.home();
        let url = base_url(name, base.unwrap_or(home), bare)?;
        let redactor = redactor(key.as_ref());
        let clock = Arc::clone(&idle.clock);
        let rim = Rim::new(name, url, protocol, redactor.clone(), idle)?;
        let client = genai::Client::builder().with_reqwest(rim.client(name)?).build().map_err(|error| {
            Refusal::new(Code::Internal, format!("the client of provider `{name}` cannot be made: {}", chain(&error)))
        })?;
        // Checks that the key can be a header at all, whatever header genai puts it in.
        let bearer = key.as_ref().map(|key| crate::openai::bearer(name, key)).transpose()?;
        let bearer = bearer.filter(|_| protocol == Protocol::Ollama).and_then(|b| b.to_str().map(str::to_owned).ok());
        // A server of one's own may want no key; genai wants one.
        let auth = AuthData::from_single(key.as_ref().map_or("none", |key| key.expose_secret()));
        let reader = Arc::new(Reader { client, protocol, rim, auth, bearer, redactor, clock });
        Ok(Self { reader, aside: Aside::default() })
    }
}

impl Reader {
    fn call(&self, request: &ModelRequest) -> Call {
        Call {
            model: request.model.clone(),
            request: chat_request(self.protocol, request),
            options: chat_options(self.protocol, request, self.bearer.as_deref()),
            counted: Counted::of(self.protocol, request),
            extras: (self.protocol == Protocol::Ollama).then(|| Extras::of(request)),
            input: estimate_tokens(request),
        }
    }

    async fn read(self: Arc<Self>, mut call: Call, show: mpsc::Sender<Piece>) -> Result<Read, ProviderError> {
        let passage = self.rim.open(call.extras.take()).await?;
        let input = call.input;
        // What genai makes of a loss is less than what the rim knows of it.
        let lost = |error: &ProviderError| {
            error.status == Some(LOST) || matches!(error.kind, ErrorKind::BrokenStream | ErrorKind::Network)
        };
        let end = self.stream(call, &show, &passage).await;
        let end = end.map_err(|error| passage.failure().filter(|_| lost(&error)).unwrap_or(error))?;
        self.answer(end, passage.failure(), input)
    }

    async fn stream(
        &self,
        call: Call,
        show: &mpsc::Sender<Piece>,
        passage: &Passage,
    ) -> Result<Option<StreamEnd>, ProviderError> {
        let Call { model, request, options, mut counted, .. } = call;
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(passage.url()),
            auth: self.auth.clone(),
            model: ModelIden::new(self.protocol.adapter(), model),
        };
        let wire = Arc::new(Wire::default());
        let options = options.with_raw_frame_sink_arc(Arc::clone(&wire) as Arc<dyn ChatFrameSink>);
        let started = self.client.exec_chat_stream(target, request, Some(&options));
        let mut stream = started.await.map_err(|error| self.failure(error))?.stream;
        while let Some(event) = stream.next().await {
            let piece = match event.map_err(|error| self.told(&wire).unwrap_or_else(|| self.failure(error)))? {
                ChatStreamEvent::Chunk(chunk) => {
                    counted.words(&chunk.content)?;
                    Piece::Text(chunk.content)
                }
                ChatStreamEvent::ReasoningChunk(chunk) => {
                    counted.words(&chunk.content)?;
                    Piece::Thinking(chunk.content)
                }
                ChatStreamEvent::End(end) => return self.told(&wire).map_or(Ok(Some(end)), Err),
                ChatStreamEvent::ToolCallChunk(chunk) => {
                    counted.call(&chunk.tool_call)?;
                    continue;
                }
                ChatStreamEvent::Start | ChatStreamEvent::ThoughtSignatureChunk(_) | ChatStreamEvent::Heartbeat => {
                    continue;
                }
            };
            if show.send(piece).await.is_err() {
                // The call was given up, and nobody reads what is given here.
                return Ok(None);
            }
        }
        self.told(&wire).map_or(Ok(None), Err)
    }

    /// The error that a stream told and genai passed over, if it did.
    fn told(&self, wire: &Wire) -> Option<ProviderError> {
        wire.error().map(|error| event_error(error, &self.redactor))
    }

    /// The answer, if it is whole; `broken` is what the rim knows of why it is not, `input` what was read at most.
    fn answer(&self, end: Option<StreamEnd>, broken: Option<ProviderError>, input: u64) -> Result<Read, ProviderError> {
        // An Ollama of an older version gives no reason, but its last line has the counts, and only its last.
        let whole = |end: &StreamEnd| match self.protocol {
            Protocol::Ollama => end.captured_stop_reason.is_some() || has_counts(end.captured_usage.as_ref()),
            Protocol::Anthropic | Protocol::Gemini => end.captured_stop_reason.is_some(),
        };
        let Some(end) = end.filter(whole) else {
            return Err(broken.unwrap_or_else(|| {
                let words = "the stream ended without its end marker, in the middle of the answer";
                ProviderError::new(ErrorKind::BrokenStream, words)
            }));
        };
        let stop = match &end.captured_stop_reason {
            None | Some(StopReason::Completed(_) | StopReason::StopSequence(_)) => Stop::EndTurn,
            Some(StopReason::ToolCall(_)) => Stop::ToolUse,
            Some(StopReason::MaxTokens(_)) => Stop::MaxTokens,
            // The word for it says no more than that.
            Some(StopReason::ContentFilter(reason)) if reason == "refusal" => Stop::Refused(None),
            Some(StopReason::ContentFilter(reason)) => Stop::Refused(Some(clip(reason, 80))),
            Some(StopReason::Other(reason)) if reason.starts_with(BLOCKED) => Stop::Refused(Some(clip(reason, 80))),
            Some(StopReason::Other(reason)) => Stop::Other(clip(reason, 80)),
        };
        let usage = end.captured_usage.as_ref().filter(|usage| has_counts(Some(usage)));
        let empty = end.captured_content.as_ref().is_none_or(|content| content.is_empty());
        let mut usage = usage.and_then(|usage| tokens(usage, empty));
        let blocks = blocks(self.protocol, end);
        if let Stop::Other(reason) = &stop
            && let Some(kind) = flaw(self.protocol, reason, &blocks)
        {
            let words = format!("the model's answer is none: it stopped with {reason}");
            return Err(ProviderError::new(kind, words).charge(Charge::Unknown).usage(usage));
        }
        // Ollama leaves out the count of a prompt that it has in its cache, where it has read it once.
        let unsaid = |usage: &&mut TokenUsage| self.protocol == Protocol::Ollama && usage.input == 0;
        let estimated = usage.as_mut().filter(unsaid).map(|usage| usage.input = input).is_some();
        Ok(Read { blocks, usage, estimated, stop })
    }

    fn failure(&self, error: genai::Error) -> ProviderError {
        let bad = |kind, words: &str| ProviderError::redacted(kind, words, &self.redactor);
        match error {
            genai::Error::HttpError { status, body, headers, .. } => {
                status_error(status.as_u16(), &headers, &body, self.clock.now(), &self.redactor)
            }
            genai::Error::WebStream { error, cause, .. } => match error.downcast::<genai::Error>() {
                Ok(inner) => self.failure(*inner),
                Err(error) => match error.downcast::<reqwest::Error>() {
                    Ok(inner) => transport_error(*inner, &self.redactor),
                    // Bytes that are no text, and the like.
                    Err(_) => bad(ErrorKind::BadAnswer, &format!("the stream is broken: {cause}")),
                },
            },
            genai::Error::ChatResponse { body, .. } => match body.get("finishReason") {
                // What genai says of an event of Gemini's that holds neither candidates nor an error.
                Some(Value::Null) => {
                    bad(ErrorKind::BadAnswer, "the provider sent an event that is not of its protocol")
                }
                _ => event_error(&body, &self.redactor),
            },
            genai::Error::StreamParse { serde_error, .. } => {
                bad(ErrorKind::BadAnswer, &format!("the provider sent what is no JSON of its protocol: {serde_error}"))
            }
            // Which field it looked for is said in words of genai's own.
            genai::Error::JsonValueExt(_) => {
                bad(ErrorKind::BadAnswer, "the provider sent an event that lacks a field of its protocol")
            }
            genai::Error::WebModelCall { webc_error: genai::webc::Error::Reqwest(error), .. } => {
                transport_error(error, &self.redactor)
            }
            other => bad(ErrorKind::BadRequest, &format!("the request cannot be made: {other}")),
        }
    }
}

#[async_trait]
impl Provider for ThroughGenai {
    async fn complete(&self, request: &ModelRequest, deltas: &mut dyn Deltas) -> Result<ModelAnswer, ProviderError> {
        let (show, mut shown) = mpsc::channel(PIECES);
        let reading = Arc::clone(&self.reader).read(self.reader.call(request), show);
        let reading = self.aside.begin(reading).await.map_err(|error| {
            let words = format!("there is no thread to read the answer on: {error}");
            ProviderError::new(ErrorKind::Network, words).charge(Charge::Nothing)
        })?;
        while let Some(piece) = shown.recv().await {
            match piece {
                Piece::Text(text) => deltas.text(&text),
                Piece::Thinking(text) => deltas.thinking(&text),
            }
        }
        let read = reading.end().await.unwrap_or_else(|_| {
            Err(ProviderError::new(
                ErrorKind::BadAnswer,
                "the provider's answer could not be read (the reader panicked)",
            ))
        });
        let Read { mut blocks, usage, estimated, stop } = read?;
        own_ids(request, &mut blocks);
        match settle(request, blocks, usage, stop) {
            Ok(answer) => Ok(ModelAnswer { estimated, ..answer }),
            // Of an answer that is none, an estimate is the reservation.
            Err(error) if estimated => Err(error.usage(None)),
            Err(error) => Err(error),
        }
    }
}

/// What is wrong with an answer that stopped for a `reason` of its provider's own, if anything is. Gemini has reasons which
/// say that what was written is no answer, and its reasons that nobody here knows make no calls.
fn flaw(protocol: Protocol, reason: &str, blocks: &[Block]) -> Option<ErrorKind> {
    if protocol != Protocol::Gemini {
        return None;
    }
    let calls = blocks.iter().any(|block| matches!(block, Block::ToolCall { .. }));
    match reason {
        // It is the request that lacks one, and lacks it again.
        "MISSING_THOUGHT_SIGNATURE" => Some(ErrorKind::BadRequest),
        "FINISH_REASON_UNSPECIFIED"
        | "MALFORMED_FUNCTION_CALL"
        | "MALFORMED_RESPONSE"
        | "OTHER"
        | "TOO_MANY_TOOL_CALLS"
        | "UNEXPECTED_TOOL_CALL" => Some(ErrorKind::BadAnswer),
        _ => calls.then_some(ErrorKind::BadAnswer),
    }
}

fn has_counts(usage: Option<&Usage>) -> bool {
    usage.is_some_and(|usage| usage.prompt_tokens.is_some() || usage.completion_tokens.is_some())
}

/// What the counts come to; `None` if they do not say what was written, though the answer is not `empty`, or count nothing,
/// though something was read, or if one of them is no count.
fn tokens(usage: &Usage, empty: bool) -> Option<TokenUsage> {
    let is_count = |tokens: i32| u64::try_from(tokens).is_ok_and(|tokens| tokens <= COUNT_MAX);
    if ![usage.prompt_tokens, usage.completion_tokens, usage.total_tokens].into_iter().flatten().all(is_count) {
        return None;
    }
    let count = |tokens: Option<i32>| u64::try_from(tokens.unwrap_or(0)).unwrap_or(0);
    let details = usage.prompt_tokens_details.as_ref();
    let input = count(usage.prompt_tokens);
    // The total has what a provider leaves out of the rest: thoughts without an answer.
    let rest = usage.prompt_tokens.map_or(0, |_| count(usage.total_tokens).saturating_sub(input));
    let output = count(usage.completion_tokens).max(rest);
    let said = usage.completion_tokens.is_some() || output > 0 || empty;
    let cache_read = count(details.and_then(|details| details.cached_tokens)).min(input);
    let cache_write = count(details.and_then(|details| details.cache_creation_tokens)).min(input - cache_read);
    (said && (input > 0 || output > 0)).then_some(TokenUsage { input, output, cache_read, cache_write })
}

/// The blocks of an answer, in the order in which they must be sent back: thinking, words, calls.
fn blocks(protocol: Protocol, end: StreamEnd) -> Vec<Block> {
    let sign = |signature: &str| Some(format!("{}{signature}", protocol.mark()));
    let mut blocks = Vec::new();
    let mut pending: Option<String> = None;
    let mut thought = false;
    for part in end.captured_content.into_iter().flat_map(|content| content.into_parts()) {
        match part {
            // Of Gemini's signatures only those of calls must come back, and calls carry their own.
            ContentPart::ThoughtSignature(signature) if protocol == Protocol::Anthropic => {
                if let Some(unpaired) = pending.replace(signature) {
                    blocks.push(Block::Thinking { text: String::new(), signature: sign(&unpaired) });
                }
            }
            ContentPart::ThoughtSignature(_) => {}
            ContentPart::ReasoningContent(text) => {
                thought = true;
                blocks.push(Block::Thinking { text, signature: pending.take().and_then(|signature| sign(&signature)) });
            }
            ContentPart::Custom(custom) => {
                if let Some(data) = custom.data().get("data").and_then(Value::as_str) {
                    let signature = sign(&format!("{REDACTED}{data}"));
                    blocks.push(Block::Thinking { text: String::new(), signature });
                }
            }
            ContentPart::Text(text) if text.is_empty() => {}
            ContentPart::Text(text) => blocks.push(Block::Text { text }),
            ContentPart::ToolCall(made) => {
                let signature = made.thought_signatures.into_iter().flatten().next();
                if let Some(signature) = signature.filter(|_| protocol == Protocol::Gemini) {
                    blocks.push(Block::Thinking { text: String::new(), signature: sign(&signature) });
                }
                // What genai makes up for calls without an id is neither stable nor unique.
                let made_up = match protocol {
                    Protocol::Anthropic => false,
                    Protocol::Gemini => made.call_id.starts_with("call#"),
                    Protocol::Ollama => made.call_id.starts_with("call_"),
                };
                let id = if made_up { String::new() } else { made.call_id };
                blocks.push(call(id, &made.fn_name, made.fn_arguments));
            }
            ContentPart::Binary(_) | ContentPart::ToolResponse(_) => {}
        }
    }
    if let Some(text) = end.captured_reasoning_content.filter(|text| !thought && !text.is_empty()) {
        blocks.insert(0, Block::Thinking { text, signature: None });
    }
    blocks
}
