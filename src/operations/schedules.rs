//! Timers, cron jobs, watches and heartbeats. They are set, changed and
//! cancelled here. A schedule goes off in the transaction that delivers its mail, so a crash
//! neither repeats nor loses a run.
//!
//! Timers and watches continue the chain of the turn that set them. A cron slot and a heartbeat
//! start a new chain. A slot is one planned time of a schedule. Each slot of a timer or a cron job
//! is covered by a recorded run, whether it ran, was refused by a limit, or was skipped.

mod fire;
mod run_end;
mod runs;

pub use fire::{Beat, Beats, changed, due, run_now, watch_refused};
pub use run_end::{lost, turn_ended};
pub use runs::{all_of_kind, get};

use ghost_domain::schedule::Change;
use ghost_domain::schedule::mode::LAST;
use ghost_domain::schedule::slots::first_slot;
use ghost_domain::schedule::words::{NAME_MAX, checked_name};

use crate::lookup::{self, Unknown};
use crate::prelude::*;
use crate::{conversations, mail};
use runs::{may_change, remove, save};

/// The longest watched path, in bytes.
const PATH_MAX: usize = 1_024;
/// The name that every heartbeat has.
const HEARTBEAT: &str = "heartbeat";
/// The most runs that a list shows.
pub const RUNS_MAX: u32 = 1_000;

/// The parameters of a schedule.
#[derive(Clone, Debug)]
pub struct NewSchedule {
    /// Kind of the schedule.
    pub kind: ScheduleKind,
    /// Id of the agent that it wakes.
    pub agent_id: AgentId,
    /// Name of the schedule. An existing one of the same kind and name is replaced.
    pub name: String,
    /// The rule that decides when it goes off.
    pub when: When,
    /// The text of its mail. A timer or a cron job needs one; a timer without text uses its name.
    pub message: String,
    /// What happens to missed slots.
    pub missed: Missed,
    /// How a cron job runs; its model and webhook must exist in the world. Other kinds use the
    /// default.
    pub mode: JobMode,
    /// Whether it is switched on.
    pub enabled: bool,
    /// The chain of the party that sets it.
    pub chain: Chain,
    /// The files that a watch sees when it is set. Without it, the first check is the baseline.
    pub baseline: Option<WatchSnapshot>,
}

/// A heartbeat in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The interval in milliseconds.
    pub every_ms: u64,
    /// Where an alert goes: `none`, `last` or a channel.
    pub target: String,
}

