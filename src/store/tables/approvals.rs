//! The `approvals` table.

use async_trait::async_trait;
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
#[async_trait]
pub trait ApprovalReads {
    /// The approval with this id.
    async fn approval_get(&mut self, approval_id: ApprovalId) -> Result<Option<Approval>>;

    /// Approvals, newest first (then by id, highest first).
    async fn approval_list(
        &mut self,
        filter: &ApprovalFilter,
        after: Option<(Timestamp, ApprovalId)>,
        limit: u32,
    ) -> Result<Vec<Approval>>;

    /// Number of pending approvals.
    async fn approval_count_pending(&mut self) -> Result<u32>;

    /// Pending approvals of the calls of a turn, oldest first.
    async fn approvals_pending_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Approval>>;

    /// The approval under which an agent may run the plan with this digest without asking again.
    async fn approval_standing(&mut self, agent_id: &AgentId, digest: &str) -> Result<Option<Approval>>;
}

/// Writes of approvals.
#[async_trait]
pub trait ApprovalWrites {
    /// Inserts or replaces an approval.
    async fn approval_put(&mut self, approval: &Approval) -> Result<()>;
}
