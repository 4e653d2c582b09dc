//! The ledger.

use std::collections::BTreeMap;

use ghost_domain::{CallId, CallTotals, LedgerRow, Money};

use super::session::{LIST_MAX, Session, page};
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

impl LedgerReads for Session<'_> {
    fn call_get(&mut self, call_id: CallId) -> Result<Option<LedgerRow>> {
        Ok(self.tables.ledger.get(&call_id).cloned())
    }

    fn call_list(&mut self, filter: &LedgerFilter) -> Result<Vec<LedgerRow>> {
        let newest_first = self.tables.ledger_by_start.iter().rev();
        let rows = newest_first.filter_map(|((_, call_id), ())| self.tables.ledger.get(call_id));
        Ok(page(rows.filter(|row| matches(filter, row)), filter.limit))
    }

    fn call_totals(&mut self, filter: &LedgerFilter) -> Result<Vec<CallTotals>> {
        let filter = LedgerFilter { after: None, ..filter.clone() };
        let mut totals: BTreeMap<(String, &str), CallTotals> = BTreeMap::new();
        for row in self.tables.ledger.values().filter(|row| matches(&filter, row)) {
            let sum = totals.entry((row.tool.clone(), row.status.as_str())).or_insert_with(|| CallTotals {
                tool: row.tool.clone(),
                status: row.status,
                calls: 0,
                duration_ms: 0,
                bytes_in: 0,
                bytes_out: 0,
                tokens: 0,
                cost: Money(0),
            });
            sum.calls += 1;
            sum.duration_ms += row.duration_ms.unwrap_or_default();
            sum.bytes_in += row.bytes_in.unwrap_or_default();
            sum.bytes_out += row.bytes_out.unwrap_or_default();
            sum.tokens += row.tokens.unwrap_or_default();
            sum.cost = sum.cost.plus(row.cost.unwrap_or_default());
        }
        Ok(totals.into_values().take(LIST_MAX).collect())
    }
}

impl LedgerWrites for Session<'_> {
    fn call_put(&mut self, row: &LedgerRow) -> Result<()> {
        if let Some(before) = self.tables.ledger.get(&row.call_id) {
            let key = (before.started_at, before.call_id);
            self.tables.ledger_by_start.remove(&key);
        }
        self.tables.ledger_by_start.put((row.started_at, row.call_id), ());
        self.tables.ledger.put(row.call_id, row.clone());
        Ok(())
    }
}
