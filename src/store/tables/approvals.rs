//! Rows and queries of approvals.

use ghost_domain::{AgentId, Approval, ApprovalId, ApprovalStatus, Timestamp, TurnId};

use super::prelude::*;

/// The filter of a list. An absent field does not filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only approvals of this agent's calls.
    pub agent_id: Option<AgentId>,
    /// Only approvals in this state.
    pub status: Option<ApprovalStatus>,
    /// Only approvals that hold for later calls, too.
    pub always: bool,
}

/// The count of pending approvals.
const PENDING: &str = "approvals_pending";

record! {
    approval: Approval, "approvals"; key approval_id: ApprovalId;
    agent_id, turn_id, digest, status, always, requested_at,
    closed_at = (approval.status != ApprovalStatus::Pending).then(|| approval.closed_at.unwrap_or(approval.requested_at))
}

/// One page of the list, newest first.
fn list(filter: &ApprovalFilter, after: Option<(Timestamp, ApprovalId)>, limit: u32) -> (Statement, Args) {
    Conditions::new("SELECT record FROM approvals")
        .when(filter.agent_id.as_ref(), "agent_id = $1")
        .when(filter.status, "status = $1")
        .and(filter.always.then_some("always = 1"))
        .when(after, "(requested_at, approval_id) < ($1, $2)")
        .order("requested_at DESC, approval_id DESC", list_limit(limit))
}

functions! {
    /// Approvals, newest first (then by id, highest first).
    page approval_list(filter: &ApprovalFilter, after: Option<(Timestamp, ApprovalId)>, limit: u32) -> Vec<Approval>:
        list(filter, after, limit);
    /// The approval with this id.
    get approval_get(approval_id: ApprovalId) -> Option<Approval>: &approval_id;
    /// Number of pending approvals.
    counted approval_count_pending() -> u32: PENDING;
    /// Pending approvals of the calls of a turn, oldest first.
    list approvals_pending_of_turn(turn_id: TurnId) -> Vec<Approval>:
        "SELECT record FROM approvals WHERE status = 'pending' AND turn_id = $1 ORDER BY requested_at, approval_id";
    /// The approval under which an agent may run the plan with this digest without asking again.
    first approval_standing(agent_id: &AgentId, digest: &str) -> Option<Approval>:
        "SELECT record FROM approvals WHERE always = 1 AND agent_id = $1 AND digest = $2 \
        ORDER BY requested_at, approval_id LIMIT 1";
}

impl Tx {
    /// Inserts or replaces an approval.
    pub fn approval_put(&mut self, approval: &Approval) -> Result<()> {
        let stored = sql!("SELECT 'approvals_pending' FROM approvals WHERE approval_id = $1 AND status = 'pending'");
        let count = (approval.status == ApprovalStatus::Pending).then_some(PENDING);
        self.put_counted(approval, &approval.approval_id, stored, count)
    }
}
