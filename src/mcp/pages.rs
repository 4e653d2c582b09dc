//! Lists that come in pages. Reading must never go on without an end, also if a server repeats a page.

use std::collections::HashSet;

use rmcp::model::{ClientRequest, ListPromptsRequest, ListResourcesRequest, ListToolsRequest, PaginatedRequestParams};
use serde_json::Value;

use crate::error::CallError;
use crate::exchange::{Exchange, Timing};
use crate::limits::Limits;
use crate::listing::ListEnd;

/// Longest mark of a page, in bytes.
const CURSOR_MAX: usize = 4 * 1_024;

/// A list of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum List {
    Tools,
    Resources,
    Prompts,
}

impl List {
    fn key(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Prompts => "prompts",
        }
    }

    fn request(self, cursor: Option<String>) -> ClientRequest {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        match self {
            Self::Tools => ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params)),
            Self::Resources => ClientRequest::ListResourcesRequest(ListResourcesRequest::with_param(params)),
            Self::Prompts => ClientRequest::ListPromptsRequest(ListPromptsRequest::with_param(params)),
        }
    }
}

/// The raw entries of `list`.
///
/// # Errors
/// If a page cannot be read.
pub(crate) async fn entries(
    exchange: &Exchange,
    list: List,
    limits: &Limits,
) -> Result<(Vec<Value>, ListEnd), CallError> {
    let timing = Timing::new(limits.list_timeout, None);
    let (mut entries, mut bytes, mut cursor) = (Vec::new(), 0_usize, None);
    let mut seen = HashSet::new();
    for _ in 0..limits.pages {
        let mut page = exchange.send(list.request(cursor.take()), &timing, &mut |_| ()).await?;
        let Some(Value::Array(items)) = page.get_mut(list.key()).map(Value::take) else {
            return Err(CallError::malformed(format!("there is no list `{}` in it", list.key())));
        };
        for item in items {
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
