//! What agents do in a conversation: the reply at the end of a turn, separate messages, files attached to the reply, and
//! actions (delete, react, poll, pin, thread). Each is an entry in the log. Also the limits on a conversation and on one
//! message in it.

use ghost_domain::conversation::is_reaction;
use ghost_domain::reply_tokens::{Reply, ReplyTo, read_reply};

use super::log::{add_note, append, get, new_entry, recent};
use crate::prelude::*;

/// A message that an agent sends besides its reply.
#[derive(Clone, Debug)]
pub struct Post {
    /// Text of the message.
    pub content: String,
    /// Attached files, checked by the caller.
    pub attachments: Vec<Attachment>,
    /// Id of the message that this one answers: an id that the agent was shown, or the outside's
    /// own.
    pub reply_to: Option<String>,
}

/// The first delivery state of a message. In a conversation of the control plane it is delivered
/// when it is committed. With files it is pending, because the files must still be checked.
fn first_delivery(conversation: &Conversation, files: &[Attachment]) -> Delivery {
    if conversation.adapter == CONTROL && files.is_empty() { Delivery::Delivered } else { Delivery::Pending }
}

/// Refuses an agent that does not own the conversation, and everyone if the conversation has ended.
///
/// # Errors
/// `Conflict`.
pub fn check_speaker(conversation: &Conversation, agent_id: &AgentId) -> Result<()> {
    if let Some(at) = conversation.ended_at {
        let what = format!("conversation {} ended at {}", conversation.conversation_id, at.rfc3339());
        return Err(Refusal::new(Code::Conflict, what)
            .hint("nothing can be said there until a message from outside opens it again")
            .details(json!({ "ended_at": at.rfc3339() })));
    }
    if conversation.owner == *agent_id {
        return Ok(());
    }
    Err(refusal!(Conflict, "conversation {} belongs to {} now", conversation.conversation_id, conversation.owner)
        .hint("the last text of this turn still goes there; the new owner sends everything else"))
}

/// Sends a message at once, separate from the reply at the end of the turn.
pub fn post(
    w: &mut Tx,
    agent_id: &AgentId,
    turn_id: TurnId,
    conversation_id: ConversationId,
    post: Post,
) -> Result<ConversationEntry> {
    let mut conversation = get(w, conversation_id)?;
    check_speaker(&conversation, agent_id)?;
    check_length(w.ctx, &post.content)?;
    check_count(w.ctx, post.attachments.len())?;
    check_room(w, &conversation)?;
    let reply_to = match post.reply_to {
        None => None,
        Some(id) => Some(outside_id_of(&recent(w, &conversation)?, &id).ok_or_else(|| {
            refusal!(NotFound, "no message `{}` is in this conversation", clip(&id, 80))
                .hint("give the message_id of a message that you were shown, or leave reply_to out")
        })?),
    };
    let entry = ConversationEntry {
        delivery: first_delivery(&conversation, &post.attachments),
        attachments: post.attachments,
        reply_to,
        turn_id: Some(turn_id),
        ..new_entry(w.ctx, &conversation, Direction::Out, Party::Agent(agent_id.clone()), post.content)
    };
    append(w, &mut conversation, entry)
}

/// The outside's id of the message with this id.
fn outside_id_of(entries: &[ConversationEntry], id: &str) -> Option<String> {
    let matches_id = |entry: &&ConversationEntry| {
        is_message(entry) && (entry.message_id.to_string() == id || entry.external_id.as_deref() == Some(id))
    };
    entries.iter().rev().find(matches_id).map(outside_id)
}

/// Whether an entry is a message that can be referred to: not a note, not an action such as a
/// reaction, and not deleted.
fn is_message(entry: &ConversationEntry) -> bool {
    let says = match &entry.action {
        None | Some(Action::Poll { .. } | Action::Thread { .. }) => true,
        Some(Action::Delete { .. } | Action::React { .. } | Action::Pin { .. }) => false,
    };
    entry.direction != Direction::Note && !entry.deleted && says
}

