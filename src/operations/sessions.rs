//! The sessions of an agent: lists them, reads their logs and resets them.
//!
//! This module must never return entries of another session than the one that it is asked for.

use ghost_domain::session::{name_of, named};
use ghost_domain::transcript::{Block, visible_text};

use crate::prelude::*;

/// The largest number of turns in one page of a session's history.
pub const HISTORY_MAX: u32 = 100;
/// A page of a history ends after the turn with which its texts have more bytes than this.
const HISTORY_BYTES: usize = 1024 * 1024;

/// Who wrote an entry of a session's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// The daemon: mail and notes.
    User,
    /// The agent's model.
    Assistant,
    /// A tool.
    Tool,
}

impl Author {
    /// The name of the author in lists.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One entry of a session's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEntry {
    /// The turn that the entry belongs to.
    pub turn_id: TurnId,
    /// When it was recorded.
    pub at: Timestamp,
    /// Who wrote it.
    pub author: Author,
    /// Name of the tool that was called or answered.
    pub tool: Option<String>,
    /// The text: of a call its arguments as JSON, of a result the result.
    pub text: String,
}

/// A page of a session's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The entries, oldest first.
    pub entries: Vec<SessionEntry>,
    /// The turn before which the session continues, if there are older ones.
    pub earlier: Option<TurnId>,
}

/// How many of a page's entries, newest first, are shown if only `fits` of them fit, and the turn before which the next page
/// begins. A turn is shown whole, unless it alone does not fit.
#[must_use]
pub fn cut_page(turns: &[TurnId], fits: usize, earlier: Option<TurnId>) -> (usize, Option<TurnId>) {
    let Some(cut) = turns.get(fits).copied() else { return (turns.len(), earlier) };
    let whole = turns.iter().position(|turn| *turn == cut).unwrap_or(fits);
    match whole.checked_sub(1) {
        Some(last) => (whole, Some(turns[last])),
        None => (fits, Some(cut)),
    }
}

fn born(r: &mut StoreTx, agent_id: &AgentId) -> Result<Timestamp> {
    Ok(r.agent_get(agent_id)?.map_or(Timestamp(i64::MIN), |agent| agent.created_at))
}

/// The first place of a session's history: after its last reset, and not before the agent was created. An earlier agent
/// with this id had a session of its own.
pub(crate) fn beginning(
    r: &mut StoreTx,
    agent_id: &AgentId,
    conversation_id: Option<ConversationId>,
) -> Result<LogPlace> {
    let first = LogPlace::first_at(born(r, agent_id)?);
    let reset = r.session_start(agent_id, conversation_id)?.and_then(|found| found.reset_place());
    Ok(reset.map_or(first, |reset| reset.next().max(first)))
}

/// The session that `name` means.
///
/// # Errors
/// `InvalidArguments` if it is neither `own` nor the id of a conversation.
pub fn session_named(name: &str) -> Result<Option<ConversationId>> {
    named(name.trim()).ok_or_else(|| {
        refusal!(InvalidArguments, "`{}` is no session", clip(name, 80))
            .hint("use `own` for the agent's own work, or the id of a conversation; syscall.session.list and `ghostctl session list` show them")
    })
}

/// The sessions of an agent, the last active first.
///
/// # Errors
/// When the store fails.
pub fn list(r: &mut StoreTx, agent_id: &AgentId, since: Timestamp, limit: u32) -> Result<Vec<SessionSummary>> {
    let born = born(r, agent_id)?;
    Ok(r.session_list(agent_id, born, since, limit)?)
}

/// The newest `turns` turns of a session before the turn `before`. A reset session begins after its reset.
///
/// # Errors
/// `NotFound` if `before` is not an ended turn of the session, or if the session has no turns.
pub fn history(
    r: &mut StoreTx,
    agent_id: &AgentId,
    conversation_id: Option<ConversationId>,
    before: Option<TurnId>,
    turns: u32,
) -> Result<History> {
    let limit = turns.clamp(1, HISTORY_MAX);
    let before = before.map(|turn_id| place_in(r, agent_id, conversation_id, turn_id)).transpose()?;
    let from = Some(beginning(r, agent_id, conversation_id)?);
    let newest = SessionTurns::newest(agent_id, conversation_id, "mail", limit + 1);
    let query = SessionTurns { from, before, ..newest };
    let found = r.session_turns(&query)?;
    let mut turns = Vec::new();
    let mut bytes = 0;
    for turn in found.iter().take(limit as usize) {
        if bytes > HISTORY_BYTES {
            break;
        }
        let entries = entries_of(turn, r.journal_of(turn.turn_id)?);
        bytes += entries.iter().map(|entry| entry.text.len()).sum::<usize>();
        turns.push(entries);
    }
    let earlier = found.get(turns.len().saturating_sub(1)).filter(|_| turns.len() < found.len());
    let earlier = earlier.map(|turn| turn.turn_id);
    Ok(History { entries: turns.into_iter().rev().flatten().collect(), earlier })
}

