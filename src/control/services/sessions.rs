//! The `Sessions` service: lists, reads and resets the sessions of an agent.

use ghost_domain::session::name_of;
use ghost_domain::{AgentId, ConversationId, Timestamp, TurnId};
use ghost_operations::mail;
use ghost_operations::sessions::{self, HISTORY_MAX, SessionEntry, cut_page, session_named};
use ghost_proto::v1;

use crate::convert::input;
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

/// Number of turns in one response by default.
const TURNS: u32 = 20;

/// The agent and the session of a request.
fn parsed(agent_id: &str, session: &str) -> Result<(AgentId, Option<ConversationId>)> {
    Ok((input::parsed("agent_id", agent_id)?, session_named(session)?))
}

pub(crate) async fn list(cx: Query, request: v1::ListSessionsRequest) -> Result<v1::ListSessionsResponse> {
    let agent_id: AgentId = input::parsed("agent_id", &request.agent_id)?;
    let since = input::instant("since_at_ms", request.since_at_ms)?.unwrap_or(Timestamp(i64::MIN));
    let read = cx.world.store().read(move |r| {
        mail::agent_named(r, &agent_id)?;
        sessions::list(r, &agent_id, since, request.limit)
    });
    let sessions = read.await?.into_iter().map(|row| v1::Session {
        session: name_of(row.conversation_id),
        turns: row.turns,
        last_at_ms: row.last_at.0,
    });
    Ok(v1::ListSessionsResponse { sessions: sessions.collect() })
}

pub(crate) async fn get(cx: Query, request: v1::GetSessionRequest) -> Result<v1::GetSessionResponse> {
    let (agent_id, conversation_id) = parsed(&request.agent_id, &request.session)?;
    let before = input::parsed_if("before_turn_id", request.before_turn_id.as_deref())?;
    let turns = if request.limit == 0 { TURNS } else { request.limit.min(HISTORY_MAX) };
    let read = cx.world.store().read(move |r| {
        mail::agent_named(r, &agent_id)?;
        sessions::history(r, &agent_id, conversation_id, before, turns)
    });
    let history = read.await?;
    let redactor = cx.redactor();
    let entry = |entry: &SessionEntry| v1::SessionEntry {
        turn_id: entry.turn_id.to_string(),
        at_ms: entry.at.0,
        author: entry.author.as_str().to_owned(),
        tool: entry.tool.as_deref().map(|tool| redactor.redact(tool)),
        text: redactor.redact(&entry.text),
    };
    // The newest entries are kept; a client that asks for fewer turns gets the rest.
    let (mut entries, truncated) = queries::within_bytes(history.entries.iter().rev().map(entry), false);
    let turns: Vec<TurnId> = history.entries.iter().rev().map(|entry| entry.turn_id).collect();
    let (shown, earlier) = cut_page(&turns, entries.len(), history.earlier);
    entries.truncate(shown);
    entries.reverse();
    Ok(v1::GetSessionResponse { entries, truncated, earlier_turn_id: earlier.map(|turn_id| turn_id.to_string()) })
}

pub(crate) async fn reset(cx: Mutation, request: v1::ResetSessionRequest) -> Result<v1::ResetSessionResponse> {
    let (agent_id, conversation_id) = parsed(&request.agent_id, &request.session)?;
    let reset = cx.once(move |w, by| {
        mail::agent_named(w, &agent_id)?;
        sessions::reset(w, by, &agent_id, conversation_id)
    });
    let changed = reset.await?;
    cx.world.engine().forget_logs();
    Ok(v1::ResetSessionResponse { changed })
}
