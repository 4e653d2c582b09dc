//! Reads, writes and deletes schedules, emits their events, and checks who may change one.
//!
//! This module must never check a schedule's rule, or set one off.

use crate::prelude::*;

/// Returns a schedule.
///
/// # Errors
/// `NotFound`.
pub fn get(r: &mut StoreTx, schedule_id: ScheduleId) -> Result<Schedule> {
    let found = r.schedule_get(schedule_id)?;
    found.ok_or_else(|| {
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
    let payload = json!({
        "schedule_id": schedule.schedule_id, "kind": schedule.kind, "name": schedule.name,
        "when": schedule.when.shown(), "options": (schedule.kind == ScheduleKind::Cron).then_some(&schedule.mode),
        "enabled": schedule.enabled, "next_at": schedule.next_at.map(Timestamp::rfc3339), "by": by,
    });
    emit(w, schedule, EventKind::ScheduleSet, payload)?;
    w.signal(Signal::Schedules);
    Ok(())
}

/// Deletes a schedule and emits its event.
pub(super) fn remove(w: &mut Tx, by: &Party, schedule: &Schedule, why: Option<&str>) -> Result<()> {
    w.schedule_delete(schedule.schedule_id)?;
    let payload = json!({
        "schedule_id": schedule.schedule_id, "kind": schedule.kind, "name": schedule.name, "by": by, "why": why,
    });
    emit(w, schedule, EventKind::ScheduleCancelled, payload)?;
    w.signal(Signal::Schedules);
    Ok(())
}

/// Emits an event about a schedule.
pub(super) fn emit(w: &mut Tx, schedule: &Schedule, kind: EventKind, payload: Value) -> Result<()> {
    w.emit(NewEvent::new(kind, payload).agent(&schedule.agent_id).correlation(schedule.schedule_id))
}
