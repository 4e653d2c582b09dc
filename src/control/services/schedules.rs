//! The `Schedules` service: timers, cron jobs, watches and heartbeats.

use std::time::Duration;

use ghost_domain::schedule::words::{AHEAD_MAX_MS, NAME_MAX};
use ghost_domain::schedule::{Change, JobMode, JobOptions, Missed, When};
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{AgentId, Refusal, Schedule, ScheduleKind};
use ghost_operations::OperationContext;
use ghost_operations::mail::Chain;
use ghost_operations::schedules::{self as rules, NewSchedule};
use ghost_proto::v1;
use ghost_store::Tx;
use ghost_store::tables::SchedulePlace;

use crate::control::Control;
use crate::convert::{self, input};
use crate::dispatch::{Mutation, Query, Result};
use crate::queries;

/// Default number of runs in a list.
const RUNS_DEFAULT: u32 = 50;

/// The time of a schedule. Only the fields of its kind may be set.
fn when(ctx: &OperationContext, kind: ScheduleKind, request: &v1::SetScheduleRequest) -> Result<When> {
    use ScheduleKind::{Cron, Timer, Watch};
    let fields: [(&str, bool, &[ScheduleKind]); 18] = [
        ("after_ms", request.after_ms.is_some(), &[Timer]),
        ("at_ms", request.at_ms.is_some(), &[Timer, Cron]),
        ("every_ms", request.every_ms.is_some(), &[Cron]),
        ("anchor_ms", request.anchor_ms.is_some(), &[Cron]),
        ("cron", request.cron.is_some(), &[Cron]),
        ("zone", request.zone.is_some(), &[Cron]),
        ("path", request.path.is_some(), &[Watch]),
        ("recursive", request.recursive, &[Watch]),
        ("changes", !request.changes.is_empty(), &[Watch]),
        ("debounce_ms", request.debounce_ms.is_some(), &[Watch]),
        ("session", request.session.is_some(), &[Cron]),
        ("payload", request.payload.is_some(), &[Cron]),
        ("wake", request.wake.is_some(), &[Cron]),
        ("deliver", request.deliver.is_some(), &[Cron]),
        ("to", request.to.is_some(), &[Cron]),
        ("timeout_seconds", request.timeout_seconds.is_some(), &[Cron]),
        ("max_rounds", request.max_rounds.is_some(), &[Cron]),
        ("model", request.model.is_some(), &[Cron]),
    ];
    let hint = match kind {
        Timer => "a timer has after_ms or at_ms",
        Cron => "a cron job has one of at_ms, every_ms and cron; zone goes with cron",
        Watch => "a watch has a path, recursive, changes and debounce_ms",
        ScheduleKind::Heartbeat => {
            return Err(input::bad("kind", "is heartbeat, which the world file sets").hint("see `heartbeat:` there"));
        }
    };
    if let Some((field, ..)) = fields.iter().find(|(_, given, kinds)| *given && !kinds.contains(&kind)) {
        return Err(input::bad(field, format!("does not go with a {kind}")).hint(hint));
    }
    let at = input::instant("at_ms", request.at_ms)?;
    if kind == ScheduleKind::Cron && request.zone.is_some() && request.cron.is_none() {
        return Err(input::bad("zone", "goes with a cron expression only")
            .hint("an interval has no zone; write the offset of an instant into it, such as 18:00:00+01:00"));
    }
    if request.anchor_ms.is_some() && request.every_ms.is_none() {
        return Err(input::bad("anchor_ms", "goes with an interval only").hint("give every_ms, too"));
    }
    let anchor = input::instant("anchor_ms", request.anchor_ms)?;
    let one_of = || input::bad("kind", format!("{kind} lacks its time, or has two")).hint(hint);
    match kind {
        ScheduleKind::Timer => match (request.after_ms, at) {
            (None, Some(at)) => Ok(When::At { at }),
            (Some(ms), None) => match u64::try_from(ms).ok().filter(|ms| (1..=AHEAD_MAX_MS).contains(ms)) {
                Some(ms) => Ok(When::after(Duration::from_millis(ms), ctx.now())),
                None if ms <= 0 => Err(input::bad("after_ms", "is not a future time").hint("give 1 ms to ten years")),
                None => Err(input::bad("after_ms", "is more than ten years").hint("give 1 ms to ten years")),
            },
            _ => Err(one_of()),
        },
        ScheduleKind::Cron => match (at, request.every_ms, &request.cron) {
            (Some(at), None, None) => Ok(When::At { at }),
            (None, Some(every_ms), None) => Ok(When::Every { every_ms, anchor: anchor.unwrap_or_else(|| ctx.now()) }),
            (None, None, Some(expression)) => {
                Ok(When::Cron { expression: expression.trim().to_owned(), zone: request.zone.clone() })
            }
            _ => Err(one_of()),
        },
        ScheduleKind::Watch | ScheduleKind::Heartbeat => {
            let path = request.path.as_deref().ok_or_else(one_of)?;
            if path.trim().is_empty() {
                return Err(input::bad("path", "is empty").hint("give a path; `.` is the whole workspace"));
            }
            let path = WorkspacePath::parse(path, true)?;
            Ok(When::Change {
                path: path.as_str().to_owned(),
                recursive: request.recursive,
                changes: input::parsed_all::<Change>("changes", &request.changes, Change::ALL.len())?,
                debounce_ms: request.debounce_ms.unwrap_or(250),
            })
        }
    }
}

