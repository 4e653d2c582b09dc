//! Puts the questions of a server to the handler. A question must never wait for ever or be put without a bound.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ghost_domain::form::{fill, problem};
use serde_json::{Map, Value, json};

use crate::elicitation::{Answer, Elicitation, ElicitationHandler};
use crate::limits::Limits;
use crate::schema::check_schema;
use crate::text::start;
use crate::time::within;

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

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("open", &self.open).finish_non_exhaustive()
    }
}

/// The answer in the form of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    Accept(Map<String, Value>),
    Decline,
    Cancel,
}

impl Reply {
    /// The JSON of the answer.
    pub(crate) fn json(self) -> Value {
        match self {
            Self::Accept(content) => json!({ "action": "accept", "content": content }),
            Self::Decline => json!({ "action": "decline" }),
            Self::Cancel => json!({ "action": "cancel" }),
        }
    }
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
    pub(crate) async fn ask(&self, params: &Value, call: Option<Arc<str>>) -> Reply {
        let is_form = params.get("mode").and_then(Value::as_str).is_none_or(|mode| mode == "form");
        let Some(schema) = params.get("requestedSchema").filter(|_| is_form) else { return Reply::Decline };
        if check_schema(schema).is_err() {
            return Reply::Decline;
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        let _open = Open(Arc::clone(&self.open));
        let message = params.get("message").and_then(Value::as_str).unwrap_or_default();
        let mut question = Elicitation {
            message: start(message, MESSAGE_MAX).to_owned(),
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
                        None => return Reply::Accept(content),
                    }
                }
                Some(Answer::Accept(_)) => question.problem = Some("the answer is no object".to_owned()),
                Some(Answer::Decline) => return Reply::Decline,
                Some(Answer::Cancel) | None => return Reply::Cancel,
            }
        }
        Reply::Cancel
    }
}
