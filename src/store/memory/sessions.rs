//! The logs of sessions.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use ghost_domain::{AgentId, ConversationId, SessionStart, SessionSummary, Timestamp, Turn};

use super::prune::oldest;
use super::session::{Session, page};
use super::tables::Tables;
use crate::tables::{Result, SessionReads, SessionTurns, SessionWrites};

impl Tables {
    fn logged<'t>(&'t self, agent_id: &'t AgentId, source: &'t str) -> impl Iterator<Item = &'t Turn> {
        let turns = self.turns.values();
        turns.filter(move |turn| turn.is_in_log() && turn.source == source && turn.agent_id == *agent_id)
    }

    pub(super) fn prune_session_starts(&mut self, before: Timestamp, limit: usize) -> usize {
        let starts = self.sessions.iter().map(|(key, start)| (start.start.place.ended_at, key.clone()));
        let old = oldest(starts, before, limit);
        old.iter().filter(|key| self.sessions.remove(key)).count()
    }
}

impl SessionReads for Session<'_> {
    fn session_start(
        &mut self,
        agent_id: &AgentId,
        conversation_id: Option<ConversationId>,
    ) -> Result<Option<SessionStart>> {
        Ok(self.tables.sessions.get(&(agent_id.clone(), conversation_id)).cloned())
    }

    fn session_turns(&mut self, query: &SessionTurns) -> Result<Vec<Turn>> {
        let mut found: Vec<&Turn> = self
            .tables
            .logged(&query.agent_id, query.source)
            .filter(|turn| turn.conversation_id == query.conversation_id)
            .filter(|turn| query.from.is_none_or(|from| turn.log_place() >= from))
            .filter(|turn| query.before.is_none_or(|before| turn.log_place() < before))
            .collect();
        found.sort_by_key(|turn| Reverse(turn.log_place()));
        Ok(page(found, query.limit))
    }

    fn session_list(
        &mut self,
        agent_id: &AgentId,
        from: Timestamp,
        since: Timestamp,
        limit: u32,
    ) -> Result<Vec<SessionSummary>> {
        let mut found: BTreeMap<Option<ConversationId>, (u64, Timestamp)> = BTreeMap::new();
        let counted = |turn: &&Turn| turn.log_place().ended_at >= from;
        for turn in self.tables.logged(agent_id, "mail").filter(counted) {
            let (turns, last_at) = found.entry(turn.conversation_id).or_default();
            *turns += 1;
            *last_at = (*last_at).max(turn.log_place().ended_at);
        }
        let rows = found.into_iter().filter(|(_, (_, last_at))| *last_at > since);
        let mut rows: Vec<SessionSummary> = rows
            .map(|(conversation_id, (turns, last_at))| SessionSummary { conversation_id, turns, last_at })
            .collect();
        rows.sort_by_key(|row| (Reverse(row.last_at), row.conversation_id));
        rows.truncate(crate::tables::page_size(limit) as usize);
        Ok(rows)
    }
}

impl SessionWrites for Session<'_> {
    fn session_start_put(&mut self, start: &SessionStart) -> Result<()> {
        self.tables.sessions.put((start.agent_id.clone(), start.conversation_id), start.clone());
        Ok(())
    }
}
