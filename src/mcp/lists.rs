//! Lists of a server, which come in pages, and its resources and prompts. What is left out is never silent. Text of a
//! server must never be taken for text of the user.

use std::collections::HashSet;

use rmcp::model::{
    ClientRequest, GetPromptRequest, GetPromptRequestParams, ListPromptsRequest, ListResourcesRequest,
    ListToolsRequest, PaginatedRequestParams, ReadResourceRequest, ReadResourceRequestParams,
};
use serde_json::{Map, Value};

use crate::blocks::{Block, Budget, block, contents, word};
use crate::error::CallError;
use crate::exchange::{Exchange, Inputs, Timing, list_of};
use crate::limits::shown;

/// Longest mark of a page, in bytes.
const CURSOR_MAX: usize = 4 * 1_024;
/// Longest name of a tool or a prompt, in bytes.
pub const NAME_MAX: usize = 128;

/// A list of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Listing<T> {
    /// The entries that can be used, in the order of the server.
    pub items: Vec<T>,
    /// The entries that cannot, in the order of the server.
    pub skipped: Vec<Skipped>,
    /// Whether the list is whole.
    pub end: ListEnd,
}

/// An entry that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Its name as far as it has one, shortened and without control characters.
    pub name: String,
    /// What is wrong with it.
    pub why: String,
}

/// Why a list ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEnd {
    /// The server has no more.
    Complete,
    /// The server named the same page twice.
    RepeatedPage,
    /// `Limits::pages` are read.
    TooManyPages,
    /// `Limits::entries` are read.
    TooManyEntries,
    /// `Limits::list_bytes` are read.
    TooLarge,
}

/// Where the entries of a page are, and how a page is asked for.
pub(crate) struct List {
    key: &'static str,
    request: fn(PaginatedRequestParams) -> ClientRequest,
}

pub(crate) const TOOLS: List =
    List { key: "tools", request: |params| ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params)) };
pub(crate) const RESOURCES: List = List {
    key: "resources",
    request: |params| ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params)),
};
pub(crate) const PROMPTS: List = List {
    key: "prompts",
    request: |params| ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(params)),
};

/// The entries that can be used, and the others.
pub(crate) type Sorted<T> = (Vec<T>, Vec<Skipped>);

/// Reads the pages of `list`, and its entries with `sort`. Nothing is read of a server that says that it has none.
pub(crate) async fn list<T>(
    exchange: &Exchange,
    is_there: bool,
    list: &List,
    sort: fn(Vec<Value>) -> Sorted<T>,
) -> Result<Listing<T>, CallError> {
    let (entries, end) = if is_there { entries(exchange, list).await? } else { (Vec::new(), ListEnd::Complete) };
    let (items, skipped) = sort(entries);
    Ok(Listing { items, skipped, end })
}

/// The entries that `read` can use, and the others with the reason that it gives.
pub(crate) fn sorted<T>(entries: Vec<Value>, read: impl Fn(Value) -> Result<T, String>) -> Sorted<T> {
    let (mut items, mut skipped) = (Vec::new(), Vec::new());
    for entry in entries {
        let name = shown(entry.get("name").and_then(Value::as_str).unwrap_or_default());
        match read(entry) {
            Ok(item) => items.push(item),
            Err(why) => skipped.push(Skipped { name, why }),
        }
    }
    (items, skipped)
}

async fn entries(exchange: &Exchange, list: &List) -> Result<(Vec<Value>, ListEnd), CallError> {
    let limits = &exchange.gate.limits;
    let timing = Timing::new(limits.list_timeout, None);
    let (mut entries, mut bytes, mut cursor) = (Vec::new(), 0_usize, None);
    let mut seen = HashSet::new();
    for _ in 0..limits.pages {
        let request = (list.request)(PaginatedRequestParams::default().with_cursor(cursor.take()));
        let mut page = exchange.send(request, &timing, &mut |_| ()).await?;
        for item in list_of(&mut page, list.key)? {
            if entries.len() >= limits.entries {
                return Ok((entries, ListEnd::TooManyEntries));
            }
            bytes = bytes.saturating_add(item.to_string().len());
            if bytes > limits.list_bytes {
                return Ok((entries, ListEnd::TooLarge));
            }
            entries.push(item);
        }
        match page.get_mut("nextCursor").map(Value::take) {
            None | Some(Value::Null) => return Ok((entries, ListEnd::Complete)),
            Some(Value::String(next)) if next.len() <= CURSOR_MAX => {
                if !seen.insert(next.clone()) {
                    return Ok((entries, ListEnd::RepeatedPage));
                }
                cursor = Some(next);
            }
            Some(_) => return Err(CallError::malformed("`nextCursor` is no text, or too long")),
        }
    }
    Ok((entries, ListEnd::TooManyPages))
}

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
pub(crate) fn resources(entries: Vec<Value>) -> Sorted<Resource> {
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
pub(crate) async fn resource(exchange: &Exchange, uri: &str) -> Result<(Vec<Block>, bool), CallError> {
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
pub(crate) fn prompts(entries: Vec<Value>) -> Sorted<PromptDefinition> {
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
pub(crate) async fn prompt(
    exchange: &Exchange,
    name: &str,
    arguments: Map<String, Value>,
) -> Result<Prompt, CallError> {
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
