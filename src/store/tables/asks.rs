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

functions! {
    /// The ask with this id.
    get ask_get(ask_id: AskId) -> Option<Ask>: &ask_id;
    /// All open asks, in order of creation.
    list asks_open() -> Vec<Ask>: "SELECT record FROM asks WHERE status = 'open' ORDER BY created_at, ask_id";
    /// Open asks that this agent must answer.
    list asks_open_to(target: &AgentId) -> Vec<Ask>:
        "SELECT record FROM asks WHERE status = 'open' AND target = $1 ORDER BY created_at, ask_id";
    /// Open asks that this turn waits for.
    list asks_open_of_turn(turn_id: TurnId) -> Vec<Ask>:
        "SELECT record FROM asks WHERE status = 'open' AND asker_turn = $1 ORDER BY created_at, ask_id";
    /// Number of open asks.
    counted ask_count_open() -> u32: OPEN;
}

impl Tx {
    /// Inserts or replaces an ask.
    pub fn ask_put(&mut self, ask: &Ask) -> Result<()> {
        let stored = sql!("SELECT 'asks_open' FROM asks WHERE ask_id = $1 AND status = 'open'");
        self.put_counted(ask, &ask.ask_id, stored, (ask.status == AskStatus::Open).then_some(OPEN))
    }
}
