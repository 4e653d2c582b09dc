//! Conversations with someone outside (BI-34..38, MSG-11..14): what comes in is mail of their owner, the last text of the
//! turn that takes it goes out, and both stand in the conversation's log under a gapless sequence.
//!
//! Must never: deliver anything itself. What waits to go out is a row; the adapters at the edge work it off.

mod actions;
mod delivery;
mod handoff;
mod out;

pub use actions::{Deed, Means, act, check_supported};
pub use delivery::{Outcome, Parcel, attempt, due, redeliver, settle};
pub use handoff::{Handover, handoff};
pub use out::{Post, attach, check_speaker, post};
pub(crate) use out::{answer, check_length, owed, restore_drafts, unanswered};

use ghost_domain::conversation::CONTROL;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::ports::Signal;
use ghost_domain::schedule::options::OWN_THREADS;
use ghost_domain::text::{not_blank, shown};
use ghost_domain::{
    Action, AgentId, Attachment, Code, Conversation, ConversationEntry, ConversationId, Delivery, Direction, Envelope,
    Kind, MessageId, Party, Refusal, TurnId,
};
use ghost_store::{Reads, Writes};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::chat::shown_name;
use crate::mail::{self, Chain, Draft};
use crate::{Cx, Result, asks};

/// Characters of the name under which the outside knows a conversation.
const THREAD_MAX: usize = 200;
/// Entries that are looked back over for what a reply answers and for what was attached to it.
const LOOK_BACK: i64 = 256;

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

/// A conversation, or a refusal.
pub async fn get(r: &mut dyn Reads, conversation_id: ConversationId) -> Result<Conversation> {
    match r.conversation_get(conversation_id).await? {
        Some(conversation) => Ok(conversation),
        None => Err(Refusal::not_found("conversation", &conversation_id.to_string(), None)
            .hint("see `ghostctl conversation list`")),
    }
}

/// One entry of a conversation, or a refusal.
pub async fn entry(r: &mut dyn Reads, conversation_id: ConversationId, seq: i64) -> Result<ConversationEntry> {
    let found = r.conversation_entries(conversation_id, seq.saturating_sub(1), 1).await?.into_iter().next();
    found.filter(|entry| entry.seq == seq).ok_or_else(|| {
        Refusal::not_found("entry", &format!("{conversation_id}/{seq}"), None)
            .hint(format!("see `ghostctl conversation show {conversation_id}`"))
    })
}

/// Begins a conversation. One that the adapter has under this name already is a conflict.
pub async fn begin(w: &mut dyn Writes, cx: &Cx, start: Start) -> Result<Conversation> {
    let (count, most) = (w.conversation_count().await?, cx.limits().conversations_max);
    if count >= most {
        return Err(Refusal::new(
            Code::RateLimited,
            format!("the world has {count} conversations, which is its bound"),
        )
        .hint("go on with one of them, or raise limits.conversations_max")
        .details(json!({ "limit": "conversations_max" })));
    }
    let owner = mail::agent_named(w, &start.owner).await?.agent_id;
    let conversation_id = ConversationId(cx.id());
    let thread = match start.thread {
        Some(thread) => named_thread(&thread)?,
        None => conversation_id.to_string(),
    };
    if let Some(other) = w.conversation_find(&start.adapter, &thread).await? {
        let what = format!("{} has a conversation of that name already: {}", start.adapter, other.conversation_id);
        return Err(Refusal::new(Code::Conflict, what).hint("go on with that one"));
    }
    let now = cx.now();
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
    };
    w.conversation_put(&conversation).await?;
    let payload = json!({
        "conversation_id": conversation_id, "adapter": conversation.adapter, "thread": conversation.thread,
        "owner": conversation.owner, "party": conversation.party,
    });
    emit(w, cx, EventKind::ConversationStarted, &conversation, payload).await?;
    Ok(conversation)
}

