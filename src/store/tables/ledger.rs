//! The `ledger` table.

use async_trait::async_trait;
use ghost_domain::{AgentId, CallId, CallStatus, LedgerRow, Timestamp, TurnId};

use crate::error::Result;

/// Which rows a list wants; `None` is any.
#[derive(Clone, Debug, Default)]
pub struct LedgerFilter {
    /// Whose.
    pub agent_id: Option<AgentId>,
    /// Of which turn.
    pub turn_id: Option<TurnId>,
    /// Of which tool, by canonical name.
    pub tool: Option<String>,
    /// With which status.
    pub status: Option<CallStatus>,
    /// Started at or after this.
    pub since: Option<Timestamp>,
    /// Started before this.
    pub before: Option<Timestamp>,
    /// What comes behind this call in the order of the list, whether or not it is still there: older, or as old with a lower
    /// id. For paging.
    pub after: Option<(Timestamp, CallId)>,
    /// At most this many; 0 means 100; never more than 1,000.
    pub limit: u32,
}

/// Reading the ledger.
#[async_trait]
pub trait LedgerReads {
    /// One row.
    async fn call_get(&mut self, call_id: CallId) -> Result<Option<LedgerRow>>;

    /// Rows, newest first.
    async fn call_list(&mut self, filter: &LedgerFilter) -> Result<Vec<LedgerRow>>;
}

/// Writing the ledger.
#[async_trait]
pub trait LedgerWrites {
    /// Inserts a row, or replaces how its call stands: whose it is, its turn, its tool and when it began never change.
    async fn call_put(&mut self, row: &LedgerRow) -> Result<()>;
}
