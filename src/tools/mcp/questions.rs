//! The calls over a connection to an MCP server, for the questions that the server puts to its user (elicitation).
//!
//! A question without a call of an agent must never reach an operator, who could not judge it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ghost_mcp::{Answer, Elicitation, ElicitationHandler};

/// The calls that run over a connection, by their labels. A call answers the questions that belong to it.
#[derive(Clone, Default)]
pub(crate) struct Questions(Arc<Mutex<BTreeMap<String, Arc<dyn ElicitationHandler>>>>);

/// A call that runs. Dropping it ends it here.
pub(crate) struct Running {
    questions: Questions,
    /// What stands for the call.
    pub(crate) label: Arc<str>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.questions.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&*self.label);
    }
}

impl Questions {
    /// Notes a call that begins.
    pub(crate) fn begin(&self, label: String, call: Arc<dyn ElicitationHandler>) -> Running {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(label.clone(), call);
        Running { questions: self.clone(), label: label.into() }
    }

    fn call_of(&self, label: &str) -> Option<Arc<dyn ElicitationHandler>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(label).cloned()
    }
}

#[async_trait]
impl ElicitationHandler for Questions {
    async fn ask(&self, question: Elicitation) -> Answer {
        match question.call.as_deref().and_then(|label| self.call_of(label)) {
            Some(call) => call.ask(question).await,
            None => Answer::Decline,
        }
    }
}