/// A name that the outside may give a conversation.
fn named_thread(thread: &str) -> Result<String> {
    let length = thread.chars().count();
    if length == 0 || length > THREAD_MAX || thread.chars().any(char::is_control) || thread.trim() != thread {
        return Err(Refusal::new(
            Code::InvalidArguments,
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
pub async fn arrive(w: &mut dyn Writes, cx: &Cx, start: Start, said: Said) -> Result<Heard> {
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
            begin(w, cx, start).await?
        }
    };
    hear(w, cx, conversation, said).await
}

/// Says something over the control plane in a conversation that is held over it. Those of other adapters are not spoken
/// in from here: nobody may be taken for the one outside.
pub async fn say(w: &mut dyn Writes, cx: &Cx, conversation_id: ConversationId, said: Said) -> Result<Heard> {
    let conversation = get(w, conversation_id).await?;
    if conversation.adapter != CONTROL {
        return Err(Refusal::new(
            Code::Conflict,
            format!("conversation {conversation_id} is held over {}, not over the control plane", conversation.adapter),
        )
        .hint(format!("send {} a message, or begin a conversation of your own with it", conversation.owner)));
    }
    hear(w, cx, conversation, said).await
}

async fn hear(w: &mut dyn Writes, cx: &Cx, mut conversation: Conversation, said: Said) -> Result<Heard> {
    not_blank("content", &said.content)?;
    check_count(cx, said.attachments.len())?;
    check_room(w, cx, &conversation).await?;
    let Some(owner) = w.agent_get(&conversation.owner).await?.filter(|agent| !agent.is_deleted()) else {
        let (id, owner) = (conversation.conversation_id, &conversation.owner);
        return Err(Refusal::new(
            Code::Conflict,
            format!("conversation {id} belongs to {owner}, which was deleted: nobody would answer"),
        )
        .hint(format!("an operator can give it to another agent: `ghostctl conversation handoff {id} <agent-id>`")));
    };
    let paths = said.attachments.iter().map(|file| file.path.clone()).collect();
    let draft = Draft {
        attachments: paths,
        conversation_id: Some(conversation.conversation_id.to_string()),
        ..Draft::new(&owner.agent_id, said.from.clone(), Kind::Conversation, said.content.clone(), Chain::root(cx))
    };
    let envelope = mail::deliver(w, cx, draft).await?;
    conversation.heard += 1;
    conversation.heard_at = Some(cx.now());
    let entry = Line {
        message_id: Some(envelope.message_id),
        attachments: said.attachments,
        reply_to: said.reply_to,
        external_id: said.external_id,
        ..Line::new(Direction::In, said.from, said.content)
    };
    let entry = append(w, cx, &mut conversation, entry).await?;
    if let Some(refusal) = asks::unanswerable(&owner) {
        // It is told now, because the answer may be long in coming.
        let text = format!("{}: this waits until it is started again", refusal.message);
        append(w, cx, &mut conversation, Line::new(Direction::Note, Party::System, text)).await?;
    }
    Ok(Heard { conversation, entry })
}

/// Refuses to make a conversation longer that has twice the entries that are kept of one: something at its beginning, such as
/// a dead letter, keeps retention from it, and would for ever. What turns end with and notes still have room. They are few
/// where nothing more is heard, and the step that they belong to must not fail.
async fn check_room(r: &mut dyn Reads, cx: &Cx, conversation: &Conversation) -> Result<()> {
    let most = i64::from(cx.limits().conversation_entries_max).saturating_mul(2);
    if conversation.last_seq < most {
        return Ok(());
    }
    let id = conversation.conversation_id;
    let first = r.conversation_entries(id, 0, 1).await?.into_iter().next();
    let count = first.map_or(0, |first| conversation.last_seq.saturating_sub(first.seq).saturating_add(1));
    if count < most {
        return Ok(());
    }
    let what = format!("conversation {id} has {count} entries, twice what is kept of one");
    Err(Refusal::new(Code::RateLimited, what)
        .hint(
            "old entries go within the hour unless a dead letter or a delivery holds them: the operator looks with \
             `ghostctl dead list` and `ghostctl conversation show`; else go on in another conversation",
        )
        .details(json!({ "limit": "conversation_entries_max" })))
}

/// Refuses more files than one message may have.
fn check_count(cx: &Cx, count: usize) -> Result<()> {
    let most = cx.limits().attachments_max;
    if count > most as usize {
        return Err(Refusal::new(Code::TooLarge, format!("{count} files are attached; at most {most} are taken"))
            .hint("send the rest with another message")
            .details(json!({ "limit": "attachments_max" })));
    }
    Ok(())
}

/// An entry to be made.
struct Line {
    message_id: Option<MessageId>,
    direction: Direction,
    from: Party,
    content: String,
    attachments: Vec<Attachment>,
    reply_to: Option<String>,
    external_id: Option<String>,
    turn_id: Option<TurnId>,
    delivery: Delivery,
    action: Option<Action>,
}

impl Line {
    fn new(direction: Direction, from: Party, content: String) -> Self {
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

/// Adds an entry under the conversation's next sequence and states it.
async fn append(w: &mut dyn Writes, cx: &Cx, conversation: &mut Conversation, line: Line) -> Result<ConversationEntry> {
    let now = cx.now();
    conversation.last_seq += 1;
    conversation.updated_at = now;
    let pending = line.delivery == Delivery::Pending;
    let entry = ConversationEntry {
        conversation_id: conversation.conversation_id,
        seq: conversation.last_seq,
        message_id: line.message_id.unwrap_or_else(|| MessageId(cx.id())),
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
    w.conversation_put(conversation).await?;
    w.conversation_entry_put(&entry).await?;
    let files: Vec<&str> = entry.attachments.iter().map(|file| file.path.as_str()).collect();
    let payload = json!({
        "conversation_id": entry.conversation_id, "seq": entry.seq, "message_id": entry.message_id,
        "direction": entry.direction, "from": shown_name(&entry.from), "turn_id": entry.turn_id, "delivery": entry.delivery,
        "preview": cx.excerpt(&entry.content, 200), "attachments": files, "action": entry.action,
    });
    emit(w, cx, EventKind::ConversationMessage, conversation, payload).await?;
    if pending {
        w.signal(Signal::Delivery);
    }
    Ok(entry)
}

async fn emit(
    w: &mut dyn Writes,
    cx: &Cx,
    kind: EventKind,
    conversation: &Conversation,
    payload: serde_json::Value,
) -> Result<()> {
    let event = NewEvent::new(kind, payload).agent(&conversation.owner).correlation(conversation.conversation_id);
    cx.emit(w, event).await
}

/// The last entries of a conversation, oldest first.
async fn recent(r: &mut dyn Reads, conversation: &Conversation) -> Result<Vec<ConversationEntry>> {
    let after = conversation.last_seq.saturating_sub(LOOK_BACK);
    Ok(r.conversation_entries(conversation.conversation_id, after, u32::MAX).await?)
}

/// Tells those who wait in the conversations of mail that will not be worked off.
pub(crate) async fn dropped(w: &mut dyn Writes, cx: &Cx, mail: &[Envelope], why: &str) -> Result<()> {
    let mut told = std::collections::BTreeSet::new();
    for envelope in mail.iter().filter(|envelope| envelope.kind == Kind::Conversation) {
        let Some(id) = envelope.conversation_id.as_deref().and_then(|id| id.parse::<ConversationId>().ok()) else {
            continue;
        };
        if told.insert(id)
            && let Some(mut conversation) = w.conversation_get(id).await?
        {
            append(w, cx, &mut conversation, Line::new(Direction::Note, Party::System, why.to_owned())).await?;
        }
    }
    Ok(())
}