fn new_schedule(ctx: &OperationContext, request: &v1::SetScheduleRequest) -> Result<NewSchedule> {
    let kind: ScheduleKind = input::parsed("kind", &request.kind)?;
    // The rule decides whether the message may be empty.
    let message = input::prose_or_none("message", &request.message, ctx.limits().message_bytes)?;
    let agent_id: AgentId = input::parsed("agent_id", &request.agent_id)?;
    let name = input::line("name", &request.name, NAME_MAX)?;
    let when = when(ctx, kind, request)?;
    let options = JobOptions {
        session: input::parsed_if("session", request.session.as_deref())?,
        payload: input::parsed_if("payload", request.payload.as_deref())?,
        wake: input::parsed_if("wake", request.wake.as_deref())?,
        deliver: input::parsed_if("deliver", request.deliver.as_deref())?,
        to: request.to.clone(),
        timeout_seconds: request.timeout_seconds,
        max_rounds: request.max_rounds,
        model: request.model.clone(),
    };
    Ok(NewSchedule {
        kind,
        mode: JobMode::parse(options, None, &agent_id, &name, &ctx.limits())?,
        agent_id,
        name,
        when,
        message,
        missed: input::parsed_if("missed", request.missed.as_deref())?.unwrap_or(Missed::Skip),
        enabled: true,
        chain: Chain::root(ctx),
        baseline: None,
    })
}

/// Adds the current state of a watch's path. Later changes are relative to it.
async fn with_baseline(cx: &Control, mut new: NewSchedule) -> Result<NewSchedule> {
    let When::Change { path, recursive, .. } = &new.when else { return Ok(new) };
    let path = WorkspacePath::parse(path, true)?;
    let limit = cx.world.ctx().limits().watch_files_max as usize;
    let found = cx.world.engine().services.workspace.stamps(&path, *recursive, limit).await?;
    let Some(found) = found else {
        return Err(Refusal::not_found("file or directory", path.as_str(), None)
            .hint("give an existing path; to wait for a file, watch its directory"));
    };
    new.baseline = Some(found);
    Ok(new)
}

