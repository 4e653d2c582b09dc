//! `util.timer` and `util.watch`: the agent's own timers and watches. They wake only
//! the agent that set them.

use async_trait::async_trait;
use ghost_domain::schedule::words::{duration, duration_text, instant};
use ghost_domain::schedule::{Change, JobMode, Missed, Payload, WakeMode, When};
use ghost_domain::{Code, Schedule, ScheduleKind, Timestamp, WatchSnapshot};
use ghost_operations::schedules::{self as rules, NewSchedule};

use super::common::*;
use super::places::{Scope, resolve};
use crate::effect::{Run, Typed, WorldTool};
use crate::parameters::parse;

/// The largest number of characters of a message in a list.
const BRIEF_CHARS: usize = 200;

params! {
    pub(super) struct TimerParams {
        /// The name of the timer. A timer with the same name is replaced.
        name: String,
        /// The time from now, such as 90s, 5m or 1h30m. Give this or `at`.
        duration: Option<String>,
        /// The instant, such as 2026-11-30T18:00:00Z; UTC if there is no zone.
        at: Option<String>,
        /// The text of the reminder; the name if absent.
        message: Option<String>,
        /// Cancel the timer with this name instead.
        #[serde(default)]
        cancel: bool,
    }

    pub(super) struct WatchParams {
        /// The file or directory, relative to the scope; `.` is the whole scope.
        path: String,
        /// The name of the watch; the path if absent. A watch with the same name is replaced.
        name: Option<String>,
        /// Whether to include everything below a directory.
        #[serde(default)]
        recursive: bool,
        /// The kinds of changes to report; all if empty.
        #[serde(default)]
        events: Vec<Change>,
        /// Changes within this many milliseconds are reported together, 50 to 60000; 250 if absent.
        debounce_ms: Option<u32>,
        /// The text of the reminder when something changes.
        message: Option<String>,
        /// `agent`: your own directory (the default); `world`: the shared root.
        #[serde(default)]
        scope: Scope,
        /// Cancel the watch with this name instead.
        #[serde(default)]
        cancel: bool,
        /// The files at the path when the call was made. `look` sets it; the schema does not contain it, so a model cannot.
        #[schemars(skip)]
        baseline: Option<WatchSnapshot>,
    }
}

pub(super) fn wrong(what: &str, hint: &str) -> Refusal {
    Refusal::new(Code::InvalidArguments, what).hint(hint)
}

/// A schedule as results show it. The key of its id names its kind. What a schedule of another session says, and
/// where it goes, are not shown: those are another person's words.
pub(super) fn shown(call: &CallContext, schedule: &Schedule) -> Value {
    let mut value = whole(schedule);
    if schedule.conversation_id != call.conversation_id
        && let Some(fields) = value.as_object_mut()
    {
        fields.remove("message");
        fields.remove("to");
        fields.insert("other_session".to_owned(), true.into());
    }
    value
}

fn whole(schedule: &Schedule) -> Value {
    let id = match schedule.kind {
        ScheduleKind::Timer => "timer_id",
        ScheduleKind::Watch => "watch_id",
        ScheduleKind::Cron | ScheduleKind::Heartbeat => "job_id",
    };
    let mut value = without_nulls(json!({
        "name": schedule.name, "message": clip(&schedule.message, BRIEF_CHARS), "set_by": schedule.creator,
        "enabled": (!schedule.enabled).then_some(false),
        "last_run_at": schedule.last_at.map(Timestamp::rfc3339), "last_status": schedule.last_status,
        "runs": (schedule.runs > 0).then_some(schedule.runs),
    }));
    value[id] = json!(schedule.schedule_id);
    if schedule.kind == ScheduleKind::Timer {
        value["fires_at"] = json!(schedule.next_at.map(Timestamp::rfc3339));
        return value;
    }
    match &schedule.when {
        When::Change { path, recursive, changes, debounce_ms } => {
            let watched = json!({
                "path": path, "recursive": recursive, "events": changes, "debounce_ms": debounce_ms,
            });
            extend(&mut value, watched);
        }
        When::At { .. } | When::After { .. } => {
            value["schedule"] = json!({ "at": schedule.when.once_at().map(Timestamp::rfc3339) });
        }
        When::Every { every_ms, anchor } => {
            let every = duration_text(std::time::Duration::from_millis(*every_ms));
            value["schedule"] = json!({ "every": every, "anchor": anchor.rfc3339() });
        }
        When::Cron { expression, zone } => {
            value["schedule"] = json!({ "cron": expression, "zone": zone.as_deref().unwrap_or("UTC") });
        }
    }
    if schedule.kind == ScheduleKind::Cron {
        value["missed"] = json!(schedule.missed);
        match &schedule.mode {
            JobMode::Mail { wake: WakeMode::Now } => {}
            JobMode::Mail { wake } => value["wake"] = json!(wake),
            JobMode::OwnTurn(turn) => {
                let own_turn = json!({
                    "payload": Payload::AgentTurn, "deliver": turn.target.deliver(), "to": turn.target.to(),
                    "timeout": turn.timeout_seconds.map(seconds_text), "max_rounds": turn.max_rounds,
                    "model": turn.model,
                });
                extend(&mut value, own_turn);
            }
        }
        value["next_at"] = json!(schedule.next_at.map(Timestamp::rfc3339));
    }
    value
}

