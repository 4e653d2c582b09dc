//! Prompts of a server. Their text must never be taken for text of the user.

use rmcp::model::{ClientRequest, GetPromptRequest, GetPromptRequestParams};
use serde_json::{Map, Value};

use crate::blocks::{Block, Budget, block, word};
use crate::call::size;
use crate::definition::NAME_MAX;
use crate::error::CallError;
use crate::exchange::{Exchange, Timing};
use crate::limits::Limits;
use crate::listing::Skipped;
use crate::rounds::{Inputs, complete};

/// Arguments of one prompt that are listed.
const ARGUMENTS_MAX: usize = 100;

/// A prompt as the server lists it. Each text has at most 2 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptDefinition {
    /// Its name, for [`crate::Connection::get_prompt`], at most 128 bytes.
    pub name: String,
    /// Its name for people.
    pub title: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// Its arguments, at most 100.
    pub arguments: Vec<PromptArgument>,
}

/// An argument of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptArgument {
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: Option<String>,
    /// Whether it has to be given.
    pub is_required: bool,
}

/// A prompt with its arguments filled in.
#[derive(Clone, Debug, PartialEq)]
pub struct Prompt {
    /// What it is.
    pub description: Option<String>,
    /// The messages, at most 1,000.
    pub messages: Vec<PromptMessage>,
    /// Whether something was left out to keep `Limits::read_bytes`.
    pub is_cut: bool,
}

/// A message of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptMessage {
    /// Who says it, as the server writes it: `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub block: Block,
}

/// Messages of one prompt. Further ones are left out.
const MESSAGES_MAX: usize = 1_000;

/// The prompts that can be used, and the others with a reason.
pub(crate) fn prompts(entries: Vec<Value>) -> (Vec<PromptDefinition>, Vec<Skipped>) {
    let (mut prompts, mut skipped) = (Vec::new(), Vec::new());
    for entry in entries {
        let name = entry.as_object().and_then(|fields| word(fields, "name")).unwrap_or_default();
        match entry.as_object() {
            Some(fields) if (1..=NAME_MAX).contains(&name.len()) => prompts.push(PromptDefinition {
                name,
                title: word(fields, "title"),
                description: word(fields, "description"),
                arguments: arguments(fields),
            }),
            _ => skipped.push(Skipped::new(&name, format!("it has no name of 1 to {NAME_MAX} bytes"))),
        }
    }
    (prompts, skipped)
}

fn arguments(fields: &Map<String, Value>) -> Vec<PromptArgument> {
    let list = fields.get("arguments").and_then(Value::as_array).into_iter().flatten().take(ARGUMENTS_MAX);
    let argument = |fields: &Map<String, Value>| {
        Some(PromptArgument {
            name: word(fields, "name")?,
            description: word(fields, "description"),
            is_required: fields.get("required") == Some(&Value::Bool(true)),
        })
    };
    list.filter_map(Value::as_object).filter_map(argument).collect()
}

/// Fills the prompt `name`.
pub(crate) async fn get(
    exchange: &Exchange,
    limits: &Limits,
    name: &str,
    arguments: Map<String, Value>,
) -> Result<Prompt, CallError> {
    let (bytes, limit) = (size(&arguments), limits.argument_bytes);
    if bytes > limit {
        return Err(CallError::ArgumentsTooLarge { bytes, limit });
    }
    let request = |inputs: Inputs| {
        let mut params = GetPromptRequestParams::new(name).with_arguments(arguments.clone());
        params.input_responses = inputs.responses;
        params.request_state = inputs.state;
        ClientRequest::GetPromptRequest(GetPromptRequest::new(params))
    };
    let timing = Timing::new(limits.read_timeout, None);
    let mut result = complete(exchange, limits, &timing, None, request, &mut |_| ()).await?;
    let Some(Value::Array(items)) = result.get_mut("messages").map(Value::take) else {
        return Err(CallError::malformed("there is no list `messages` in it"));
    };
    let mut budget = Budget::new(limits.read_bytes);
    budget.is_cut = items.len() > MESSAGES_MAX;
    let mut messages = Vec::new();
    for mut item in items.into_iter().take(MESSAGES_MAX) {
        let role = item.as_object().and_then(|fields| word(fields, "role")).unwrap_or_default();
        let content = item.get_mut("content").map(Value::take).unwrap_or_default();
        messages.push(PromptMessage { role, block: block(content, &mut budget) });
    }
    let description = result.as_object().and_then(|fields| word(fields, "description"));
    Ok(Prompt { description, messages, is_cut: budget.is_cut })
}
