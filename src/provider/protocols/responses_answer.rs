//! Assembles an answer of the Responses API from its events. An item is used when it is complete, and sent back as it came.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use ghost_domain::text::clip;
use ghost_domain::tool_catalogue::DESCRIBE;
use ghost_domain::transcript::{Block, TokenUsage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::answer::{AnswerBytes, Draft, Gather, check_call_count, lacks_a_field};
use crate::blocks::{alone, attached, call, finish_answer};
use crate::error::{ErrorKind, ProviderError};
use crate::estimate::{count, json_len, reported};
use crate::model::{Deltas, ModelAnswer, Stop};

/// The answer so far.
pub(super) struct Gathered<'r> {
    /// It counts the bytes that are kept.
    draft: Draft<'r>,
    blocks: Vec<Block>,
    /// Bytes received in delta events. The complete items repeat them.
    announced: AnswerBytes,
    /// Output indexes of the items that have begun and are not complete.
    open: BTreeSet<u64>,
    /// Number of complete items, and how many of those are calls.
    finished: usize,
    calls: usize,
    text: Shown,
    thinking: Shown,
    /// Whether an earlier block has text: the next block's text then begins on a new line.
    has_text: bool,
    refused: bool,
    usage: Option<Value>,
    stop: Option<Stop>,
}

/// What was shown of the current item.
#[derive(Default)]
struct Shown {
    text: String,
    part: Option<Part>,
}

/// A part of an item: whether it belongs to the summary, and its index there.
type Part = (bool, u64);

#[derive(Deserialize)]
struct Event<'e> {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(borrow)]
    item: Option<&'e RawValue>,
    #[serde(borrow)]
    delta: Option<&'e RawValue>,
    #[serde(borrow)]
    response: Option<&'e RawValue>,
    #[serde(default)]
    output_index: u64,
    content_index: Option<u64>,
    summary_index: Option<u64>,
    #[serde(borrow)]
    error: Option<&'e RawValue>,
}

/// The state of an answer; the last event has the whole answer.
#[derive(Deserialize)]
struct Response<'e> {
    status: Option<String>,
    #[serde(borrow)]
    output: Option<Vec<&'e RawValue>>,
    error: Option<Value>,
    incomplete_details: Option<Details>,
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct Details {
    reason: Option<String>,
}

impl Shown {
    /// Adds a piece of a part. Returns whether it begins a part other than the first.
    fn add(&mut self, part: Part, more: &str) -> bool {
        let is_new_part = self.part.replace(part).is_some_and(|before| before != part);
        if is_new_part {
            self.text.push('\n');
        }
        self.text.push_str(more);
        is_new_part
    }

    /// Ends the item, whose text is `whole`. Returns whether any of it was shown, and the text that
    /// is left to show.
    fn end<'w>(&mut self, whole: &'w str) -> (bool, &'w str) {
        let shown = mem::take(self).text;
        // Text that was shown and differs from the item's text cannot be withdrawn. The item's text
        // is used.
        (!shown.is_empty(), whole.strip_prefix(shown.as_str()).unwrap_or_default())
    }
}

impl<'r> Gathered<'r> {
    pub(super) fn new(draft: Draft<'r>) -> Self {
        Self {
            announced: AnswerBytes::new(draft.request),
            draft,
            blocks: Vec::new(),
            open: BTreeSet::new(),
            finished: 0,
            calls: 0,
            text: Shown::default(),
            thinking: Shown::default(),
            has_text: false,
            refused: false,
            usage: None,
            stop: None,
        }
    }

    fn add_text(&mut self, part: Part, more: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        self.announced.add_text(more.len())?;
        if !more.is_empty() {
            let first = self.text.text.is_empty();
            if self.text.add(part, more) || first && self.has_text {
                deltas.text("\n");
            }
            deltas.text(more);
        }
        Ok(())
    }

    fn add_thinking(&mut self, part: Part, more: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        self.announced.add_text(more.len())?;
        if !more.is_empty() {
            if self.thinking.add(part, more) {
                deltas.thinking("\n");
            }
            deltas.thinking(more);
        }
        Ok(())
    }

    /// Adds a complete item.
    fn item(&mut self, item: &RawValue, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        self.finished += 1;
        let mut fields: BTreeMap<String, &RawValue> = self.draft.read(item.get())?;
        let kind: String = field(&fields, "type")?;
        match kind.as_str() {
            "message" => self.message(item, fields, deltas),
            "reasoning" => self.reasoning(item, &fields, deltas),
            "function_call" => {
                self.calls += 1;
                check_call_count(self.calls)?;
                let (name, arguments): (String, Value) = (field(&fields, "name")?, field(&fields, "arguments")?);
                let id: String = field(&fields, "call_id").unwrap_or_default();
                fields.retain(|name, _| !["type", "name", "arguments", "call_id"].contains(&name.as_str()));
                let length = arguments.as_str().map_or_else(|| json_len(&arguments), str::len);
                self.draft.bytes.add_arguments(id.len() + name.len() + length)?;
                self.attach(&fields)?;
                self.blocks.push(call(id, &name, arguments));
                Ok(())
            }
            // A search that the server itself carries out is kept like any other item.
            "tool_search_call" if field::<String>(&fields, "execution").is_ok_and(|by| by == "client") => {
                self.calls += 1;
                check_call_count(self.calls)?;
                let (id, arguments): (String, Value) = (field(&fields, "call_id")?, field(&fields, "arguments")?);
                self.draft.bytes.add_arguments(id.len() + json_len(&arguments))?;
                self.blocks.push(call(id, DESCRIBE, arguments));
                Ok(())
            }
            _ => self.keep(item),
        }
    }

