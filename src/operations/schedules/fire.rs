//! Sets schedules off: mail, run and next time in one transaction.

use ghost_domain::mail::waits_for_heartbeat;
use ghost_domain::schedule::WakeMode;
use ghost_domain::schedule::changes::report;
use ghost_domain::schedule::slots::TRY_AGAIN;
use ghost_domain::schedule::slots::{MISSED_MAX, Slots};

use super::runs::{
    Moment, NOTE_MAX, Run, WAITS, blank, emit, get, held, lately, mail_of, may_change, record, refused, row, skipped,
    under_way, write,
};
use crate::mail::{self, NewMessage};
use crate::prelude::*;

/// The most schedules that one transaction sets off.
const BATCH: u32 = 32;
/// A run counts as late from this delay on.
const LATE: Duration = Duration::from_secs(5);
/// Why a slot is skipped.
const STILL_RUNS: &str = "the last run has not ended";
const WAS_DOWN: &str = "the world was not running or was paused, or its clock was moved";

/// What the configuration says about a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Beat {
    /// The agent gets this prompt; `None` is a usual one.
    Prompt(Option<String>),
    /// The prompt is empty.
    Empty,
    /// It is outside the agent's active hours.
    Resting,
}

/// Returns what the configuration says about an agent's heartbeat at a time.
pub type Beats = dyn Fn(&AgentId, Timestamp) -> Beat + Send + Sync;

/// Sets off the due schedules, a limited number of them. `since` is when this daemon started to
/// check; a slot before it was missed. Returns whether there may be more.
pub fn due(w: &mut Tx, since: Timestamp, beats: &Beats) -> Result<bool> {
    let now = w.ctx.now();
    let schedules = match w.schedules_due(now, BATCH) {
        // A row that cannot be read must not block the others.
        Err(StoreError::Row { .. }) => return suspend_unreadable(w, now),
        found => found?,
    };
    let more = schedules.len() >= BATCH as usize;
    for mut schedule in schedules {
        // A one-shot that is tried again keeps its original slot.
        let once_at = schedule.when.once_at();
        let slot = once_at.or(schedule.next_at).unwrap_or(now);
        let slots = match Slots::of(&schedule.when) {
            Ok(slots) => slots,
            // The rule was valid when it was set but no longer is. It must not block the other
            // schedules.
            Err(refusal) => {
                schedule.enabled = false;
                schedule.next_at = None;
                record(w, &mut schedule, blank(slot, now), RunStatus::Refused, Some(refusal.to_string()))?;
                continue;
            }
        };
        let passed = slots.passed(slot, now);
        // Strictly after both times, so that a clock that goes back sets nothing off twice.
        schedule.next_at = slots.next_after(passed.last.max(now));
        let lag = now.since(passed.last);
        let on_time = passed.last >= since && lag < LATE;
        let once = once_at.is_some();
        let run = Run { slot_at: passed.last, now, late: !on_time, missed: passed.count - 1, once };
        match schedule.kind {
            ScheduleKind::Heartbeat => beat(w, &mut schedule, run, beats)?,
            ScheduleKind::Cron if !on_time && !once && schedule.missed == Missed::Skip => {
                let words = if passed.count >= MISSED_MAX { "at least " } else { "" };
                let note = format!("{words}{} slots passed: {WAS_DOWN}", passed.count);
                let run = Run { missed: passed.count, ..run };
                record(w, &mut schedule, run, RunStatus::Skipped, Some(note))?;
            }
            ScheduleKind::Cron if under_way(w, &schedule)?.is_some() => match once {
                // Its time came during a run set off by hand.
                true => drop(postpone(w, &mut schedule, run, RunStatus::Skipped, WAITS.to_owned())?),
                false => skip(w, &mut schedule, run)?,
            },
            ScheduleKind::Cron | ScheduleKind::Timer | ScheduleKind::Watch => {
                let chain = match schedule.kind {
                    ScheduleKind::Cron => Chain { conversation_id: schedule.conversation_id, ..Chain::root(w.ctx) },
                    _ => chain_of(&schedule),
                };
                fire(w, &mut schedule, run, chain, None, None)?;
            }
        }
        if once && schedule.next_at.is_none() {
            // Its only time has passed. The run stays. A cron job stays until its run has ended
            // well.
            match (schedule.kind, schedule.last_status) {
                (ScheduleKind::Cron, Some(RunStatus::Queued)) => {}
                (ScheduleKind::Cron, _) => {
                    schedule.enabled = false;
                    w.schedule_put(&schedule)?;
                }
                _ => w.schedule_delete(schedule.schedule_id)?,
            }
        }
    }
    Ok(more)
}

