//! Setting schedules off: the mail, the run and the next instant in one transaction (SCHED-02, SCHED-09).

use std::time::Duration;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::schedule::changes::{FileChange, report};
use ghost_domain::schedule::slots::{MISSED_MAX, Slots};
use ghost_domain::schedule::{Missed, RunStatus, When};
use ghost_domain::text::prefix_bytes;
use ghost_domain::{
    AgentId, AgentStatus, Code, Kind, MailState, Party, Refusal, Schedule, ScheduleId, ScheduleKind, ScheduleRun,
    Timestamp, WatchSnapshot,
};
use ghost_store::Writes;
use serde_json::json;

use super::text::{self, Moment};
use crate::mail::{self, Chain, Draft};
use crate::{Cx, Result};

/// Schedules that are set off in one transaction.
const BATCH: u32 = 32;
/// What is this much behind its slot is late.
const LATE: Duration = Duration::from_secs(5);
/// The wait until mail that a bound refused is tried again, of what has but one time.
const TRY_AGAIN: Duration = Duration::from_secs(30);
/// Runs that are looked through for one that is still under way, or that was refused.
const LOOK_BACK: u32 = 32;
/// Why a slot is passed over.
const STILL_RUNS: &str = "the last run has not ended";
const WAS_DOWN: &str = "the world was not running or was paused, or its clock was moved";

/// What an agent's heartbeat finds (HB-04).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Something to be asked.
    Prompt(String),
    /// There is a prompt and nothing in it.
    Empty,
    /// It is outside the hours in which the agent looks.
    Resting,
}

/// What the configuration says of an agent's heartbeat at an instant.
pub type Beats = dyn Fn(&AgentId, Timestamp) -> Beat + Send + Sync;

/// Sets off what is due, a bounded number of them. `since` is when this daemon began to look: a slot before it was missed.
/// Gives whether there may be more.
pub async fn due(w: &mut dyn Writes, cx: &Cx, since: Timestamp, beats: &Beats) -> Result<bool> {
    let now = cx.now();
    let schedules = w.schedules_due(now, BATCH).await?;
    let more = schedules.len() >= BATCH as usize;
    for mut schedule in schedules {
        let slot = match schedule.when {
            // What is tried again stands for its own time still.
            When::At { at } => at,
            _ => schedule.next_at.unwrap_or(now),
        };
        let slots = match Slots::of(&schedule.when) {
            Ok(slots) => slots,
            // What could be reckoned with when it was set no longer can: it must not stand in the way of the others.
            Err(refusal) => {
                schedule.enabled = false;
                schedule.next_at = None;
                record(w, cx, &mut schedule, blank(slot, now), RunStatus::Refused, Some(refusal.to_string())).await?;
                continue;
            }
        };
        let passed = slots.passed(slot, now);
        // Strictly after both, so that a clock that goes back sets nothing off twice.
        schedule.next_at = slots.next_after(passed.last.max(now));
        let lag = now.since(passed.last);
        let on_time = passed.last >= since && lag < LATE;
        let once = matches!(schedule.when, When::At { .. });
        let run = Run { slot_at: passed.last, now, late: !on_time, missed: passed.count - 1, once };
        match schedule.kind {
            ScheduleKind::Heartbeat => beat(w, cx, &mut schedule, run, beats).await?,
            ScheduleKind::Cron if !on_time && !once && schedule.missed == Missed::Skip => {
                let words = if passed.count >= MISSED_MAX { "at least " } else { "" };
                let note = format!("{words}{} slots passed: {WAS_DOWN}", passed.count);
                let run = Run { missed: passed.count, ..run };
                record(w, cx, &mut schedule, run, RunStatus::Skipped, Some(note)).await?;
            }
            ScheduleKind::Cron if under_way(w, &schedule).await?.is_some() => {
                pass_over(w, cx, &mut schedule, run).await?;
            }
            ScheduleKind::Cron | ScheduleKind::Timer | ScheduleKind::Watch => {
                let chain = match schedule.kind {
                    ScheduleKind::Cron => Chain::root(cx),
                    _ => Chain { root_id: schedule.root_id, hop: schedule.hop },
                };
                fire(w, cx, &mut schedule, run, chain, None, None).await?;
            }
        }
        if once && schedule.next_at.is_none() {
            // Its one time is over. The run stays.
            w.schedule_delete(schedule.schedule_id).await?;
        }
    }
    Ok(more)
}

