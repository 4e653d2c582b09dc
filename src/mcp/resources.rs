//! Resources and prompts of a server. Their text must never be taken for text of the user.

use rmcp::model::{
    ClientRequest, GetPromptRequest, GetPromptRequestParams, ReadResourceRequest, ReadResourceRequestParams,
};
use serde_json::{Map, Value};

use crate::blocks::{Block, Budget, block, contents, word};
use crate::error::CallError;
use crate::exchange::{Exchange, Inputs, Timing, list_of};
use crate::lists::{Skipped, sorted};
use crate::tools::NAME_MAX;

/// Longest address, in bytes. A longer one would be cut, and then name another resource.
const URI_MAX: usize = 2_048;
/// Arguments of one prompt that are listed.
const ARGUMENTS_MAX: usize = 100;
/// Messages of one prompt. Further ones are left out.
const MESSAGES_MAX: usize = 1_000;

/// A resource as the server lists it. Each text has at most 2 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its address, for [`crate::Connection::read_resource`].
    pub uri: String,
    /// Its name.
    pub name: String,
    /// Its name for people.
    pub title: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// Its type.
    pub mime: Option<String>,
    /// Its size in bytes, as the server says.
    pub size: Option<u64>,
}

/// The resources that can be used, and the others with a reason.
pub(crate) fn resources(entries: Vec<Value>) -> (Vec<Resource>, Vec<Skipped>) {
    sorted(entries, |entry| {
        let fields = entry.as_object().filter(|fields| uri_of(fields).is_some_and(|uri| uri.len() <= URI_MAX));
        let fields = fields.ok_or_else(|| format!("it has no `uri` of at most {URI_MAX} bytes"))?;
        Ok(Resource {
            uri: uri_of(fields).unwrap_or_default().to_owned(),
            name: word(fields, "name").unwrap_or_default(),
            title: word(fields, "title"),
            description: word(fields, "description"),
            mime: word(fields, "mimeType"),
            size: fields.get("size").and_then(Value::as_u64),
        })
    })
}

fn uri_of(fields: &Map<String, Value>) -> Option<&str> {
    fields.get("uri").and_then(Value::as_str)
}

/// Reads the resource at `uri`.
pub(crate) async fn read(exchange: &Exchange, uri: &str) -> Result<(Vec<Block>, bool), CallError> {
    let request = |inputs: Inputs| {
        let mut params = ReadResourceRequestParams::new(uri);
        (params.input_responses, params.request_state) = (inputs.responses, inputs.state);
        ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params))
    };
    let limits = &exchange.gate.limits;
    let timing = Timing::new(limits.read_timeout, None);
    let mut result = exchange.complete(&timing, None, request, &mut |_| ()).await?;
    let items = list_of(&mut result, "contents")?;
    let mut budget = Budget::new(limits.read_bytes);
    budget.is_cut = items.len() > limits.entries;
    let blocks = items.into_iter().take(limits.entries).map(|item| {
        let json_bytes = item.to_string().len();
        contents(item, &mut budget).unwrap_or_else(|| Block::Unknown { kind: "resource".to_owned(), json_bytes })
    });
    let blocks = blocks.collect();
    Ok((blocks, budget.is_cut))
}

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

/// The prompts that can be used, and the others with a reason.
pub(crate) fn prompts(entries: Vec<Value>) -> (Vec<PromptDefinition>, Vec<Skipped>) {
    sorted(entries, |entry| {
        let name = entry.as_object().and_then(|fields| word(fields, "name")).unwrap_or_default();
        match entry.as_object() {
            Some(fields) if (1..=NAME_MAX).contains(&name.len()) => Ok(PromptDefinition {
                name,
                title: word(fields, "title"),
                description: word(fields, "description"),
                arguments: arguments(fields),
            }),
            _ => Err(format!("it has no name of 1 to {NAME_MAX} bytes")),
        }
    })
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
pub(crate) async fn get(exchange: &Exchange, name: &str, arguments: Map<String, Value>) -> Result<Prompt, CallError> {
    exchange.check_size(&arguments)?;
    let request = |inputs: Inputs| {
        let mut params = GetPromptRequestParams::new(name).with_arguments(arguments.clone());
        (params.input_responses, params.request_state) = (inputs.responses, inputs.state);
        ClientRequest::GetPromptRequest(GetPromptRequest::new(params))
    };
    let limits = &exchange.gate.limits;
    let timing = Timing::new(limits.read_timeout, None);
    let mut result = exchange.complete(&timing, None, request, &mut |_| ()).await?;
    let items = list_of(&mut result, "messages")?;
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