    fn message(
        &mut self,
        item: &RawValue,
        mut fields: BTreeMap<String, &RawValue>,
        deltas: &mut dyn Deltas,
    ) -> Result<(), ProviderError> {
        let content: Vec<Map<String, Value>> = field(&fields, "content")?;
        self.refused |= content.iter().any(|part| part.get("type").is_some_and(|kind| kind == "refusal"));
        let texts = content.iter().filter_map(|part| part.get("text").or_else(|| part.get("refusal"))?.as_str());
        let text = texts.filter(|texts| !texts.is_empty()).collect::<Vec<_>>().join("\n");
        let (begun, rest) = self.text.end(&text);
        if text.is_empty() {
            return self.keep(item);
        }
        if !rest.is_empty() {
            if !begun && self.has_text {
                deltas.text("\n");
            }
            deltas.text(rest);
        }
        self.has_text = true;
        // A single part of plain text becomes a text block. Other content is sent back unchanged.
        let is_plain = |(name, value): (&String, &Value)| {
            matches!((name.as_str(), value), ("type", Value::String(kind)) if kind == "output_text")
                || name == "text"
                || value.as_array().is_some_and(Vec::is_empty)
        };
        let plain = matches!(content.as_slice(), [part] if part.iter().all(is_plain));
        fields.retain(|name, _| !(["type", "role"].contains(&name.as_str()) || plain && name == "content"));
        self.draft.bytes.add_text(text.len())?;
        self.attach(&fields)?;
        self.blocks.push(Block::Text { text });
        Ok(())
    }

    fn reasoning(
        &mut self,
        item: &RawValue,
        fields: &BTreeMap<String, &RawValue>,
        deltas: &mut dyn Deltas,
    ) -> Result<(), ProviderError> {
        let parts = |name| field::<Option<Vec<Map<String, Value>>>>(fields, name).unwrap_or_default();
        let lists = [parts("content"), parts("summary")].map(Option::unwrap_or_default);
        let texts = lists.iter().flatten().filter_map(|part| part.get("text")?.as_str());
        let text = texts.filter(|texts| !texts.is_empty()).collect::<Vec<_>>().join("\n");
        let (_, rest) = self.thinking.end(&text);
        if !rest.is_empty() {
            deltas.thinking(rest);
        }
        // An id alone is useless, because nothing is stored at OpenAI.
        if field::<String>(fields, "encrypted_content").is_ok() || lists.first().is_some_and(|list| !list.is_empty()) {
            self.keep(item)?;
        }
        if !text.is_empty() {
            self.draft.bytes.add_text(text.len())?;
            self.blocks.push(Block::Thinking { text });
        }
        Ok(())
    }

    /// Keeps an item unchanged.
    fn keep(&mut self, item: &RawValue) -> Result<(), ProviderError> {
        self.draft.bytes.add_text(item.get().len())?;
        self.blocks.push(alone(self.draft.request, item.get().to_owned()));
        Ok(())
    }

    /// Attaches fields to the next block.
    fn attach(&mut self, fields: &BTreeMap<String, &RawValue>) -> Result<(), ProviderError> {
        if fields.is_empty() {
            return Ok(());
        }
        let json = serde_json::to_string(fields).map_err(|_| lacks_a_field())?;
        self.draft.bytes.add_text(json.len())?;
        self.blocks.push(attached(self.draft.request, json));
        Ok(())
    }

    /// Handles the last event. Items that only this event has are used only if the answer was
    /// truncated.
    fn end(&mut self, response: Response<'_>, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        self.usage = response.usage;
        let (output, status) = (response.output.unwrap_or_default(), response.status.unwrap_or_default());
        let undone = output.get(self.finished..).unwrap_or_default();
        let stop = match status.as_str() {
            "completed" if self.open.is_empty() && undone.is_empty() => Stop::EndTurn,
            "incomplete" => {
                for item in undone {
                    self.item(item, deltas)?;
                }
                let reason = response.incomplete_details.and_then(|details| details.reason);
                match reason.as_deref() {
                    Some("max_output_tokens") => Stop::MaxTokens,
                    Some("content_filter") => Stop::Refused(None),
                    other => Stop::Other(clip(other.unwrap_or("incomplete"), 80)),
                }
            }
            "completed" => {
                return Err(self.broken("the provider reported a complete answer, but some of its items are missing"));
            }
            // A status that nobody knows.
            other
                if !["", "failed", "cancelled", "in_progress", "queued"].contains(&other)
                    && response.error.is_none()
                    && self.open.is_empty()
                    && undone.is_empty() =>
            {
                Stop::Other(clip(other, 80))
            }
            _ => {
                let error = response.error.unwrap_or_else(|| json!({ "message": format!("the answer is {status}") }));
                return Err(self.draft.reported(&error).usage(self.tokens_if_unused()));
            }
        };
        // Text of an item that never became complete was shown, so it is kept.
        for (shown, block) in [
            (mem::take(&mut self.thinking), (|text| Block::Thinking { text }) as fn(String) -> Block),
            (mem::take(&mut self.text), |text| Block::Text { text }),
        ] {
            if !shown.text.is_empty() {
                self.draft.bytes.add_text(shown.text.len())?;
                self.blocks.push(block(shown.text));
            }
        }
        self.stop = Some(if self.refused && stop == Stop::EndTurn { Stop::Refused(None) } else { stop });
        Ok(())
    }

