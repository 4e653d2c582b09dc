//! Resources of a server. Their content must never be taken for text of the user.

use rmcp::model::{ClientRequest, ReadResourceRequest, ReadResourceRequestParams};
use serde_json::Value;

use crate::blocks::{Block, Budget, contents, word};
use crate::error::CallError;
use crate::exchange::{Exchange, Timing};
use crate::limits::Limits;
use crate::listing::Skipped;
use crate::rounds::{Inputs, complete};

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

/// Longest address, in bytes. A longer one would be cut, and then name another resource.
const URI_MAX: usize = 2_048;

/// The resources that can be used, and the others with a reason.
pub(crate) fn resources(entries: Vec<Value>) -> (Vec<Resource>, Vec<Skipped>) {
    let (mut resources, mut skipped) = (Vec::new(), Vec::new());
    for entry in entries {
        let name = entry.as_object().and_then(|fields| word(fields, "name")).unwrap_or_default();
        let uri = entry.get("uri").and_then(Value::as_str).filter(|uri| uri.len() <= URI_MAX);
        match (uri, entry.as_object()) {
            (Some(uri), Some(fields)) => resources.push(Resource {
                uri: uri.to_owned(),
                name,
                title: word(fields, "title"),
                description: word(fields, "description"),
                mime: word(fields, "mimeType"),
                size: fields.get("size").and_then(Value::as_u64),
            }),
            _ => skipped.push(Skipped::new(&name, format!("it has no `uri` of at most {URI_MAX} bytes"))),
        }
    }
    (resources, skipped)
}

/// Reads the resource at `uri`.
pub(crate) async fn read(exchange: &Exchange, limits: &Limits, uri: &str) -> Result<(Vec<Block>, bool), CallError> {
    let request = |inputs: Inputs| {
        let mut params = ReadResourceRequestParams::new(uri);
        params.input_responses = inputs.responses;
        params.request_state = inputs.state;
        ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params))
    };
    let timing = Timing::new(limits.read_timeout, None);
    let mut result = complete(exchange, limits, &timing, None, request, &mut |_| ()).await?;
    let Some(Value::Array(items)) = result.get_mut("contents").map(Value::take) else {
        return Err(CallError::malformed("there is no list `contents` in it"));
    };
    let mut budget = Budget::new(limits.read_bytes);
    budget.is_cut = items.len() > limits.entries;
    let blocks = items.into_iter().take(limits.entries).map(|item| {
        let json_bytes = item.to_string().len();
        contents(item, &mut budget).unwrap_or_else(|| Block::Unknown { kind: "resource".to_owned(), json_bytes })
    });
    let blocks = blocks.collect();
    Ok((blocks, budget.is_cut))
}
