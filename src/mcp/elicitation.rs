//! Questions of a server to its user. The answer goes to the server, so it is no place for a secret.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use ghost_domain::form::{fill, problem};
use ghost_domain::text::prefix_bytes;
use rmcp::model::{
    ClientCapabilities, ClientConfig, CustomRequest, CustomResult, ElicitRequestParams, ElicitResult,
    ElicitationAction, ElicitationCapability, ErrorCode, FormElicitationCapability, Implementation, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::{ClientHandler, ErrorData, RoleClient};
use serde_json::{Value, json};

use crate::error::Closing;
use crate::limits::{Limits, check_schema, within};

/// A question of a server. Its texts are from the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Elicitation {
    /// The question, at most 4 KiB.
    pub message: String,
    /// The schema of the answer: an object with flat properties. It passes [`crate::check_schema`].
    pub schema: Value,
    /// The label of the call that the question belongs to (`CallOptions::label`). `None` if the call has none, or if
    /// several calls wait and the server does not say which one it means.
    pub call: Option<Arc<str>>,
    /// What is wrong with the answer before; `None` for the first time.
    pub problem: Option<String>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The user answers: an object as the schema wants it. Properties with a default may be missing.
    Accept(Value),
    /// The user says no.
    Decline,
    /// The user says nothing.
    Cancel,
}

impl Answer {
    /// The answer in the form of the protocol.
    pub(crate) fn json(self) -> Value {
        match self {
            Self::Accept(content) => json!({ "action": "accept", "content": content }),
            Self::Decline => json!({ "action": "decline" }),
            Self::Cancel => json!({ "action": "cancel" }),
        }
    }
}

/// Who answers the questions of a server.
#[async_trait]
pub trait ElicitationHandler: Send + Sync + 'static {
    /// Answers. The future is dropped when the call or the connection ends, and after `Limits::answer_timeout`.
    async fn ask(&self, question: Elicitation) -> Answer;
}

/// Bytes of a question that are kept.
const MESSAGE_MAX: usize = 4 * 1_024;

/// Puts questions to the handler. Clones share it.
#[derive(Clone)]
pub(crate) struct Asker {
    handler: Arc<dyn ElicitationHandler>,
    limits: Limits,
    /// Questions that wait for an answer.
    open: Arc<AtomicUsize>,
}

/// Counts a question as long as it waits.
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Asker {
    pub(crate) fn new(handler: Arc<dyn ElicitationHandler>, limits: Limits) -> Self {
        Self { handler, limits, open: Arc::default() }
    }

    /// Whether a question waits for an answer. A call is not idle then.
    pub(crate) fn is_asking(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// The answer to the question in `params` (the parameters of `elicitation/create`). A question in another form
    /// than a flat object is declined. The handler is asked again while its answer does not fit.
    pub(crate) async fn ask(&self, params: &Value, call: Option<Arc<str>>) -> Answer {
        let is_form = params.get("mode").and_then(Value::as_str).is_none_or(|mode| mode == "form");
        let Some(schema) = params.get("requestedSchema").filter(|_| is_form) else { return Answer::Decline };
        if check_schema(schema).is_err() {
            return Answer::Decline;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        let _open = Open(Arc::clone(&self.open));
        let message = params.get("message").and_then(Value::as_str).unwrap_or_default();
        let mut question = Elicitation {
            message: prefix_bytes(message, MESSAGE_MAX).to_owned(),
            schema: schema.clone(),
            call,
            problem: None,
        };
        for _ in 0..self.limits.answer_rounds {
            match within(self.limits.answer_timeout, self.handler.ask(question.clone())).await {
                Some(Answer::Accept(Value::Object(mut content))) => {
                    fill(schema, &mut content);
                    match problem(schema, &content) {
                        Some(problem) => question.problem = Some(problem),
                        None => return Answer::Accept(content.into()),
                    }
                }
                Some(Answer::Accept(_)) => question.problem = Some("the answer is no object".to_owned()),
                Some(refused) => return refused,
                None => return Answer::Cancel,
            }
        }
        Answer::Cancel
    }
}

/// The calls of one connection. Clones are the same ones.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    next: u64,
    labels: BTreeMap<u64, Option<Arc<str>>>,
}

/// A call that waits. Dropping it ends the waiting.
pub(crate) struct Waiting {
    calls: Calls,
    number: u64,
}

impl Calls {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole, so a poisoned lock is safe to use.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call.
    pub(crate) fn begin(&self, label: Option<Arc<str>>) -> Waiting {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.labels.insert(number, label);
        Waiting { calls: self.clone(), number }
    }

    /// The label of the only call that waits. With several, nobody knows which one the server means.
    pub(crate) fn only(&self) -> Option<Arc<str>> {
        let state = self.state();
        let mut labels = state.labels.values();
        match (labels.next(), labels.next()) {
            (Some(label), None) => label.clone(),
            _ => None,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.calls.state().labels.remove(&self.number);
    }
}

/// Answers the requests of one server.
pub(crate) struct Handler {
    pub(crate) asker: Option<Asker>,
    pub(crate) calls: Calls,
    pub(crate) closing: Closing,
}

impl Handler {
    /// The answer to a question. The server may take it back, and the connection may end.
    async fn reply(&self, params: &Value, context: &RequestContext<RoleClient>) -> Result<Answer, ErrorData> {
        let Some(asker) = &self.asker else { return Err(refused("elicitation/create")) };
        Ok(tokio::select! {
            biased;
            _ = self.closing.wait() => Answer::Cancel,
            () = context.ct.cancelled() => Answer::Cancel,
            reply = asker.ask(params, self.calls.only()) => reply,
        })
    }
}

fn refused(method: &'static str) -> ErrorData {
    ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.asker.is_some() {
            let form = FormElicitationCapability::new().with_schema_validation(true);
            capabilities.elicitation = Some(ElicitationCapability::new().with_form(form));
        }
        ClientConfig::new(capabilities, Implementation::new("ghost", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    // The default answers with an empty list, as if roots were declared.
    // rmcp marks it as deprecated with the protocol of 2026-07-28. Older servers still ask.
    #[allow(deprecated)]
    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(refused("roots/list"))
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let params = serde_json::to_value(request).unwrap_or_default();
        Ok(match self.reply(&params, &context).await? {
            Answer::Accept(content) => ElicitResult::new(ElicitationAction::Accept).with_content(content),
            Answer::Decline => ElicitResult::new(ElicitationAction::Decline),
            Answer::Cancel => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    // `rmcp` hands over here a question whose schema it does not know.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleClient>,
    ) -> Result<CustomResult, ErrorData> {
        if request.method != "elicitation/create" {
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "unknown method", None));
        }
        let params = request.params.unwrap_or_default();
        Ok(CustomResult(self.reply(&params, &context).await?.json()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_belongs_to_a_call_only_if_one_call_waits() {
        let calls = Calls::default();
        assert_eq!(calls.only(), None);
        let first = calls.begin(Some("first".into()));
        assert_eq!(calls.only().as_deref(), Some("first"));
        let second = calls.begin(Some("second".into()));
        assert_eq!(calls.only(), None);
        drop(first);
        assert_eq!(calls.only().as_deref(), Some("second"));
        drop(second);
        assert_eq!(calls.only(), None);
    }
}
