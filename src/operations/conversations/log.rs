//! The log of a conversation: finds it, reads it, appends entries, and records their delivery.
//!
//! Outgoing messages are delivered at least once, always under the entry's own id, with growing waits between attempts. An
//! attempt is recorded before it is made. So a daemon that dies in every attempt does not try for ever.

use ghost_domain::conversation::delivery_wait;

use crate::chat::shown_name;
use crate::prelude::*;

/// Number of the newest entries that are searched for attached files and for a message that a reply
/// refers to.
const LOOK_BACK: i64 = 256;
/// Characters of a note.
const NOTE_MAX: usize = 1_000;
/// Number of the newest entries that are searched for what the agent has said in other sessions.
const SAID_BACK: i64 = 16;

/// Returns a conversation.
///
/// # Errors
/// `NotFound`.
pub fn get(r: &mut StoreTx, conversation_id: ConversationId) -> Result<Conversation> {
    found(r.conversation_get(conversation_id)?, "conversation", conversation_id, "see `ghostctl conversation list`")
}

/// Returns one entry of a conversation.
///
/// # Errors
/// `NotFound`.
pub fn entry(r: &mut StoreTx, conversation_id: ConversationId, seq: i64) -> Result<ConversationEntry> {
    let next = r.conversation_entries(conversation_id, seq.saturating_sub(1), 1)?.into_iter().next();
    let hint = format!("see `ghostctl conversation show {conversation_id}`");
    found(next.filter(|entry| entry.seq == seq), "entry", format!("{conversation_id}/{seq}"), &hint)
}

/// The next entry of a conversation, to be completed for [`append`].
pub(super) fn new_entry(
    ctx: &Context,
    conversation: &Conversation,
    direction: Direction,
    from: Party,
    content: String,
) -> ConversationEntry {
    conversation.next_entry(MessageId(ctx.id()), direction, (from, content), ctx.now())
}

/// Appends the conversation's next entry and emits its event.
pub(super) fn append(
    w: &mut Tx,
    conversation: &mut Conversation,
    mut entry: ConversationEntry,
) -> Result<ConversationEntry> {
    (conversation.last_seq, conversation.updated_at) = (entry.seq, entry.at);
    let pending = entry.delivery == Delivery::Pending;
    entry.next_at = pending.then_some(entry.at);
    w.conversation_put(conversation)?;
    w.conversation_entry_put(&entry)?;
    let files: Vec<&str> = entry.attachments.iter().map(|file| file.path.as_str()).collect();
    let payload = json!({
        "conversation_id": entry.conversation_id, "seq": entry.seq, "message_id": entry.message_id,
        "direction": entry.direction, "from": shown_name(&entry.from), "turn_id": entry.turn_id,
        "delivery": entry.delivery,
        "preview": w.ctx.excerpt(&entry.content, 200), "attachments": files, "action": entry.action,
    });
    emit(w, EventKind::ConversationMessage, conversation, payload)?;
    if pending {
        w.signal(Signal::Delivery);
    }
    Ok(entry)
}

pub(super) fn emit(w: &mut Tx, kind: EventKind, conversation: &Conversation, payload: Value) -> Result<()> {
    w.emit(NewEvent::new(kind, payload).agent(&conversation.owner).correlation(conversation.conversation_id))
}

/// Appends a note: people and programs read it in the log, no model gets it, and no adapter delivers it.
pub(super) fn add_note(
    w: &mut Tx,
    conversation: &mut Conversation,
    (from, turn_id): (Party, Option<TurnId>),
    text: String,
) -> Result<ConversationEntry> {
    let note = new_entry(w.ctx, conversation, Direction::Note, from, text);
    append(w, conversation, ConversationEntry { turn_id, ..note })
}

