//! Timers, cron jobs, watches and heartbeats (SCHED-01..09, HB-01..07): set, changed and cancelled here, and set off in the
//! transaction that delivers their mail, so that nothing goes off twice or is forgotten over a crash.
//!
//! Timers and watches carry on the chain of the turn that set them; a cron slot and a heartbeat start a chain of their own.
//! Every slot ends in a recorded run, whether it ran, was refused by a bound, or was passed over.

mod context;
mod fire;
mod heartbeat;
mod keeping;
mod outlet;
mod over;
mod record;
mod target;
mod text;

pub use fire::{Beat, Beats, changed, due, run_now, watch_refused};
pub use heartbeat::{Wanted, heartbeats};
pub use keeping::get;
use keeping::{keep, may_change, remove};
pub use over::{lost, turn_ended};

use ghost_domain::refusal::not_blank;
use ghost_domain::schedule::slots::first_slot;
use ghost_domain::schedule::words::{NAME_MAX, checked_name};
use ghost_domain::schedule::{Change, JobOptions, Missed, When};
use ghost_domain::text::clip;
use ghost_domain::{AgentId, Code, Party, Refusal, Schedule, ScheduleId, ScheduleKind, ScheduleRun, WatchSnapshot};
use ghost_store::{Reads, Writes};

use crate::chain::Chain;
use crate::suggestion::{self, Unknown};
use crate::{Result, RuleContext, agent_lookup, mail};

/// Bytes of a watched path.
const PATH_MAX: usize = 1_024;
/// Runs that a list shows at most.
pub const RUNS_MAX: u32 = 1_000;

/// A schedule to be set.
#[derive(Clone, Debug)]
pub struct NewSchedule {
    /// What sets it off.
    pub kind: ScheduleKind,
    /// Whom it wakes.
    pub agent_id: AgentId,
    /// What its owner calls it. One of that kind and name is replaced.
    pub name: String,
    /// When it goes off.
    pub when: When,
    /// The text of its mail, which of a timer and a cron job is never blank. A timer without one reminds of its name.
    pub message: String,
    /// What becomes of missed slots.
    pub missed: Missed,
    /// How a cron job runs, with a model and a webhook that the world has; the default for every other kind.
    pub options: JobOptions,
    /// Whether it goes off.
    pub enabled: bool,
    /// The chain of who sets it.
    pub chain: Chain,
    /// What a watch sees as it is set. Without it the first look is the beginning.
    pub baseline: Option<WatchSnapshot>,
}