    fn broken(&self, message: &str) -> ProviderError {
        ProviderError::new(ErrorKind::BrokenStream, message).usage(self.tokens_if_unused())
    }

    /// The tokens used by an answer that is not used.
    fn tokens_if_unused(&self) -> Option<TokenUsage> {
        reported(self.tokens(), self.blocks.is_empty())
    }

    /// The token counts; zero for a count that is missing or not plausible.
    fn tokens(&self) -> TokenUsage {
        let Some(usage) = &self.usage else { return TokenUsage::default() };
        let (input, output) = (count(usage, "input_tokens").unwrap_or(0), count(usage, "output_tokens").unwrap_or(0));
        let cached = |key| usage.get("input_tokens_details").and_then(|details| count(details, key)).unwrap_or(0);
        let cache_read = cached("cached_tokens").min(input);
        let cache_write = cached("cache_write_tokens").min(input - cache_read);
        TokenUsage { input, output, cache_read, cache_write }
    }
}

impl Gather for Gathered<'_> {
    fn event(&mut self, data: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        // Some servers end every stream this way.
        if self.stop.is_some() || data.trim() == "[DONE]" {
            return Ok(());
        }
        let event: Event<'_> = self.draft.read(data)?;
        self.draft.begun |= event.kind.starts_with("response.");
        let piece = || match event.delta {
            Some(delta) => self.draft.read::<String>(delta.get()),
            None => Err(lacks_a_field()),
        };
        let (content_part, summary_part) =
            ((false, event.content_index.unwrap_or(0)), (true, event.summary_index.unwrap_or(0)));
        match event.kind.as_str() {
            "response.output_item.added" => drop(self.open.insert(event.output_index)),
            "response.output_item.done" => {
                self.open.remove(&event.output_index);
                self.item(event.item.ok_or_else(lacks_a_field)?, deltas)?;
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.add_text(content_part, &piece()?, deltas)?
            }
            "response.reasoning_text.delta" => self.add_thinking(content_part, &piece()?, deltas)?,
            "response.reasoning_summary_text.delta" => self.add_thinking(summary_part, &piece()?, deltas)?,
            "response.function_call_arguments.delta" => self.announced.add_arguments(piece()?.len())?,
            // `done` is another name for the last event.
            "response.completed" | "response.incomplete" | "response.failed" | "response.done" => {
                let response = event.response.ok_or_else(lacks_a_field)?;
                let mut response: Response<'_> = self.draft.read(response.get())?;
                match event.kind.strip_prefix("response.").filter(|status| *status != "done") {
                    Some(status) => response.status = Some(status.to_owned()),
                    None => drop(response.status.get_or_insert_with(|| "completed".to_owned())),
                }
                self.end(response, deltas)?;
            }
            kind if kind == "error" || event.error.is_some() => {
                return Err(self.draft.reported(&self.draft.read(data)?));
            }
            _ => {}
        }
        Ok(())
    }

    fn whole(&mut self, body: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        let mut response: Response<'_> = self.draft.read(body)?;
        let Some(output) = response.output.take() else {
            let Some(error) = response.error else {
                return Err(self.draft.bad("the provider answered with a JSON body that is not a response"));
            };
            return Err(self.draft.reported(&error));
        };
        self.draft.begun = true;
        for item in output {
            self.item(item, deltas)?;
        }
        response.status.get_or_insert_with(|| "completed".to_owned());
        self.end(response, deltas)
    }

    fn has_begun(&self) -> bool {
        self.draft.begun
    }

    fn is_done(&self) -> bool {
        self.stop.is_some()
    }

    fn finish(self) -> Result<ModelAnswer, ProviderError> {
        let usage = self.tokens();
        let Some(stop) = self.stop else {
            return Err(self.broken("the stream ended without its last event, in the middle of the answer"));
        };
        finish_answer(self.draft.request, self.blocks, usage, stop)
    }
}

/// The field `name` of an item.
fn field<'i, T: Deserialize<'i>>(fields: &BTreeMap<String, &'i RawValue>, name: &str) -> Result<T, ProviderError> {
    fields.get(name).and_then(|value| serde_json::from_str(value.get()).ok()).ok_or_else(lacks_a_field)
}
