//! Hands a conversation over to another agent. Later messages from outside go to the new
//! owner. Mail of the conversation that the old owner has not taken is moved to the new owner.

use super::log::{add_note, emit, get, recent};
use super::out::{check_room, check_speaker};
use crate::mail::{self, NewMessage};
use crate::prelude::*;
use crate::turns::ending::Ending;
use crate::{agent_lookup, asks};

/// The longest reason, in characters.
const REASON_MAX: usize = 1_000;
/// The longest summary, in characters.
const SUMMARY_MAX: usize = 8_000;
/// The longest entry that the new owner is shown, in characters.
const SHOWN_CHARS: usize = 8_000;

/// The parameters of a handoff.
#[derive(Clone, Debug)]
pub struct Handover {
    /// Id of the new owner.
    pub to: AgentId,
    /// The reason.
    pub reason: Option<String>,
    /// A summary for the new owner.
    pub summary: Option<String>,
    /// The chain that the mail to the new owner belongs to.
    pub chain: Chain,
}

/// Hands a conversation over to another agent, notifies it, and moves waiting mail of the
/// conversation to it. An agent can hand over only a conversation that it owns.
pub fn handoff(w: &mut Tx, by: &Party, conversation_id: ConversationId, handover: Handover) -> Result<Conversation> {
    let mut conversation = get(w, conversation_id)?;
    if let Some(agent_id) = by.agent() {
        check_speaker(&conversation, agent_id)?;
        check_room(w, &conversation)?;
    }
    for (field, text, most) in [("reason", &handover.reason, REASON_MAX), ("summary", &handover.summary, SUMMARY_MAX)] {
        if text.as_ref().is_some_and(|text| text.chars().count() > most) {
            return Err(refusal!(TooLarge, "{field} has more than {most} characters")
                .hint("write the long part to a workspace file and name its path"));
        }
    }
    let to = agent_lookup::agent_for(w, by, &handover.to)?;
    if to.agent_id == conversation.owner {
        return Err(refusal!(Conflict, "{} has this conversation already", to.agent_id)
            .hint("name another agent, or answer yourself"));
    }
    if let Some(refusal) = asks::unanswerable(w.ctx, &to) {
        return Err(refusal);
    }
    if by.agent().is_some() && conversation.passed_on.contains(&to.agent_id) {
        let what =
            format!("{} handed this conversation over, and no message from outside has arrived since", to.agent_id);
        return Err(Refusal::new(Code::Conflict, what).hint(
            "answer as well as you can, hand it over to an agent that has not had it yet, or ask in the conversation \
             for what you need",
        ));
    }
    let old = std::mem::replace(&mut conversation.owner, to.agent_id.clone());
    match by.agent() {
        Some(_) => conversation.passed_on.push(old.clone()),
        // After a handoff by an operator, the record of earlier handoffs starts again.
        None => conversation.passed_on.clear(),
    }
    let reason = handover.reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
    let summary_line = match reason {
        Some(reason) => format!("{by} gives this conversation from {old} to {}: {reason}", to.agent_id),
        None => format!("{by} gives this conversation from {old} to {}", to.agent_id),
    };
    let history = recent(w, &conversation)?;
    add_note(w, &mut conversation, (by.clone(), None), summary_line.clone())?;
    // The rest of a message's room is for the summary, whose characters may have several bytes, and the frame.
    let room = w.ctx.limits().message_bytes as usize / 4;
    let body = handoff_text(&conversation, &summary_line, handover.summary.as_deref(), &history, room);
    let chain = Chain { conversation_id: Some(conversation_id), ..handover.chain };
    let new_message =
        NewMessage::new(&to.agent_id, by.clone(), Kind::Handoff, body, chain).subject("A conversation is yours now");
    mail::deliver(w, new_message)?;
    let moved = move_waiting(w, &old, &to.agent_id, conversation_id)?;
    let payload = json!({
        "conversation_id": conversation_id, "from": old, "to": to.agent_id, "by": by, "moved": moved,
        "reason": reason.map(|reason| w.ctx.excerpt(reason, 300)),
    });
    emit(w, EventKind::ConversationHandedOver, &conversation, payload)?;
    Ok(conversation)
}