/// Refuses a text that is empty or too long.
pub(crate) fn check_length(ctx: &Context, content: &str) -> Result<()> {
    let limit = ctx.limits().message_bytes;
    fits("the message", content.len(), limit, "write the long part to a workspace file and attach it")
        .map_err(|refusal| refusal.details(json!({ "limit": "message_bytes" })))?;
    not_blank("text", content)
}

fn outside_id(entry: &ConversationEntry) -> String {
    entry.external_id.clone().unwrap_or_else(|| entry.message_id.to_string())
}

/// Refuses new entries if a conversation has twice the number of entries that retention keeps. An
/// old entry, for example with a dead letter, can block retention for ever. The last text of a turn
/// and notes are still accepted: there are few of them, and the step that writes them must not
/// fail.
pub(super) fn check_room(r: &mut Tx, conversation: &Conversation) -> Result<()> {
    let limit = i64::from(r.ctx.limits().conversation_entries_max).saturating_mul(2);
    if conversation.last_seq < limit {
        return Ok(());
    }
    let id = conversation.conversation_id;
    let first = r.conversation_entries(id, 0, 1)?.into_iter().next();
    let count = first.map_or(0, |first| conversation.last_seq.saturating_sub(first.seq).saturating_add(1));
    if count < limit {
        return Ok(());
    }
    let what = format!("conversation {id} has {count} entries, twice the number that retention keeps");
    Err(Refusal::new(Code::RateLimited, what)
        .hint(
            "old entries are deleted within the hour unless a dead letter or a delivery needs them; an operator \
             can check with `ghostctl dead list` and `ghostctl conversation show`; otherwise continue in another \
             conversation",
        )
        .details(json!({ "limit": "conversation_entries_max" })))
}

/// Refuses a message with too many files.
pub(super) fn check_count(ctx: &Context, count: usize) -> Result<()> {
    let limit = ctx.limits().attachments_max;
    if count > limit as usize {
        return Err(refusal!(TooLarge, "{count} files are attached; the limit is {limit}")
            .hint("send the rest with another message")
            .details(json!({ "limit": "attachments_max" })));
    }
    Ok(())
}

/// Attaches a workspace file to the reply at the end of the turn. Until then the
/// conversation holds it as a note in state draft.
pub fn attach(
    w: &mut Tx,
    agent_id: &AgentId,
    turn_id: TurnId,
    conversation_id: ConversationId,
    file: Attachment,
) -> Result<ConversationEntry> {
    let mut conversation = get(w, conversation_id)?;
    let limit = w.ctx.limits().attachment_bytes;
    if file.bytes > u64::from(limit) {
        return Err(refusal!(TooLarge, "`{}` has {} bytes; the limit is {limit}", file.path, file.bytes)
            .hint("attach a smaller file, or a part of it")
            .details(json!({ "limit": "attachment_bytes" })));
    }
    check_room(w, &conversation)?;
    let party = Party::Agent(agent_id.clone());
    let drafts = drafts(&recent(w, &conversation)?, &party);
    check_count(w.ctx, drafts.len() + 1)?;
    if drafts.iter().any(|new_message| new_message.attachments.iter().any(|other| other.name == file.name)) {
        return Err(
            refusal!(Conflict, "a file named `{}` is attached already", file.name).hint("give this one another name")
        );
    }
    let text = format!("{agent_id} attaches {} to its reply", file.name);
    let note = new_entry(w.ctx, &conversation, Direction::Note, party, text);
    let (turn_id, delivery, attachments) = (Some(turn_id), Delivery::Draft, vec![file]);
    append(w, &mut conversation, ConversationEntry { turn_id, delivery, attachments, ..note })
}

/// The files that an agent has attached and not sent. Its turns are serial, so all of them belong
/// to the current turn, or to an interrupted one over the same mail.
fn drafts(entries: &[ConversationEntry], party: &Party) -> Vec<ConversationEntry> {
    entries.iter().filter(|entry| entry.delivery == Delivery::Draft && entry.from == *party).cloned().collect()
}

/// Ends the draft state of these entries, because they are sent now or never. Returns their files.
fn settle_drafts(w: &mut StoreTx, drafts: Vec<ConversationEntry>) -> Result<Vec<Attachment>> {
    let mut files = Vec::new();
    for mut new_message in drafts {
        new_message.delivery = Delivery::None;
        w.conversation_entry_put(&new_message)?;
        files.extend(new_message.attachments);
    }
    Ok(files)
}