/// Adds a note to a conversation. `None` if the conversation no longer exists.
pub(crate) fn note(
    w: &mut Tx,
    conversation_id: ConversationId,
    from: (Party, Option<TurnId>),
    text: &str,
) -> Result<Option<(Conversation, ConversationEntry)>> {
    let ctx = w.ctx;
    let Some(mut conversation) = w.conversation_get(conversation_id)? else { return Ok(None) };
    let entry = add_note(w, &mut conversation, from, ctx.excerpt(text, NOTE_MAX))?;
    Ok(Some((conversation, entry)))
}

/// What an agent has said in a conversation since `since` in turns that are not in the log of its session, oldest first: in
/// other sessions, in cron jobs' own turns, and in turns that no model answered. Only the newest entries of the conversation are searched.
///
/// # Errors
/// When the store fails.
pub fn said_elsewhere(
    r: &mut StoreTx,
    agent_id: &AgentId,
    conversation_id: ConversationId,
    since: Timestamp,
) -> Result<Vec<ConversationEntry>> {
    let Some(conversation) = r.conversation_get(conversation_id)? else { return Ok(Vec::new()) };
    let mut said = Vec::new();
    let after = conversation.last_seq.saturating_sub(SAID_BACK);
    for entry in r.conversation_entries(conversation_id, after, u32::MAX)? {
        let own = entry.direction == Direction::Out && entry.from.agent() == Some(agent_id);
        if !own || entry.at < since || entry.deleted || entry.action.is_some() {
            continue;
        }
        let Some(turn_id) = entry.turn_id else { continue };
        let turn = r.turn_get(turn_id)?;
        let in_log =
            |turn: &Turn| turn.source == "mail" && turn.conversation_id == Some(conversation_id) && turn.is_in_log();
        if turn.is_some_and(|turn| !in_log(&turn)) {
            said.push(entry);
        }
    }
    Ok(said)
}

/// The last entries of a conversation, oldest first.
pub(super) fn recent(r: &mut StoreTx, conversation: &Conversation) -> Result<Vec<ConversationEntry>> {
    let after = conversation.last_seq.saturating_sub(LOOK_BACK);
    Ok(r.conversation_entries(conversation.conversation_id, after, u32::MAX)?)
}

/// The longest stored error, in characters.
const ERROR_MAX: usize = 500;

/// A message to be delivered to the outside.
#[derive(Clone, Debug, PartialEq)]
pub struct OutgoingMessage {
    /// The conversation.
    pub conversation: Conversation,
    /// The entry. Its `message_id` is the id of the delivery, the same in every attempt.
    pub entry: ConversationEntry,
}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It was delivered.
    Delivered {
        /// Files that could not be delivered, with reasons.
        missing: Vec<String>,
    },
    /// The attempt failed and can be repeated.
    Retry {
        /// Why the attempt failed.
        error: String,
        /// The minimum wait before the next attempt, if the outside asked for one.
        after: Option<Duration>,
    },
    /// The delivery failed permanently.
    Gone {
        /// Why the delivery failed.
        error: String,
    },
}

/// Returns the due entries, the longest due first, without entries of the adapters in `passing`.
/// Also returns the time when the next entry of any adapter is due.
pub fn due(
    r: &mut StoreTx,
    now: Timestamp,
    passing: &[String],
    limit: u32,
) -> Result<(Vec<ConversationEntry>, Option<Timestamp>)> {
    Ok((r.deliveries_due(now, passing, limit)?, r.delivery_next_at()?))
}

/// Records the start of an attempt and returns the message to deliver, or `None` if the entry is no
/// longer pending. An entry without attempts left has failed: the daemon died in the last one.
/// `jitter` is a number in `0..1_000`.
pub fn attempt(w: &mut Tx, conversation_id: ConversationId, seq: i64, jitter: u64) -> Result<Option<OutgoingMessage>> {
    let conversation = get(w, conversation_id)?;
    let mut entry = entry(w, conversation_id, seq)?;
    if entry.delivery != Delivery::Pending {
        return Ok(None);
    }
    if entry.attempts >= w.ctx.limits().delivery_attempts_max {
        let error = entry.error.clone().unwrap_or_else(|| "the daemon stopped during the last attempt".to_owned());
        give_up(w, &conversation, entry, &error)?;
        return Ok(None);
    }
    entry.attempts += 1;
    entry.next_at = Some(w.ctx.now().plus(delivery_wait(entry.attempts, jitter)));
    w.conversation_entry_put(&entry)?;
    Ok(Some(OutgoingMessage { conversation, entry }))
}

