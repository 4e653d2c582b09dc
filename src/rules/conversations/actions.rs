//! What agents do in a conversation besides saying something (BI-38, MSG-14): taking back, reacting, polls, pins, threads.
//! Each is an entry of its own in the log, and goes out as what is said does.
//!
//! Must never: do what the way to the outside has not declared, or let an agent take back what another said.

use ghost_domain::conversation::is_reaction;
use ghost_domain::text::{clip, is_strange};
use ghost_domain::{
    Action, ActionKind, AgentId, Code, Conversation, ConversationEntry, ConversationId, Delivery, Direction, Party,
    Reactions, Refusal, TurnId,
};
use ghost_store::Writes;
use serde_json::json;

use super::bounds::check_room;
use super::log::{Line, append, get, recent};
use super::out::{check_length, check_speaker, is_message, outside_id, way_out};
use crate::{Result, RuleContext};

/// Answers that a poll may have.
const OPTIONS: std::ops::RangeInclusive<usize> = 2..=10;
/// Characters of one of them.
const OPTION_MAX: usize = 100;

/// What an agent wants done. Messages are named by an id that it was shown, or by the outside's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Take back what it said itself.
    Delete {
        /// Which message.
        message_id: String,
    },
    /// React to a message.
    React {
        /// To which; the newest from outside if none.
        message_id: Option<String>,
        /// With what.
        emoji: String,
        /// Take the reaction back.
        remove: bool,
    },
    /// Ask everyone there to choose.
    Poll {
        /// The question.
        question: String,
        /// The answers.
        options: Vec<String>,
    },
    /// Have a message stand out, or no longer.
    Pin {
        /// Which.
        message_id: String,
        /// No longer.
        remove: bool,
    },
    /// Open a thread.
    Thread {
        /// On which message, if on one.
        message_id: Option<String>,
        /// Its first words.
        text: String,
    },
}

/// What an agent may do in a conversation.
#[derive(Clone, Debug)]
pub struct Means {
    /// What the way to the outside can do.
    pub actions: Vec<ActionKind>,
    /// How freely the agent reacts.
    pub reactions: Reactions,
}

/// Refuses what the conversation's way to the outside has not declared.
pub fn check_supported(conversation: &Conversation, can: &[ActionKind], kind: ActionKind) -> Result<()> {
    if can.contains(&kind) {
        return Ok(());
    }
    let adapter = &conversation.adapter;
    let words: Vec<&str> = can.iter().map(|kind| kind.as_str()).collect();
    let refusal = Refusal::new(Code::Unsupported, format!("{adapter} cannot {kind}"))
        .details(json!({ "adapter": adapter, "action": kind, "supported": words }));
    Err(match words.is_empty() {
        true => refusal.hint("the world has no such channel any more; end the turn, or tell an agent that can help"),
        false => refusal.hint(format!("it can: {}", words.join(", "))),
    })
}

