//! Turns, their journals, and prompt parts.

use std::cmp::Reverse;

use ghost_domain::journal::{JournalRow, Step};
use ghost_domain::{AgentId, Timestamp, Turn, TurnId, TurnStatus};

use super::session::{Session, page};
use super::tables::{Prompt, Tables, next};
use crate::tables::{PROMPT_USE, Result, TurnFilter, TurnReads, TurnWrites};

fn matches(filter: &TurnFilter, turn: &Turn) -> bool {
    filter.agent_id.as_ref().is_none_or(|agent_id| turn.agent_id == *agent_id)
        && filter.status.is_none_or(|status| turn.status == status)
        && filter.parked.is_none_or(|parked| turn.parked.is_some() == parked)
        && filter.root_id.is_none_or(|root_id| turn.root_id == root_id || turn.other_roots.contains(&root_id))
        && filter.before.is_none_or(|before| turn.started_at < before)
        && filter.after.is_none_or(|after| (turn.started_at, turn.turn_id) < after)
}

impl Tables {
    /// Open turns, in order of start.
    pub(super) fn open_turns(&self) -> impl Iterator<Item = &Turn> {
        self.turns_by_open.iter().filter_map(|((_, turn_id), ())| self.turns.get(turn_id))
    }
}

impl TurnReads for Session<'_> {
    fn turn_get(&mut self, turn_id: TurnId) -> Result<Option<Turn>> {
        Ok(self.tables.turns.get(&turn_id).cloned())
    }

    fn turn_open_of(&mut self, agent_id: &AgentId) -> Result<Option<Turn>> {
        let own = |turn: &&Turn| turn.agent_id == *agent_id && turn.source != "operator";
        let active = self.tables.open_turns().filter(own).find(|turn| !turn.is_in_background());
        Ok(active.or_else(|| self.tables.open_turns().filter(own).find(|turn| turn.is_ready())).cloned())
    }

    fn turns_open(&mut self) -> Result<Vec<Turn>> {
        Ok(self.tables.open_turns().cloned().collect())
    }

    fn turn_list(&mut self, filter: &TurnFilter) -> Result<Vec<Turn>> {
        let mut found: Vec<&Turn> = self.tables.turns.values().filter(|turn| matches(filter, turn)).collect();
        found.sort_by_key(|turn| Reverse((turn.started_at, turn.turn_id)));
        Ok(page(found, filter.limit))
    }

    fn journal_of(&mut self, turn_id: TurnId) -> Result<Vec<JournalRow>> {
        let all = (turn_id, i64::MIN)..=(turn_id, i64::MAX);
        Ok(self.tables.journal.range(all).map(|(_, row)| row.clone()).collect())
    }

    fn prompt_get(&mut self, hash: &str) -> Result<Option<String>> {
        Ok(self.tables.prompts.get(&hash.to_owned()).map(|prompt| prompt.text.clone()))
    }
}

impl TurnWrites for Session<'_> {
    fn turn_put(&mut self, turn: &Turn) -> Result<()> {
        if let Some(before) = self.tables.turns.get(&turn.turn_id) {
            let place = (before.started_at, before.turn_id);
            self.tables.turns_by_open.remove(&place);
        }
        if turn.status == TurnStatus::Open {
            self.tables.turns_by_open.put((turn.started_at, turn.turn_id), ());
        }
        self.tables.turns.put(turn.turn_id, turn.clone());
        Ok(())
    }

    fn journal_append(&mut self, turn_id: TurnId, step: &Step, at: Timestamp) -> Result<()> {
        let seq = next(&mut self.tables.counters.journal);
        self.tables.journal.put((turn_id, seq), JournalRow { turn_id, seq, step: step.clone(), at });
        Ok(())
    }

    fn prompt_put(&mut self, hash: &str, text: &str, at: Timestamp) -> Result<()> {
        let hash = hash.to_owned();
        let prompt = match self.tables.prompts.get(&hash) {
            Some(prompt) if at < prompt.at.plus(PROMPT_USE) => return Ok(()),
            Some(prompt) => Prompt { text: prompt.text.clone(), at },
            None => Prompt { text: text.to_owned(), at },
        };
        self.tables.prompts.put(hash, prompt);
        Ok(())
    }
}