/// Adds a note if the turn that took over a conversation has ended without a message in it, because
/// no agent works on it any more.
pub(crate) fn taken_over(w: &mut Tx, turn: &Turn, conversation_id: ConversationId, ending: &Ending) -> Result<()> {
    let ctx = w.ctx;
    let Some(mut conversation) = w.conversation_get(conversation_id)? else { return Ok(()) };
    let owner = turn.agent_id.clone();
    if conversation.owner != owner || conversation.passed_on.is_empty() {
        return Ok(());
    }
    let entries = recent(w, &conversation)?;
    let mut since = entries.iter().rev().take_while(|entry| entry.direction != Direction::In);
    let spoke = since.any(|entry| entry.direction == Direction::Out && entry.from == Party::Agent(owner.clone()));
    // Mail that the old owner had not processed is answered by a turn of its own.
    let waiting = w.inbox_pending(&owner, ctx.limits().inbox_max)?;
    let waits =
        waiting.iter().any(|mail| mail.kind == Kind::Conversation && mail.conversation_id == Some(conversation_id));
    if spoke || waits {
        return Ok(());
    }
    let why = match ending {
        Ending::Finished(_) | Ending::Cut(_) => {
            "has the conversation now and sent no message: write again to get an answer".to_owned()
        }
        Ending::Failed(refusal) | Ending::AtBound { refusal, .. } => {
            format!("has the conversation now, and its turn failed: {}", refusal.message)
        }
        Ending::Cancelled(why) => format!("has the conversation now, and its turn was cancelled: {why}"),
    };
    let text = ctx.excerpt(&format!("{owner} {why}"), 1_000);
    add_note(w, &mut conversation, (Party::System, Some(turn.turn_id)), text).map(drop)
}

/// Moves the waiting mail of a conversation from one inbox to another. Returns the number of
/// messages.
fn move_waiting(w: &mut Tx, old: &AgentId, new: &AgentId, conversation_id: ConversationId) -> Result<usize> {
    // Mail from the system may exceed the limit of an inbox.
    let window = w.ctx.limits().inbox_max.saturating_mul(2);
    let mut waiting = w.inbox_pending(old, window)?;
    waiting.retain(|mail| mail.kind == Kind::Conversation && mail.conversation_id == Some(conversation_id));
    let ids: Vec<MessageId> = waiting.iter().map(|mail| mail.message_id).collect();
    w.message_mark(&ids, MailState::Consumed, None, 0)?;
    for mail in waiting {
        let chain = Chain { root_id: mail.root_id, hop: mail.hop, conversation_id: mail.conversation_id };
        let new_message = NewMessage {
            attachments: mail.attachments,
            ..NewMessage::new(new, mail.from, mail.kind, mail.body, chain)
        };
        mail::deliver(w, new_message)?;
    }
    Ok(ids.len())
}

/// The text of the mail to the new owner. It quotes the newest messages of the conversation, `room` bytes at most.
fn handoff_text(
    conversation: &Conversation,
    summary_line: &str,
    summary: Option<&str>,
    history: &[ConversationEntry],
    room: usize,
) -> String {
    let mut text = format!(
        "{summary_line}.\nIt is held with {} over {} (conversation {}). Messages from there come to you from now \
         on, and the last text of such a turn is the answer. The last text of this turn goes nowhere: to send a message \
         there \
         now, use syscall.channel.send.\n",
        conversation.party, conversation.adapter, conversation.conversation_id,
    );
    if let Some(summary) = summary.map(str::trim).filter(|summary| !summary.is_empty()) {
        text.push_str(&format!("\nSummary:\n{summary}\n"));
    }
    let messages = history.iter().rev().filter(|entry| entry.direction != Direction::Note && !entry.deleted);
    let lines = messages.map(|entry| format!("- {}: {}\n", entry.from, clip(&entry.content, SHOWN_CHARS)));
    let mut left = room;
    let mut shown: Vec<String> = lines
        .take_while(|line| {
            let fits = left.checked_sub(line.len());
            left = fits.unwrap_or(0);
            fits.is_some()
        })
        .collect();
    shown.reverse();
    if !shown.is_empty() {
        text.push_str("\nThe last messages:\n");
        text.push_str(&shown.concat());
    }
    text
}
