//! The actions of agents in a conversation besides messages: delete, react, poll,
//! pin and thread. Each is an entry in the log and is delivered like a message.
//!
//! These rules must never perform an action that the adapter has not declared, or let an agent
//! delete another party's message.

use ghost_domain::conversation::is_reaction;

use super::log::{append, get, new_entry, recent};
use super::out::{check_length, check_room, check_speaker, first_delivery, is_message, outside_id};
use crate::prelude::*;

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
                return Err(refusal!(
                    InvalidArguments,
                    "`{}` is not a reaction",
                    ghost_domain::text::shown(&emoji, 80)
                )
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
