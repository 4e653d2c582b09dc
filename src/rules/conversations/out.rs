//! What agents say in a conversation: the reply that a turn ends with, separate messages, and files attached to the reply.

use ghost_domain::conversation::CONTROL;
use ghost_domain::refusal::not_blank;
use ghost_domain::reply_tokens::{Reply, ReplyTo, read_reply};
use ghost_domain::{
    Action, AgentId, Attachment, Code, Conversation, ConversationEntry, ConversationId, Delivery, Direction, Kind,
    MessageId, Party, Refusal, Turn, TurnId,
};
use ghost_store::Writes;
use serde_json::json;

use super::bounds::{check_count, check_room};
use super::log::{Line, append, get, recent};
use crate::turns::ending::HeldMail;
use crate::{Result, RuleContext};

/// Something that an agent says besides its reply.
#[derive(Clone, Debug)]
pub struct Post {
    /// The text.
    pub content: String,
    /// Files that go with it, checked by the caller.
    pub attachments: Vec<Attachment>,
    /// The message that it answers: an id that the agent was shown, or the outside's own.
    pub reply_to: Option<String>,
}

/// Where something said goes next: the control plane's own conversations have it when it is committed, unless it has
/// files, which somebody must still look at.
pub(super) fn way_out(conversation: &Conversation, files: &[Attachment]) -> Delivery {
    if conversation.adapter == CONTROL && files.is_empty() { Delivery::Delivered } else { Delivery::Pending }
}

/// Refuses an agent that the conversation does not belong to, or no longer does.
pub fn check_speaker(conversation: &Conversation, agent_id: &AgentId) -> Result<()> {
    if conversation.owner == *agent_id {
        return Ok(());
    }
    Err(Refusal::new(
        Code::Conflict,
        format!("conversation {} belongs to {} now", conversation.conversation_id, conversation.owner),
    )
    .hint("your last words of this turn still go there; anything more is for its new owner to say"))
}

/// Says something in the conversation at once, apart from the reply that the turn ends with (BI-34, BI-37).
pub async fn post(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    agent_id: &AgentId,
    turn_id: TurnId,
    conversation_id: ConversationId,
    post: Post,
) -> Result<ConversationEntry> {
    let mut conversation = get(w, conversation_id).await?;
    check_speaker(&conversation, agent_id)?;
    check_length(ctx, &post.content)?;
    check_count(ctx, post.attachments.len())?;
    check_room(w, ctx, &conversation).await?;
    let reply_to = match post.reply_to {
        None => None,
        Some(id) => Some(answered(&recent(w, &conversation).await?, &id).ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                format!("no message `{}` is in this conversation", ghost_domain::text::clip(&id, 80)),
            )
            .hint("give the message_id of a message that you were shown, or leave reply_to out")
        })?),
    };
    let line = Line {
        delivery: way_out(&conversation, &post.attachments),
        attachments: post.attachments,
        reply_to,
        turn_id: Some(turn_id),
        ..Line::new(Direction::Out, Party::Agent(agent_id.clone()), post.content)
    };
    append(w, ctx, &mut conversation, line).await
}

/// What the outside calls the message with this id.
fn answered(entries: &[ConversationEntry], id: &str) -> Option<String> {
    let is_meant = |entry: &&ConversationEntry| {
        is_message(entry) && (entry.message_id.to_string() == id || entry.external_id.as_deref() == Some(id))
    };
    entries.iter().rev().find(is_meant).map(outside_id)
}

/// Whether an entry is something said that can be spoken of: no note, no reaction or the like, and not taken back.
pub(super) fn is_message(entry: &ConversationEntry) -> bool {
    let says = match &entry.action {
        None | Some(Action::Poll { .. } | Action::Thread { .. }) => true,
        Some(Action::Delete { .. } | Action::React { .. } | Action::Pin { .. }) => false,
    };
    entry.direction != Direction::Note && !entry.deleted && says
}

/// Refuses a text that is empty or longer than a message may be.
pub(crate) fn check_length(ctx: &RuleContext, content: &str) -> Result<()> {
    let most = ctx.limits().message_bytes;
    if content.len() > most as usize {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("the message has {} bytes; at most {most} are taken", content.len()),
        )
        .hint("write the long part to a workspace file and attach it")
        .details(json!({ "limit": "message_bytes" })));
    }
    not_blank("text", content)
}

pub(super) fn outside_id(entry: &ConversationEntry) -> String {
    entry.external_id.clone().unwrap_or_else(|| entry.message_id.to_string())
}

