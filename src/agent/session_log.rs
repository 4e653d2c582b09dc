//! Reads the log of a session from the store: the journals of its turns.
//!
//! This module must never read the log of a session other than the one that it is asked for.

use std::sync::Arc;

use ghost_domain::journal::{CallOutcome, JournalRow};
use ghost_domain::{
    Agent, ConversationEntry, ConversationId, Limits, LogPlace, LogRange, LogStart, Refusal, Turn, TurnStatus,
};
use ghost_operations::conversations::said_elsewhere;
use ghost_operations::turns::BriefedLog;
use ghost_store::tables::SessionTurns;
use ghost_tools::Registry;
use ghost_tools::view::model_view;

use crate::engine::Engine;
use crate::log::{Log, LoggedTurn};

/// Source of a cron job's own turn.
pub(crate) const CRON: &str = "cron";
/// Turns that are read at a time. A turn may have large results, and all of its journal is read.
const PAGE: u32 = 4;
/// Bytes of text that count as one token.
const TOKEN_BYTES: usize = 4;
/// Turns of cron jobs that a prompt mentions.
const JOBS_MAX: u32 = 6;

/// A session, and how its results are shown.
pub(crate) struct SessionLog<'e> {
    pub(crate) engine: &'e Arc<Engine>,
    pub(crate) registry: &'e Registry,
    /// Turns of an earlier agent with this id are not in its logs.
    pub(crate) agent: &'e Agent,
    pub(crate) conversation_id: Option<ConversationId>,
    /// Bytes of a result that the agent sees.
    pub(crate) view_bytes: u32,
}

/// Maximum bytes of a log in a prompt of an agent whose conversation may have `context_bytes`.
pub(crate) fn log_room(limits: &Limits, context_bytes: u32) -> usize {
    (limits.session_tokens as usize).saturating_mul(TOKEN_BYTES).min(context_bytes as usize / 4)
}

impl SessionLog<'_> {
    /// The log for a new turn, at least up to `room` bytes.
    pub(crate) async fn newest(&self, room: usize) -> Result<Log, Refusal> {
        if room == 0 {
            return Ok(Log::default());
        }
        let (agent_id, conversation_id) = (self.agent.agent_id.clone(), self.conversation_id);
        let store = &self.engine.services.store;
        let start = store
            .read_latest(move |r| r.session_start(&agent_id, conversation_id))
            .await?
            .map(|start| start.start)
            .filter(|start| start.place.ended_at >= self.agent.created_at);
        self.read(start, None, room).await
    }

    /// The log that the prompt of a turn held.
    pub(crate) async fn range(&self, range: LogRange) -> Result<Log, Refusal> {
        self.read(range.start, Some(range.end.next()), usize::MAX).await
    }

    /// The log from `start` to `before`, or its newest part if it is larger than `room` bytes.
    async fn read(&self, start: Option<LogStart>, mut before: Option<LogPlace>, room: usize) -> Result<Log, Refusal> {
        let limits = self.engine.services.ctx.limits();
        let shown = |tool: &str, outcome: &_| view(self.registry, &limits, self.view_bytes, tool, outcome);
        let first = LogPlace::first_at(self.agent.created_at);
        let (mut turns, mut bytes) = (Vec::new(), 0);
        loop {
            let query = SessionTurns {
                agent_id: self.agent.agent_id.clone(),
                conversation_id: self.conversation_id,
                source: "mail",
                from: Some(start.map_or(first, |start| start.place)),
                before,
                limit: PAGE,
            };
            let page = self.page(query).await?;
            let last = page.len() < PAGE as usize;
            for (turn, journal) in page {
                before = Some(turn.log_place());
                if let Some(mut turn) = LoggedTurn::read(&turn, &journal, &shown) {
                    if turns.last().is_some_and(|later: &LoggedTurn| later.state_is_refused()) {
                        turn.refuse_state();
                    }
                    bytes += turn.bytes();
                    turns.push(turn);
                }
                if bytes > room {
                    break;
                }
            }
            if last || bytes > room {
                break;
            }
        }
        turns.reverse();
        Ok(Log::new(start, turns))
    }

    async fn page(&self, query: SessionTurns) -> Result<Vec<(Turn, Vec<JournalRow>)>, Refusal> {
        let read = self.engine.services.store.read_latest(move |r| {
            let mut page = Vec::new();
            for turn in r.session_turns(&query)? {
                let journal = r.journal_of(turn.turn_id)?;
                page.push((turn, journal));
            }
            Ok::<_, Refusal>(page)
        });
        read.await
    }

    /// What the agent has said in the session's conversation since the end of `log`, in other sessions.
    pub(crate) async fn said_since(&self, log: &Log) -> Result<Vec<ConversationEntry>, Refusal> {
        let Some(conversation_id) = self.conversation_id else { return Ok(Vec::new()) };
        let (agent_id, since) =
            (self.agent.agent_id.clone(), log.end().map_or(self.agent.created_at, |end| end.next().ended_at));
        let store = &self.engine.services.store;
        let read = store.read_latest(move |r| said_elsewhere(r, &agent_id, conversation_id, since));
        read.await
    }

    /// Finished turns of the session's cron jobs since the end of `log`, newest first.
    pub(crate) async fn jobs_since(&self, log: &Log) -> Result<Vec<Turn>, Refusal> {
        let query = SessionTurns {
            agent_id: self.agent.agent_id.clone(),
            conversation_id: self.conversation_id,
            source: CRON,
            from: Some(log.end().unwrap_or(LogPlace::first_at(self.agent.created_at))),
            before: None,
            limit: JOBS_MAX,
        };
        let store = &self.engine.services.store;
        let mut turns = store.read_latest(move |r| r.session_turns(&query)).await?;
        turns.retain(|turn| turn.status == TurnStatus::Finished);
        Ok(turns)
    }
}

/// The text of an outcome for the model, of which it sees `own` bytes unless the tool says otherwise; and whether it is a
/// refusal.
pub(crate) fn view(
    registry: &Registry,
    limits: &Limits,
    own: u32,
    tool: &str,
    outcome: &CallOutcome,
) -> (String, bool) {
    let bytes = registry.find(tool).ok().and_then(|(tool, _)| tool.view_bytes).unwrap_or(own);
    model_view(outcome, Some(bytes), limits)
}

/// What a new turn journals of its log, once the log has room.
pub(crate) fn briefed(log: &mut Log, room: usize) -> BriefedLog {
    let new_start = log.fit(room);
    BriefedLog { range: log.range(), first: log.first().map(|place| place.ended_at), new_start }
}
