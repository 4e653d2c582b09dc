//! Which calls wait for an operator, and what exactly an operator would approve (EXEC-10, EXEC-11).
//!
//! A tool decides about its own calls with [`Approvable`]. The world file can put any tool under approval
//! (`approvals.tools`). Neither may let a call run that the tool itself refuses.

use async_trait::async_trait;
use ghost_config::plan::Plan;
use ghost_domain::{ApprovalPlan, Refusal};
use serde_json::Value;

use crate::context::{CallContext, Caller, WorldServices};

/// Whether a call waits for an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// It runs at once.
    Nothing,
    /// It waits, for this reason.
    Approval(String),
    /// The tool refuses it, whatever an operator says.
    Refused,
}

/// A tool that knows which of its calls need an approval.
#[async_trait]
pub trait Approvable: Send + Sync + 'static {
    /// Whether a call needs an approval by the tool's own rules.
    fn need(&self, plan: &Plan, caller: &Caller, arguments: &Value) -> Need;

    /// Why a call that needs no approval by the rules alone needs one all the same, by what its files hold now.
    ///
    /// # Errors
    /// `Unavailable` if they cannot be looked at.
    async fn closer(
        &self,
        _services: &WorldServices,
        _caller: &Caller,
        _arguments: &Value,
    ) -> Result<Option<String>, Refusal> {
        Ok(None)
    }

    /// What exactly the call would do. It is asked for before and after the wait.
    async fn plan(&self, call: &CallContext, arguments: &Value) -> Result<ApprovalPlan, Refusal>;
}