/// Sets a schedule off now, besides its own time.
///
/// # Errors
/// `NotFound`, `AccessDenied`; `Conflict` while a run of it is under way; what the receiver's bounds refuse is in the run.
pub async fn run_now(
    w: &mut dyn Writes,
    cx: &Cx,
    by: &Party,
    schedule_id: ScheduleId,
    chain: Chain,
) -> Result<ScheduleRun> {
    let mut schedule = super::get(w, schedule_id).await?;
    super::may_change(by, &schedule)?;
    if let Some(run) = under_way(w, &schedule).await? {
        return Err(Refusal::new(
            Code::Conflict,
            format!("run {} of {} `{}` has not ended", run.run, schedule.kind, schedule.name),
        )
        .hint("wait until it has, or cancel its turn"));
    }
    let now = cx.now();
    fire(w, cx, &mut schedule, blank(now, now), chain, Some(by), None).await
}

/// Reports what changed below a watch since it last looked. `late` says that nobody looked for a while. Gives nothing if
/// there is nothing to report. What a bound refuses is not forgotten: the next look finds the same changes again.
///
/// `made` is the `created_at` of the watch that was looked at. One that has replaced it meanwhile looks elsewhere, or begins
/// later: what was seen says nothing of it.
pub async fn changed(
    w: &mut dyn Writes,
    cx: &Cx,
    schedule_id: ScheduleId,
    made: Timestamp,
    seen: &WatchSnapshot,
    late: bool,
) -> Result<Option<ScheduleRun>> {
    let Some(mut schedule) = watch(w, schedule_id, made).await? else { return Ok(None) };
    let When::Change { changes: wanted, .. } = &schedule.when else { return Ok(None) };
    let before = w.watch_snapshot_get(schedule_id).await?;
    let changes: Vec<FileChange> = match &before {
        Some(before) => before.changes_to(seen).into_iter().filter(|change| wanted.contains(&change.change)).collect(),
        None => Vec::new(),
    };
    if changes.is_empty() {
        if before.as_ref() != Some(seen) {
            w.watch_snapshot_put(schedule_id, seen).await?;
        }
        return Ok(None);
    }
    let now = cx.now();
    let chain = Chain { root_id: schedule.root_id, hop: schedule.hop };
    let run = Run { late, ..blank(now, now) };
    let run = fire(w, cx, &mut schedule, run, chain, None, Some(&report(&changes))).await?;
    if run.status != RunStatus::Refused {
        w.watch_snapshot_put(schedule_id, seen).await?;
    }
    Ok(Some(run))
}

/// Records that a watch cannot look, such as for too many files. `made` is as in [`changed`].
pub async fn watch_refused(
    w: &mut dyn Writes,
    cx: &Cx,
    schedule_id: ScheduleId,
    made: Timestamp,
    refusal: &Refusal,
) -> Result<()> {
    let Some(mut schedule) = watch(w, schedule_id, made).await? else { return Ok(()) };
    let now = cx.now();
    refused(w, cx, &mut schedule, blank(now, now), refusal).await?;
    Ok(())
}

/// The watch that was looked at, if it is still the one that was made then.
async fn watch(w: &mut dyn Writes, schedule_id: ScheduleId, made: Timestamp) -> Result<Option<Schedule>> {
    let found = w.schedule_get(schedule_id).await?;
    Ok(found.filter(|schedule| schedule.enabled && schedule.created_at == made))
}

/// A slot that has come.
#[derive(Clone, Copy)]
struct Run {
    slot_at: Timestamp,
    now: Timestamp,
    late: bool,
    missed: u32,
    /// Whether it is the only one: what a passing bound refuses is tried again, because no other slot comes.
    once: bool,
}

fn blank(slot_at: Timestamp, now: Timestamp) -> Run {
    Run { slot_at, now, late: false, missed: 0, once: false }
}

