//! Puts the question of an MCP server to an operator, who fills in its form, in the middle of the call that it belongs to.
//! The answer goes to the server.

use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::{ApprovalPlan, ApprovalStatus};
use ghost_mcp::{Answer, Elicitation, ElicitationHandler};
use serde_json::{Value, json};

use crate::context::CallContext;

/// How long a question waits at most. A call may last so much longer.
pub(crate) const QUESTION_TIME: Duration = Duration::from_secs(600);

/// A call that a question can belong to.
pub(crate) struct Asking {
    pub(crate) call: CallContext,
    /// The full name of its tool.
    pub(crate) full: String,
    pub(crate) arguments: Value,
}

#[async_trait]
impl ElicitationHandler for Asking {
    async fn ask(&self, question: Elicitation) -> Answer {
        let (call, full) = (&self.call, &self.full);
        call.progress(&format!("{full} asks an operator: {}", question.message));
        let mut arguments = json!({ "asks": question.message, "call": self.arguments });
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