/// Turns a dead turn's attachments back into drafts when the turn continues, because its journal
/// says that they are attached.
pub(crate) fn restore_drafts(w: &mut StoreTx, turn_id: TurnId) -> Result<()> {
    for mut entry in w.conversation_entries_of_turn(turn_id)? {
        let was_draft = entry.direction == Direction::Note && !entry.attachments.is_empty();
        if was_draft && entry.delivery == Delivery::None {
            entry.delivery = Delivery::Draft;
            w.conversation_entry_put(&entry)?;
        }
    }
    Ok(())
}

/// The conversation that a turn with this mail must answer.
pub(crate) fn owed(taken: &[TakenMail]) -> Option<ConversationId> {
    taken.iter().find(|mail| mail.kind == Kind::Conversation).and_then(|mail| mail.conversation_id)
}

/// Sends the last text of a turn to the conversation that the turn answers, unless it is silent.
/// Runs in the transaction that ends the turn.
pub(crate) fn answer(
    w: &mut Tx,
    turn: &Turn,
    conversation_id: ConversationId,
    mail: &[MessageId],
    text: &str,
) -> Result<()> {
    // A conversation that retention deleted cannot be answered any more.
    let Some(mut conversation) = w.conversation_get(conversation_id)? else { return Ok(()) };
    if let Some(at) = conversation.ended_at {
        let why = format!("has an answer that is not sent: the conversation ended at {}", at.rfc3339());
        return unanswered(w, turn, conversation_id, &why);
    }
    let entries = recent(w, &conversation)?;
    let party = Party::Agent(turn.agent_id.clone());
    let files = settle_drafts(w, drafts(&entries, &party))?;
    let (text, reply_to) = match read_reply(text) {
        Reply::Message { text, reply_to } => (text, reply_to),
        // Files without text are a reply too. A silent token is not a reply, even with files.
        Reply::Silent if text.trim().is_empty() && !files.is_empty() => (String::new(), None),
        Reply::Silent => return Ok(()),
    };
    let reply_to = match reply_to {
        None => None,
        // An unknown message id is not passed to the outside.
        Some(ReplyTo::Message(id)) => outside_id_of(&entries, &id),
        Some(ReplyTo::Current) => {
            let heard = || entries.iter().rev().filter(|entry| entry.direction == Direction::In);
            let held = heard().find(|entry| mail.contains(&entry.message_id));
            // Mail from a handoff has a new id.
            held.or_else(|| heard().next()).map(outside_id)
        }
    };
    let entry = ConversationEntry {
        delivery: first_delivery(&conversation, &files),
        attachments: files,
        reply_to,
        turn_id: Some(turn.turn_id),
        ..new_entry(w.ctx, &conversation, Direction::Out, party, text)
    };
    append(w, &mut conversation, entry).map(drop)
}

/// Adds a note that a turn ended without an answer, and why. Attached files are not sent.
pub(crate) fn unanswered(w: &mut Tx, turn: &Turn, conversation_id: ConversationId, why: &str) -> Result<()> {
    let Some(mut conversation) = w.conversation_get(conversation_id)? else { return Ok(()) };
    let entries = recent(w, &conversation)?;
    settle_drafts(w, drafts(&entries, &Party::Agent(turn.agent_id.clone())))?;
    let text = w.ctx.excerpt(&format!("{}'s turn {why}", turn.agent_id), 1_000);
    add_note(w, &mut conversation, (Party::System, Some(turn.turn_id)), text).map(drop)
}

/// The number of options that a poll may have.
const OPTIONS: std::ops::RangeInclusive<usize> = 2..=10;
/// The longest option, in characters.
const OPTION_MAX: usize = 100;

