//! The log of a conversation: finds it, reads it, and appends entries.
//!
//! This module must never decide whether an entry is allowed. The caller does.

use crate::chat::shown_name;
use crate::prelude::*;

/// Number of the newest entries that are searched for attached files and for a message that a reply
/// refers to.
const LOOK_BACK: i64 = 256;
/// Number of the newest entries that are searched for what the agent has said in other sessions.
const SAID_BACK: i64 = 16;

/// Returns a conversation.
///
/// # Errors
/// `NotFound`.
pub fn get(r: &mut Tx, conversation_id: ConversationId) -> Result<Conversation> {
    match r.conversation_get(conversation_id)? {
        Some(conversation) => Ok(conversation),
        None => Err(Refusal::not_found("conversation", &conversation_id.to_string(), None)
            .hint("see `ghostctl conversation list`")),
    }
}

/// Returns one entry of a conversation.
///
/// # Errors
/// `NotFound`.
pub fn entry(r: &mut Tx, conversation_id: ConversationId, seq: i64) -> Result<ConversationEntry> {
    let found = r.conversation_entries(conversation_id, seq.saturating_sub(1), 1)?.into_iter().next();
    found.filter(|entry| entry.seq == seq).ok_or_else(|| {
        Refusal::not_found("entry", &format!("{conversation_id}/{seq}"), None)
            .hint(format!("see `ghostctl conversation show {conversation_id}`"))
    })
}

/// The parameters of a new entry.
pub(super) struct NewEntry {
    pub(super) message_id: Option<MessageId>,
    pub(super) direction: Direction,
    pub(super) from: Party,
    pub(super) content: String,
    pub(super) attachments: Vec<Attachment>,
    pub(super) reply_to: Option<String>,
    pub(super) external_id: Option<String>,
    pub(super) turn_id: Option<TurnId>,
    pub(super) delivery: Delivery,
    pub(super) action: Option<Action>,
}

impl NewEntry {
    pub(super) fn new(direction: Direction, from: Party, content: String) -> Self {
        Self {
            message_id: None,
            direction,
            from,
            content,
            attachments: Vec::new(),
            reply_to: None,
            external_id: None,
            turn_id: None,
            delivery: Delivery::None,
            action: None,
        }
    }
}

/// Appends an entry with the conversation's next sequence and emits its event.
pub(super) fn append(
    w: &mut Tx,
    ctx: &Context,
    conversation: &mut Conversation,
    line: NewEntry,
) -> Result<ConversationEntry> {
    let now = ctx.now();
    conversation.last_seq += 1;
    conversation.updated_at = now;
    let pending = line.delivery == Delivery::Pending;
    let entry = ConversationEntry {
        conversation_id: conversation.conversation_id,
        seq: conversation.last_seq,
        message_id: line.message_id.unwrap_or_else(|| MessageId(ctx.id())),
        direction: line.direction,
        from: line.from,
        content: line.content,
        attachments: line.attachments,
        reply_to: line.reply_to,
        external_id: line.external_id,
        turn_id: line.turn_id,
        delivery: line.delivery,
        attempts: 0,
        next_at: pending.then_some(now),
        error: None,
        at: now,
        action: line.action,
        deleted: false,
    };
    w.conversation_put(conversation)?;
    w.conversation_entry_put(&entry)?;
    let files: Vec<&str> = entry.attachments.iter().map(|file| file.path.as_str()).collect();
    let payload = json!({
        "conversation_id": entry.conversation_id, "seq": entry.seq, "message_id": entry.message_id,
        "direction": entry.direction, "from": shown_name(&entry.from), "turn_id": entry.turn_id,
        "delivery": entry.delivery,
        "preview": ctx.excerpt(&entry.content, 200), "attachments": files, "action": entry.action,
    });
    emit(w, ctx, EventKind::ConversationMessage, conversation, payload)?;
    if pending {
        w.signal(Signal::Delivery);
    }
    Ok(entry)
}

pub(super) fn emit(
    w: &mut Tx,
    ctx: &Context,
    kind: EventKind,
    conversation: &Conversation,
    payload: serde_json::Value,
) -> Result<()> {
    let event = NewEvent::new(kind, payload).agent(&conversation.owner).correlation(conversation.conversation_id);
    ctx.emit(w, event)
}

/// What an agent has said in a conversation since `since` in turns that are not in the log of its session, oldest first: in
/// other sessions, in cron jobs' own turns, and in turns that no model answered. Only the newest entries of the conversation are searched.
///
/// # Errors
/// When the store fails.
pub fn said_elsewhere(
    r: &mut Tx,
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
pub(super) fn recent(r: &mut Tx, conversation: &Conversation) -> Result<Vec<ConversationEntry>> {
    let after = conversation.last_seq.saturating_sub(LOOK_BACK);
    Ok(r.conversation_entries(conversation.conversation_id, after, u32::MAX)?)
}