/// Attaches a workspace file to the reply that the turn will end with (BI-35). It stands in the conversation as a note that
/// is a draft until then.
pub async fn attach(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    agent_id: &AgentId,
    turn_id: TurnId,
    conversation_id: ConversationId,
    file: Attachment,
) -> Result<ConversationEntry> {
    let mut conversation = get(w, conversation_id).await?;
    let most = ctx.limits().attachment_bytes;
    if file.bytes > u64::from(most) {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("`{}` has {} bytes; at most {most} are attached", file.path, file.bytes),
        )
        .hint("attach a smaller file, or a part of it")
        .details(json!({ "limit": "attachment_bytes" })));
    }
    check_room(w, ctx, &conversation).await?;
    let party = Party::Agent(agent_id.clone());
    let drafts = drafts(&recent(w, &conversation).await?, &party);
    check_count(ctx, drafts.len() + 1)?;
    if drafts.iter().any(|new_message| new_message.attachments.iter().any(|other| other.name == file.name)) {
        return Err(Refusal::new(Code::Conflict, format!("a file named `{}` is attached already", file.name))
            .hint("give this one another name"));
    }
    let line = Line {
        turn_id: Some(turn_id),
        delivery: Delivery::Draft,
        ..Line::new(Direction::Note, party, format!("{agent_id} attaches {} to its reply", file.name))
    };
    append(w, ctx, &mut conversation, Line { attachments: vec![file], ..line }).await
}

/// What an agent has attached and not sent. Its turns are serial, so all of it belongs to the one that speaks now, or to
/// an earlier one over the same mail that broke off.
fn drafts(entries: &[ConversationEntry], party: &Party) -> Vec<ConversationEntry> {
    entries.iter().filter(|entry| entry.delivery == Delivery::Draft && entry.from == *party).cloned().collect()
}

/// Takes back the drafts: they are sent, or will not be.
async fn settle_drafts(w: &mut dyn Writes, drafts: Vec<ConversationEntry>) -> Result<Vec<Attachment>> {
    let mut files = Vec::new();
    for mut new_message in drafts {
        new_message.delivery = Delivery::None;
        w.conversation_entry_put(&new_message).await?;
        files.extend(new_message.attachments);
    }
    Ok(files)
}

/// Makes what a turn had attached and not sent drafts again: it goes on after it was set aside, and its journal says that
/// the files are attached.
pub(crate) async fn restore_drafts(w: &mut dyn Writes, turn_id: TurnId) -> Result<()> {
    for mut entry in w.conversation_entries_of_turn(turn_id).await? {
        let was_draft = entry.direction == Direction::Note && !entry.attachments.is_empty();
        if was_draft && entry.delivery == Delivery::None {
            entry.delivery = Delivery::Draft;
            w.conversation_entry_put(&entry).await?;
        }
    }
    Ok(())
}

/// The conversation that a turn owes its last text to, by its mail.
pub(crate) fn owed(held: &[HeldMail]) -> Option<ConversationId> {
    held.iter().find(|mail| mail.kind == Kind::Conversation).and_then(|mail| mail.conversation_id)
}

/// Gives a conversation the last text of the turn that answers it, unless that is silent (HB-05, MSG-13). Part of the
/// transaction that ends the turn.
pub(crate) async fn answer(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    turn: &Turn,
    conversation_id: ConversationId,
    mail: &[MessageId],
    text: &str,
) -> Result<()> {
    // One that retention has taken cannot be answered any more.
    let Some(mut conversation) = w.conversation_get(conversation_id).await? else { return Ok(()) };
    let entries = recent(w, &conversation).await?;
    let party = Party::Agent(turn.agent_id.clone());
    let files = settle_drafts(w, drafts(&entries, &party)).await?;
    let (text, reply_to) = match read_reply(text) {
        Reply::Said { text, reply_to } => (text, reply_to),
        // Files without a word are a reply as well; a silent token is none, whatever was attached.
        Reply::Silent if text.trim().is_empty() && !files.is_empty() => (String::new(), None),
        Reply::Silent => return Ok(()),
    };
    let reply_to = match reply_to {
        None => None,
        // A message that nobody knows is not named to the outside.
        Some(ReplyTo::Message(id)) => answered(&entries, &id),
        Some(ReplyTo::Current) => {
            let heard = || entries.iter().rev().filter(|entry| entry.direction == Direction::In);
            let held = heard().find(|entry| mail.contains(&entry.message_id));
            // Mail that was handed over was given an id of its own.
            held.or_else(|| heard().next()).map(outside_id)
        }
    };
    let line = Line {
        delivery: way_out(&conversation, &files),
        attachments: files,
        reply_to,
        turn_id: Some(turn.turn_id),
        ..Line::new(Direction::Out, party, text)
    };
    append(w, ctx, &mut conversation, line).await?;
    Ok(())
}

/// Tells who waits in a conversation that a turn ended without an answer, and why. What was attached is not sent.
pub(crate) async fn unanswered(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    turn: &Turn,
    conversation_id: ConversationId,
    why: &str,
) -> Result<()> {
    let Some(mut conversation) = w.conversation_get(conversation_id).await? else { return Ok(()) };
    let entries = recent(w, &conversation).await?;
    settle_drafts(w, drafts(&entries, &Party::Agent(turn.agent_id.clone()))).await?;
    let text = ctx.excerpt(&format!("{}'s turn {why}", turn.agent_id), 1_000);
    let line = Line { turn_id: Some(turn.turn_id), ..Line::new(Direction::Note, Party::System, text) };
    append(w, ctx, &mut conversation, line).await?;
    Ok(())
}
