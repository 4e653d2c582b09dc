//! Assembles an answer of Anthropic from its events. The blocks keep their order, and each the state that is attached to it.

use ghost_domain::json_text::readable;
use ghost_domain::text::clip;
use ghost_domain::transcript::{Block, TokenUsage};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::answer::{Draft, Gather, check_block_count, check_call_count, lacks_a_field, without_end};
use crate::blocks::{alone, attached, call, finish_answer};
use crate::error::{ErrorKind, ProviderError};
use crate::estimate::COUNT_MAX;
use crate::model::{Deltas, ModelAnswer, PAUSED, Stop};

/// The answer so far.
pub(super) struct Gathered<'r> {
    draft: Draft<'r>,
    blocks: Vec<Open>,
    usage: Counts,
    stop: Option<Stop>,
    done: bool,
    /// Whether an earlier block has text: the next block's text then begins on a new line.
    has_text: bool,
}

/// A block that is being received.
struct Open {
    index: u64,
    kind: Kind,
    /// The block's other fields.
    rest: Map<String, Value>,
}

enum Kind {
    Text(String),
    Thinking(String),
    /// Id, name, and the arguments: as sent at the start, and as received in pieces.
    Call(String, String, Value, String),
    /// A block that only Anthropic reads, with the pieces of its input.
    Other(String),
    /// A block with a piece of an unknown type. The block is incomplete and is dropped.
    Broken,
}

