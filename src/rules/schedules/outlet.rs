//! Where a last text goes: an alert of a heartbeat (HB-04), and what a cron job's own turn ended with (SCHED-05, HB-07). A
//! target that is not there is told beside the record and fails nothing.

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

/// The target that is none.
pub(super) const NOWHERE: &str = "none";
/// Characters of a text in its event.
const TEXT_MAX: usize = 400;

/// Delivers what a cron job's own turn ended with; `name` is the job's, unless it is gone. Gives why it could not, if so.
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
    let said = read_announcement(text);
    let trouble = match &said {
        None => None,
        Some(said) => {
            let told = match options.deliver {
                Deliver::Webhook => over_webhook(w, ctx, turn, run, name, &options.to, said).await,
                Deliver::None | Deliver::Announce => tell(w, ctx, turn, &options.to, said).await,
            };
            reason(told)?
        }
    };
    let event = NewEvent::new(
        EventKind::ScheduleDelivered,
        json!({
            "schedule_id": run.schedule_id, "run": run.run, "turn_id": turn.turn_id, "deliver": options.deliver,
            "to": options.to, "silent": said.is_none(), "not_delivered": trouble,
            "text": said.map(|said| ctx.excerpt(&said, TEXT_MAX)),
        }),
    );
    ctx.emit(w, event.agent(&turn.agent_id).correlation(run.schedule_id)).await?;
    Ok(trouble)
}

/// Why something could not be brought to its target. The store's own trouble is the turn's.
pub(super) fn reason(told: Result<()>) -> Result<Option<String>> {
    match told {
        Ok(()) => Ok(None),
        Err(refusal) if matches!(refusal.code, Code::Internal | Code::Unavailable) => Err(refusal),
        Err(refusal) => Ok(Some(refusal.to_string())),
    }
}

/// Brings a text to its target: nowhere, the agent's conversation in which someone outside was last heard, a conversation, or
/// a chat channel.
pub(super) async fn tell(w: &mut dyn Writes, ctx: &RuleContext, turn: &Turn, target: &str, text: &str) -> Result<()> {
    match target {
        NOWHERE => Ok(()),
        LAST => {
            let all = w.conversation_list(Some(&turn.agent_id), None).await?;
            // One that the agent began and nobody has answered is no conversation with anyone.
            let heard = all.into_iter().filter(|conversation| conversation.heard_at.is_some());
            let last = heard.max_by_key(|conversation| (conversation.heard_at, conversation.conversation_id));
            let last = last.ok_or_else(|| {
                Refusal::new(Code::NotFound, format!("{} has no conversation with anyone outside", turn.agent_id))
                    .hint("it is heard from nobody there yet; name another target")
            })?;
            say(w, ctx, turn, last.conversation_id, text).await
        }
        other => {
            if let Ok(conversation_id) = other.parse::<ConversationId>() {
                return say(w, ctx, turn, conversation_id, text).await;
            }
            let new = NewPost {
                channel: other.parse()?,
                content: text.to_owned(),
                reply_to: None,
                deliver: false,
                chain: Chain { root_id: turn.root_id, hop: turn.hop.saturating_add(1) },
            };
            let speaker = Speaker::from(Party::Agent(turn.agent_id.clone()));
            chat::post_last_words(w, ctx, &speaker, ctx.chat_wake(), new).await?;
            Ok(())
        }
    }
}

/// Says something in the thread of a webhook, which begins with it if there is none. What the outside answers there is the
/// agent's to answer, so that whoever set the job must still be one who may name the thread: the world file may have taken the
/// webhook away since, or given it to another agent. And a job may have been set to another one's own thread before that was
/// refused.
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
            // Nothing is begun for what could not be said there.
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
    say(w, ctx, turn, conversation_id, text).await
}

/// Whether a run's job was an operator's when it went off: its mail says so, whatever has become of the job.
async fn set_by_operator(w: &mut dyn Writes, run: &ScheduleRun) -> Result<bool> {
    let Some(message_id) = run.message_id else { return Ok(false) };
    let mail = w.message_get(message_id).await?;
    Ok(mail.is_some_and(|mail| matches!(mail.from, Party::Operator(_))))
}

async fn say(
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
