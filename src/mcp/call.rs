//! Calls of tools. A call must never be sent twice, except with the answers that the server asked for.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, RequestMetaObject};
use serde_json::{Map, Value};

use crate::blocks::{Budget, CallResult, blocks};
use crate::calls::Calls;
use crate::error::CallError;
use crate::exchange::{Exchange, Timing};
use crate::limits::Limits;
use crate::progress::Progress;
use crate::rounds::complete;

/// How a call is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallOptions {
    /// Time for the whole call, with the answers to questions of the server.
    pub timeout: Duration,
    /// Time without progress; `None` is without a bound. It does not run while a question waits for its answer.
    pub idle: Option<Duration>,
    /// Bytes of the result that are kept. Text is cut, and data that does not fit is left out.
    pub result_limit: usize,
    /// What stands for this call in [`crate::Elicitation::call`].
    pub label: Option<Arc<str>>,
    /// Entries of the request's `_meta`, such as an idempotency key.
    pub meta: Map<String, Value>,
}

impl Default for CallOptions {
    /// 60 seconds, no idle time, 256 KiB, no label, no entries.
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), idle: None, result_limit: 256 * 1_024, label: None, meta: Map::new() }
    }
}

/// Calls the tool `name`.
pub(crate) async fn call(
    exchange: &Exchange,
    calls: &Calls,
    limits: &Limits,
    (name, arguments): (&str, Map<String, Value>),
    options: CallOptions,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<CallResult, CallError> {
    let (bytes, limit) = (size(&arguments), limits.argument_bytes);
    if bytes > limit {
        return Err(CallError::ArgumentsTooLarge { bytes, limit });
    }
    let timing = Timing::new(options.timeout, options.idle);
    let _waiting = calls.begin(options.label.clone());
    let request = |inputs: crate::rounds::Inputs| {
        let mut params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments.clone());
        params.meta = (!options.meta.is_empty()).then(|| RequestMetaObject::from(options.meta.clone()));
        params.input_responses = inputs.responses;
        params.request_state = inputs.state;
        ClientRequest::CallToolRequest(CallToolRequest::new(params))
    };
    let result = complete(exchange, limits, &timing, options.label.clone(), request, progress).await?;
    Ok(read(result, options.result_limit))
}

fn read(mut result: Value, limit: usize) -> CallResult {
    let mut take = |key: &str| result.get_mut(key).map(Value::take);
    let mut budget = Budget::new(limit);
    let blocks = blocks(take("content").unwrap_or_default(), &mut budget);
    let structured = take("structuredContent").filter(|value| !value.is_null()).and_then(|value| budget.json(value));
    let is_error = take("isError").is_some_and(|value| value == Value::Bool(true));
    CallResult { blocks, structured, is_error, is_cut: budget.is_cut }
}

/// The size of `arguments` as JSON, in bytes.
pub(crate) fn size(arguments: &Map<String, Value>) -> usize {
    serde_json::to_vec(arguments).map_or(0, |json| json.len())
}
