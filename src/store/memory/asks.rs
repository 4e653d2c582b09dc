//! Asks.

use ghost_domain::{AgentId, Ask, AskId, AskStatus, TurnId};

use super::session::{Session, count};
use crate::tables::{AskReads, AskWrites, Result};

impl Session<'_> {
    /// Open asks in order of creation.
    fn open_asks(&self) -> impl Iterator<Item = &Ask> {
        self.tables.asks_by_open.iter().filter_map(|((_, ask_id), ())| self.tables.asks.get(ask_id))
    }
}

impl AskReads for Session<'_> {
    fn ask_get(&mut self, ask_id: AskId) -> Result<Option<Ask>> {
        Ok(self.tables.asks.get(&ask_id).cloned())
    }

    fn asks_open(&mut self) -> Result<Vec<Ask>> {
        Ok(self.open_asks().cloned().collect())
    }

    fn ask_count_open(&mut self) -> Result<u32> {
        Ok(count(self.open_asks().count()))
    }

    fn asks_open_to(&mut self, target: &AgentId) -> Result<Vec<Ask>> {
        Ok(self.open_asks().filter(|ask| ask.target == *target).cloned().collect())
    }

    fn asks_open_of_turn(&mut self, turn_id: TurnId) -> Result<Vec<Ask>> {
        Ok(self.open_asks().filter(|ask| ask.asker.turn_id == Some(turn_id)).cloned().collect())
    }
}

impl AskWrites for Session<'_> {
    fn ask_put(&mut self, ask: &Ask) -> Result<()> {
        if let Some(before) = self.tables.asks.get(&ask.ask_id) {
            let key = (before.created_at, before.ask_id);
            self.tables.asks_by_open.remove(&key);
        }
        if ask.status == AskStatus::Open {
            self.tables.asks_by_open.put((ask.created_at, ask.ask_id), ());
        }
        self.tables.asks.put(ask.ask_id, ask.clone());
        Ok(())
    }
}
