//! Conversations with someone outside (BI-34..38, MSG-11..14): what comes in is mail of their owner, the last text of the
//! turn that takes it goes out, and both stand in the conversation's log under a gapless sequence.
//!
//! Must never: deliver anything itself. What waits to go out is a row; the adapters at the edge work it off.

mod actions;
mod bounds;
mod delivery;
mod handoff;
mod log;
mod out;

pub use actions::{Deed, Means, act, check_supported};
use bounds::{check_count, check_room};
pub use delivery::{Outcome, Parcel, attempt, due, redeliver, settle};
pub(crate) use handoff::taken_over;
pub use handoff::{Handover, handoff};
use log::{Line, append, emit};
pub use log::{entry, get};
pub use out::{Post, attach, check_speaker, post};
pub(crate) use out::{answer, check_length, owed, restore_drafts, unanswered};

use ghost_domain::conversation::CONTROL;
use ghost_domain::event::EventKind;
use ghost_domain::refusal::not_blank;
use ghost_domain::schedule::options::OWN_THREADS;
use ghost_domain::text::{is_strange, shown};
use ghost_domain::{
    AgentId, Attachment, Code, Conversation, ConversationEntry, ConversationId, Direction, Envelope, Kind, Party,
    Refusal,
};
use ghost_store::Writes;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::chain::Chain;
use crate::mail::{self, NewMessage};
use crate::{Result, RuleContext, agent_lookup, asks};

/// Characters of the name under which the outside knows a conversation.
const THREAD_MAX: usize = 200;
/// A conversation to be begun.
#[derive(Clone, Debug)]
pub struct Start {
    /// Who carries it; see [`Conversation::adapter`].
    pub adapter: String,
    /// What the outside calls it; `None` makes a name of its own.
    pub thread: Option<String>,
    /// The agent that answers.
    pub owner: AgentId,
    /// Who speaks from outside.
    pub party: Party,
}

/// Something said from outside.
#[derive(Clone, Debug)]
pub struct Said {
    /// Who says it.
    pub from: Party,
    /// The text.
    pub content: String,
    /// Workspace files that go with it, checked by the caller.
    pub attachments: Vec<Attachment>,
    /// The id of the message that it answers.
    pub reply_to: Option<String>,
    /// The outside's own id of it.
    pub external_id: Option<String>,
}

/// A conversation with an entry that was just made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Heard {
    /// The conversation.
    pub conversation: Conversation,
    /// The entry.
    pub entry: ConversationEntry,
}

/// Begins a conversation. One that the adapter has under this name already is a conflict.
pub async fn begin(w: &mut dyn Writes, ctx: &RuleContext, start: Start) -> Result<Conversation> {
    let (count, most) = (w.conversation_count().await?, ctx.limits().conversations_max);
    if count >= most {
        return Err(Refusal::new(
            Code::RateLimited,
            format!("the world has {count} conversations, which is its bound"),
        )
        .hint("go on with one of them, or raise limits.conversations_max")
        .details(json!({ "limit": "conversations_max" })));
    }
    let owner = agent_lookup::agent_for(w, ctx, &start.party, &start.owner).await?.agent_id;
    let conversation_id = ConversationId(ctx.id());
    let thread = match start.thread {
        Some(thread) => named_thread(&thread)?,
        None => conversation_id.to_string(),
    };
    if let Some(other) = w.conversation_find(&start.adapter, &thread).await? {
        let what = format!("{} has a conversation of that name already: {}", start.adapter, other.conversation_id);
        return Err(Refusal::new(Code::Conflict, what).hint("go on with that one"));
    }
    let now = ctx.now();
    let conversation = Conversation {
        conversation_id,
        adapter: start.adapter,
        thread,
        owner,
        party: start.party,
        last_seq: 0,
        created_at: now,
        updated_at: now,
        heard: 0,
        heard_at: None,
        reacted: None,
        passed_on: Vec::new(),
    };
    w.conversation_put(&conversation).await?;
    let payload = json!({
        "conversation_id": conversation_id, "adapter": conversation.adapter, "thread": conversation.thread,
        "owner": conversation.owner, "party": conversation.party,
    });
    emit(w, ctx, EventKind::ConversationStarted, &conversation, payload).await?;
    Ok(conversation)
}

/// A name that the outside may give a conversation.
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

