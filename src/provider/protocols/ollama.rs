//! Ollama's own chat API. A request has the setting that makes Ollama refuse a conversation that is too long: otherwise Ollama
//! removes its beginning without notice, which has the agent's instructions.

use ghost_domain::model_facts::{Thinking, ThinkingControl};
use ghost_domain::text::clip;
use ghost_domain::transcript::{Block, Message, Role, TokenUsage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::answer::{Draft, Gather, check_call_count, without_end};
use crate::blocks::{PICTURES_OF_RESULTS, Part, attached, call, finish_answer, parts, sent_arguments, wire_name};
use crate::error::ProviderError;
use crate::estimate::COUNT_MAX;
use crate::json::{Json, object};
use crate::model::{Deltas, ModelAnswer, ModelRequest, Stop};

pub(super) fn body<'a>(request: &'a ModelRequest, tools: Option<&'a RawValue>) -> Json<'a> {
    let system = (!request.system.is_empty()).then(|| object! { "role": "system", "content": &request.system });
    let messages = request.messages.iter().flat_map(|message| elements(request, message));
    object! {
        "model": &request.model,
        "messages": system.into_iter().chain(messages).collect::<Vec<_>>(),
        "stream": true,
        // Versions before 0.12.6 do not know the setting and truncate.
        "truncate": false,
        "options": object! {
            "num_predict": request.max_tokens,
            "num_ctx": request.window_tokens,
            "temperature": request.temperature.filter(|_| request.facts.temperature),
        },
        "tools": tools,
        "think": think(request),
    }
}

fn think(request: &ModelRequest) -> Option<Json<'_>> {
    let wanted = request.thinking()?;
    match request.facts.thinking {
        ThinkingControl::Never => None,
        // Most models accept only on and off, and refuse effort levels.
        ThinkingControl::Switch | ThinkingControl::Budget | ThinkingControl::Unknown => {
            Some((wanted != Thinking::None).into())
        }
        _ => request.facts.effort(wanted).map(Json::from),
    }
}

fn elements<'m>(request: &ModelRequest, message: &'m Message) -> Vec<Json<'m>> {
    let picture = |block: &'m Block| match block {
        Block::Image { data, .. } => Some(Json::from(data)),
        _ => None,
    };
    let pictures: Vec<_> = message.blocks.iter().filter_map(picture).collect();
    let pictures = (!pictures.is_empty()).then_some(pictures);
    match message.role {
        Role::User => vec![object! { "role": "user", "content": message.visible_text(), "images": pictures }],
        Role::Assistant => vec![answer(request, message)],
        Role::Tool => {
            let result = |block: &'m Block| match block {
                Block::ToolResult { id, name, content, .. } => Some(object! {
                    "role": "tool", "tool_name": wire_name(name), "tool_call_id": id, "content": content,
                }),
                _ => None,
            };
            let of_results = |pictures| object! { "role": "user", "content": PICTURES_OF_RESULTS, "images": pictures };
            message.blocks.iter().filter_map(result).chain(pictures.map(of_results)).collect()
        }
    }
}

fn answer<'m>(request: &ModelRequest, message: &'m Message) -> Json<'m> {
    let (mut thinking, mut calls) = (None, Vec::new());
    for part in parts(request, message) {
        match part {
            Part::Block(Block::ToolCall { id, name, arguments }, _) if !id.is_empty() => {
                let function = object! { "name": wire_name(name), "arguments": sent_arguments(arguments) };
                calls.push(object! { "id": id, "function": function });
            }
            // Reasoning is sent back only to its author, which has state attached to it.
            Part::Block(Block::Thinking { text }, Some(_)) => thinking = Some(text),
            Part::Block(..) | Part::Alone(_) => {}
        }
    }
    let calls = (!calls.is_empty()).then_some(calls);
    object! { "role": "assistant", "content": message.visible_text(), "thinking": thinking, "tool_calls": calls }
}