/// An action of an agent. A message is identified by an id that the agent was shown, or by the
/// outside's own id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelAction {
    /// Delete one of its own messages.
    Delete {
        /// Id of the message.
        message_id: String,
    },
    /// React to a message.
    React {
        /// Id of the message. `None` means the newest one from outside.
        message_id: Option<String>,
        /// The emoji.
        emoji: String,
        /// Whether to remove the reaction.
        remove: bool,
    },
    /// Start a poll.
    Poll {
        /// The question.
        question: String,
        /// The options to choose from.
        options: Vec<String>,
    },
    /// Pin a message, or unpin it.
    Pin {
        /// Id of the message.
        message_id: String,
        /// Whether to unpin it.
        remove: bool,
    },
    /// Open a thread.
    Thread {
        /// Id of the message that the thread belongs to, if any.
        message_id: Option<String>,
        /// The first text in the thread.
        text: String,
    },
}

/// The actions that an agent may use in a conversation.
#[derive(Clone, Debug)]
pub struct AllowedActions {
    /// The actions that the adapter supports.
    pub actions: Vec<ActionKind>,
    /// How often the agent may react.
    pub reactions: Reactions,
}

/// Refuses an action that the conversation's adapter has not declared.
pub fn check_supported(conversation: &Conversation, can: &[ActionKind], kind: ActionKind) -> Result<()> {
    if can.contains(&kind) {
        return Ok(());
    }
    let adapter = &conversation.adapter;
    let names: Vec<&str> = can.iter().map(|kind| kind.as_str()).collect();
    let refusal = refusal!(Unsupported, "{adapter} cannot {kind}")
        .details(json!({ "adapter": adapter, "action": kind, "supported": names }));
    Err(match names.is_empty() {
        true => refusal.hint("the world no longer has this channel; end the turn, or tell an agent that can help"),
        false => refusal.hint(format!("it can: {}", names.join(", "))),
    })
}

/// Performs an action in a conversation.
///
/// # Errors
/// `unsupported` if its adapter has not declared the action, `rate_limited` for too many reactions,
/// `not_found` for a message that is not among the last ones, `access_denied` for deleting another
/// party's message, `conflict` if the conversation belongs to another agent or the message was
/// already deleted.
pub fn act(
    w: &mut Tx,
    agent_id: &AgentId,
    turn_id: TurnId,
    conversation_id: ConversationId,
    means: &AllowedActions,
    deed: ChannelAction,
) -> Result<ConversationEntry> {
    let mut conversation = get(w, conversation_id)?;
    check_speaker(&conversation, agent_id)?;
    check_room(w, &conversation)?;
    let entries = recent(w, &conversation)?;
    let mut delivery = first_delivery(&conversation, &[]);
    let mut taken_back = None;
    let (action, content) = match deed {
        ChannelAction::Delete { message_id } => {
            let mut target = named(&entries, &message_id)?.clone();
            if target.direction != Direction::Out || target.from != Party::Agent(agent_id.clone()) {
                return Err(refusal!(AccessDenied, "message {} was said by {}", target.seq, target.from)
                    .hint("you can delete only your own messages"));
            }
            let (message_id, seq) = (outside_id(&target), target.seq);
            if target.delivery == Delivery::Pending {
                if target.attempts == 0 {
                    // The message was never sent to the outside, so there is nothing to delete
                    // there.
                    delivery = Delivery::None;
                }
                target.delivery = Delivery::None;
                target.next_at = None;
            }
            target.content = String::new();
            target.attachments = Vec::new();
            target.deleted = true;
            taken_back = Some(target);
            (Action::Delete { message_id, seq }, format!("{agent_id} takes back message {seq}"))
        }
        ChannelAction::React { message_id, emoji, remove } => {
            if !is_reaction(&emoji) {
                return Err(refusal!(InvalidArguments, "`{}` is not a reaction", shown(&emoji, 80))
                    .hint("give emoji as one emoji or a name, for example :eyes:, without spaces")
                    .details(json!({ "field": "emoji" })));
            }
            let target = match &message_id {
                Some(id) => named(&entries, id)?,
                None => newest_from_outside(&entries)?,
            };
            if !remove {
                may_react(w.ctx, &conversation, means.reactions)?;
                conversation.reacted = Some(conversation.heard);
            }
            let seq = target.seq;
            let content = match remove {
                false => format!("{agent_id} reacts with {emoji} to message {seq}"),
                true => format!("{agent_id} takes its {emoji} on message {seq} back"),
            };
            (Action::React { message_id: outside_id(target), seq, emoji, remove }, content)
        }
        ChannelAction::Poll { question, options } => {
            check_length(w.ctx, &question)?;
            (Action::Poll { options: choices(options)? }, question)
        }
        ChannelAction::Pin { message_id, remove } => {
            let target = named(&entries, &message_id)?;
            let verb = if remove { "unpins" } else { "pins" };
            let content = format!("{agent_id} {verb} message {}", target.seq);
            (Action::Pin { message_id: outside_id(target), seq: target.seq, remove }, content)
        }
        ChannelAction::Thread { message_id, text } => {
            check_length(w.ctx, &text)?;
            let target = message_id.map(|id| named(&entries, &id).map(outside_id)).transpose()?;
            (Action::Thread { message_id: target }, text)
        }
    };
    check_supported(&conversation, &means.actions, action.kind())?;
    if let Some(entry) = &taken_back {
        w.conversation_entry_put(entry)?;
    }
    let (turn_id, action) = (Some(turn_id), Some(action));
    let entry = new_entry(w.ctx, &conversation, Direction::Out, Party::Agent(agent_id.clone()), content);
    append(w, &mut conversation, ConversationEntry { delivery, turn_id, action, ..entry })
}