/// Delivers the mail of a run and records it. Of a slot that is tried again, only the first refusal is a run of its own.
async fn fire(
    w: &mut dyn Writes,
    cx: &Cx,
    schedule: &mut Schedule,
    run: Run,
    chain: Chain,
    by_hand: Option<&Party>,
    report: Option<&str>,
) -> Result<ScheduleRun> {
    let held = if run.once { held(w, schedule, run.slot_at).await? } else { None };
    let moment = Moment {
        slot_at: run.slot_at,
        now: run.now,
        late: run.late,
        held: held.as_ref().and_then(|held| held.note.as_deref()),
        missed: run.missed,
        by_hand,
        report,
    };
    let (subject, body) = text::mail(schedule, &moment);
    let body = prefix_bytes(&body, cx.limits().message_bytes as usize).to_owned();
    let kind = match schedule.kind {
        ScheduleKind::Timer => Kind::Timer,
        ScheduleKind::Cron => Kind::Cron,
        ScheduleKind::Watch => Kind::Watch,
        ScheduleKind::Heartbeat => Kind::Heartbeat,
    };
    let draft =
        Draft { subject: Some(subject), ..Draft::new(&schedule.agent_id, schedule.creator.clone(), kind, body, chain) };
    match mail::deliver(w, cx, draft).await {
        Ok(envelope) => {
            let row =
                ScheduleRun { message_id: Some(envelope.message_id), ..row(schedule, run, RunStatus::Queued, None) };
            write(w, schedule, &row).await?;
            let event = NewEvent::new(
                EventKind::ScheduleFired,
                json!({
                    "schedule_id": schedule.schedule_id, "kind": schedule.kind, "name": schedule.name, "run": row.run,
                    "slot_at": row.slot_at.rfc3339(), "late": row.late, "missed": row.missed,
                    "message_id": envelope.message_id, "next_at": schedule.next_at.map(Timestamp::rfc3339),
                    "by": by_hand,
                }),
            );
            say(w, cx, schedule, event).await?;
            Ok(row)
        }
        // A store that fails fails the whole batch, which is tried again; a bound is this run's own.
        Err(refusal) if matches!(refusal.code, Code::Internal | Code::Unavailable) => Err(refusal),
        Err(refusal) => {
            if run.once && refusal.code.retryable() {
                schedule.next_at = Some(run.now.plus(TRY_AGAIN));
                if let Some(held) = held {
                    w.schedule_put(schedule).await?;
                    return Ok(held);
                }
            }
            refused(w, cx, schedule, run, &refusal).await
        }
    }
}

/// The run that records that a bound refused the mail of this slot before.
async fn held(w: &mut dyn Writes, schedule: &Schedule, slot_at: Timestamp) -> Result<Option<ScheduleRun>> {
    let runs = w.schedule_runs(schedule.schedule_id, LOOK_BACK).await?;
    Ok(runs.into_iter().find(|run| run.status == RunStatus::Refused && run.slot_at == slot_at))
}

/// Records a run that a bound refused; one that is refused again for the same reason is the same run.
async fn refused(
    w: &mut dyn Writes,
    cx: &Cx,
    schedule: &mut Schedule,
    run: Run,
    refusal: &Refusal,
) -> Result<ScheduleRun> {
    let note = cx.excerpt(&refusal.to_string(), 300);
    if schedule.kind == ScheduleKind::Watch
        && let Some(last) = w.schedule_runs(schedule.schedule_id, 1).await?.into_iter().next()
        && last.status == RunStatus::Refused
        && last.note.as_deref() == Some(note.as_str())
    {
        return Ok(last);
    }
    record(w, cx, schedule, run, RunStatus::Refused, Some(note)).await
}

/// Passes a slot over because the last run has not ended. Slots passed over in a row are one record.
async fn pass_over(w: &mut dyn Writes, cx: &Cx, schedule: &mut Schedule, run: Run) -> Result<()> {
    let last = w.schedule_runs(schedule.schedule_id, 1).await?.into_iter().next();
    match last {
        Some(last) if last.status == RunStatus::Skipped && last.note.as_deref() == Some(STILL_RUNS) => {
            let missed = last.missed.saturating_add(run.missed).saturating_add(1);
            let row = ScheduleRun { slot_at: run.slot_at, fired_at: run.now, missed, ..last };
            w.schedule_run_put(&row).await?;
            w.schedule_put(schedule).await?;
            skipped(w, cx, schedule, &row).await
        }
        _ => {
            let run = Run { missed: run.missed + 1, ..run };
            record(w, cx, schedule, run, RunStatus::Skipped, Some(STILL_RUNS.to_owned())).await?;
            Ok(())
        }
    }
}

