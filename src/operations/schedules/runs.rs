//! The records of schedules and of their runs: reads, writes and deletes them, emits their events, and
//! checks who may change one.
//!
//! This module must never check a schedule's rule, or set one off.

use crate::prelude::*;

/// The longest note in a run, in characters.
pub(super) const NOTE_MAX: usize = 300;
/// The number of the newest runs that are searched for one that is running or was refused.
const LOOK_BACK: u32 = 32;
/// The note of a one-shot job that waits for another run of it.
pub(super) const WAITS: &str = "a run of it has not ended; it goes off when that has";

/// A slot that is due.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) slot_at: Timestamp,
    pub(super) now: Timestamp,
    pub(super) late: bool,
    pub(super) missed: u32,
    /// Whether it is the only slot. Then a run that a temporary limit refused is tried again,
    /// because no other slot follows.
    pub(super) once: bool,
}

pub(super) fn blank(slot_at: Timestamp, now: Timestamp) -> Run {
    Run { slot_at, now, late: false, missed: 0, once: false }
}

/// Returns the run that records that this slot could not go off earlier, because a limit refused
/// its mail or another run was in progress.
pub(super) fn held(w: &mut StoreTx, schedule: &Schedule, slot_at: Timestamp) -> Result<Option<ScheduleRun>> {
    let runs = w.schedule_runs(schedule.schedule_id, LOOK_BACK)?;
    Ok(runs.into_iter().find(|run| {
        let kept_back = match run.status {
            RunStatus::Refused => true,
            RunStatus::Skipped => run.note.as_deref() == Some(WAITS),
            RunStatus::Queued | RunStatus::Done | RunStatus::Failed => false,
        };
        kept_back && run.slot_at == slot_at
    }))
}

/// Records a run that a limit refused. A watch that is refused again for the same reason adds no
/// run.
pub(super) fn refused(w: &mut Tx, schedule: &mut Schedule, run: Run, refusal: &Refusal) -> Result<ScheduleRun> {
    let note = w.ctx.excerpt(&refusal.to_string(), NOTE_MAX);
    if schedule.kind == ScheduleKind::Watch
        && let Some(last) = w.schedule_runs(schedule.schedule_id, 1)?.into_iter().next()
        && last.status == RunStatus::Refused
        && last.note.as_deref() == Some(note.as_str())
    {
        return Ok(last);
    }
    record(w, schedule, run, RunStatus::Refused, Some(note))
}

/// Returns the run of a cron job whose mail still waits or is being processed. There is at most
/// one.
pub(super) fn under_way(w: &mut StoreTx, schedule: &Schedule) -> Result<Option<ScheduleRun>> {
    let runs = w.schedule_runs(schedule.schedule_id, LOOK_BACK)?;
    let Some(last) = runs.into_iter().find(|run| run.status != RunStatus::Skipped) else { return Ok(None) };
    let (RunStatus::Queued, Some(message_id)) = (last.status, last.message_id) else { return Ok(None) };
    let message_state = w.message_state(message_id)?;
    let waits = message_state.is_some_and(|(state, ..)| matches!(state, MailState::Pending | MailState::Taken));
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
        own_turn: schedule.mode.own_turn().cloned(),
    }
}

/// Writes a run and the summary of it in the schedule, and deletes runs beyond the limits.
pub(super) fn write(w: &mut Tx, schedule: &mut Schedule, row: &ScheduleRun) -> Result<()> {
    schedule.runs = row.run;
    schedule.last_at = Some(row.fired_at);
    schedule.last_status = Some(row.status);
    w.schedule_run_put(row)?;
    w.schedule_put(schedule)?;
    let limits = w.ctx.limits();
    let (lines, bytes) = (limits.schedule_run_lines, limits.schedule_run_bytes);
    // Trims only sometimes, but then by more, so that the limits hold until the next time.
    let step = (lines / 32).clamp(1, 64);
    if row.run % i64::from(step) == 0 {
        w.schedule_runs_trim(schedule.schedule_id, lines - step, u64::from(bytes - bytes / 16))?;
    }
    Ok(())
}

/// Records a slot that led to no mail.
pub(super) fn record(
    w: &mut Tx,
    schedule: &mut Schedule,
    run: Run,
    status: RunStatus,
    note: Option<String>,
) -> Result<ScheduleRun> {
    let row = row(schedule, run, status, note);
    write(w, schedule, &row)?;
    skipped(w, schedule, &row)?;
    Ok(row)
}

pub(super) fn skipped(w: &mut Tx, schedule: &Schedule, row: &ScheduleRun) -> Result<()> {
    let facts = json!({
        "run": row.run, "slot_at": row.slot_at.rfc3339(), "missed": row.missed, "status": row.status, "why": row.note,
        "next_at": schedule.next_at.map(Timestamp::rfc3339),
    });
    emit(w, schedule, EventKind::ScheduleSkipped, facts)
}

/// Returns a schedule.
///
/// # Errors
/// `NotFound`.
pub fn get(r: &mut StoreTx, schedule_id: ScheduleId) -> Result<Schedule> {
    r.schedule_get(schedule_id)?.ok_or_else(|| {
        Refusal::not_found("schedule", &schedule_id.to_string(), None)
            .hint("a schedule that is over is deleted; list the schedules to see which exist")
    })
}

/// Returns all schedules of a kind, of all agents.
pub fn all_of_kind(r: &mut StoreTx, kind: ScheduleKind) -> Result<Vec<Schedule>> {
    read_all(|last: Option<&Schedule>| {
        let after = last.map(|last| (last.agent_id.clone(), last.kind, last.name.clone()));
        r.schedule_list(None, Some(kind), after.as_ref())
    })
}

/// Checks that `by` may change a schedule. An agent may change the schedules that it set for
/// itself, an operator all of them.
pub(super) fn may_change(by: &Party, schedule: &Schedule) -> Result<()> {
    match by.agent() {
        Some(agent_id) if *by != schedule.creator || *agent_id != schedule.agent_id => {
            Err(refusal!(AccessDenied, "{} `{}` was set by {}", schedule.kind, schedule.name, schedule.creator)
                .hint("choose another name for your own schedule, or ask the operator to change this one"))
        }
        _ => Ok(()),
    }
}

/// Writes a new or changed schedule and emits its event.
pub(super) fn save(w: &mut Tx, by: &Party, schedule: &Schedule) -> Result<()> {
    w.schedule_put(schedule)?;
    let facts = json!({
        "when": schedule.when.shown(), "options": (schedule.kind == ScheduleKind::Cron).then_some(&schedule.mode),
        "enabled": schedule.enabled, "next_at": schedule.next_at.map(Timestamp::rfc3339), "by": by,
    });
    w.signal(Signal::Schedules);
    emit(w, schedule, EventKind::ScheduleSet, facts)
}

/// Deletes a schedule and emits its event.
pub(super) fn remove(w: &mut Tx, by: &Party, schedule: &Schedule, why: Option<&str>) -> Result<()> {
    w.schedule_delete(schedule.schedule_id)?;
    w.signal(Signal::Schedules);
    emit(w, schedule, EventKind::ScheduleCancelled, json!({ "by": by, "why": why }))
}

/// Emits an event about a schedule, which it names.
pub(super) fn emit(w: &mut Tx, schedule: &Schedule, kind: EventKind, mut payload: Value) -> Result<()> {
    payload["schedule_id"] = json!(schedule.schedule_id);
    payload["kind"] = json!(schedule.kind);
    payload["name"] = json!(schedule.name);
    w.emit(NewEvent::new(kind, payload).agent(&schedule.agent_id).correlation(schedule.schedule_id))
}
