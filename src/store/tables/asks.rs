//! Rows and queries of asks.

use ghost_domain::{AgentId, Ask, AskId, AskStatus, TurnId};

use super::prelude::*;

/// The count of open asks.
const OPEN: &str = "asks_open";

record! {
    ask: Ask, "asks"; key ask_id: AskId;
    status, target, asker_turn = ask.asker.turn_id, created_at,
    closed_at = (ask.status != AskStatus::Open).then(|| ask.closed_at.unwrap_or(ask.created_at))
}

impl Tx {
    /// The ask with this id.
    pub fn ask_get(&mut self, ask_id: AskId) -> Result<Option<Ask>> {
        self.get(&ask_id)
    }

    /// All open asks, in order of creation.
    pub fn asks_open(&mut self) -> Result<Vec<Ask>> {
        self.list(sql!("SELECT record FROM asks WHERE status = 'open' ORDER BY created_at, ask_id"), args![])
    }

    /// Number of open asks.
    pub fn ask_count_open(&mut self) -> Result<u32> {
        self.counted(OPEN)
    }

    /// Open asks that this agent must answer.
    pub fn asks_open_to(&mut self, target: &AgentId) -> Result<Vec<Ask>> {
        let sql = sql!("SELECT record FROM asks WHERE status = 'open' AND target = $1 ORDER BY created_at, ask_id");
        self.list(sql, args![target])
    }

    /// Open asks that this turn waits for.
    pub fn asks_open_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Ask>> {
        let sql = sql!("SELECT record FROM asks WHERE status = 'open' AND asker_turn = $1 ORDER BY created_at, ask_id");
        self.list(sql, args![turn_id])
    }

    /// Inserts or replaces an ask.
    pub fn ask_put(&mut self, ask: &Ask) -> Result<()> {
        let stored = sql!("SELECT 'asks_open' FROM asks WHERE ask_id = $1 AND status = 'open'");
        self.put_counted(ask, &ask.ask_id, stored, (ask.status == AskStatus::Open).then_some(OPEN))
    }
}
