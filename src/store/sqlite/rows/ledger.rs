//! The record of tool calls.

use async_trait::async_trait;
use ghost_domain::{CallId, CallStatus, LedgerRow};
use sqlx::sqlite::SqliteRow;

use crate::sqlite::bit;
use crate::sqlite::query::{Conditions, list_limit};
use crate::sqlite::row::{Args, Keyed, Row, Shape, from_record, to_json};
use crate::sqlite::session::Session;
use crate::tables::{LedgerFilter, LedgerReads, LedgerWrites, Result};

impl Row for LedgerRow {
    const TABLE: &'static str = "ledger";
    const SHAPE: Shape = Shape {
        head: "INSERT INTO ledger (call_id, agent_id, turn_id, tool, status, started_at, ended_at, record) VALUES ",
        columns: 8,
        tail: " ON CONFLICT (call_id) DO UPDATE SET status = excluded.status, ended_at = excluded.ended_at, \
               record = excluded.record",
    };

    fn bind(&self, args: &mut Args) -> Result<()> {
        let took = i64::try_from(self.duration_ms.unwrap_or(0)).unwrap_or(i64::MAX);
        let ended = (self.status != CallStatus::Started).then(|| self.started_at.0.saturating_add(took));
        args.id(self.call_id.0)
            .text(self.agent_id.as_str())
            .id(self.turn_id.0)
            .text(&self.tool)
            .text(self.status.as_str())
            .int(self.started_at.0)
            .put(ended)
            .put(to_json(Self::TABLE, self.call_id, self)?);
        Ok(())
    }
}

impl Keyed for LedgerRow {
    type Key = CallId;
    const KEPT: usize = 4_096;
    const SELECT: &'static str = "SELECT record FROM ledger WHERE call_id = ?";
    const BIT: u32 = bit::CALLS;

    fn key(&self) -> CallId {
        self.call_id
    }

    fn bind_key(key: &CallId, args: &mut Args) {
        args.id(key.0);
    }

    fn read(row: &SqliteRow) -> Result<Self> {
        from_record(Self::TABLE, row)
    }

    // Only the end of a call looks for its beginning.
    fn keep(&self) -> bool {
        self.status == CallStatus::Started
    }
}

/// The condition for a status, written out for the partial index of calls that did not end well.
fn with_status(status: CallStatus) -> &'static str {
    match status {
        CallStatus::Ok => "status = 'ok'",
        CallStatus::Started => "status = 'started' AND status <> 'ok'",
        CallStatus::Failed => "status = 'failed' AND status <> 'ok'",
        CallStatus::Unknown => "status = 'unknown' AND status <> 'ok'",
    }
}

/// Where a list is read. Named, because SQLite knows nothing of how few calls a turn has, how rare a tool is, or how few
/// calls have failed. A tool of one agent is looked for among the calls of that agent: there are fewer tools than agents.
fn listed(filter: &LedgerFilter) -> &'static str {
    match (filter.turn_id, &filter.agent_id, &filter.tool, filter.status) {
        (Some(_), ..) => "SELECT record FROM ledger INDEXED BY ledger_turn",
        (None, None, None, Some(status)) if status != CallStatus::Ok => {
            "SELECT record FROM ledger INDEXED BY ledger_status"
        }
        (None, Some(_), ..) => "SELECT record FROM ledger INDEXED BY ledger_agent",
        (None, None, Some(_), _) => "SELECT record FROM ledger INDEXED BY ledger_tool",
        (None, None, None, _) => "SELECT record FROM ledger INDEXED BY ledger_started",
    }
}

#[async_trait]
impl LedgerReads for Session {
    async fn call_get(&mut self, call_id: CallId) -> Result<Option<LedgerRow>> {
        self.get(&call_id).await
    }

    async fn call_list(&mut self, filter: &LedgerFilter) -> Result<Vec<LedgerRow>> {
        let (sql, args) = Conditions::new(listed(filter))
            .when(filter.agent_id.as_ref(), "agent_id = ?", |id, args| {
                args.text(id.as_str());
            })
            .when(filter.turn_id, "turn_id = ?", |id, args| {
                args.id(id.0);
            })
            .when(filter.tool.as_deref(), "tool = ?", |tool, args| {
                args.text(tool);
            })
            .when(filter.status, filter.status.map_or("", with_status), |_, _| {})
            .when(filter.since, "started_at >= ?", |at, args| {
                args.int(at.0);
            })
            .when(filter.before, "started_at < ?", |at, args| {
                args.int(at.0);
            })
            .order("started_at DESC, call_id DESC", list_limit(filter.limit));
        self.scan(LedgerRow::BIT).await?;
        self.rows_of(sql, args).await?.iter().map(LedgerRow::read).collect()
    }
}

#[async_trait]
impl LedgerWrites for Session {
    async fn call_put(&mut self, row: &LedgerRow) -> Result<()> {
        self.pending()?.calls.put(row.clone());
        Ok(())
    }
}
