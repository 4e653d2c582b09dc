//! The `ledger` table.

use ghost_domain::{AgentId, CallId, CallStatus, CallTotals, LedgerRow, Timestamp, TurnId};

use crate::error::Result;

/// Which rows a list contains. `None` means any.
#[derive(Clone, Debug, Default)]
pub struct LedgerFilter {
    /// Agent that made the call.
    pub agent_id: Option<AgentId>,
    /// Turn that made the call.
    pub turn_id: Option<TurnId>,
    /// Canonical name of the tool.
    pub tool: Option<String>,
    /// Status of the call.
    pub status: Option<CallStatus>,
    /// Started at or after this.
    pub since: Option<Timestamp>,
    /// Started before this.
    pub before: Option<Timestamp>,
    /// Only calls after this start time and id: older ones, or equally old ones with a lower id.
    pub after: Option<(Timestamp, CallId)>,
    /// At most this many rows.
    pub limit: u32,
}

/// Reads of the ledger.
pub trait LedgerReads {
    /// The row of this call.
    fn call_get(&mut self, call_id: CallId) -> Result<Option<LedgerRow>>;

    /// Matching rows, newest first.
    fn call_list(&mut self, filter: &LedgerFilter) -> Result<Vec<LedgerRow>>;

    /// Sums over the matching rows by tool and status, in the order of both. `after` and `limit` of the filter do
    /// not apply: there are at most [`PAGE_MAX`](super::PAGE_MAX) sums.
    fn call_totals(&mut self, filter: &LedgerFilter) -> Result<Vec<CallTotals>>;
}

/// Writes of the ledger.
pub trait LedgerWrites {
    /// Inserts a row, or replaces the changeable part of it. Agent, turn, tool and start time never
    /// change.
    fn call_put(&mut self, row: &LedgerRow) -> Result<()>;
}