/// Sets a schedule, or replaces the agent's schedule of the same kind and name.
///
/// # Errors
/// `NotFound` for the agent, and for a channel or conversation that its last text goes to;
/// `InvalidArguments` for a blank message or an impossible rule (see [`first_slot`]); `RateLimited`
/// for a limit on the number of schedules or on their frequency; `AccessDenied` if an agent would
/// replace a schedule that someone else set; `Conflict` if an agent would give a schedule of another
/// session a new text or new options; `HopLimit`; `TooLarge`; `PayloadMismatch` for options
/// of a cron job on another kind.
pub fn set(w: &mut Tx, by: &Party, mut new: NewSchedule) -> Result<Schedule> {
    let limits = w.ctx.limits();
    let agent = lookup::agent_for(w, by, &new.agent_id)?;
    let name = checked_name(&new.name)?;
    if new.kind == ScheduleKind::Timer && new.message.is_empty() {
        new.message.clone_from(&name);
    }
    if matches!(new.kind, ScheduleKind::Timer | ScheduleKind::Cron) {
        not_blank("message", &new.message)?;
    }
    let hint = "write the long part to a workspace file and name its path";
    fits("the message", new.message.len(), limits.message_bytes / 2, hint)?;
    if new.chain.hop > limits.hops_max && *by != Party::System {
        return Err(mail::hop_limit(new.chain.hop, limits.hops_max));
    }
    if new.kind != ScheduleKind::Cron && new.mode != JobMode::default() {
        return Err(refusal!(PayloadMismatch, "the options of a cron job cannot be used with a {}", new.kind)
            .hint("set a cron job for that time instead; it can run once, in a turn of its own"));
    }
    let now = w.ctx.now();
    let when = checked_when(new.kind, new.when.clone())?;
    let before = w.schedule_find(&agent.agent_id, new.kind, &name)?;
    // A failed one-shot is off and its time has passed. Its other fields can still be changed.
    let stays_off = !new.enabled && before.as_ref().is_some_and(|before| before.when == when);
    let first = match new.kind {
        ScheduleKind::Watch => None,
        _ if stays_off => None,
        kind => Some(first_slot(&when, now, gap_of(w.ctx, kind))?),
    };
    match &before {
        Some(before) => {
            may_change(by, before)?;
            keeps_session(by, before, &new)?;
        }
        None => check_count(w, &agent.agent_id, new.kind)?,
    }
    // A schedule that is being switched off may keep a target that no longer exists; otherwise it
    // could not be switched off.
    let kept = before.as_ref().is_some_and(|before| before.mode == new.mode);
    if new.enabled || !kept {
        check_target(w, &new.mode)?;
    }
    let schedule = Schedule {
        schedule_id: before.as_ref().map_or_else(|| ScheduleId(w.ctx.id()), |before| before.schedule_id),
        kind: new.kind,
        agent_id: agent.agent_id,
        name,
        when,
        message: new.message,
        missed: new.missed,
        mode: new.mode,
        enabled: new.enabled,
        root_id: new.chain.root_id,
        // Whoever changes a schedule, it stays in the session in which it was made.
        conversation_id: before.as_ref().map_or(new.chain.conversation_id, |before| before.conversation_id),
        hop: new.chain.hop,
        next_at: first.filter(|_| new.enabled),
        last_at: before.as_ref().and_then(|before| before.last_at),
        last_status: before.as_ref().and_then(|before| before.last_status),
        runs: before.as_ref().map_or(0, |before| before.runs),
        creator: by.clone(),
        created_at: now,
    };
    save(w, by, &schedule)?;
    if let Some(baseline) = &new.baseline {
        w.watch_snapshot_put(schedule.schedule_id, baseline)?;
    }
    Ok(schedule)
}

/// The least time between two slots. The world file sets that of a heartbeat.
fn gap_of(ctx: &Context, kind: ScheduleKind) -> u32 {
    if kind == ScheduleKind::Heartbeat { 0 } else { ctx.limits().cron_gap_seconds }
}

/// Switches a schedule on or off. Slots that passed while it was off are not made up for. File
/// changes that happened below a watch meanwhile are reported.
///
/// # Errors
/// `NotFound`, also for a channel or conversation that the last text of a cron job goes to;
/// `AccessDenied`; `InvalidArguments` if its only time has passed.
pub fn enable(w: &mut Tx, by: &Party, schedule_id: ScheduleId, enabled: bool) -> Result<Schedule> {
    let mut schedule = get(w, schedule_id)?;
    may_change(by, &schedule)?;
    if schedule.enabled == enabled {
        return Ok(schedule);
    }
    if enabled {
        check_target(w, &schedule.mode)?;
    }
    schedule.enabled = enabled;
    schedule.next_at = match schedule.kind {
        ScheduleKind::Watch => None,
        _ if !enabled => None,
        kind => Some(first_slot(&schedule.when, w.ctx.now(), gap_of(w.ctx, kind))?),
    };
    save(w, by, &schedule)?;
    if schedule.kind == ScheduleKind::Heartbeat {
        fire::release_waiting_mail(w, &schedule.agent_id)?;
    }
    Ok(schedule)
}

/// Deletes a schedule. Its runs stay.
///
/// # Errors
/// `NotFound`, `AccessDenied`, `PolicyDenied` for a heartbeat.
pub fn cancel(w: &mut Tx, by: &Party, schedule_id: ScheduleId) -> Result<Schedule> {
    let mut schedule = get(w, schedule_id)?;
    may_change(by, &schedule)?;
    if schedule.kind == ScheduleKind::Heartbeat && *by != Party::System {
        return Err(refusal!(PolicyDenied, "a heartbeat is set by the world file and cannot be cancelled")
            .hint("change `heartbeat:` there and reload, or disable it until the next reload"));
    }
    remove(w, by, &schedule, None)?;
    if schedule.kind == ScheduleKind::Heartbeat {
        fire::release_waiting_mail(w, &schedule.agent_id)?;
    }
    schedule.enabled = false;
    schedule.next_at = None;
    Ok(schedule)
}

