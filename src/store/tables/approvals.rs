//! Rows and queries of approvals.

use ghost_domain::{AgentId, Approval, ApprovalId, ApprovalStatus, Timestamp, TurnId};

use crate::error::Result;
use crate::query::{Conditions, list_limit};
use crate::row::{Args, Keyed, ReadRow, Row, from_record, to_json};
use crate::sql::{Sql, Statement, sql};
use crate::tx::Tx;

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

impl Row for Approval {
    const TABLE: &'static str = "approvals";
    const WRITE: Sql = sql!(
        "INSERT INTO approvals (approval_id, agent_id, turn_id, digest, status, always, requested_at, \
        closed_at, record) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (approval_id) DO UPDATE SET \
        agent_id = excluded.agent_id, turn_id = excluded.turn_id, digest = excluded.digest, status = \
        excluded.status, always = excluded.always, requested_at = excluded.requested_at, closed_at = \
        excluded.closed_at, record = excluded.record"
    );

    fn bind(&self, args: &mut Args) -> Result<()> {
        let pending = self.status == ApprovalStatus::Pending;
        let closed = (!pending).then(|| self.closed_at.unwrap_or(self.requested_at));
        args.id(self.approval_id.0)
            .text(self.agent_id.as_str())
            .id(self.turn_id.0)
            .text(&self.digest)
            .text(self.status.as_str())
            .int(self.always.into())
            .int(self.requested_at.0)
            .maybe_at(closed)
            .put(to_json(Self::TABLE, self.approval_id, self)?);
        Ok(())
    }
}

impl Keyed for Approval {
    type Key = ApprovalId;
    const SELECT: Sql = sql!("SELECT record FROM approvals WHERE approval_id = $1");

    fn bind_key(key: &ApprovalId, args: &mut Args) {
        args.id(key.0);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

/// One page of the list, newest first.
fn list(filter: &ApprovalFilter, after: Option<(Timestamp, ApprovalId)>, limit: u32) -> (Statement, Args) {
    Conditions::new("SELECT record FROM approvals")
        .when(filter.agent_id.as_ref(), "agent_id = $1", |id, args| {
            args.text(id.as_str());
        })
        .when(filter.status, "status = $1", |status, args| {
            args.text(status.as_str());
        })
        .when(filter.always.then_some(()), "always = 1", |(), _| {})
        .when(after, "(requested_at, approval_id) < ($1, $2)", |(at, id), args| {
            args.int(at.0).id(id.0);
        })
        .order("requested_at DESC, approval_id DESC", list_limit(limit))
}

impl Tx {
    /// The approval with this id.
    pub fn approval_get(&mut self, approval_id: ApprovalId) -> Result<Option<Approval>> {
        self.get(&approval_id)
    }

    /// Approvals, newest first (then by id, highest first).
    pub fn approval_list(
        &mut self,
        filter: &ApprovalFilter,
        after: Option<(Timestamp, ApprovalId)>,
        limit: u32,
    ) -> Result<Vec<Approval>> {
        let (sql, args) = list(filter, after, limit);
        self.list(sql, args)
    }

    /// Number of pending approvals.
    pub fn approval_count_pending(&mut self) -> Result<u32> {
        self.counted(PENDING)
    }

    /// Pending approvals of the calls of a turn, oldest first.
    pub fn approvals_pending_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Approval>> {
        let mut args = Args::default();
        args.id(turn_id.0);
        let sql = sql!(
            "SELECT record FROM approvals WHERE status = 'pending' AND turn_id = $1 \
                   ORDER BY requested_at, approval_id"
        );
        self.list(sql, args)
    }

    /// The approval under which an agent may run the plan with this digest without asking again.
    pub fn approval_standing(&mut self, agent_id: &AgentId, digest: &str) -> Result<Option<Approval>> {
        let mut args = Args::default();
        args.text(agent_id.as_str()).text(digest);
        let sql = sql!(
            "SELECT record FROM approvals WHERE always = 1 AND agent_id = $1 AND digest = $2 \
                   ORDER BY requested_at, approval_id LIMIT 1"
        );
        Ok(self.list(sql, args)?.into_iter().next())
    }
}

impl Tx {
    /// Inserts or replaces an approval.
    pub fn approval_put(&mut self, approval: &Approval) -> Result<()> {
        let stored = sql!("SELECT 'approvals_pending' FROM approvals WHERE approval_id = $1 AND status = 'pending'");
        self.put_counted(
            approval,
            &approval.approval_id,
            stored,
            (approval.status == ApprovalStatus::Pending).then_some(PENDING),
        )
    }
}
