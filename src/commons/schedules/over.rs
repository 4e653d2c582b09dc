//! How a run ends: with the turn that took its mail (SCHED-09), and what a heartbeat's last text becomes (HB-02..06).

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::reply_tokens::{HeartbeatReply, read_heartbeat};
use ghost_domain::schedule::RunStatus;
use ghost_domain::{Code, Kind, MessageId, Party, Refusal, Turn};
use ghost_store::Writes;
use serde_json::json;

use crate::chat::{self, NewPost, Speaker};
use crate::mail::Chain;
use crate::turns::Ending;
use crate::{Cx, Result, conversations};

/// Characters of a reason that a run keeps.
const NOTE_MAX: usize = 300;
/// Characters of an alert in its event.
const ALERT_MAX: usize = 4_000;
/// Targets that are no channel.
const NOWHERE: &str = "none";
const LAST: &str = "last";

/// Whether mail of this kind comes from a schedule.
#[must_use]
pub(crate) fn is_of_schedule(kind: Kind) -> bool {
    matches!(kind, Kind::Timer | Kind::Cron | Kind::Watch | Kind::Heartbeat)
}

/// Records how the run ended whose mail the turn held. Does nothing for other mail.
pub async fn turn_ended(
    w: &mut dyn Writes,
    cx: &Cx,
    turn: &Turn,
    message_id: MessageId,
    kind: Kind,
    ending: &Ending,
) -> Result<()> {
    if !is_of_schedule(kind) {
        return Ok(());
    }
    let (status, note) = match ending {
        Ending::Finished(_) => (RunStatus::Done, None),
        Ending::Failed(refusal) => (RunStatus::Failed, Some(cx.excerpt(&refusal.to_string(), NOTE_MAX))),
        Ending::Cancelled(why) => (RunStatus::Failed, Some(format!("cancelled: {}", cx.excerpt(why, NOTE_MAX)))),
    };
    let target = over(w, message_id, status, note).await?;
    if kind == Kind::Heartbeat
        && let Ending::Finished(text) = ending
    {
        let event = match read_heartbeat(text, cx.limits().heartbeat_ack_chars as usize) {
            HeartbeatReply::Quiet => NewEvent::new(EventKind::HeartbeatQuiet, json!({ "turn_id": turn.turn_id })),
            HeartbeatReply::Alert(alert) => {
                let target = target.unwrap_or_else(|| NOWHERE.to_owned());
                let trouble = match tell(w, cx, turn, &target, &alert).await {
                    Ok(()) => None,
                    // The store's own trouble is the turn's; a target that is not there is told beside the alert.
                    Err(refusal) if matches!(refusal.code, Code::Internal | Code::Unavailable) => return Err(refusal),
                    Err(refusal) => Some(refusal.to_string()),
                };
                NewEvent::new(
                    EventKind::HeartbeatAlert,
                    json!({
                        "turn_id": turn.turn_id, "target": target, "text": cx.excerpt(&alert, ALERT_MAX),
                        "not_delivered": trouble,
                    }),
                )
            }
        };
        cx.emit(w, event.agent(&turn.agent_id).correlation(turn.turn_id)).await?;
    }
    Ok(())
}

/// Brings an alert to its target: nowhere, the agent's last conversation with someone outside, or a chat channel (HB-04).
async fn tell(w: &mut dyn Writes, cx: &Cx, turn: &Turn, target: &str, alert: &str) -> Result<()> {
    match target {
        NOWHERE => Ok(()),
        LAST => {
            let last = w.conversation_list(Some(&turn.agent_id)).await?.into_iter().next().ok_or_else(|| {
                Refusal::new(Code::NotFound, format!("{} has no conversation with anyone outside", turn.agent_id))
                    .hint("begin one, or give the heartbeat another target")
            })?;
            let post = conversations::Post { content: alert.to_owned(), attachments: Vec::new(), reply_to: None };
            conversations::post(w, cx, &turn.agent_id, turn.turn_id, last.conversation_id, post).await?;
            Ok(())
        }
        channel => {
            let new = NewPost {
                channel: channel.parse()?,
                content: alert.to_owned(),
                reply_to: None,
                deliver: false,
                chain: Chain { root_id: turn.root_id, hop: turn.hop.saturating_add(1) },
            };
            let speaker = Speaker::from(Party::Agent(turn.agent_id.clone()));
            chat::post_last_words(w, cx, &speaker, cx.chat_wake(), new).await?;
            Ok(())
        }
    }
}

/// Records that mail of a schedule will not be worked off: it was set aside, or its agent was deleted.
pub async fn lost(w: &mut dyn Writes, cx: &Cx, message_id: MessageId, kind: Kind, why: &str) -> Result<()> {
    if is_of_schedule(kind) {
        over(w, message_id, RunStatus::Failed, Some(cx.excerpt(why, NOTE_MAX))).await?;
    }
    Ok(())
}

/// Gives the message of the schedule, which for a heartbeat is its target.
async fn over(
    w: &mut dyn Writes,
    message_id: MessageId,
    status: RunStatus,
    note: Option<String>,
) -> Result<Option<String>> {
    let Some(mut run) = w.schedule_run_of(message_id).await? else { return Ok(None) };
    run.status = status;
    run.note = note;
    w.schedule_run_put(&run).await?;
    let Some(mut schedule) = w.schedule_get(run.schedule_id).await? else { return Ok(None) };
    if schedule.runs == run.run {
        schedule.last_status = Some(status);
        w.schedule_put(&schedule).await?;
    }
    Ok(Some(schedule.message))
}
