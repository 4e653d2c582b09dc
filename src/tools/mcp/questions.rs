//! Questions of an MCP server to its user (elicitation): an operator fills in the form, in the middle of the call that the
//! question belongs to.
//!
//! An answer goes to the server. So a question without a call of an agent must never reach an operator, who could not judge
//! it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::{ApprovalPlan, ApprovalStatus};
use ghost_mcp::{Answer, Elicitation, ElicitationHandler};
use serde_json::{Value, json};

use crate::context::CallContext;

/// How long a question waits at most. A call may last so much longer.
pub(crate) const QUESTION_TIME: Duration = Duration::from_secs(600);

/// The calls that run over a connection, by their labels.
#[derive(Clone, Default)]
pub(crate) struct Questions(Arc<Mutex<BTreeMap<String, Asker>>>);

/// A call that a question can belong to.
#[derive(Clone)]
struct Asker {
    call: CallContext,
    /// The full name of its tool.
    full: String,
    arguments: Value,
}

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
    /// Notes a call of the tool `full` that begins.
    pub(crate) fn begin(&self, call: &CallContext, full: &str, arguments: &Value) -> Running {
        let label = call.call_id.to_string();
        let entry = Asker { call: call.clone(), full: full.to_owned(), arguments: arguments.clone() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(label.clone(), entry);
        Running { questions: self.clone(), label: label.into() }
    }

    fn call_of(&self, label: &str) -> Option<Asker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(label).cloned()
    }
}

#[async_trait]
impl ElicitationHandler for Questions {
    async fn ask(&self, question: Elicitation) -> Answer {
        let asker = question.call.as_deref().and_then(|label| self.call_of(label));
        let Some(Asker { call, full, arguments }) = asker else { return Answer::Decline };
        call.progress(&format!("{full} asks an operator: {}", question.message));
        let mut arguments = json!({ "asks": question.message, "call": arguments });
        if let Some(problem) = &question.problem {
            arguments["problem"] = json!(problem);
        }
        let plan =
            ApprovalPlan { tool: full.clone(), arguments, form: Some(question.schema), ..ApprovalPlan::default() };
        let reason = format!("the server of {full} asks its user");
        match call.ask_operator(plan, reason, QUESTION_TIME).await {
            Ok(approval) => match approval.status {
                ApprovalStatus::Approved => Answer::Accept(Value::Object(approval.fields.unwrap_or_default())),
                ApprovalStatus::Denied => Answer::Decline,
                ApprovalStatus::Pending | ApprovalStatus::Expired | ApprovalStatus::Cancelled => Answer::Cancel,
            },
            Err(refusal) => {
                tracing::warn!(%refusal, tool = full, "a question of an MCP server reached no operator");
                call.progress(&format!("no operator could be asked: {}", refusal.message));
                Answer::Cancel
            }
        }
    }
}