pub(crate) async fn list(cx: Query, request: v1::ListSchedulesRequest) -> Result<v1::ListSchedulesResponse> {
    let agent_id = queries::agent_in_filter(&cx.world, "agent_id", request.agent_id.as_deref()).await?;
    let kind = input::parsed_if("kind", request.kind.as_deref())?;
    let cursor = input::unseal("schedules", &request.cursor)?;
    // The separator cannot occur in an agent id or a kind.
    let after: Option<SchedulePlace> = match cursor.splitn(3, '\u{1}').collect::<Vec<_>>()[..] {
        [""] => None,
        [agent_id, kind, name] => match (agent_id.parse(), kind.parse()) {
            (Ok(agent_id), Ok(kind)) => Some((agent_id, kind, name.to_owned())),
            _ => return Err(input::bad_cursor(cursor)),
        },
        _ => return Err(input::bad_cursor(cursor)),
    };
    let read = move |r: &mut Tx, _| r.schedule_list(agent_id.as_ref(), kind, after.as_ref());
    let position = |row: &Schedule| format!("{}\u{1}{}\u{1}{}", row.agent_id, row.kind.as_str(), row.name);
    let page = queries::page(&cx.world, request.limit, read, position).await?;
    let redactor = cx.redactor();
    let (schedules, next_cursor) = page.sealed("schedules", |schedule| convert::schedule(schedule, redactor));
    Ok(v1::ListSchedulesResponse { schedules, truncated: false, next_cursor })
}

pub(crate) async fn runs(cx: Query, request: v1::ListRunsRequest) -> Result<v1::ListRunsResponse> {
    let limit = if request.limit == 0 { RUNS_DEFAULT } else { request.limit.min(rules::RUNS_MAX) };
    let schedule_id = input::parsed("schedule_id", &request.schedule_id)?;
    let store = cx.world.store();
    let found = store.read(move |r| rules::runs(r, schedule_id, limit)).await?;
    let redactor = cx.redactor();
    Ok(v1::ListRunsResponse { runs: found.iter().map(|run| convert::schedule_run(run, redactor)).collect() })
}

pub(crate) async fn get(cx: Query, request: v1::GetScheduleRequest) -> Result<v1::Schedule> {
    let schedule_id = input::parsed("schedule_id", &request.schedule_id)?;
    let store = cx.world.store();
    let found = store.read(move |r| rules::get(r, schedule_id)).await;
    Ok(convert::schedule(&found?, cx.redactor()))
}

pub(crate) async fn set(cx: Mutation, request: v1::SetScheduleRequest) -> Result<v1::Schedule> {
    let mut new = new_schedule(cx.world.ctx(), &request)?;
    // A repeated request gets its stored answer, even if its path or model is gone by now.
    if !cx.is_answered().await? {
        cx.world.plan().check_job(&new.mode)?;
        new = with_baseline(&cx, new).await?;
    }
    let schedule = cx.once(move |w, by| rules::set(w, by, new)).await?;
    Ok(convert::schedule(&schedule, cx.redactor()))
}

pub(crate) async fn enable(cx: Mutation, request: v1::EnableScheduleRequest) -> Result<v1::Schedule> {
    let (typed, enabled) = (&request.schedule_id, request.enabled);
    let schedule_id = input::parsed("schedule_id", typed)?;
    if enabled && !cx.is_answered().await? {
        let read = cx.world.store().read(move |r| rules::get(r, schedule_id));
        let before = read.await?;
        if !before.enabled {
            cx.world.plan().check_job(&before.mode)?;
        }
    }
    let schedule = cx.once(move |w, by| rules::enable(w, by, schedule_id, enabled)).await?;
    Ok(convert::schedule(&schedule, cx.redactor()))
}

pub(crate) async fn cancel(cx: Mutation, request: v1::CancelScheduleRequest) -> Result<v1::Schedule> {
    let schedule_id = input::parsed("schedule_id", &request.schedule_id)?;
    let schedule = cx.once(move |w, by| rules::cancel(w, by, schedule_id)).await?;
    Ok(convert::schedule(&schedule, cx.redactor()))
}

pub(crate) async fn run(cx: Mutation, request: v1::RunScheduleRequest) -> Result<v1::ScheduleRun> {
    let schedule_id = input::parsed("schedule_id", &request.schedule_id)?;
    let chain = Chain::root(cx.world.ctx());
    let run = cx.once(move |w, by| rules::run_now(w, by, schedule_id, chain)).await?;
    Ok(convert::schedule_run(&run, cx.redactor()))
}
