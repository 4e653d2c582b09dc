//! Conversations with people outside. Each has an owner, the agent that answers. A message from outside becomes mail of the
//! owner. The last text of the turn that takes it is sent to the outside. Both are entries in the conversation's log with a
//! gapless sequence. A handoff gives the conversation, and the mail that waits for it, to another agent.

mod log;
mod out;

use ghost_domain::schedule::mode::OWN_THREADS;
use log::{add_note, append, emit, new_entry, recent};
use out::{check_count, check_room};

pub(crate) use log::note;
pub use log::{Outcome, OutgoingMessage, attempt, due, entry, get, redeliver, said_elsewhere, settle};
pub use out::{AllowedActions, ChannelAction, Post, act, attach, check_speaker, check_supported, post};
pub(crate) use out::{answer, check_length, owed, restore_drafts, unanswered};

use crate::mail::{self, NewMessage};
use crate::prelude::*;
use crate::turns::ending::Ending;
use crate::{asks, lookup};

/// The longest thread name, in characters.
const THREAD_MAX: usize = 200;
/// The parameters of a new conversation.
#[derive(Clone, Debug)]
pub struct Start {
    /// Name of the adapter that carries it; see [`Conversation::adapter`].
    pub adapter: String,
    /// The thread name that the outside uses. `None` uses the conversation's id.
    pub thread: Option<String>,
    /// The agent that answers in the conversation.
    pub owner: AgentId,
    /// The party outside.
    pub party: Party,
}

/// A message from outside.
#[derive(Clone, Debug)]
pub struct IncomingMessage {
    /// The party that sends it.
    pub from: Party,
    /// Text of the message.
    pub content: String,
    /// Attached workspace files, checked by the caller.
    pub attachments: Vec<Attachment>,
    /// Id of the message that this one answers.
    pub reply_to: Option<String>,
    /// The outside's own id of the message.
    pub external_id: Option<String>,
}

/// A conversation with the entry that was just added to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Received {
    /// The conversation, with the new entry counted.
    pub conversation: Conversation,
    /// The entry that was just added.
    pub entry: ConversationEntry,
}

/// Begins a conversation.
///
/// # Errors
/// `Conflict` if the adapter already has a conversation with this thread name; `RateLimited` if the
/// world has too many.
pub fn begin(w: &mut Tx, start: Start) -> Result<Conversation> {
    let (count, limit) = (w.conversation_count()?, w.ctx.limits().conversations_max);
    if count >= limit {
        return Err(refusal!(RateLimited, "the world has {count} conversations, which is the limit")
            .hint("continue one of them, or raise limits.conversations_max")
            .details(json!({ "limit": "conversations_max" })));
    }
    let owner = lookup::agent_for(w, &start.party, &start.owner)?.agent_id;
    let conversation_id = ConversationId(w.ctx.id());
    let thread = match start.thread {
        Some(thread) => named_thread(&thread)?,
        None => conversation_id.to_string(),
    };
    if let Some(other) = w.conversation_find(&start.adapter, &thread)? {
        let what = format!("{} has a conversation of that name already: {}", start.adapter, other.conversation_id);
        return Err(Refusal::new(Code::Conflict, what).hint("continue that one"));
    }
    let conversation = Conversation::new(conversation_id, (start.adapter, thread), owner, start.party, w.ctx.now());
    w.conversation_put(&conversation)?;
    let payload = json!({
        "conversation_id": conversation_id, "adapter": conversation.adapter, "thread": conversation.thread,
        "owner": conversation.owner, "party": conversation.party,
    });
    emit(w, EventKind::ConversationStarted, &conversation, payload)?;
    Ok(conversation)
}

/// Checks a thread name from the outside.
fn named_thread(thread: &str) -> Result<String> {
    let length = thread.chars().count();
    if length == 0 || length > THREAD_MAX || thread.contains(is_strange) || thread.trim() != thread {
        let code = if length > THREAD_MAX { Code::TooLarge } else { Code::InvalidArguments };
        return Err(Refusal::new(
            code,
            format!("thread must have 1 to {THREAD_MAX} characters, no control characters and no space at its ends"),
        )
        .hint("name the thread by the id that it has outside")
        .details(json!({ "field": "thread" })));
    }
    Ok(thread.to_owned())
}