/// Disables due schedules whose rows cannot be read, and emits an event for each. Returns whether
/// there may be more.
fn suspend_unreadable(w: &mut Tx, now: Timestamp) -> Result<bool> {
    let aside = w.schedules_suspend_unreadable(now, BATCH)?;
    if aside.is_empty() {
        // Another row caused the error, and a repetition does not help.
        return w.schedules_due(now, BATCH).map(|_| true).map_err(Refusal::from);
    }
    for (schedule_id, what) in aside {
        tracing::error!(%schedule_id, what, "a due schedule cannot be read and was set aside");
        let payload = json!({ "schedule_id": schedule_id, "error": w.ctx.excerpt(&what, 500) });
        w.emit(NewEvent::new(EventKind::ScheduleSetAside, payload))?;
    }
    Ok(true)
}

/// Sets a schedule off now, in addition to its own times.
///
/// # Errors
/// `NotFound`; `AccessDenied`; `Conflict` while a run of it is in progress. A refusal of the
/// receiver's limits is recorded in the run.
pub fn run_now(w: &mut Tx, by: &Party, schedule_id: ScheduleId, chain: Chain) -> Result<ScheduleRun> {
    let mut schedule = get(w, schedule_id)?;
    may_change(by, &schedule)?;
    if let Some(run) = under_way(w, &schedule)? {
        return Err(refusal!(Conflict, "run {} of {} `{}` has not ended", run.run, schedule.kind, schedule.name)
            .hint("wait until it has ended, or cancel its turn"));
    }
    let now = w.ctx.now();
    // The run belongs to the session of the schedule, whoever asks for it.
    let chain = Chain { conversation_id: schedule.conversation_id, ..chain };
    fire(w, &mut schedule, blank(now, now), chain, Some(by), None)
}

/// Reports the file changes since the last check of a watch. `late` says that there was no check
/// for a while. Returns `None` if there is nothing to report. If a limit refuses the mail, the next
/// check finds the same changes again.
///
/// `made` is the `created_at` of the watch that was checked. If the watch was replaced meanwhile,
/// the result is discarded.
pub fn changed(
    w: &mut Tx,
    schedule_id: ScheduleId,
    made: Timestamp,
    seen: &WatchSnapshot,
    late: bool,
) -> Result<Option<ScheduleRun>> {
    let Some(mut schedule) = watch(w, schedule_id, made)? else { return Ok(None) };
    let When::Change { changes: wanted, .. } = &schedule.when else { return Ok(None) };
    let before = w.watch_snapshot_get(schedule_id)?;
    let mut changes = before.as_ref().map(|before| before.changes_to(seen)).unwrap_or_default();
    changes.retain(|change| wanted.contains(&change.change));
    if changes.is_empty() {
        if before.as_ref() != Some(seen) {
            w.watch_snapshot_put(schedule_id, seen)?;
        }
        return Ok(None);
    }
    let now = w.ctx.now();
    let (chain, run) = (chain_of(&schedule), Run { late, ..blank(now, now) });
    let run = fire(w, &mut schedule, run, chain, None, Some(&report(&changes)))?;
    if run.status != RunStatus::Refused {
        w.watch_snapshot_put(schedule_id, seen)?;
    }
    Ok(Some(run))
}

/// Records that a watch cannot check its files, for example because there are too many. `made` is
/// as in [`changed`].
pub fn watch_refused(w: &mut Tx, schedule_id: ScheduleId, made: Timestamp, refusal: &Refusal) -> Result<()> {
    let Some(mut schedule) = watch(w, schedule_id, made)? else { return Ok(()) };
    let now = w.ctx.now();
    refused(w, &mut schedule, blank(now, now), refusal).map(drop)
}