/// Begins a session anew: later prompts hold nothing of what was before, whether in the log, said from other work or by a
/// cron job. An open turn of the session ends in the new one. Returns whether there was anything to leave behind.
///
/// # Errors
/// When the store fails.
pub fn reset(w: &mut Tx, by: &Party, agent_id: &AgentId, conversation_id: Option<ConversationId>) -> Result<bool> {
    let known = w.session_start(agent_id, conversation_id)?.and_then(|found| found.reset_place());
    let mut ends = Vec::new();
    for source in ["mail", "cron"] {
        let newest = SessionTurns::newest(agent_id, conversation_id, source, 1);
        let query = SessionTurns { from: known.map(LogPlace::next), ..newest };
        ends.extend(w.session_turns(&query)?.iter().map(|turn| turn.log_place().ended_at));
    }
    if let Some(conversation_id) = conversation_id {
        let talk = w.conversation_get(conversation_id)?.map(|talk| talk.updated_at);
        ends.extend(talk.filter(|at| known.is_none_or(|known| *at > known.ended_at)));
    }
    // A clock that moved back leaves turns that end later than now.
    let Some(last) = ends.into_iter().max() else { return Ok(false) };
    let start = LogStart { place: LogPlace::last_at(w.ctx.now().max(last)), round: u32::MAX, cut: false };
    let start = SessionStart { agent_id: agent_id.clone(), conversation_id, start, reset: None };
    w.session_start_put(&start)?;
    let payload = json!({ "session": name_of(conversation_id), "by": by });
    w.emit(NewEvent::new(EventKind::SessionReset, payload).agent(agent_id))?;
    Ok(true)
}

fn place_in(
    r: &mut StoreTx,
    agent_id: &AgentId,
    conversation_id: Option<ConversationId>,
    turn_id: TurnId,
) -> Result<LogPlace> {
    let turn = r.turn_get(turn_id)?;
    let own = turn.filter(|turn| turn.agent_id == *agent_id && turn.conversation_id == conversation_id);
    own.map(|turn| turn.log_place()).ok_or_else(|| {
        refusal!(NotFound, "session `{}` has no turn {turn_id}", name_of(conversation_id))
            .hint("use the value of `earlier` from the page before, for the same session")
    })
}

fn entries_of(turn: &Turn, journal: Vec<JournalRow>) -> Vec<SessionEntry> {
    let mut entries = Vec::new();
    for row in journal {
        let mut add = |author, tool: Option<String>, text: String| {
            entries.push(SessionEntry { turn_id: turn.turn_id, at: row.at, author, tool, text });
        };
        match row.step {
            Step::Briefed { mail: text, .. } | Step::ToolsChanged { text, .. } | Step::Note { text } => {
                add(Author::User, None, text);
            }
            Step::ModelAnswered { blocks, .. } => {
                let text = visible_text(&blocks);
                if !text.is_empty() {
                    add(Author::Assistant, None, text);
                }
                for block in blocks {
                    if let Block::ToolCall { name, arguments, .. } = block {
                        add(Author::Assistant, Some(name), arguments.to_string());
                    }
                }
            }
            Step::CallFinished { tool, outcome, .. } => {
                let images = outcome.images.iter().map(|image| image.note(None));
                // A call that was refused before it ran has no content.
                let result = match &outcome.refusal {
                    Some(refusal) if outcome.content.is_null() => refusal.to_json().to_string(),
                    _ => outcome.content.to_string(),
                };
                let text: Vec<String> = std::iter::once(result).chain(images).collect();
                add(Author::Tool, Some(tool), text.join("\n"));
            }
            Step::MailJoined { .. }
            | Step::ModelStarted { .. }
            | Step::ModelFailed { .. }
            | Step::PassedOver { .. }
            | Step::Shortened { .. }
            | Step::StateDropped { .. }
            | Step::ImagesDropped { .. }
            | Step::ApprovalRequested { .. }
            | Step::CallSession { .. }
            | Step::CallSliced { .. }
            | Step::Parked { .. }
            | Step::CallStarted { .. } => {}
        }
    }
    entries
}
