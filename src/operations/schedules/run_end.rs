//! The end of a run: the turn that took its mail ends it. Also handles the last text of
//! a heartbeat and the end of a one-shot job.

use ghost_domain::reply_tokens::{HeartbeatReply, read_heartbeat};

use super::outlet::{self, Source};
use super::runs::NOTE_MAX;
use crate::prelude::*;
use crate::turns::ending::Ending;

/// The longest alert text in an event, in characters.
const ALERT_MAX: usize = 4_000;

/// Whether mail of this kind comes from a schedule.
#[must_use]
pub(crate) fn is_of_schedule(kind: Kind) -> bool {
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
        && let Some(why) = outlet::deliver(w, &source, &run, &own_turn.target, &text)?
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
                let delivered =
                    Target::of_alerts(target).and_then(|target| outlet::deliver_text(w, &source, &target, &alert));
                let payload = json!({
                    "turn_id": turn.turn_id, "target": target, "text": w.ctx.excerpt(&alert, ALERT_MAX),
                    "not_delivered": outlet::reason(delivered)?,
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
