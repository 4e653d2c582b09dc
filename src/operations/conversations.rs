//! Conversations with people outside. Each has an owner, the agent that
//! answers. A message from outside becomes mail of the owner. The last text of the turn that takes
//! it is sent to the outside. Both are entries in the conversation's log with a gapless sequence.
//!
//! These rules must never deliver a message themselves. Outgoing entries are rows; the adapters in
//! the control layer deliver them.

mod actions;
mod delivery;
mod handoff;
mod log;
mod out;

pub use actions::{AllowedActions, ChannelAction, act, check_supported};
pub use delivery::{Outcome, OutgoingMessage, attempt, due, redeliver, settle};
pub(crate) use handoff::taken_over;
pub use handoff::{Handover, handoff};
pub(crate) use log::note;
pub use log::{entry, get, said_elsewhere};
pub use out::{Post, attach, check_speaker, post};
pub(crate) use out::{answer, check_length, owed, restore_drafts, unanswered};

use ghost_domain::schedule::mode::OWN_THREADS;

use crate::mail::{self, NewMessage};
use crate::prelude::*;
use crate::{agent_lookup, asks};
use log::{add_note, append, emit, new_entry};
use out::{check_count, check_room};

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
    let owner = agent_lookup::agent_for(w, &start.party, &start.owner)?.agent_id;
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