#[derive(Default, Deserialize)]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Start,
    },
    ContentBlockStart {
        index: u64,
        content_block: Map<String, Value>,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    MessageDelta {
        delta: Ending,
        usage: Option<Counts>,
    },
    MessageStop,
    Error {
        error: Value,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Start {
    usage: Option<Counts>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[serde(rename = "citations_delta")]
    Citations { citation: Value },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Ending {
    stop_reason: Option<String>,
    stop_details: Option<Value>,
}

/// An answer in one JSON body.
#[derive(Deserialize)]
struct Whole {
    content: Vec<Map<String, Value>>,
    #[serde(flatten)]
    ending: Ending,
    usage: Option<Counts>,
}

impl<'r> Gathered<'r> {
    pub(super) fn new(draft: Draft<'r>) -> Self {
        Self { draft, blocks: Vec::new(), usage: Counts::default(), stop: None, done: false, has_text: false }
    }

    fn start(
        &mut self,
        index: u64,
        mut fields: Map<String, Value>,
        deltas: &mut dyn Deltas,
    ) -> Result<(), ProviderError> {
        check_block_count(self.blocks.len() + 1)?;
        let kind = take_string(&mut fields, "type").unwrap_or_default();
        let mut count = |text: &str| self.draft.bytes.add_text(text.len());
        let kind = match kind.as_str() {
            "text" => {
                let text = take_string(&mut fields, "text").unwrap_or_default();
                count(&text)?;
                self.has_text =
                    self.blocks.iter().any(|open| matches!(&open.kind, Kind::Text(text) if !text.is_empty()));
                if !text.is_empty() {
                    send_text(deltas, &text, self.has_text);
                }
                Kind::Text(text)
            }
            "thinking" => {
                let text = take_string(&mut fields, "thinking").unwrap_or_default();
                count(&text)?;
                if !text.is_empty() {
                    deltas.thinking(&text);
                }
                Kind::Thinking(text)
            }
            "tool_use" => {
                let calls = self.blocks.iter().filter(|open| matches!(open.kind, Kind::Call(..))).count();
                check_call_count(calls + 1)?;
                let mut field = |name| take_string(&mut fields, name).ok_or_else(lacks_a_field);
                let (id, name) = (field("id")?, field("name")?);
                let input = fields.remove("input").unwrap_or_default();
                self.draft.bytes.add_arguments(id.len() + name.len() + input.to_string().len())?;
                Kind::Call(id, name, input, String::new())
            }
            _ => {
                fields.insert("type".to_owned(), Value::String(kind));
                Kind::Other(String::new())
            }
        };
        // A single event is limited in size, but many events add up.
        fields.retain(|_, value| !matches!(value, Value::Null) && value.as_array().is_none_or(|list| !list.is_empty()));
        self.draft.bytes.add_text(fields.iter().map(|(key, value)| key.len() + value.to_string().len()).sum())?;
        self.blocks.push(Open { index, kind, rest: fields });
        Ok(())
    }

    fn delta(&mut self, index: u64, delta: Delta, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        let Some(open) = self.blocks.iter_mut().rev().find(|open| open.index == index) else {
            return Err(ProviderError::new(ErrorKind::BadAnswer, "a piece of the answer belongs to no block"));
        };
        match (&mut open.kind, delta) {
            (Kind::Text(text), Delta::Text { text: more }) => {
                self.draft.bytes.add_text(more.len())?;
                send_text(deltas, &more, self.has_text && text.is_empty());
                text.push_str(&more);
            }
            (Kind::Text(_), Delta::Citations { citation }) => {
                self.draft.bytes.add_text(citation.to_string().len())?;
                let list = open.rest.entry("citations").or_insert_with(|| Value::Array(Vec::new()));
                if let Some(list) = list.as_array_mut() {
                    list.push(citation);
                }
            }
            (Kind::Thinking(text), Delta::Thinking { thinking }) => {
                self.draft.bytes.add_text(thinking.len())?;
                text.push_str(&thinking);
                deltas.thinking(&thinking);
            }
            (Kind::Thinking(_), Delta::Signature { signature }) => {
                self.draft.bytes.add_text(signature.len())?;
                match open.rest.get_mut("signature") {
                    Some(Value::String(before)) => before.push_str(&signature),
                    _ => drop(open.rest.insert("signature".to_owned(), Value::String(signature))),
                }
            }
            (Kind::Call(_, _, _, json), Delta::InputJson { partial_json }) => {
                self.draft.bytes.add_arguments(partial_json.len())?;
                json.push_str(&partial_json);
            }
            (Kind::Other(json), Delta::InputJson { partial_json }) => {
                self.draft.bytes.add_text(partial_json.len())?;
                json.push_str(&partial_json);
            }
            // An unknown piece of a known block carries extra information only, so it is ignored.
            (Kind::Text(_) | Kind::Thinking(_) | Kind::Call(..) | Kind::Broken, _) => {}
            (Kind::Other(_), _) => open.kind = Kind::Broken,
        }
        Ok(())
    }

    fn end(&mut self, ending: Ending, usage: Option<Counts>) {
        if let Some(usage) = usage {
            let ours = &mut self.usage;
            ours.input_tokens = usage.input_tokens.or(ours.input_tokens);
            ours.output_tokens = usage.output_tokens.or(ours.output_tokens);
            ours.cache_creation_input_tokens = usage.cache_creation_input_tokens.or(ours.cache_creation_input_tokens);
            ours.cache_read_input_tokens = usage.cache_read_input_tokens.or(ours.cache_read_input_tokens);
        }
        let why = ending.stop_details.as_ref().and_then(|details| details.get("explanation")?.as_str());
        if let Some(reason) = ending.stop_reason {
            self.stop = Some(match reason.as_str() {
                "end_turn" | "stop_sequence" => Stop::EndTurn,
                "tool_use" => Stop::ToolUse,
                "max_tokens" => Stop::MaxTokens,
                "refusal" => Stop::Refused(why.map(|why| clip(why, 80))),
                "pause_turn" => Stop::Other(PAUSED.to_owned()),
                other => Stop::Other(clip(other, 80)),
            });
        }
    }
}

impl Gather for Gathered<'_> {
    fn event(&mut self, data: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        let event = self.draft.read(data)?;
        self.draft.begun |= !matches!(event, Event::Error { .. } | Event::Other);
        match event {
            // The output that this event counts is not that of the answer.
            Event::MessageStart { message } => {
                self.usage = Counts { output_tokens: None, ..message.usage.unwrap_or_default() }
            }
            Event::ContentBlockStart { index, content_block } => self.start(index, content_block, deltas)?,
            Event::ContentBlockDelta { index, delta } => self.delta(index, delta, deltas)?,
            Event::MessageDelta { delta, usage } => self.end(delta, usage),
            Event::MessageStop => self.done = true,
            Event::Error { error } => return Err(self.draft.reported(&error)),
            Event::Other => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        let body: Value = self.draft.read(body)?;
        if body.get("error").is_some() {
            return Err(self.draft.reported(&body));
        }
        let whole: Whole = serde_json::from_value(body).map_err(|_| {
            ProviderError::new(ErrorKind::BadAnswer, "the provider answered with one JSON text in place of a stream")
        })?;
        self.draft.begun = true;
        for (index, block) in (0..).zip(whole.content) {
            self.start(index, block, deltas)?;
        }
        self.end(whole.ending, whole.usage);
        Ok(())
    }

    fn has_begun(&self) -> bool {
        self.draft.begun
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn finish(self) -> Result<ModelAnswer, ProviderError> {
        let (request, usage) = (self.draft.request, self.usage.tokens());
        let stop = self.stop.ok_or_else(without_end)?;
        let mut blocks = Vec::with_capacity(self.blocks.len());
        for open in self.blocks {
            let Open { kind, mut rest, .. } = open;
            let json = |fields: Map<String, Value>| Value::Object(fields).to_string();
            let block = match kind {
                Kind::Broken => continue,
                Kind::Other(pieces) => {
                    if let Ok(input) = serde_json::from_str::<Value>(&readable(&pieces)) {
                        rest.insert("input".to_owned(), input);
                    }
                    blocks.push(alone(request, json(rest)));
                    continue;
                }
                Kind::Text(text) if text.is_empty() => continue,
                Kind::Text(text) => Block::Text { text },
                Kind::Thinking(text) => Block::Thinking { text },
                Kind::Call(id, name, _, pieces) if !pieces.is_empty() => call(id, &name, Value::String(pieces)),
                Kind::Call(id, name, input, _) => call(id, &name, input),
            };
            rest.retain(|_, value| value != "");
            if !rest.is_empty() {
                blocks.push(attached(request, json(rest)));
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
        let output = self.output_tokens.filter(plausible).unwrap_or(0);
        let (write, read) = (self.cache_creation_input_tokens.unwrap_or(0), self.cache_read_input_tokens.unwrap_or(0));
        let input = self.input_tokens.and_then(|input| input.checked_add(write)?.checked_add(read)).filter(plausible);
        match input {
            Some(input) => TokenUsage { input, output, cache_read: read, cache_write: write },
            None => TokenUsage { output, ..TokenUsage::default() },
        }
    }
}

fn send_text(deltas: &mut dyn Deltas, text: &str, on_new_line: bool) {
    if on_new_line && !text.is_empty() {
        deltas.text("\n");
    }
    deltas.text(text);
}

fn take_string(fields: &mut Map<String, Value>, name: &str) -> Option<String> {
    match fields.remove(name) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}
