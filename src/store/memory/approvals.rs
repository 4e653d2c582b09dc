//! Approvals.

use ghost_domain::{AgentId, Approval, ApprovalId, ApprovalStatus, Timestamp, TurnId};

use super::session::{Session, count, page};
use crate::tables::{ApprovalFilter, ApprovalReads, ApprovalWrites, Result};

/// The order of lists.
fn place(approval: &Approval) -> (Timestamp, ApprovalId) {
    (approval.requested_at, approval.approval_id)
}

impl Session<'_> {
    fn pending(&self) -> impl Iterator<Item = &Approval> {
        self.tables.approvals.values().filter(|approval| approval.status == ApprovalStatus::Pending)
    }
}

impl ApprovalReads for Session<'_> {
    fn approval_get(&mut self, approval_id: ApprovalId) -> Result<Option<Approval>> {
        Ok(self.tables.approvals.get(&approval_id).cloned())
    }

    fn approval_list(
        &mut self,
        filter: &ApprovalFilter,
        after: Option<(Timestamp, ApprovalId)>,
        limit: u32,
    ) -> Result<Vec<Approval>> {
        let wanted = |approval: &&Approval| {
            filter.agent_id.as_ref().is_none_or(|agent_id| approval.agent_id == *agent_id)
                && filter.status.is_none_or(|status| approval.status == status)
                && (!filter.always || approval.always)
                && after.is_none_or(|after| place(approval) < after)
        };
        let mut found: Vec<&Approval> = self.tables.approvals.values().filter(wanted).collect();
        found.sort_by_key(|approval| std::cmp::Reverse(place(approval)));
        Ok(page(found, limit))
    }

    fn approval_count_pending(&mut self) -> Result<u32> {
        Ok(count(self.pending().count()))
    }

    fn approvals_pending_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Approval>> {
        let mut found: Vec<Approval> = self.pending().filter(|approval| approval.turn_id == turn_id).cloned().collect();
        found.sort_by_key(place);
        Ok(found)
    }

    fn approval_standing(&mut self, agent_id: &AgentId, digest: &str) -> Result<Option<Approval>> {
        let standing = self.tables.approvals.values();
        let standing = standing.filter(|row| row.always && row.agent_id == *agent_id && row.digest == digest);
        Ok(standing.min_by_key(|approval| place(approval)).cloned())
    }
}

impl ApprovalWrites for Session<'_> {
    fn approval_put(&mut self, approval: &Approval) -> Result<()> {
        self.tables.approvals.put(approval.approval_id, approval.clone());
        Ok(())
    }
}