/// Sets a schedule, or replaces the agent's own of that kind and name.
///
/// # Errors
/// `NotFound` for the agent, and for a channel or conversation that its last words should go to; `InvalidArguments` for a
/// blank message; `InvalidArguments` and `RateLimited` for a rule that cannot be (see
/// [`first_slot`]) and a bound on how many there are; `AccessDenied` for an agent that would replace what someone else
/// set for it; `HopLimit`, `TooLarge`; `PayloadMismatch` for options of a cron job on something else.
pub async fn set(w: &mut dyn Writes, ctx: &RuleContext, by: &Party, mut new: NewSchedule) -> Result<Schedule> {
    let limits = ctx.limits();
    let agent = agent_lookup::agent_for(w, ctx, by, &new.agent_id).await?;
    let name = checked_name(&new.name)?;
    if new.kind == ScheduleKind::Timer && new.message.is_empty() {
        new.message.clone_from(&name);
    }
    if matches!(new.kind, ScheduleKind::Timer | ScheduleKind::Cron) {
        not_blank("message", &new.message)?;
    }
    let most = limits.message_bytes as usize / 2;
    if new.message.len() > most {
        return Err(Refusal::new(
            Code::TooLarge,
            format!("the message has {} bytes; at most {most} are taken", new.message.len()),
        )
        .hint("write the long part to a workspace file and name its path"));
    }
    if new.chain.hop > limits.hops_max && *by != Party::System {
        return Err(mail::hop_limit(new.chain.hop, limits.hops_max));
    }
    if new.kind != ScheduleKind::Cron && new.options != JobOptions::default() {
        return Err(Refusal::new(
            Code::PayloadMismatch,
            format!("how a cron job runs does not go with a {}", new.kind),
        )
        .hint("set a cron job for that time instead: it can be a turn of its own, once"));
    }
    let now = ctx.now();
    let when = checked_when(new.kind, new.when)?;
    let before = w.schedule_find(&agent.agent_id, new.kind, &name).await?;
    // A one-shot that failed is off and its time is past; the rest of it can be changed all the same.
    let stays_off = !new.enabled && before.as_ref().is_some_and(|before| before.when == when);
    let first = match new.kind {
        ScheduleKind::Watch => None,
        _ if stays_off => None,
        _ => Some(first_slot(&when, now, limits.cron_gap_seconds)?),
    };
    match &before {
        Some(before) => may_change(by, before)?,
        None => room(w, ctx, &agent.agent_id, new.kind).await?,
    }
    // One that is switched off may keep what has gone meanwhile: there must be a way to switch it off.
    let kept = before.as_ref().is_some_and(|before| before.options == new.options);
    if new.enabled || !kept {
        target::check(w, &new.options).await?;
    }
    let schedule = Schedule {
        schedule_id: before.as_ref().map_or_else(|| ScheduleId(ctx.id()), |before| before.schedule_id),
        kind: new.kind,
        agent_id: agent.agent_id,
        name,
        when,
        message: new.message,
        missed: new.missed,
        options: new.options,
        enabled: new.enabled,
        root_id: new.chain.root_id,
        hop: new.chain.hop,
        next_at: first.filter(|_| new.enabled),
        last_at: before.as_ref().and_then(|before| before.last_at),
        last_status: before.as_ref().and_then(|before| before.last_status),
        runs: before.as_ref().map_or(0, |before| before.runs),
        creator: by.clone(),
        created_at: now,
    };
    keep(w, ctx, by, &schedule).await?;
    if let Some(baseline) = &new.baseline {
        w.watch_snapshot_put(schedule.schedule_id, baseline).await?;
    }
    Ok(schedule)
}

/// Turns a schedule on or off. What passed while it was off is not made up for; what changed below a watch is reported.
///
/// # Errors
/// `NotFound`, also for a channel or conversation that the last words of a cron job that is turned on should go to;
/// `AccessDenied`; `InvalidArguments` for one whose only time has passed.
pub async fn enable(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    by: &Party,
    schedule_id: ScheduleId,
    enabled: bool,
) -> Result<Schedule> {
    let mut schedule = get(w, schedule_id).await?;
    may_change(by, &schedule)?;
    if schedule.enabled == enabled {
        return Ok(schedule);
    }
    if enabled {
        target::check(w, &schedule.options).await?;
    }
    schedule.enabled = enabled;
    schedule.next_at = match schedule.kind {
        ScheduleKind::Watch => None,
        _ if !enabled => None,
        _ => Some(first_slot(&schedule.when, ctx.now(), ctx.limits().cron_gap_seconds)?),
    };
    keep(w, ctx, by, &schedule).await?;
    if schedule.kind == ScheduleKind::Heartbeat {
        heartbeat::gone(w, ctx, &schedule.agent_id).await?;
    }
    Ok(schedule)
}

/// Takes a schedule away. Its runs stay.
///
/// # Errors
/// `NotFound`, `AccessDenied`.
pub async fn cancel(w: &mut dyn Writes, ctx: &RuleContext, by: &Party, schedule_id: ScheduleId) -> Result<Schedule> {
    let mut schedule = get(w, schedule_id).await?;
    may_change(by, &schedule)?;
    if schedule.kind == ScheduleKind::Heartbeat && *by != Party::System {
        return Err(Refusal::new(Code::PolicyDenied, "a heartbeat is what the world file says")
            .hint("change `heartbeat:` there and reload, or disable it until the next reload"));
    }
    remove(w, ctx, by, &schedule, None).await?;
    if schedule.kind == ScheduleKind::Heartbeat {
        heartbeat::gone(w, ctx, &schedule.agent_id).await?;
    }
    schedule.enabled = false;
    schedule.next_at = None;
    Ok(schedule)
}

/// Cancels all that an agent has set or that was set for it: nobody is left to be woken.
pub(crate) async fn cancel_all(w: &mut dyn Writes, ctx: &RuleContext, by: &Party, agent_id: &AgentId) -> Result<()> {
    loop {
        let schedules = w.schedule_list(Some(agent_id), None, None).await?;
        if schedules.is_empty() {
            return Ok(());
        }
        for schedule in &schedules {
            remove(w, ctx, by, schedule, Some("its agent was deleted")).await?;
        }
    }
}

