//! Delivers the last text of a turn: a heartbeat's alert (HB-04) and the result of a cron job's own
//! turn (SCHED-05, HB-07). A missing target is recorded and does not fail the turn.

use ghost_domain::conversation::WEBHOOK;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::reply_tokens::read_announcement;
use ghost_domain::schedule::options::{LAST, check_own_thread, check_thread};
use ghost_domain::schedule::{Deliver, JobOptions};
use ghost_domain::{Code, ConversationId, Party, Refusal, ScheduleRun, Turn};
use ghost_store::Writes;
use serde_json::json;

use crate::chain::Chain;
use crate::chat::{self, NewPost, Speaker};
use crate::{Result, RuleContext, conversations};

/// The target that means no delivery.
pub(super) const NOWHERE: &str = "none";
/// The longest text in an event, in characters.
const TEXT_MAX: usize = 400;

/// Delivers the last text of a cron job's own turn. `name` is the name of the job, if it still
/// exists. Returns why the delivery failed, if it did.
pub(super) async fn deliver(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    turn: &Turn,
    run: &ScheduleRun,
    options: &JobOptions,
    name: Option<&str>,
    text: &str,
) -> Result<Option<String>> {
    if options.deliver == Deliver::None {
        return Ok(None);
    }
    let spoken = read_announcement(text);
    let not_delivered = match &spoken {
        None => None,
        Some(spoken) => {
            let delivered = match options.deliver {
                Deliver::Webhook => over_webhook(w, ctx, turn, run, name, &options.to, spoken).await,
                Deliver::None | Deliver::Announce => deliver_text(w, ctx, turn, &options.to, spoken).await,
            };
            reason(delivered)?
        }
    };
    let event = NewEvent::new(
        EventKind::ScheduleDelivered,
        json!({
            "schedule_id": run.schedule_id, "run": run.run, "turn_id": turn.turn_id, "deliver": options.deliver,
            "to": options.to, "silent": spoken.is_none(), "not_delivered": not_delivered,
            "text": spoken.map(|spoken| ctx.excerpt(&spoken, TEXT_MAX)),
        }),
    );
    ctx.emit(w, event.agent(&turn.agent_id).correlation(run.schedule_id)).await?;
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

/// Delivers a text to its target: nowhere, the conversation in which the agent last heard from
/// outside, a conversation, or a chat channel.
pub(super) async fn deliver_text(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    turn: &Turn,
    target: &str,
    text: &str,
) -> Result<()> {
    match target {
        NOWHERE => Ok(()),
        LAST => {
            let all = w.conversation_list(Some(&turn.agent_id), None).await?;
            // A conversation in which nobody outside has written yet does not count.
            let heard = all.into_iter().filter(|conversation| conversation.heard_at.is_some());
            let last = heard.max_by_key(|conversation| (conversation.heard_at, conversation.conversation_id));
            let last = last.ok_or_else(|| {
                Refusal::new(Code::NotFound, format!("{} has no conversation with anyone outside", turn.agent_id))
                    .hint("nobody outside has written to this agent yet; name another target")
            })?;
            post(w, ctx, turn, last.conversation_id, text).await
        }
        other => {
            if let Ok(conversation_id) = other.parse::<ConversationId>() {
                return post(w, ctx, turn, conversation_id, text).await;
            }
            let new = NewPost {
                channel: other.parse()?,
                content: text.to_owned(),
                reply_to: None,
                deliver: false,
                chain: Chain { root_id: turn.root_id, hop: turn.hop.saturating_add(1) },
            };
            let speaker = Speaker::from(Party::Agent(turn.agent_id.clone()));
            chat::post_last_text(w, ctx, &speaker, ctx.chat_wake(), new).await?;
            Ok(())
        }
    }
}

/// Sends a text to the thread of a webhook, and begins the thread if needed.
///
/// Answers from outside go to the agent. So the party that set the job must still be allowed to use
/// the thread: the world file may have removed the webhook or given it to another agent. Jobs set
/// before this check existed may also name another job's own thread.
async fn over_webhook(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    turn: &Turn,
    run: &ScheduleRun,
    name: Option<&str>,
    to: &str,
    text: &str,
) -> Result<()> {
    let (webhook, thread) = to.split_once('/').unwrap_or((to, "cron"));
    let answers = ctx.webhook_agent(webhook).ok_or_else(|| {
        Refusal::not_found("webhook", webhook, None)
            .hint("the world file no longer has it under channels.webhooks; give the job another target")
    })?;
    check_own_thread(&turn.agent_id, name, webhook, thread)?;
    if !set_by_operator(w, run).await? {
        check_thread(&turn.agent_id, to, &answers)?;
    }
    let adapter = format!("{WEBHOOK}{webhook}");
    let conversation_id = match w.conversation_find(&adapter, thread).await? {
        Some(conversation) => conversation.conversation_id,
        None => {
            // No conversation is begun for a text that would be refused.
            conversations::check_length(ctx, text)?;
            let start = conversations::Start {
                adapter,
                thread: Some(thread.to_owned()),
                owner: turn.agent_id.clone(),
                party: Party::Outside(webhook.to_owned()),
            };
            conversations::begin(w, ctx, start).await?.conversation_id
        }
    };
    post(w, ctx, turn, conversation_id, text).await
}

/// Whether an operator had set the job when it went off. The sender of its mail says so, even if
/// the job has changed since.
async fn set_by_operator(w: &mut dyn Writes, run: &ScheduleRun) -> Result<bool> {
    let Some(message_id) = run.message_id else { return Ok(false) };
    let mail = w.message_get(message_id).await?;
    Ok(mail.is_some_and(|mail| matches!(mail.from, Party::Operator(_))))
}

async fn post(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    turn: &Turn,
    conversation_id: ConversationId,
    text: &str,
) -> Result<()> {
    let post = conversations::Post { content: text.to_owned(), attachments: Vec::new(), reply_to: None };
    conversations::post(w, ctx, &turn.agent_id, turn.turn_id, conversation_id, post).await?;
    Ok(())
}