/// Returns the watch, if it was not replaced meanwhile.
fn watch(w: &mut StoreTx, schedule_id: ScheduleId, made: Timestamp) -> Result<Option<Schedule>> {
    Ok(w.schedule_get(schedule_id)?.filter(|schedule| schedule.enabled && schedule.created_at == made))
}

/// The chain of the schedule's own mail.
fn chain_of(schedule: &Schedule) -> Chain {
    Chain { root_id: schedule.root_id, hop: schedule.hop, conversation_id: schedule.conversation_id }
}

/// Delivers the mail of a run and records it. If a slot is tried several times, only the first
/// refusal is recorded as a run.
fn fire(
    w: &mut Tx,
    schedule: &mut Schedule,
    run: Run,
    chain: Chain,
    by_hand: Option<&Party>,
    report: Option<&str>,
) -> Result<ScheduleRun> {
    let held = if run.once { held(w, schedule, run.slot_at)? } else { None };
    let why = held.as_ref().map(|held| match (held.status, held.note.as_deref()) {
        (RunStatus::Refused, Some(refusal)) => format!("its mail was refused until now ({refusal})"),
        _ => "another run of it had not ended".to_owned(),
    });
    let limits = w.ctx.limits();
    let own_turn = schedule.mode.own_turn().is_some();
    let said = match schedule.kind {
        ScheduleKind::Timer | ScheduleKind::Cron if !own_turn => {
            lately(w, &limits, &schedule.agent_id, schedule.conversation_id)?
        }
        _ => String::new(),
    };
    let moment = Moment {
        run,
        held: why.as_deref(),
        by_hand,
        report,
        lately: &said,
        old: Duration::from_secs(limits.reminder_old_seconds.into()),
    };
    let (subject, body) = mail_of(schedule, &moment);
    let body = prefix_bytes(&body, limits.message_bytes as usize).to_owned();
    let kind = match schedule.kind {
        ScheduleKind::Timer => Kind::Timer,
        ScheduleKind::Cron if own_turn => Kind::CronTurn,
        ScheduleKind::Cron => Kind::Cron,
        ScheduleKind::Watch => Kind::Watch,
        ScheduleKind::Heartbeat => Kind::Heartbeat,
    };
    let waits = schedule.mode == JobMode::Mail { wake: WakeMode::NextHeartbeat } && by_hand.is_none();
    let new_message = NewMessage {
        subject: Some(subject),
        // Without a heartbeat, this mail would wait for ever.
        wake: !waits || !has_heartbeat(w, &schedule.agent_id)?,
        ..NewMessage::new(&schedule.agent_id, schedule.creator.clone(), kind, body, chain)
    };
    match mail::deliver(w, new_message) {
        Ok(envelope) => {
            let row =
                ScheduleRun { message_id: Some(envelope.message_id), ..row(schedule, run, RunStatus::Queued, None) };
            write(w, schedule, &row)?;
            let facts = json!({
                "run": row.run, "slot_at": row.slot_at.rfc3339(), "late": row.late, "missed": row.missed, "by": by_hand,
                "message_id": envelope.message_id, "next_at": schedule.next_at.map(Timestamp::rfc3339),
            });
            emit(w, schedule, EventKind::ScheduleFired, facts)?;
            Ok(row)
        }
        // An error of the store fails the whole batch, which is tried again. A limit only concerns
        // this run.
        Err(refusal) if matches!(refusal.code, Code::Internal | Code::Unavailable) => Err(refusal),
        Err(refusal) if run.once && refusal.code.retryable() => {
            let note = w.ctx.excerpt(&refusal.to_string(), NOTE_MAX);
            postpone(w, schedule, run, RunStatus::Refused, note)
        }
        Err(refusal) => refused(w, schedule, run, &refusal),
    }
}

/// Tries a one-shot again later. Only the first attempt is recorded as a run.
fn postpone(w: &mut Tx, schedule: &mut Schedule, run: Run, status: RunStatus, note: String) -> Result<ScheduleRun> {
    schedule.next_at = Some(run.now.plus(TRY_AGAIN));
    if let Some(held) = held(w, schedule, run.slot_at)? {
        w.schedule_put(schedule)?;
        return Ok(held);
    }
    record(w, schedule, run, status, Some(note))
}