/// Says something in the conversation that the adapter has under this name, which is begun with `start` if there is none. A
/// thread of a cron job's own is begun by that job alone: whoever takes its name before would be heard by another agent, and
/// the job by nobody.
pub async fn arrive(w: &mut dyn Writes, ctx: &RuleContext, start: Start, said: Said) -> Result<Heard> {
    let found = match &start.thread {
        Some(thread) => w.conversation_find(&start.adapter, thread).await?,
        None => None,
    };
    let conversation = match found {
        Some(conversation) => conversation,
        None => {
            if let Some(thread) = start.thread.as_deref().filter(|thread| thread.starts_with(OWN_THREADS)) {
                let what = format!("thread `{}` is a cron job's own, and the job has not begun it", shown(thread, 80));
                return Err(Refusal::new(Code::AccessDenied, what)
                    .hint(format!("choose a name that does not begin with {OWN_THREADS}"))
                    .details(json!({ "field": "thread" })));
            }
            begin(w, ctx, start).await?
        }
    };
    hear(w, ctx, conversation, said).await
}

/// Says something over the control plane in a conversation that is held over it. Those of other adapters are not spoken
/// in from here: nobody may be taken for the one outside.
pub async fn say(w: &mut dyn Writes, ctx: &RuleContext, conversation_id: ConversationId, said: Said) -> Result<Heard> {
    let conversation = get(w, conversation_id).await?;
    if conversation.adapter != CONTROL {
        return Err(Refusal::new(
            Code::Conflict,
            format!("conversation {conversation_id} is held over {}, not over the control plane", conversation.adapter),
        )
        .hint(format!("send {} a message, or begin a conversation of your own with it", conversation.owner)));
    }
    hear(w, ctx, conversation, said).await
}

async fn hear(w: &mut dyn Writes, ctx: &RuleContext, mut conversation: Conversation, said: Said) -> Result<Heard> {
    not_blank("content", &said.content)?;
    check_count(ctx, said.attachments.len())?;
    check_room(w, ctx, &conversation).await?;
    let Some(owner) = w.agent_get(&conversation.owner).await?.filter(|agent| !agent.is_deleted()) else {
        let (id, owner) = (conversation.conversation_id, &conversation.owner);
        return Err(Refusal::new(
            Code::Conflict,
            format!("conversation {id} belongs to {owner}, which was deleted: nobody would answer"),
        )
        .hint(format!("an operator can give it to another agent: `ghostctl conversation handoff {id} <agent-id>`")));
    };
    let paths = said.attachments.iter().map(|file| file.path.clone()).collect();
    let new_message = NewMessage {
        attachments: paths,
        conversation_id: Some(conversation.conversation_id.to_string()),
        ..NewMessage::new(
            &owner.agent_id,
            said.from.clone(),
            Kind::Conversation,
            said.content.clone(),
            Chain::root(ctx),
        )
    };
    let envelope = mail::deliver(w, ctx, new_message).await?;
    conversation.heard += 1;
    conversation.passed_on.clear();
    conversation.heard_at = Some(ctx.now());
    let entry = Line {
        message_id: Some(envelope.message_id),
        attachments: said.attachments,
        reply_to: said.reply_to,
        external_id: said.external_id,
        ..Line::new(Direction::In, said.from, said.content)
    };
    let entry = append(w, ctx, &mut conversation, entry).await?;
    if let Some(refusal) = asks::unanswerable(ctx, &owner) {
        // It is told now, because the answer may be long in coming.
        let text = format!("{}: this waits until it is started again", refusal.message);
        append(w, ctx, &mut conversation, Line::new(Direction::Note, Party::System, text)).await?;
    }
    Ok(Heard { conversation, entry })
}

/// Tells those who wait in the conversations of mail that will not be worked off.
pub(crate) async fn dropped(w: &mut dyn Writes, ctx: &RuleContext, mail: &[Envelope], why: &str) -> Result<()> {
    let mut told = std::collections::BTreeSet::new();
    for envelope in mail.iter().filter(|envelope| envelope.kind == Kind::Conversation) {
        let Some(id) = envelope.conversation_id.as_deref().and_then(|id| id.parse::<ConversationId>().ok()) else {
            continue;
        };
        if told.insert(id)
            && let Some(mut conversation) = w.conversation_get(id).await?
        {
            append(w, ctx, &mut conversation, Line::new(Direction::Note, Party::System, why.to_owned())).await?;
        }
    }
    Ok(())
}
