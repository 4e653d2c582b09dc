//! Rows and queries of asks.

use ghost_domain::{AgentId, Ask, AskId, AskStatus, TurnId};

use crate::error::Result;
use crate::row::{Args, Keyed, ReadRow, Row, from_record, to_json};
use crate::sql::{Sql, sql};
use crate::tx::Tx;

/// The count of open asks.
const OPEN: &str = "asks_open";

impl Row for Ask {
    const TABLE: &'static str = "asks";
    const WRITE: Sql = sql!(
        "INSERT INTO asks (ask_id, status, target, asker_turn, created_at, closed_at, record) VALUES ($1, \
        $2, $3, $4, $5, $6, $7) ON CONFLICT (ask_id) DO UPDATE SET status = excluded.status, target = \
        excluded.target, asker_turn = excluded.asker_turn, created_at = excluded.created_at, closed_at = \
        excluded.closed_at, record = excluded.record"
    );

    fn bind(&self, args: &mut Args) -> Result<()> {
        let closed = (self.status != AskStatus::Open).then(|| self.closed_at.unwrap_or(self.created_at));
        args.id(self.ask_id.0)
            .text(self.status.as_str())
            .text(self.target.as_str())
            .maybe_id(self.asker.turn_id.map(|id| id.0))
            .int(self.created_at.0)
            .maybe_at(closed)
            .put(to_json(Self::TABLE, self.ask_id, self)?);
        Ok(())
    }
}

impl Keyed for Ask {
    type Key = AskId;
    const SELECT: Sql = sql!("SELECT record FROM asks WHERE ask_id = $1");

    fn bind_key(key: &AskId, args: &mut Args) {
        args.id(key.0);
    }

    fn read(row: &ReadRow<'_>) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

impl Tx {
    /// The ask with this id.
    pub fn ask_get(&mut self, ask_id: AskId) -> Result<Option<Ask>> {
        self.get(&ask_id)
    }

    /// All open asks, in order of creation.
    pub fn asks_open(&mut self) -> Result<Vec<Ask>> {
        self.list(sql!("SELECT record FROM asks WHERE status = 'open' ORDER BY created_at, ask_id"), Args::default())
    }

    /// Number of open asks.
    pub fn ask_count_open(&mut self) -> Result<u32> {
        self.counted(OPEN)
    }

    /// Open asks that this agent must answer.
    pub fn asks_open_to(&mut self, target: &AgentId) -> Result<Vec<Ask>> {
        let mut args = Args::default();
        args.text(target.as_str());
        let sql = sql!("SELECT record FROM asks WHERE status = 'open' AND target = $1 ORDER BY created_at, ask_id");
        self.list(sql, args)
    }

    /// Open asks that this turn waits for.
    pub fn asks_open_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Ask>> {
        let mut args = Args::default();
        args.id(turn_id.0);
        let sql = sql!("SELECT record FROM asks WHERE status = 'open' AND asker_turn = $1 ORDER BY created_at, ask_id");
        self.list(sql, args)
    }
}

impl Tx {
    /// Inserts or replaces an ask.
    pub fn ask_put(&mut self, ask: &Ask) -> Result<()> {
        let stored = sql!("SELECT 'asks_open' FROM asks WHERE ask_id = $1 AND status = 'open'");
        self.put_counted(ask, &ask.ask_id, stored, (ask.status == AskStatus::Open).then_some(OPEN))
    }
}
