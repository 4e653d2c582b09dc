//! The end of a run: the turn that took its mail ends it. Delivers the last text of that turn: a heartbeat's alert, and the
//! result of a cron job's own turn. A missing target is recorded and does not fail the turn.

use ghost_domain::conversation::WEBHOOK;
use ghost_domain::reply_tokens::{HeartbeatReply, read_announcement, read_heartbeat};
use ghost_domain::schedule::mode::{check_own_thread, check_thread};

use super::runs::NOTE_MAX;
use crate::chat::{self, NewPost, Speaker};
use crate::conversations;
use crate::prelude::*;
use crate::turns::ending::Ending;

/// The longest alert text in an event, in characters.
const ALERT_MAX: usize = 4_000;

/// Whether mail of this kind comes from a schedule.
#[must_use]
fn is_of_schedule(kind: Kind) -> bool {
    matches!(kind, Kind::Timer | Kind::Cron | Kind::CronTurn | Kind::Watch | Kind::Heartbeat)
}

/// Records the end of the run whose mail the turn held. Does nothing for other mail.
pub fn turn_ended(w: &mut Tx, turn: &Turn, message_id: MessageId, kind: Kind, ending: &Ending) -> Result<()> {
    if !is_of_schedule(kind) {
        return Ok(());
    }
    let (status, note) = match ending {
        Ending::Finished(_) => (RunStatus::Done, None),
        Ending::Cut(_) => (
            RunStatus::Done,
            Some("its answer was cut at the model's token limit, or paused by its provider".to_owned()),
        ),
        Ending::Failed(refusal) | Ending::AtBound { refusal, .. } => {
            (RunStatus::Failed, Some(w.ctx.excerpt(&refusal.to_string(), NOTE_MAX)))
        }
        Ending::Cancelled(why) => (RunStatus::Failed, Some(format!("cancelled: {}", w.ctx.excerpt(why, NOTE_MAX)))),
    };
    let (run, schedule) = end_run(w, message_id, status, note)?.unzip();
    let (schedule, Some(text)) = (schedule.flatten(), ending.answer_text()) else { return Ok(()) };
    let source = Source { turn, message_id, name: schedule.as_ref().map(|schedule| schedule.name.as_str()) };
    if let Some(mut run) = run
        && let Some(own_turn) = &run.own_turn
        && let Some(why) = deliver(w, &source, &run, &own_turn.target, &text)?
    {
        let before = run.note.filter(|_| status == RunStatus::Failed).map(|note| note + "; ").unwrap_or_default();
        run.note = Some(w.ctx.excerpt(&format!("{before}not delivered: {why}"), NOTE_MAX));
        w.schedule_run_put(&run)?;
    }
    if kind == Kind::Heartbeat {
        // The `message` field of a heartbeat holds its target.
        let target = schedule.as_ref().map_or("none", |heartbeat| heartbeat.message.as_str());
        let (kind, payload) = match read_heartbeat(&text, w.ctx.limits().heartbeat_ack_chars as usize) {
            HeartbeatReply::Quiet => (EventKind::HeartbeatQuiet, json!({ "turn_id": turn.turn_id })),
            HeartbeatReply::Alert(alert) => {
                let delivered = Target::of_alerts(target).and_then(|target| deliver_text(w, &source, &target, &alert));
                let payload = json!({
                    "turn_id": turn.turn_id, "target": target, "text": w.ctx.excerpt(&alert, ALERT_MAX),
                    "not_delivered": reason(delivered)?,
                });
                (EventKind::HeartbeatAlert, payload)
            }
        };
        w.emit_of(turn, kind, payload)?;
    }
    Ok(())
}

/// Records that mail of a schedule will not be processed, because it became a dead letter or its
/// agent was deleted.
pub fn lost(w: &mut Tx, message_id: MessageId, kind: Kind, why: &str) -> Result<()> {
    if is_of_schedule(kind) {
        end_run(w, message_id, RunStatus::Failed, Some(w.ctx.excerpt(why, NOTE_MAX)))?;
    }
    Ok(())
}

/// Records the end of a run. Returns the run, and its schedule if that still exists.
fn end_run(
    w: &mut Tx,
    message_id: MessageId,
    status: RunStatus,
    note: Option<String>,
) -> Result<Option<(ScheduleRun, Option<Schedule>)>> {
    let Some(mut run) = w.schedule_run_of(message_id)? else { return Ok(None) };
    run.status = status;
    run.note = note;
    w.schedule_run_put(&run)?;
    let Some(mut schedule) = w.schedule_get(run.schedule_id)? else { return Ok(Some((run, None))) };
    if schedule.runs == run.run {
        schedule.last_status = Some(status);
    }
    if schedule.kind == ScheduleKind::Cron && schedule.when.once_at().is_some_and(|at| at <= w.ctx.now()) {
        match schedule.next_at {
            // Its only time came during this run, so it can go off now.
            Some(_) if schedule.enabled => {
                schedule.next_at = Some(w.ctx.now());
                w.signal(Signal::Schedules);
            }
            Some(_) => {}
            None if status == RunStatus::Done => {
                w.schedule_delete(schedule.schedule_id)?;
                return Ok(Some((run, Some(schedule))));
            }
            // A failed job is kept, so that it can be read, changed and run again.
            None => schedule.enabled = false,
        }
    }
    w.schedule_put(&schedule)?;
    Ok(Some((run, Some(schedule))))
}

/// The longest text in an event, in characters.
const TEXT_MAX: usize = 400;

/// The turn of a schedule's run.
struct Source<'t> {
    turn: &'t Turn,
    /// The mail of the run.
    message_id: MessageId,
    /// The name of the schedule, if it still exists.
    name: Option<&'t str>,
}

/// Delivers the last text of a cron job's own turn. Returns why the delivery failed, if it did.
fn deliver(w: &mut Tx, source: &Source<'_>, run: &ScheduleRun, target: &Target, text: &str) -> Result<Option<String>> {
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
fn reason(delivered: Result<()>) -> Result<Option<String>> {
    match delivered {
        Ok(()) => Ok(None),
        Err(refusal) if matches!(refusal.code, Code::Internal | Code::Unavailable) => Err(refusal),
        Err(refusal) => Ok(Some(refusal.to_string())),
    }
}

/// Delivers a text to its target.
fn deliver_text(w: &mut Tx, source: &Source<'_>, target: &Target, text: &str) -> Result<()> {
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
