//! The `approvals` table.

use ghost_domain::{AgentId, Approval, ApprovalId, ApprovalStatus, Timestamp, TurnId};

use crate::error::Result;

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

/// Reads of approvals.
pub trait ApprovalReads {
    /// The approval with this id.
    fn approval_get(&mut self, approval_id: ApprovalId) -> Result<Option<Approval>>;

    /// Approvals, newest first (then by id, highest first).
    fn approval_list(
        &mut self,
        filter: &ApprovalFilter,
        after: Option<(Timestamp, ApprovalId)>,
        limit: u32,
    ) -> Result<Vec<Approval>>;

    /// Number of pending approvals.
    fn approval_count_pending(&mut self) -> Result<u32>;

    /// Pending approvals of the calls of a turn, oldest first.
    fn approvals_pending_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Approval>>;

    /// The approval under which an agent may run the plan with this digest without asking again.
    fn approval_standing(&mut self, agent_id: &AgentId, digest: &str) -> Result<Option<Approval>>;
}

/// Writes of approvals.
pub trait ApprovalWrites {
    /// Inserts or replaces an approval.
    fn approval_put(&mut self, approval: &Approval) -> Result<()>;
}