/// Adds a message to the conversation that the adapter has under this thread name. If there is
/// none, begins it with `start`. Only the cron job itself may begin a thread whose name is reserved
/// for cron jobs; otherwise another agent would receive the answers to the job.
pub fn arrive(w: &mut Tx, start: Start, said: IncomingMessage) -> Result<Received> {
    let found = match &start.thread {
        Some(thread) => w.conversation_find(&start.adapter, thread)?,
        None => None,
    };
    let conversation = match found {
        Some(conversation) => conversation,
        None => {
            if let Some(thread) = start.thread.as_deref().filter(|thread| thread.starts_with(OWN_THREADS)) {
                let what = format!("thread `{}` belongs to a cron job that has not started it yet", shown(thread, 80));
                return Err(Refusal::new(Code::AccessDenied, what)
                    .hint(format!("choose a name that does not begin with {OWN_THREADS}"))
                    .details(json!({ "field": "thread" })));
            }
            begin(w, start)?
        }
    };
    hear(w, conversation, said)
}

/// Adds a message over the control plane to a conversation that is held over it. Conversations of
/// other adapters are refused, so that nobody can impersonate the party outside.
pub fn say(w: &mut Tx, conversation_id: ConversationId, said: IncomingMessage) -> Result<Received> {
    let conversation = get(w, conversation_id)?;
    if conversation.adapter != CONTROL {
        return Err(refusal!(
            Conflict,
            "conversation {conversation_id} is held over {}, not over the control plane",
            conversation.adapter
        )
        .hint(format!("send {} a message, or begin a conversation of your own with it", conversation.owner)));
    }
    hear(w, conversation, said)
}

fn hear(w: &mut Tx, mut conversation: Conversation, said: IncomingMessage) -> Result<Received> {
    not_blank("content", &said.content)?;
    check_count(w.ctx, said.attachments.len())?;
    check_room(w, &conversation)?;
    let Some(owner) = w.agent_get(&conversation.owner)?.filter(|agent| !agent.is_deleted()) else {
        let (id, owner) = (conversation.conversation_id, &conversation.owner);
        return Err(refusal!(Conflict, "conversation {id} belongs to {owner}, which was deleted: nobody would answer")
            .hint(format!(
                "an operator can give it to another agent: `ghostctl conversation handoff {id} <agent-id>`"
            )));
    };
    let chain = Chain { conversation_id: Some(conversation.conversation_id), ..Chain::root(w.ctx) };
    let paths = said.attachments.iter().map(|file| file.path.clone()).collect();
    let new_message = NewMessage {
        attachments: paths,
        ..NewMessage::new(&owner.agent_id, said.from.clone(), Kind::Conversation, said.content.clone(), chain)
    };
    let envelope = mail::deliver(w, new_message)?;
    conversation.heard += 1;
    conversation.passed_on.clear();
    conversation.ended_at = None;
    conversation.heard_at = Some(w.ctx.now());
    let entry = ConversationEntry {
        message_id: envelope.message_id,
        attachments: said.attachments,
        reply_to: said.reply_to,
        external_id: said.external_id,
        ..new_entry(w.ctx, &conversation, Direction::In, said.from, said.content)
    };
    let entry = append(w, &mut conversation, entry)?;
    if let Some(refusal) = asks::unanswerable(w.ctx, &owner) {
        // The party is notified now, because the answer may take long.
        let text = format!("{}: this waits until it is started again", refusal.message);
        add_note(w, &mut conversation, (Party::System, None), text)?;
    }
    Ok(Received { conversation, entry })
}

/// Adds a note to the conversations of mail that will not be processed.
pub(crate) fn dropped(w: &mut Tx, mail: &[Envelope], why: &str) -> Result<()> {
    let mut notified = BTreeSet::new();
    let of_talks = mail.iter().filter(|envelope| envelope.kind == Kind::Conversation);
    for conversation_id in of_talks.filter_map(|envelope| envelope.conversation_id).filter(|id| notified.insert(*id)) {
        if let Some(mut conversation) = w.conversation_get(conversation_id)? {
            add_note(w, &mut conversation, (Party::System, None), why.to_owned())?;
        }
    }
    Ok(())
}

/// Ends a conversation, with a note in it. Replies of open turns and to pending mail are not sent: a note stands there
/// instead.
///
/// # Errors
/// `NotFound`; `Conflict` if it has ended already.
pub fn end(w: &mut Tx, by: &Party, conversation_id: ConversationId, reason: Option<&str>) -> Result<Conversation> {
    let mut conversation = get(w, conversation_id)?;
    if let Some(at) = conversation.ended_at {
        return Err(refusal!(Conflict, "conversation {conversation_id} ended at {}", at.rfc3339())
            .hint("a message from outside opens it again"));
    }
    conversation.ended_at = Some(w.ctx.now());
    let text = match reason.map(str::trim).filter(|reason| !reason.is_empty()) {
        Some(reason) => format!("{by} ends this conversation: {reason}"),
        None => format!("{by} ends this conversation"),
    };
    add_note(w, &mut conversation, (by.clone(), None), text)?;
    Ok(conversation)
}

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
    let to = lookup::agent_for(w, by, &handover.to)?;
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
    let ids = mail::ids(&waiting);
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
