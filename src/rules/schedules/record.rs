//! The record of runs (SCHED-06, SCHED-09): every slot ends in one, whether it led to mail or not.

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::schedule::{Payload, RunStatus};
use ghost_domain::{MailState, Refusal, Schedule, ScheduleKind, ScheduleRun, Timestamp};
use ghost_store::Writes;
use serde_json::json;

use crate::{Result, RuleContext};

/// Runs that are looked through for one that is still under way, or that was refused.
const LOOK_BACK: u32 = 32;
/// Why the one time of a job waits.
pub(super) const WAITS: &str = "a run of it has not ended; it goes off when that has";

/// A slot that has come.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) slot_at: Timestamp,
    pub(super) now: Timestamp,
    pub(super) late: bool,
    pub(super) missed: u32,
    /// Whether it is the only one: what a passing bound refuses is tried again, because no other slot comes.
    pub(super) once: bool,
}

pub(super) fn blank(slot_at: Timestamp, now: Timestamp) -> Run {
    Run { slot_at, now, late: false, missed: 0, once: false }
}

/// The run that records that this slot could not go off before: a bound refused its mail, or another run was under way.
pub(super) async fn held(w: &mut dyn Writes, schedule: &Schedule, slot_at: Timestamp) -> Result<Option<ScheduleRun>> {
    let runs = w.schedule_runs(schedule.schedule_id, LOOK_BACK).await?;
    Ok(runs.into_iter().find(|run| {
        let kept_back = match run.status {
            RunStatus::Refused => true,
            RunStatus::Skipped => run.note.as_deref() == Some(WAITS),
            RunStatus::Queued | RunStatus::Done | RunStatus::Failed => false,
        };
        kept_back && run.slot_at == slot_at
    }))
}

/// Records a run that a bound refused; one that is refused again for the same reason is the same run.
pub(super) async fn refused(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    schedule: &mut Schedule,
    run: Run,
    refusal: &Refusal,
) -> Result<ScheduleRun> {
    let note = ctx.excerpt(&refusal.to_string(), 300);
    if schedule.kind == ScheduleKind::Watch
        && let Some(last) = w.schedule_runs(schedule.schedule_id, 1).await?.into_iter().next()
        && last.status == RunStatus::Refused
        && last.note.as_deref() == Some(note.as_str())
    {
        return Ok(last);
    }
    record(w, ctx, schedule, run, RunStatus::Refused, Some(note)).await
}

/// The run of a cron job whose mail still waits or is being worked on: there is one at a time.
pub(super) async fn under_way(w: &mut dyn Writes, schedule: &Schedule) -> Result<Option<ScheduleRun>> {
    let runs = w.schedule_runs(schedule.schedule_id, LOOK_BACK).await?;
    let Some(last) = runs.into_iter().find(|run| run.status != RunStatus::Skipped) else { return Ok(None) };
    let (RunStatus::Queued, Some(message_id)) = (last.status, last.message_id) else { return Ok(None) };
    let standing = w.message_standing(message_id).await?;
    let waits = standing.is_some_and(|(state, ..)| matches!(state, MailState::Pending | MailState::Taken));
    Ok(waits.then_some(last))
}

pub(super) fn row(schedule: &Schedule, run: Run, status: RunStatus, note: Option<String>) -> ScheduleRun {
    ScheduleRun {
        schedule_id: schedule.schedule_id,
        run: schedule.runs + 1,
        agent_id: schedule.agent_id.clone(),
        slot_at: run.slot_at,
        fired_at: run.now,
        late: run.late,
        missed: run.missed,
        status,
        message_id: None,
        note,
        options: (schedule.options.payload == Payload::AgentTurn).then(|| schedule.options.clone()),
    }
}

/// Writes a run and what the schedule then says of itself, and lets go of runs beyond the bounds (SCHED-06).
pub(super) async fn write(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    schedule: &mut Schedule,
    row: &ScheduleRun,
) -> Result<()> {
    schedule.runs = row.run;
    schedule.last_at = Some(row.fired_at);
    schedule.last_status = Some(row.status);
    w.schedule_run_put(row).await?;
    w.schedule_put(schedule).await?;
    let limits = ctx.limits();
    let (lines, bytes) = (limits.schedule_run_lines, limits.schedule_run_bytes);
    // Every so often, and then by so much more that the bounds hold until the next time.
    let step = (lines / 32).clamp(1, 64);
    if row.run % i64::from(step) == 0 {
        w.schedule_runs_trim(schedule.schedule_id, lines - step, u64::from(bytes - bytes / 16)).await?;
    }
    Ok(())
}

/// Records a slot that did not lead to mail.
pub(super) async fn record(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    schedule: &mut Schedule,
    run: Run,
    status: RunStatus,
    note: Option<String>,
) -> Result<ScheduleRun> {
    let row = row(schedule, run, status, note);
    write(w, ctx, schedule, &row).await?;
    skipped(w, ctx, schedule, &row).await?;
    Ok(row)
}

pub(super) async fn skipped(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    schedule: &Schedule,
    row: &ScheduleRun,
) -> Result<()> {
    let event = NewEvent::new(
        EventKind::ScheduleSkipped,
        json!({
            "schedule_id": schedule.schedule_id, "kind": schedule.kind, "name": schedule.name, "run": row.run,
            "slot_at": row.slot_at.rfc3339(), "missed": row.missed, "status": row.status, "why": row.note,
            "next_at": schedule.next_at.map(Timestamp::rfc3339),
        }),
    );
    say(w, ctx, schedule, event).await
}

pub(super) async fn say(w: &mut dyn Writes, ctx: &RuleContext, schedule: &Schedule, event: NewEvent) -> Result<()> {
    ctx.emit(w, event.agent(&schedule.agent_id).correlation(schedule.schedule_id)).await
}
