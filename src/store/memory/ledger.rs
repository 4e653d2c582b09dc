//! The ledger.

use async_trait::async_trait;
use ghost_domain::{CallId, LedgerRow};

use super::session::{Session, page};
use crate::tables::{LedgerFilter, LedgerReads, LedgerWrites, Result};

fn matches(filter: &LedgerFilter, row: &LedgerRow) -> bool {
    filter.agent_id.as_ref().is_none_or(|agent_id| row.agent_id == *agent_id)
        && filter.turn_id.is_none_or(|turn_id| row.turn_id == turn_id)
        && filter.tool.as_ref().is_none_or(|tool| row.tool == *tool)
        && filter.status.is_none_or(|status| row.status == status)
        && filter.since.is_none_or(|since| row.started_at >= since)
        && filter.before.is_none_or(|before| row.started_at < before)
        && filter.after.is_none_or(|after| (row.started_at, row.call_id) < after)
}

#[async_trait]
impl LedgerReads for Session<'_> {
    async fn call_get(&mut self, call_id: CallId) -> Result<Option<LedgerRow>> {
        Ok(self.tables.ledger.get(&call_id).cloned())
    }

    async fn call_list(&mut self, filter: &LedgerFilter) -> Result<Vec<LedgerRow>> {
        let newest_first = self.tables.ledger_by_start.iter().rev();
        let rows = newest_first.filter_map(|((_, call_id), ())| self.tables.ledger.get(call_id));
        Ok(page(rows.filter(|row| matches(filter, row)), filter.limit))
    }
}

#[async_trait]
impl LedgerWrites for Session<'_> {
    async fn call_put(&mut self, row: &LedgerRow) -> Result<()> {
        if let Some(before) = self.tables.ledger.get(&row.call_id) {
            let key = (before.started_at, before.call_id);
            self.tables.ledger_by_start.remove(&key);
        }
        self.tables.ledger_by_start.put((row.started_at, row.call_id), ());
        self.tables.ledger.put(row.call_id, row.clone());
        Ok(())
    }
}
