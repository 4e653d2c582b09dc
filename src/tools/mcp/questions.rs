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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Accepts everything.
    struct Yes;

    #[async_trait]
    impl ElicitationHandler for Yes {
        async fn ask(&self, _: Elicitation) -> Answer {
            Answer::Accept(json!({}))
        }
    }

    // covers: TBX-09
    #[tokio::test]
    async fn a_question_without_a_call_that_runs_reaches_nobody() {
        let questions = Questions::default();
        let ask = async |call: Option<&str>| {
            let call = call.map(Arc::from);
            questions.ask(Elicitation { message: "?".into(), schema: json!({}), call, problem: None }).await
        };
        let running = questions.begin("7".to_owned(), Arc::new(Yes));
        assert_eq!(ask(Some("7")).await, Answer::Accept(json!({})));
        for call in [None, Some(""), Some("8"), Some("7 ")] {
            assert_eq!(ask(call).await, Answer::Decline, "{call:?}");
        }
        drop(running);
        assert_eq!(ask(Some("7")).await, Answer::Decline, "its call has ended");
    }
}