/// A heartbeat: asked when the agent has nothing else to do and there is something to ask (HB-04).
async fn beat(w: &mut dyn Writes, cx: &Cx, schedule: &mut Schedule, run: Run, beats: &Beats) -> Result<()> {
    let why = match beats(&schedule.agent_id, run.now) {
        // Nobody expects a word of every hour of the night.
        Beat::Resting => {
            w.schedule_put(schedule).await?;
            return Ok(());
        }
        Beat::Empty => "there is nothing to look at",
        Beat::Prompt(_) if busy(w, &schedule.agent_id).await? => "the agent is busy",
        Beat::Prompt(prompt) => {
            let run = Run { late: false, missed: 0, ..run };
            fire(w, cx, schedule, run, Chain::root(cx), None, Some(&prompt)).await?;
            return Ok(());
        }
    };
    schedule.last_at = Some(run.now);
    schedule.last_status = Some(RunStatus::Skipped);
    w.schedule_put(schedule).await?;
    let event = NewEvent::new(
        EventKind::HeartbeatSkipped,
        json!({ "schedule_id": schedule.schedule_id, "why": why, "next_at": schedule.next_at.map(Timestamp::rfc3339) }),
    );
    say(w, cx, schedule, event).await
}

/// Whether an agent has something to do, or does not run.
async fn busy(w: &mut dyn Writes, agent_id: &AgentId) -> Result<bool> {
    let runs = w.agent_get(agent_id).await?.is_some_and(|agent| agent.status == AgentStatus::Running);
    Ok(!runs
        || w.turn_open_of(agent_id).await?.is_some()
        || w.inbox_pending(agent_id, 100).await?.iter().any(|envelope| envelope.wake))
}

/// The run of a cron job whose mail still waits or is being worked on: there is one at a time.
async fn under_way(w: &mut dyn Writes, schedule: &Schedule) -> Result<Option<ScheduleRun>> {
    let runs = w.schedule_runs(schedule.schedule_id, LOOK_BACK).await?;
    let Some(last) = runs.into_iter().find(|run| run.status != RunStatus::Skipped) else { return Ok(None) };
    let (RunStatus::Queued, Some(message_id)) = (last.status, last.message_id) else { return Ok(None) };
    let standing = w.message_standing(message_id).await?;
    let waits = standing.is_some_and(|(state, ..)| matches!(state, MailState::Pending | MailState::Taken));
    Ok(waits.then_some(last))
}

fn row(schedule: &Schedule, run: Run, status: RunStatus, note: Option<String>) -> ScheduleRun {
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
    }
}

/// Writes a run and what the schedule then says of itself.
async fn write(w: &mut dyn Writes, schedule: &mut Schedule, row: &ScheduleRun) -> Result<()> {
    schedule.runs = row.run;
    schedule.last_at = Some(row.fired_at);
    schedule.last_status = Some(row.status);
    w.schedule_run_put(row).await?;
    w.schedule_put(schedule).await?;
    Ok(())
}

/// Records a slot that did not lead to mail.
async fn record(
    w: &mut dyn Writes,
    cx: &Cx,
    schedule: &mut Schedule,
    run: Run,
    status: RunStatus,
    note: Option<String>,
) -> Result<ScheduleRun> {
    let row = row(schedule, run, status, note);
    write(w, schedule, &row).await?;
    skipped(w, cx, schedule, &row).await?;
    Ok(row)
}

async fn skipped(w: &mut dyn Writes, cx: &Cx, schedule: &Schedule, row: &ScheduleRun) -> Result<()> {
    let event = NewEvent::new(
        EventKind::ScheduleSkipped,
        json!({
            "schedule_id": schedule.schedule_id, "kind": schedule.kind, "name": schedule.name, "run": row.run,
            "slot_at": row.slot_at.rfc3339(), "missed": row.missed, "status": row.status, "why": row.note,
            "next_at": schedule.next_at.map(Timestamp::rfc3339),
        }),
    );
    say(w, cx, schedule, event).await
}

async fn say(w: &mut dyn Writes, cx: &Cx, schedule: &Schedule, event: NewEvent) -> Result<()> {
    cx.emit(w, event.agent(&schedule.agent_id).correlation(schedule.schedule_id)).await
}