/// Does something in a conversation.
///
/// # Errors
/// `unsupported` for what its adapter has not declared, `rate_limited` for a reaction too many, `not_found` for a message
/// that is not among its last ones, `access_denied` for taking back what another said, `conflict` in a conversation that is
/// another agent's or for what was taken back before.
pub async fn act(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    agent_id: &AgentId,
    turn_id: TurnId,
    conversation_id: ConversationId,
    means: &Means,
    deed: Deed,
) -> Result<ConversationEntry> {
    let mut conversation = get(w, conversation_id).await?;
    check_speaker(&conversation, agent_id)?;
    check_room(w, ctx, &conversation).await?;
    let entries = recent(w, &conversation).await?;
    let mut way = way_out(&conversation, &[]);
    let mut taken_back = None;
    let (action, content) = match deed {
        Deed::Delete { message_id } => {
            let mut meant = named(&entries, &message_id)?.clone();
            if meant.direction != Direction::Out || meant.from != Party::Agent(agent_id.clone()) {
                return Err(Refusal::new(
                    Code::AccessDenied,
                    format!("message {} was said by {}", meant.seq, meant.from),
                )
                .hint("you can take back only what you said yourself"));
            }
            let (message_id, seq) = (outside_id(&meant), meant.seq);
            if meant.delivery == Delivery::Pending {
                if meant.attempts == 0 {
                    // The outside never had it, so there is nothing to take back there.
                    way = Delivery::None;
                }
                meant.delivery = Delivery::None;
                meant.next_at = None;
            }
            meant.content = String::new();
            meant.attachments = Vec::new();
            meant.deleted = true;
            taken_back = Some(meant);
            (Action::Delete { message_id, seq }, format!("{agent_id} takes back message {seq}"))
        }
        Deed::React { message_id, emoji, remove } => {
            if !is_reaction(&emoji) {
                return Err(Refusal::new(
                    Code::InvalidArguments,
                    format!("`{}` is no reaction", ghost_domain::text::shown(&emoji, 80)),
                )
                .hint("give emoji as one emoji or a name such as :eyes:, without spaces")
                .details(json!({ "field": "emoji" })));
            }
            let meant = match &message_id {
                Some(id) => named(&entries, id)?,
                None => newest_from_outside(&entries)?,
            };
            if !remove {
                may_react(ctx, &conversation, means.reactions)?;
                conversation.reacted = Some(conversation.heard);
            }
            let seq = meant.seq;
            let content = match remove {
                false => format!("{agent_id} reacts with {emoji} to message {seq}"),
                true => format!("{agent_id} takes its {emoji} on message {seq} back"),
            };
            (Action::React { message_id: outside_id(meant), seq, emoji, remove }, content)
        }
        Deed::Poll { question, options } => {
            check_length(ctx, &question)?;
            (Action::Poll { options: choices(options)? }, question)
        }
        Deed::Pin { message_id, remove } => {
            let meant = named(&entries, &message_id)?;
            let verb = if remove { "unpins" } else { "pins" };
            let content = format!("{agent_id} {verb} message {}", meant.seq);
            (Action::Pin { message_id: outside_id(meant), seq: meant.seq, remove }, content)
        }
        Deed::Thread { message_id, text } => {
            check_length(ctx, &text)?;
            let meant = message_id.map(|id| named(&entries, &id).map(outside_id)).transpose()?;
            (Action::Thread { message_id: meant }, text)
        }
    };
    check_supported(&conversation, &means.actions, action.kind())?;
    if let Some(entry) = &taken_back {
        w.conversation_entry_put(entry).await?;
    }
    let line = Line {
        delivery: way,
        turn_id: Some(turn_id),
        action: Some(action),
        ..Line::new(Direction::Out, Party::Agent(agent_id.clone()), content)
    };
    append(w, ctx, &mut conversation, line).await
}

/// The message of this id, if it still says something.
fn named<'e>(entries: &'e [ConversationEntry], id: &str) -> Result<&'e ConversationEntry> {
    let is_meant =
        |entry: &&ConversationEntry| entry.message_id.to_string() == id || entry.external_id.as_deref() == Some(id);
    let found = entries.iter().rev().filter(|entry| entry.direction != Direction::Note).find(is_meant);
    match found {
        Some(entry) if entry.deleted => {
            Err(Refusal::new(Code::Conflict, format!("message {} was taken back already", entry.seq))
                .hint("name another message, or leave it at that"))
        }
        Some(entry) if is_message(entry) => Ok(entry),
        Some(_) | None => Err(Refusal::new(
            Code::NotFound,
            format!("no message `{}` is among the last of this conversation", clip(id, 80)),
        )
        .hint("give the message_id of a message that you were shown, or that sending one gave you")
        .details(json!({ "field": "message_id" }))),
    }
}

fn newest_from_outside(entries: &[ConversationEntry]) -> Result<&ConversationEntry> {
    entries.iter().rev().find(|entry| entry.direction == Direction::In).ok_or_else(|| {
        Refusal::new(Code::NotFound, "nothing was said from outside lately")
            .hint("give the message_id of the message to react to")
    })
}

/// Refuses a reaction too many (MSG-14).
fn may_react(ctx: &RuleContext, conversation: &Conversation, level: Reactions) -> Result<()> {
    let gap = u64::from(ctx.limits().reaction_gap);
    let since = conversation.reacted.map(|reacted| conversation.heard.saturating_sub(reacted));
    match (level, since) {
        (Reactions::Minimal, Some(since)) if since < gap => Err(Refusal::new(
            Code::RateLimited,
            format!("there was a reaction {since} messages ago, and at most one in {gap} is wanted here"),
        )
        .hint("leave it out; say in words what matters")
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
