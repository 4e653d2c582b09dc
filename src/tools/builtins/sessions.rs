//! `syscall.session.list` and `syscall.session.history`: the agent's own sessions (BI-78).
//!
//! An agent must never read a session of another agent: conversations are private.

use std::time::Duration;

use ghost_domain::session::name_of;
use ghost_domain::{Refusal, Timestamp, TurnId};
use ghost_operations::sessions::{self, Author, cut_page, session_named};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::common::{LIST_BYTES, fitting, within, without_nulls};
use crate::context::CallContext;
use crate::effect::Output;

/// The default and the largest number of sessions.
const SESSIONS: u32 = 50;
const SESSIONS_MAX: u32 = 500;
/// The default and the largest number of turns.
const TURNS: u32 = 10;
const TURNS_MAX: u32 = 50;
/// The hint for a number that is too large.
const IN_PAGES: &str = "ask again in pages";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    /// Only sessions that were active in the last so many minutes.
    active_minutes: Option<u32>,
    /// The largest number of sessions, up to 500; 50 if absent.
    limit: Option<u32>,
}

pub(super) async fn list(call: &CallContext, params: ListParams) -> Result<Output, Refusal> {
    let limit = within("limit", params.limit, SESSIONS, SESSIONS_MAX, IN_PAGES)?;
    let now = call.services.ctx.now();
    let since = params.active_minutes.map_or(Timestamp(i64::MIN), |minutes| {
        let span = Duration::from_secs(u64::from(minutes) * 60);
        Timestamp(now.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    });
    let agent_id = call.caller.agent_id.clone();
    let read = call.services.store.read(move |r| sessions::list(r, &agent_id, since, limit));
    let rows = read.await?.into_iter().map(|row| {
        let current = (row.conversation_id == call.conversation_id).then_some(true);
        without_nulls(json!({
            "session": name_of(row.conversation_id), "turns": row.turns, "last_at": row.last_at.rfc3339(),
            "current": current,
        }))
    });
    let (rows, all) = fitting(rows, LIST_BYTES);
    Ok(Output::cut(json!({ "sessions": rows }), !all))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryParams {
    /// `own` for your own work, or the id of a conversation; the session of this turn if absent.
    session: Option<String>,
    /// The largest number of turns, up to 50; 10 if absent.
    limit: Option<u32>,
    /// Only turns before this one: `earlier` of the page before.
    before: Option<TurnId>,
    /// Also show calls and their results.
    #[serde(default)]
    include_tools: bool,
}

pub(super) async fn history(call: &CallContext, params: HistoryParams) -> Result<Output, Refusal> {
    let turns = within("limit", params.limit, TURNS, TURNS_MAX, IN_PAGES)?;
    let session = params.session.as_deref().map_or(Ok(call.conversation_id), session_named)?;
    let agent_id = call.caller.agent_id.clone();
    let read = call.services.store.read(move |r| sessions::history(r, &agent_id, session, params.before, turns));
    let history = read.await?;
    let wanted = history
        .entries
        .iter()
        .filter(|entry| params.include_tools || (entry.tool.is_none() && entry.author != Author::Tool));
    // The newest entries matter most, so they are fitted first.
    let wanted: Vec<_> = wanted.rev().collect();
    let rows = wanted.iter().map(|entry| {
        without_nulls(json!({
            "at": entry.at.rfc3339(), "author": entry.author.as_str(), "tool": entry.tool, "text": entry.text,
        }))
    });
    let (mut rows, all) = fitting(rows, LIST_BYTES);
    let turns: Vec<TurnId> = wanted.iter().map(|entry| entry.turn_id).collect();
    let (shown, earlier) = cut_page(&turns, rows.len(), history.earlier);
    rows.truncate(shown);
    rows.reverse();
    let content = without_nulls(json!({ "session": name_of(session), "entries": rows, "earlier": earlier }));
    Ok(Output::cut(content, !all))
}