/// Records the result of an attempt.
pub fn settle(w: &mut Tx, conversation_id: ConversationId, seq: i64, outcome: Outcome) -> Result<()> {
    let mut conversation = get(w, conversation_id)?;
    let mut entry = entry(w, conversation_id, seq)?;
    if entry.delivery != Delivery::Pending {
        return Ok(());
    }
    match outcome {
        Outcome::Delivered { missing } => {
            entry.delivery = Delivery::Delivered;
            entry.next_at = None;
            entry.error = None;
            w.conversation_entry_put(&entry)?;
            let payload = json!({
                "conversation_id": conversation_id, "seq": seq, "message_id": entry.message_id,
                "attempts": entry.attempts, "missing": missing,
            });
            emit(w, EventKind::ConversationDelivered, &conversation, payload)?;
            if !missing.is_empty() {
                let text = w.ctx.excerpt(&format!("not all of it was delivered: {}", missing.join("; ")), 2_000);
                add_note(w, &mut conversation, (Party::System, entry.turn_id), text)?;
            }
        }
        Outcome::Gone { error } => give_up(w, &conversation, entry, &error)?,
        Outcome::Retry { error, .. } if entry.attempts >= w.ctx.limits().delivery_attempts_max => {
            give_up(w, &conversation, entry, &error)?;
        }
        Outcome::Retry { error, after } => {
            entry.error = Some(w.ctx.excerpt(&error, ERROR_MAX));
            if let Some(after) = after {
                entry.next_at = entry.next_at.max(Some(w.ctx.now().plus(after)));
            }
            w.conversation_entry_put(&entry)?;
        }
    }
    w.signal(Signal::Delivery);
    Ok(())
}

fn give_up(w: &mut Tx, conversation: &Conversation, mut entry: ConversationEntry, error: &str) -> Result<()> {
    let error = w.ctx.excerpt(error, ERROR_MAX);
    entry.delivery = Delivery::Failed;
    entry.next_at = None;
    entry.error = Some(error.clone());
    w.conversation_entry_put(&entry)?;
    let payload = json!({
        "conversation_id": entry.conversation_id, "seq": entry.seq, "message_id": entry.message_id,
        "attempts": entry.attempts, "error": error,
    });
    emit(w, EventKind::ConversationFailed, conversation, payload)
}

/// Restarts the delivery of a message that failed, or tries a pending one now. Its id stays the
/// same.
pub fn redeliver(w: &mut Tx, by: &Party, conversation_id: ConversationId, seq: i64) -> Result<ConversationEntry> {
    let mut conversation = get(w, conversation_id)?;
    let mut entry = entry(w, conversation_id, seq)?;
    if entry.direction != Direction::Out
        || entry.deleted
        || !matches!(entry.delivery, Delivery::Failed | Delivery::Pending)
    {
        let what = match entry.direction {
            Direction::Out if entry.deleted => "was taken back".to_owned(),
            Direction::Out => format!("is {}", entry.delivery),
            _ => "never goes out".to_owned(),
        };
        return Err(refusal!(Conflict, "entry {seq} of conversation {conversation_id} {what}")
            .hint(format!("`ghostctl conversation show {conversation_id}` shows which entries were not delivered")));
    }
    entry.delivery = Delivery::Pending;
    entry.attempts = 0;
    entry.next_at = Some(w.ctx.now());
    w.conversation_entry_put(&entry)?;
    add_note(w, &mut conversation, (by.clone(), None), format!("{by} has message {seq} delivered again"))?;
    w.signal(Signal::Delivery);
    Ok(entry)
}