fn seconds_text(seconds: u32) -> String {
    duration_text(std::time::Duration::from_secs(seconds.into()))
}

pub(super) fn timer(call: &CallContext, params: TimerParams, w: &mut Tx) -> Result<Output> {
    let ctx = &call.services.ctx;
    if params.cancel {
        return cancelled(call, w, ScheduleKind::Timer, &params.name);
    }
    let when = match (&params.duration, &params.at) {
        (Some(text), None) => When::after(duration("duration", text)?, ctx.now()),
        (None, Some(text)) => When::At { at: instant("at", text)? },
        _ => return Err(wrong("give duration or at, and not both", "for example duration: \"10m\"")),
    };
    let new = new_schedule(call, ScheduleKind::Timer, params.name, when, params.message.unwrap_or_default());
    set(call, new, w)
}

pub(super) fn watch() -> Typed<WatchParams> {
    Run::world(Watch).into()
}

struct Watch;

#[async_trait]
impl WorldTool for Watch {
    /// Takes the snapshot before the transaction, so that no later change is missed.
    async fn prepare(&self, call: &CallContext, mut arguments: Value) -> Result<Value> {
        let params: WatchParams = serde_json::from_value(arguments.clone())
            .map_err(|error| wrong(&error.to_string(), "nothing was set; correct the arguments and call again"))?;
        if params.cancel {
            return Ok(arguments);
        }
        not_empty(&params.path)?;
        let path = resolve(call, &params.path, params.scope, true)?;
        let found = baseline(call, &path, params.recursive).await?;
        arguments["baseline"] =
            serde_json::to_value(found).map_err(|error| refusal!(Internal, "a snapshot cannot be kept: {error}"))?;
        Ok(arguments)
    }

    fn apply(&self, call: &CallContext, arguments: Value, w: &mut Tx) -> Result<Output> {
        let params: WatchParams = parse(arguments)?;
        not_empty(&params.path)?;
        let path = resolve(call, &params.path, params.scope, true)?;
        // A name contains no slash, because commands name a schedule as <agent>/<name>.
        let name = match params.name {
            Some(name) => name,
            None if path.as_str().is_empty() => "workspace".to_owned(),
            None => path.as_str().replace('/', ":").chars().take(64).collect(),
        };
        if params.cancel {
            return cancelled(call, w, ScheduleKind::Watch, &name);
        }
        let when = When::Change {
            path: path.as_str().to_owned(),
            recursive: params.recursive,
            changes: params.events,
            debounce_ms: params.debounce_ms.unwrap_or(250),
        };
        let new = new_schedule(call, ScheduleKind::Watch, name, when, params.message.unwrap_or_default());
        set(call, NewSchedule { baseline: params.baseline, ..new }, w)
    }
}

/// A schedule of the caller that is active, and makes up for what it has missed.
pub(super) fn new_schedule(
    call: &CallContext,
    kind: ScheduleKind,
    name: String,
    when: When,
    message: String,
) -> NewSchedule {
    NewSchedule {
        kind,
        agent_id: call.caller.agent_id.clone(),
        name,
        when,
        message,
        missed: Missed::RunOnce,
        mode: JobMode::default(),
        enabled: true,
        chain: call.chain(),
        baseline: None,
    }
}

/// Sets a schedule and shows it.
pub(super) fn set(call: &CallContext, new: NewSchedule, w: &mut Tx) -> Result<Output> {
    let schedule = rules::set(w, &call.party(), new)?;
    Ok(shown(call, &schedule).into())
}

/// An empty path is a mistake; the root is `.`.
fn not_empty(path: &str) -> Result<()> {
    match path.trim() {
        "" => Err(wrong("path is empty", "give a path; `.` is the whole scope")),
        _ => Ok(()),
    }
}

/// Takes a snapshot of a path. The path must exist: a missing path could be a typing mistake.
async fn baseline(call: &CallContext, path: &WorkspacePath, recursive: bool) -> Result<WatchSnapshot> {
    let limit = call.services.ctx.limits().watch_files_max as usize;
    let found = call.services.workspace.stamps(path, recursive, limit).await?;
    found.ok_or_else(|| {
        Refusal::not_found("file or directory", path.as_str(), None)
            .hint("to wait for a file that is to come, watch the directory that it will be in")
    })
}

fn cancelled(call: &CallContext, w: &mut Tx, kind: ScheduleKind, name: &str) -> Result<Output> {
    let schedule = rules::named(w, &call.caller.agent_id, kind, name)?;
    let schedule = rules::cancel(w, &call.party(), schedule.schedule_id)?;
    let mut content = shown(call, &schedule);
    content["cancelled"] = json!(true);
    Ok(content.into())
}