/// The schedule that its owner calls so, or a refusal with which the nearest is looked for, see
/// [`with_nearest`](crate::mail::with_nearest).
pub async fn named(r: &mut dyn Reads, agent_id: &AgentId, kind: ScheduleKind, name: &str) -> Result<Schedule> {
    if let Some(found) = r.schedule_find(agent_id, kind, name.trim()).await? {
        return Ok(found);
    }
    agent_lookup::agent_named(r, agent_id).await?;
    let name = clip(name, NAME_MAX);
    let refusal = Refusal::not_found(kind.as_str(), &format!("{agent_id}/{name}"), None)
        .hint("one that is over is gone; list those that are there");
    let unknown = Unknown::Schedule { agent_id: agent_id.clone(), kind, name };
    Err(suggestion::missed(r, refusal, unknown).await?)
}

/// Runs of a schedule that is there or was, newest first.
///
/// # Errors
/// `NotFound` if there is neither the schedule nor a run of it.
pub async fn runs(r: &mut dyn Reads, schedule_id: ScheduleId, limit: u32) -> Result<Vec<ScheduleRun>> {
    let runs = r.schedule_runs(schedule_id, limit.clamp(1, RUNS_MAX)).await?;
    if runs.is_empty() {
        get(r, schedule_id).await?;
    }
    Ok(runs)
}

/// A rule that fits its kind.
fn checked_when(kind: ScheduleKind, when: When) -> Result<When> {
    match (kind, when) {
        (ScheduleKind::Watch, When::Change { path, recursive, changes, debounce_ms }) => {
            if path.len() > PATH_MAX {
                return Err(Refusal::new(Code::TooLarge, format!("path is longer than {PATH_MAX} bytes"))
                    .hint("watch a directory nearer to the root"));
            }
            if !(50..=60_000).contains(&debounce_ms) {
                return Err(Refusal::new(
                    Code::InvalidArguments,
                    format!("debounce_ms is {debounce_ms}; it must be 50 to 60000"),
                )
                .hint("changes within this time are reported together; 250 is usual"));
            }
            let mut wanted: Vec<Change> = if changes.is_empty() { Change::ALL.to_vec() } else { changes };
            wanted.sort_unstable();
            wanted.dedup();
            Ok(When::Change { path, recursive, changes: wanted, debounce_ms })
        }
        (ScheduleKind::Timer, when @ When::At { .. })
        | (ScheduleKind::Cron, when @ (When::At { .. } | When::Every { .. } | When::Cron { .. }))
        | (ScheduleKind::Heartbeat, when @ When::Every { .. }) => Ok(when),
        (kind, _) => Err(Refusal::new(Code::InvalidArguments, format!("this rule does not fit a {kind}"))
            .hint("a timer has an instant, a cron job an instant, an interval or an expression, a watch a path")),
    }
}

/// Whether another one of a kind has room.
async fn room(w: &mut dyn Writes, ctx: &RuleContext, agent_id: &AgentId, kind: ScheduleKind) -> Result<()> {
    let limits = ctx.limits();
    let (most, bound) = match kind {
        ScheduleKind::Timer => (limits.timers_max, "limits.timers_max"),
        ScheduleKind::Cron => (limits.crons_max, "limits.crons_max"),
        ScheduleKind::Watch => (limits.watches_max, "limits.watches_max"),
        ScheduleKind::Heartbeat => return Ok(()),
    };
    let count = w.schedule_count(agent_id, kind).await?;
    if count >= most {
        return Err(Refusal::new(
            Code::RateLimited,
            format!("{agent_id} has {count} schedules of the kind {kind}, which is its bound ({bound})"),
        )
        .hint("cancel one that is no longer needed, or change one by using its name"));
    }
    if kind == ScheduleKind::Watch {
        let all = w.schedule_list(None, Some(kind), None).await?.len();
        if all >= limits.world_watches_max as usize {
            return Err(Refusal::new(
                Code::RateLimited,
                format!("the world has {all} watches, which is its bound (limits.world_watches_max)"),
            )
            .hint("cancel one that is no longer needed"));
        }
    }
    Ok(())
}
