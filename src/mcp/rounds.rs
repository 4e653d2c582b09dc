//! Requests that the server answers with questions (protocol 2026-07-28). It must never ask without a bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use rmcp::model::ClientRequest;
use serde_json::{Map, Value};

use crate::error::CallError;
use crate::exchange::{Exchange, Timing};
use crate::limits::Limits;
use crate::progress::Progress;
use crate::text::shown;
use crate::time::{now, within};

/// What a repeated request gives back to the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    /// The answers by the names of the questions.
    pub(crate) responses: Option<BTreeMap<String, Value>>,
    /// The text that the server wants back unchanged.
    pub(crate) state: Option<String>,
}

/// Sends a request until the server has all its answers, and gives the raw result.
///
/// # Errors
/// Any [`CallError`].
pub(crate) async fn complete(
    exchange: &Exchange,
    limits: &Limits,
    timing: &Timing,
    label: Option<Arc<str>>,
    request: impl Fn(Inputs) -> ClientRequest,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Value, CallError> {
    let mut inputs = Inputs::default();
    for _ in 0..=limits.input_rounds {
        let result = exchange.send(request(inputs), timing, progress).await?;
        let Value::Object(mut fields) = result else { return Err(CallError::malformed("it is no JSON object")) };
        match fields.get("resultType").and_then(Value::as_str) {
            None | Some("complete") => return Ok(Value::Object(fields)),
            Some("input_required") => {}
            Some(other) => return Err(CallError::malformed(format!("its type is `{}`", shown(other)))),
        }
        let state = fields.get_mut("requestState").and_then(|state| state.as_str().map(str::to_owned));
        let questions = fields.remove("inputRequests").and_then(|questions| match questions {
            Value::Object(questions) => Some(questions),
            _ => None,
        });
        let left = timing.deadline().saturating_duration_since(now());
        let answers = answers(exchange, limits, questions.unwrap_or_default(), label.clone());
        let responses = tokio::select! {
            biased;
            reason = exchange.closing.wait() => return Err(CallError::Closed { reason, sent: true }),
            answers = within(left, answers) => answers.ok_or_else(|| timing.error())??,
        };
        inputs = Inputs { responses: (!responses.is_empty()).then_some(responses), state };
    }
    Err(CallError::NeedsInput { detail: format!("it asked more than {} times", limits.input_rounds) })
}

async fn answers(
    exchange: &Exchange,
    limits: &Limits,
    questions: Map<String, Value>,
    label: Option<Arc<str>>,
) -> Result<BTreeMap<String, Value>, CallError> {
    let needs = |detail: String| CallError::NeedsInput { detail };
    if questions.len() > limits.inputs {
        return Err(needs(format!("it asked {} questions at once, more than {}", questions.len(), limits.inputs)));
    }
    let mut answers = BTreeMap::new();
    for (name, question) in questions {
        let method = question.get("method").and_then(Value::as_str).unwrap_or_default();
        let asker = match (method, &exchange.asker) {
            ("elicitation/create", Some(asker)) => asker,
            ("elicitation/create", None) => return Err(needs("nobody answers its questions".to_owned())),
            (method, _) => return Err(needs(format!("this client does not offer `{}`", shown(method)))),
        };
        let params = question.get("params").unwrap_or(&Value::Null);
        answers.insert(name, asker.ask(params, label.clone()).await.json());
    }
    Ok(answers)
}