/// Applies the configured heartbeat of an agent that is not deleted, or that it has none. An unchanged heartbeat is left
/// alone, even if it is switched off.
pub fn follow_heartbeat(w: &mut Tx, agent_id: &AgentId, wanted: Option<&Wanted>) -> Result<()> {
    if let Some(wanted) = wanted {
        return set_heartbeat(w, agent_id, wanted);
    }
    let Some(schedule) = w.schedule_find(agent_id, ScheduleKind::Heartbeat, HEARTBEAT)? else { return Ok(()) };
    remove(w, &Party::System, &schedule, Some("the world file no longer wants it"))?;
    fire::release_waiting_mail(w, agent_id)
}

/// Gives an agent a heartbeat, unless it has the same one already.
pub(crate) fn set_heartbeat(w: &mut Tx, agent_id: &AgentId, wanted: &Wanted) -> Result<()> {
    let before = w.schedule_find(agent_id, ScheduleKind::Heartbeat, HEARTBEAT)?;
    let same = |before: Schedule| {
        let every = matches!(before.when, When::Every { every_ms, .. } if every_ms == wanted.every_ms);
        every && before.message == wanted.target
    };
    if before.is_some_and(same) {
        return Ok(());
    }
    let when = When::Every { every_ms: wanted.every_ms, anchor: w.ctx.now() };
    // The anchor is not a slot: the first heartbeat is one interval from now.
    let new = NewSchedule {
        kind: ScheduleKind::Heartbeat,
        agent_id: agent_id.clone(),
        name: HEARTBEAT.to_owned(),
        when,
        message: wanted.target.clone(),
        missed: Missed::Skip,
        mode: JobMode::default(),
        enabled: true,
        // Each slot starts a root of its own.
        chain: Chain { root_id: RootId(uuid::Uuid::nil()), hop: 0, conversation_id: None },
        baseline: None,
    };
    set(w, &Party::System, new).map(drop)
}

/// Cancels all schedules of an agent that is being deleted.
pub(crate) fn cancel_all(w: &mut Tx, by: &Party, agent_id: &AgentId) -> Result<()> {
    loop {
        let schedules = w.schedule_list(Some(agent_id), None, None)?;
        if schedules.is_empty() {
            return Ok(());
        }
        for schedule in &schedules {
            remove(w, by, schedule, Some("its agent was deleted"))?;
        }
    }
}

/// Returns the schedule with this name. The refusal gets a suggestion; see
/// [`with_nearest`](crate::mail::with_nearest).
pub fn named(r: &mut StoreTx, agent_id: &AgentId, kind: ScheduleKind, name: &str) -> Result<Schedule> {
    if let Some(found) = r.schedule_find(agent_id, kind, name.trim())? {
        return Ok(found);
    }
    lookup::agent_named(r, agent_id)?;
    let name = clip(name, NAME_MAX);
    let refusal = Refusal::not_found(kind.as_str(), &format!("{agent_id}/{name}"), None)
        .hint("a schedule that is over is deleted; list the schedules to see which exist");
    let unknown = Unknown::Schedule { agent_id: agent_id.clone(), kind, name };
    Err(lookup::unknown_name(r, refusal, unknown)?)
}

/// Returns the runs of a schedule, newest first, even if the schedule is deleted.
///
/// # Errors
/// `NotFound` if neither the schedule nor a run of it exists.
pub fn runs(r: &mut StoreTx, schedule_id: ScheduleId, limit: u32) -> Result<Vec<ScheduleRun>> {
    let runs = r.schedule_runs(schedule_id, limit.clamp(1, RUNS_MAX))?;
    if runs.is_empty() {
        get(r, schedule_id)?;
    }
    Ok(runs)
}