/// Returns the message with this id, if it was not deleted.
fn named<'e>(entries: &'e [ConversationEntry], id: &str) -> Result<&'e ConversationEntry> {
    let matches_id =
        |entry: &&ConversationEntry| entry.message_id.to_string() == id || entry.external_id.as_deref() == Some(id);
    let found = entries.iter().rev().filter(|entry| entry.direction != Direction::Note).find(matches_id);
    match found {
        Some(entry) if entry.deleted => {
            Err(refusal!(Conflict, "message {} was taken back already", entry.seq).hint("name another message"))
        }
        Some(entry) if is_message(entry) => Ok(entry),
        Some(_) | None => {
            Err(refusal!(NotFound, "no message `{}` is among the last messages of this conversation", clip(id, 80))
                .hint("give the message_id of a message that you were shown, or that sending one gave you")
                .details(json!({ "field": "message_id" })))
        }
    }
}

fn newest_from_outside(entries: &[ConversationEntry]) -> Result<&ConversationEntry> {
    entries.iter().rev().find(|entry| entry.direction == Direction::In).ok_or_else(|| {
        refusal!(NotFound, "there is no recent message from outside")
            .hint("give the message_id of the message to react to")
    })
}

/// Refuses a reaction if there were too many.
fn may_react(ctx: &Context, conversation: &Conversation, level: Reactions) -> Result<()> {
    let gap = u64::from(ctx.limits().reaction_gap);
    let since = conversation.reacted.map(|reacted| conversation.heard.saturating_sub(reacted));
    match (level, since) {
        (Reactions::Minimal, Some(since)) if since < gap => Err(refusal!(
            RateLimited,
            "the last reaction was {since} messages ago; at most one in {gap} messages is allowed here"
        )
        .hint("do not react, or write a message instead")
        .details(json!({ "limit": "reaction_gap" }))),
        (Reactions::Minimal | Reactions::Extensive, _) => Ok(()),
    }
}

fn choices(options: Vec<String>) -> Result<Vec<String>> {
    let fits = |option: &String| {
        let length = option.chars().count();
        (1..=OPTION_MAX).contains(&length) && !option.contains(is_strange) && !option.trim().is_empty()
    };
    if OPTIONS.contains(&options.len()) && options.iter().all(fits) {
        return Ok(options);
    }
    let (least, most) = (OPTIONS.start(), OPTIONS.end());
    let long = options.iter().any(|option| option.chars().count() > OPTION_MAX);
    Err(Refusal::new(
        if long { Code::TooLarge } else { Code::InvalidArguments },
        format!("a poll has {least} to {most} options of 1 to {OPTION_MAX} characters each"),
    )
    .hint("give options as a list of short answers")
    .details(json!({ "field": "options" })))
}
