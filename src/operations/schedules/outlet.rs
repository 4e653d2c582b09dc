//! Delivers the last text of a turn: a heartbeat's alert and the result of a cron job's own
//! turn. A missing target is recorded and does not fail the turn.

use ghost_domain::conversation::WEBHOOK;
use ghost_domain::reply_tokens::read_announcement;
use ghost_domain::schedule::mode::{check_own_thread, check_thread};

use crate::chat::{self, NewPost, Speaker};
use crate::conversations;
use crate::prelude::*;

/// The longest text in an event, in characters.
const TEXT_MAX: usize = 400;

/// The turn of a schedule's run.
pub(super) struct Source<'t> {
    pub(super) turn: &'t Turn,
    /// The mail of the run.
    pub(super) message_id: MessageId,
    /// The name of the schedule, if it still exists.
    pub(super) name: Option<&'t str>,
}

/// Delivers the last text of a cron job's own turn. Returns why the delivery failed, if it did.
pub(super) fn deliver(
    w: &mut Tx,
    source: &Source<'_>,
    run: &ScheduleRun,
    target: &Target,
    text: &str,
) -> Result<Option<String>> {
    if *target == Target::Nowhere {
        return Ok(None);
    }
    let spoken = read_announcement(text);
    let not_delivered = match &spoken {
        None => None,
        Some(spoken) => reason(deliver_text(w, source, target, spoken))?,
    };
    let turn = source.turn;
    let payload = json!({
        "schedule_id": run.schedule_id, "run": run.run, "turn_id": turn.turn_id, "deliver": target.deliver(),
        "to": target.to(), "silent": spoken.is_none(), "not_delivered": not_delivered,
        "text": spoken.map(|spoken| w.ctx.excerpt(&spoken, TEXT_MAX)),
    });
    let event = NewEvent::new(EventKind::ScheduleDelivered, payload);
    w.emit(event.agent(&turn.agent_id).correlation(run.schedule_id))?;
    Ok(not_delivered)
}

/// Returns why a delivery failed. An error of the store is passed on and fails the turn.
pub(super) fn reason(delivered: Result<()>) -> Result<Option<String>> {
    match delivered {
        Ok(()) => Ok(None),
        Err(refusal) if matches!(refusal.code, Code::Internal | Code::Unavailable) => Err(refusal),
        Err(refusal) => Ok(Some(refusal.to_string())),
    }
}

/// Delivers a text to its target.
pub(super) fn deliver_text(w: &mut Tx, source: &Source<'_>, target: &Target, text: &str) -> Result<()> {
    let turn = source.turn;
    let conversation_id = match target {
        Target::Nowhere => return Ok(()),
        Target::Channel(channel) => return post_in_channel(w, turn, channel, text),
        Target::Conversation(conversation_id) => *conversation_id,
        Target::Last => {
            let all = w.conversation_list(Some(&turn.agent_id), None, PAGE_MAX)?;
            // A conversation in which nobody outside has written yet does not count.
            let heard = all.into_iter().filter(|conversation| conversation.heard_at.is_some());
            let last = heard.max_by_key(|conversation| (conversation.heard_at, conversation.conversation_id));
            let last = last.ok_or_else(|| {
                refusal!(NotFound, "{} has no conversation with anyone outside", turn.agent_id)
                    .hint("nobody outside has written to this agent yet; name another target")
            })?;
            last.conversation_id
        }
        Target::Webhook { webhook, thread } => thread_of_webhook(w, source, webhook, thread, text)?,
    };
    let post = conversations::Post { content: text.to_owned(), attachments: Vec::new(), reply_to: None };
    conversations::post(w, &turn.agent_id, turn.turn_id, conversation_id, post).map(drop)
}

fn post_in_channel(w: &mut Tx, turn: &Turn, channel: &ChannelName, text: &str) -> Result<()> {
    let new = NewPost {
        channel: channel.clone(),
        content: text.to_owned(),
        reply_to: None,
        deliver: false,
        chain: Chain::after(turn),
    };
    let speaker = Speaker::from(Party::Agent(turn.agent_id.clone()));
    chat::post_last_text(w, &speaker, w.ctx.chat_wake(), new).map(drop)
}

/// Returns the conversation of a webhook's thread, and begins it if needed.
///
/// Answers from outside go to the agent. So the party that set the job must still be allowed to use
/// the thread: the world file may have removed the webhook or given it to another agent. Jobs set
/// before this check existed may also name another job's own thread.
fn thread_of_webhook(
    w: &mut Tx,
    source: &Source<'_>,
    webhook: &str,
    thread: &str,
    text: &str,
) -> Result<ConversationId> {
    let agent_id = &source.turn.agent_id;
    let answers = w.ctx.webhook_agent(webhook).ok_or_else(|| {
        Refusal::not_found("webhook", webhook, None)
            .hint("the world file no longer has it under channels.webhooks; give the job another target")
    })?;
    check_own_thread(agent_id, source.name, webhook, thread)?;
    // The sender of the run's mail is the party that had set the job when it went off, even if the
    // job has changed since.
    let mail = w.message_get(source.message_id)?;
    if !mail.is_some_and(|mail| matches!(mail.from, Party::Operator(_))) {
        check_thread(agent_id, webhook, thread, &answers)?;
    }
    let adapter = format!("{WEBHOOK}{webhook}");
    if let Some(conversation) = w.conversation_find(&adapter, thread)? {
        return Ok(conversation.conversation_id);
    }
    // No conversation is begun for a text that would be refused.
    conversations::check_length(w.ctx, text)?;
    let start = conversations::Start {
        adapter,
        thread: Some(thread.to_owned()),
        owner: agent_id.clone(),
        party: Party::Outside(webhook.to_owned()),
    };
    Ok(conversations::begin(w, start)?.conversation_id)
}