/// Checks that an agent puts no words of one session into a schedule of another: the mail of a schedule
/// goes to the session in which it was made. A timer or a watch that is set again has new contents. Of
/// a cron job, its times and its switch can be changed from any session.
fn keeps_session(by: &Party, before: &Schedule, new: &NewSchedule) -> Result<()> {
    let same = new.kind == ScheduleKind::Cron && before.message == new.message && before.mode == new.mode;
    if by.agent().is_none() || before.conversation_id == new.chain.conversation_id || same {
        return Ok(());
    }
    // The other conversation is not named here, because this text is for another person's session.
    let other = before.conversation_id.map_or("your own work", |_| "another conversation");
    Err(refusal!(Conflict, "the {} `{}` belongs to {other}", before.kind, before.name)
        .hint("choose another name, or cancel that one first"))
}

/// Checks that a rule fits its kind.
fn checked_when(kind: ScheduleKind, when: When) -> Result<When> {
    match (kind, when) {
        (ScheduleKind::Watch, When::Change { path, recursive, changes, debounce_ms }) => {
            if path.len() > PATH_MAX {
                return Err(refusal!(TooLarge, "path is longer than {PATH_MAX} bytes")
                    .hint("watch a directory nearer to the root"));
            }
            if !(50..=60_000).contains(&debounce_ms) {
                return Err(refusal!(InvalidArguments, "debounce_ms is {debounce_ms}; it must be 50 to 60000")
                    .hint("changes within this time are reported together; 250 is usual"));
            }
            let mut wanted: Vec<Change> = if changes.is_empty() { Change::ALL.to_vec() } else { changes };
            wanted.sort_unstable();
            wanted.dedup();
            Ok(When::Change { path, recursive, changes: wanted, debounce_ms })
        }
        (ScheduleKind::Timer, when @ (When::At { .. } | When::After { .. }))
        | (ScheduleKind::Cron, when @ (When::At { .. } | When::Every { .. } | When::Cron { .. }))
        | (ScheduleKind::Heartbeat, when @ When::Every { .. }) => Ok(when),
        (kind, _) => Err(refusal!(InvalidArguments, "this rule does not fit a {kind}")
            .hint("a timer needs a time, a cron job a time, an interval or an expression, a watch a path")),
    }
}

/// Checks the limits on the number of schedules of a kind.
fn check_count(w: &mut Tx, agent_id: &AgentId, kind: ScheduleKind) -> Result<()> {
    let limits = w.ctx.limits();
    let (most, limit) = match kind {
        ScheduleKind::Timer => (limits.timers_max, "timers_max"),
        ScheduleKind::Cron => (limits.crons_max, "crons_max"),
        ScheduleKind::Watch => (limits.watches_max, "watches_max"),
        ScheduleKind::Heartbeat => return Ok(()),
    };
    let (count, what) = (w.schedule_count(agent_id, kind)?, format!("schedules of kind {kind} wake {agent_id}"));
    at_most(limit, count, most, &what, "cancel one that you no longer need, or replace one by using its name")?;
    if kind != ScheduleKind::Watch {
        return Ok(());
    }
    let all = u32::try_from(w.schedule_list(None, Some(kind), None)?.len()).unwrap_or(u32::MAX);
    let hint = "cancel one that is no longer needed";
    at_most("world_watches_max", all, limits.world_watches_max, "watches are in this world", hint)
}

/// Refuses a chat channel or conversation that does not exist. The last conversation is found when
/// the job ends, and webhooks belong to the world file.
///
/// # Errors
/// `NotFound`, with a suggestion.
fn check_target(r: &mut StoreTx, mode: &JobMode) -> Result<()> {
    let with_field = |refusal: Refusal| refusal.details(json!({ "field": "to" }));
    let channel = match mode.own_turn().map(|turn| &turn.target) {
        Some(Target::Conversation(conversation_id)) => {
            return conversations::get(r, *conversation_id).map(drop).map_err(with_field);
        }
        Some(Target::Channel(channel)) => channel,
        Some(Target::Nowhere | Target::Last | Target::Webhook { .. }) | None => return Ok(()),
    };
    if r.chat_channel_get(channel)?.is_some() {
        return Ok(());
    }
    let near = nearest(channel.as_str(), [LAST]);
    let hint = "give last, the name of a chat channel or the id of a conversation";
    let refusal = with_field(not_among("channel", channel.as_str(), near, hint));
    Err(match near {
        Some(_) => refusal,
        None => lookup::unknown_name(r, refusal, Unknown::Channel(channel.clone()))?,
    })
}
