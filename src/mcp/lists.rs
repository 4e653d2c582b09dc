//! Lists of a server, which come in pages. What is left out is never silent, and a page that repeats ends the list.

use std::collections::HashSet;

use rmcp::model::{ClientRequest, ListPromptsRequest, ListResourcesRequest, ListToolsRequest, PaginatedRequestParams};
use serde_json::Value;

use crate::error::CallError;
use crate::exchange::{Exchange, Timing, list_of};
use crate::limits::shown;

/// Longest mark of a page, in bytes.
const CURSOR_MAX: usize = 4 * 1_024;

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

impl<T> Listing<T> {
    pub(crate) fn none() -> Self {
        Self { items: Vec::new(), skipped: Vec::new(), end: ListEnd::Complete }
    }
}

/// Reads the pages of `list`, and its entries with `sort`.
pub(crate) async fn read<T>(
    exchange: &Exchange,
    list: &List,
    sort: fn(Vec<Value>) -> (Vec<T>, Vec<Skipped>),
) -> Result<Listing<T>, CallError> {
    let (entries, end) = entries(exchange, list).await?;
    let (items, skipped) = sort(entries);
    Ok(Listing { items, skipped, end })
}

/// The entries that `read` can use, and the others with the reason that it gives.
pub(crate) fn sorted<T>(entries: Vec<Value>, read: impl Fn(Value) -> Result<T, String>) -> (Vec<T>, Vec<Skipped>) {
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
