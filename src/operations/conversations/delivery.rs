//! Delivers outgoing messages at least once, always under the entry's own id, with growing waits
//! between attempts. An attempt is recorded before it is made. So a daemon that dies in every
//! attempt does not try for ever.

use ghost_domain::conversation::delivery_wait;

use super::log::{add_note, emit, entry, get};
use crate::prelude::*;

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