/// The answer so far.
pub(super) struct Gathered<'r> {
    draft: Draft<'r>,
    text: String,
    thinking: String,
    calls: Vec<Call>,
    last: Option<Last>,
}

#[derive(Deserialize)]
struct Line {
    message: Option<Said>,
    #[serde(default)]
    done: bool,
    #[serde(flatten)]
    last: Last,
    error: Option<Value>,
}

/// The fields of the last line.
#[derive(Deserialize)]
struct Last {
    done_reason: Option<String>,
    /// Kept as JSON: a value that is not a count is ignored and is no error.
    prompt_eval_count: Option<Value>,
    eval_count: Option<Value>,
}

#[derive(Default, Deserialize)]
struct Said {
    content: Option<String>,
    thinking: Option<String>,
    tool_calls: Option<Vec<Call>>,
}

#[derive(Deserialize)]
struct Call {
    id: Option<String>,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: Option<Value>,
}

impl<'r> Gathered<'r> {
    pub(super) fn new(draft: Draft<'r>) -> Self {
        Self { draft, text: String::new(), thinking: String::new(), calls: Vec::new(), last: None }
    }

    fn add_line(&mut self, line: Line, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        if let Some(error) = line.error {
            let body = if error.is_string() { json!({ "message": error }) } else { error };
            return Err(self.draft.reported(&body));
        }
        self.draft.begun |= line.message.is_some() || line.done;
        let Said { content, thinking, tool_calls } = line.message.unwrap_or_default();
        self.draft.think(&mut self.thinking, &thinking.unwrap_or_default(), deltas)?;
        self.draft.say(&mut self.text, &content.unwrap_or_default(), deltas)?;
        for call in tool_calls.unwrap_or_default() {
            check_call_count(self.calls.len() + 1)?;
            let arguments = call.function.arguments.as_ref().map_or(0, |arguments| arguments.to_string().len());
            self.draft.bytes.add_arguments(call.function.name.len() + arguments)?;
            self.calls.push(call);
        }
        // Versions without stop reasons have the counts in their last line only.
        if line.done || line.last.eval_count.is_some() {
            self.last = Some(line.last);
        }
        Ok(())
    }
}

impl Gather for Gathered<'_> {
    fn event(&mut self, data: &str, deltas: &mut dyn Deltas) -> Result<(), ProviderError> {
        if data.trim().is_empty() {
            return Ok(());
        }
        let line = self.draft.read(data)?;
        self.add_line(line, deltas)
    }

    fn has_begun(&self) -> bool {
        self.draft.begun
    }

    fn is_done(&self) -> bool {
        self.last.is_some()
    }

    fn finish(self) -> Result<ModelAnswer, ProviderError> {
        let (request, last) = (self.draft.request, self.last.ok_or_else(without_end)?);
        let mut blocks = Vec::new();
        if !self.thinking.is_empty() {
            blocks.push(attached(request, json!({}).to_string()));
            blocks.push(Block::Thinking { text: self.thinking });
        }
        if !self.text.is_empty() {
            blocks.push(Block::Text { text: self.text });
        }
        for Call { id, function: Function { name, arguments } } in self.calls {
            blocks.push(call(id.unwrap_or_default(), &name, arguments.unwrap_or_default()));
        }
        let stop = match last.done_reason.as_deref() {
            None | Some("stop") => Stop::EndTurn,
            Some("length") => Stop::MaxTokens,
            Some(other) => Stop::Other(clip(other, 80)),
        };
        finish_answer(request, blocks, last.tokens(), stop)
    }
}

impl Last {
    /// The token counts; zero for a count that is missing or not plausible. A cached prompt is not read again, and some
    /// versions then omit its count.
    fn tokens(&self) -> TokenUsage {
        let count = |value: &Option<Value>| value.as_ref().and_then(Value::as_u64).filter(|count| *count <= COUNT_MAX);
        let (input, output) = (count(&self.prompt_eval_count), count(&self.eval_count));
        TokenUsage { input: input.unwrap_or(0), output: output.unwrap_or(0), ..TokenUsage::default() }
    }
}