/// Skips a slot because the last run has not ended. Consecutive skipped slots share one record.
fn skip(w: &mut Tx, schedule: &mut Schedule, run: Run) -> Result<()> {
    let last = w.schedule_runs(schedule.schedule_id, 1)?.into_iter().next();
    match last {
        Some(last) if last.status == RunStatus::Skipped && last.note.as_deref() == Some(STILL_RUNS) => {
            let missed = last.missed.saturating_add(run.missed).saturating_add(1);
            let row = ScheduleRun { slot_at: run.slot_at, fired_at: run.now, missed, ..last };
            w.schedule_run_put(&row)?;
            w.schedule_put(schedule)?;
            skipped(w, schedule, &row)
        }
        _ => {
            let run = Run { missed: run.missed + 1, ..run };
            record(w, schedule, run, RunStatus::Skipped, Some(STILL_RUNS.to_owned())).map(drop)
        }
    }
}

/// Sends a heartbeat if the agent has no other work and there is something to ask.
fn beat(w: &mut Tx, schedule: &mut Schedule, run: Run, beats: &Beats) -> Result<()> {
    let beat = beats(&schedule.agent_id, run.now);
    let why = match beat {
        // Outside active hours nothing is recorded.
        Beat::Resting => return w.schedule_put(schedule).map_err(Refusal::from),
        Beat::Empty if !has_waiting_mail(w, &schedule.agent_id)? => "there is nothing to look at",
        _ if busy(w, &schedule.agent_id)? => "the agent is busy",
        // Without a prompt, it is for the mail that waits for it.
        Beat::Empty | Beat::Prompt(_) => {
            let run = Run { late: false, missed: 0, ..run };
            let prompt = if let Beat::Prompt(prompt) = beat { prompt } else { None };
            return fire(w, schedule, run, Chain::root(w.ctx), None, prompt.as_deref()).map(drop);
        }
    };
    schedule.last_at = Some(run.now);
    schedule.last_status = Some(RunStatus::Skipped);
    w.schedule_put(schedule)?;
    let facts = json!({ "why": why, "next_at": schedule.next_at.map(Timestamp::rfc3339) });
    emit(w, schedule, EventKind::HeartbeatSkipped, facts)
}

/// Whether mail waits for an agent's next heartbeat.
fn has_waiting_mail(w: &mut StoreTx, agent_id: &AgentId) -> Result<bool> {
    Ok(w.inbox_pending(agent_id, 100)?.iter().any(waits_for_heartbeat))
}

/// Whether an agent has something to do, or does not run.
fn busy(w: &mut StoreTx, agent_id: &AgentId) -> Result<bool> {
    let runs = w.agent_get(agent_id)?.is_some_and(|agent| agent.status == AgentStatus::Running);
    Ok(!runs
        || w.turn_open_of(agent_id)?.is_some()
        || w.inbox_ready(agent_id, 100)?.iter().any(|envelope| envelope.wake))
}

/// Whether an agent has a heartbeat that is switched on.
fn has_heartbeat(w: &mut StoreTx, agent_id: &AgentId) -> Result<bool> {
    let heartbeats = w.schedule_list(Some(agent_id), Some(ScheduleKind::Heartbeat), None)?;
    Ok(heartbeats.iter().any(|heartbeat| heartbeat.enabled))
}

/// Wakes an agent for mail that waits for its heartbeat, if it has no heartbeat any more. Otherwise
/// this mail would wait for ever.
pub(super) fn release_waiting_mail(w: &mut Tx, agent_id: &AgentId) -> Result<()> {
    if has_heartbeat(w, agent_id)? {
        return Ok(());
    }
    // Mail from the system may exceed the limit of an inbox.
    let window = w.ctx.limits().inbox_max.saturating_mul(2);
    let mut waiting = w.inbox_pending(agent_id, window)?;
    waiting.retain(waits_for_heartbeat);
    if !waiting.is_empty() {
        w.message_rouse(&mail::ids(&waiting))?;
        w.wake(agent_id);
    }
    Ok(())
}
