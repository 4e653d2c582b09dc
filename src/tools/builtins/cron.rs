//! `util.cron`: the agent's own cron jobs, and a list of everything it has scheduled.

use ghost_domain::schedule::words::{duration, instant};
use ghost_domain::schedule::{Deliver, JobMode, JobOptions, Missed, Payload, Session, WakeMode, When};
use ghost_domain::{Kind, Schedule, ScheduleId, ScheduleKind, ScheduleRun, Timestamp};
use ghost_operations::mail::{NewMessage, deliver};
use ghost_operations::schedules::{self as rules, NewSchedule};

use super::common::*;
use super::schedules::{new_schedule, set, shown, wrong};

/// The largest number of runs in a result.
const RUNS_SHOWN: u32 = 20;

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    Status,
    List,
    Add,
    Update,
    Remove,
    Run,
    Runs,
    Wake,
}

params! {
    /// The schedule of a cron job: give one of `cron`, `every` and `at`.
    struct Rule {
        /// Five fields, or six with seconds in front, such as `0 9 * * 1-5`.
        cron: Option<String>,
        /// The time zone of `cron`, such as Europe/Berlin; UTC if absent.
        zone: Option<String>,
        /// An interval, such as 10m or 1h.
        every: Option<String>,
        /// For `every`: an instant at which an interval begins; now if absent.
        anchor: Option<String>,
        /// One instant; the job is removed after it.
        at: Option<String>,
    }

    struct Job {
        /// The name of the job.
        name: String,
        /// The schedule of the job.
        schedule: Rule,
        /// The task to do at that time.
        message: String,
        /// What happens to times that pass while the world is down: `skip` (the default) or `run_once`.
        missed: Option<Missed>,
        /// The options of the job.
        options: Option<Options>,
    }

    struct Patch {
        /// The new schedule.
        schedule: Option<Rule>,
        /// The new task.
        message: Option<String>,
        /// As in `job`.
        missed: Option<Missed>,
        /// The new options; options that are absent do not change.
        options: Option<Options>,
        /// Whether the job is active.
        enabled: Option<bool>,
    }

    pub(super) struct CronParams {
        /// `list` and `status` show everything that you have scheduled; `add`, `update`, `remove` change it; `run` starts a
        /// job now; `runs` shows its past runs; `wake` sends yourself a message.
        action: Action,
        /// For `add`: the job. Alternatively give name, schedule and message.
        job: Option<Job>,
        /// For `add`: the name of the job. Otherwise it selects a job, if job_id is absent.
        name: Option<String>,
        /// For `add`: the schedule of the job.
        schedule: Option<Rule>,
        /// For `add` and `wake`: the task to do.
        message: Option<String>,
        /// For `add` with name, schedule and message: the options of the job.
        options: Option<Options>,
        /// The job: its job_id or its name.
        job_id: Option<String>,
        /// For `update`: the changes.
        patch: Option<Patch>,
        /// For `wake`: `now` (the default), or `next-heartbeat` for a message that waits until the next heartbeat or until
        /// something else wakes you.
        mode: Option<WakeMode>,
    }
}

fn run_shown(run: &ScheduleRun) -> Value {
    without_nulls(json!({
        "run": run.run, "slot_at": run.slot_at.rfc3339(), "ran_at": run.fired_at.rfc3339(), "status": run.status,
        "late": run.late.then_some(true), "missed": (run.missed > 0).then_some(run.missed),
        "message_id": run.message_id, "note": run.note,
    }))
}

pub(super) fn cron(call: &CallContext, params: CronParams, w: &mut Tx) -> Result<Output> {
    match params.action {
        Action::Status | Action::List => overview(call, w),
        Action::Add => add(call, params, w),
        Action::Update => update(call, params, w),
        Action::Wake => wake(call, params, w),
        Action::Remove => {
            let job = job(call, &params, w)?;
            let job = rules::cancel(w, &call.party(), job.schedule_id)?;
            let mut content = shown(call, &job);
            content["removed"] = json!(true);
            Ok(content.into())
        }
        Action::Run => {
            let job = job(call, &params, w)?;
            // The run continues this turn's chain, so that a job which runs itself reaches the
            // chain's limits.
            let run = rules::run_now(w, &call.party(), job.schedule_id, call.chain())?;
            let mut content = run_shown(&run);
            content["job_id"] = json!(job.schedule_id);
            Ok(content.into())
        }
        Action::Runs => {
            let job_id = match params.job_id.as_deref().map(str::parse::<ScheduleId>) {
                // A job that has ended still has runs.
                Some(Ok(job_id)) => job_id,
                _ => job(call, &params, w)?.schedule_id,
            };
            let runs = rules::runs(w, job_id, RUNS_SHOWN)?;
            let own = runs.iter().filter(|run| run.agent_id == call.caller.agent_id);
            let (rows, all) = fitting(own.map(run_shown), LIST_BYTES);
            Ok(Output::cut(json!({ "job_id": job_id, "runs": rows }), !all))
        }
    }
}

/// Everything that the agent has scheduled, and the next time.
fn overview(call: &CallContext, w: &mut Tx) -> Result<Output> {
    let all = w.schedule_list(Some(&call.caller.agent_id), None, None)?;
    let of_kind = |kind: ScheduleKind| {
        all.iter().filter(move |schedule| schedule.kind == kind).map(|schedule| shown(call, schedule))
    };
    let (jobs, all_jobs) = fitting(of_kind(ScheduleKind::Cron), LIST_BYTES / 3);
    let (timers, all_timers) = fitting(of_kind(ScheduleKind::Timer), LIST_BYTES / 3);
    let (watches, all_watches) = fitting(of_kind(ScheduleKind::Watch), LIST_BYTES / 3);
    let content = json!({
        "now": call.services.ctx.now().rfc3339(), "jobs": jobs, "timers": timers, "watches": watches,
        "next_at": all.iter().filter_map(|schedule| schedule.next_at).min().map(Timestamp::rfc3339),
    });
    Ok(Output::cut(content, !(all_jobs && all_timers && all_watches)))
}

/// The job that the arguments select by id or by name.
fn job(call: &CallContext, params: &CronParams, w: &mut Tx) -> Result<Schedule> {
    let Some(named) = params.job_id.as_ref().or(params.name.as_ref()) else {
        return Err(wrong("give job_id", "action `list` shows the jobs with their job_id"));
    };
    let own = &call.caller.agent_id;
    if let Ok(job_id) = named.parse::<ScheduleId>()
        && let Some(found) = w.schedule_get(job_id)?
        && found.agent_id == *own
        && found.kind == ScheduleKind::Cron
    {
        return Ok(found);
    }
    rules::named(w, own, ScheduleKind::Cron, named)
}

fn rule(call: &CallContext, rule: &Rule) -> Result<When> {
    if rule.zone.is_some() && rule.cron.is_none() {
        return Err(wrong(
            "schedule: zone can be used only with cron",
            "write the offset into `at`, for example 18:00:00+01:00",
        ));
    }
    if rule.anchor.is_some() && rule.every.is_none() {
        return Err(wrong("schedule: anchor can be used only with every", "for example {\"every\": \"6h\"}"));
    }
    match (&rule.cron, &rule.every, &rule.at) {
        (Some(expression), None, None) => {
            Ok(When::Cron { expression: expression.trim().to_owned(), zone: rule.zone.clone() })
        }
        (None, Some(text), None) => {
            let every = duration("schedule.every", text)?;
            let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
            let anchor = rule.anchor.as_deref().map(|text| instant("schedule.anchor", text)).transpose()?;
            Ok(When::Every { every_ms, anchor: anchor.unwrap_or_else(|| call.services.ctx.now()) })
        }
        (None, None, Some(text)) => Ok(When::At { at: instant("schedule.at", text)? }),
        _ => Err(wrong("schedule: give one of cron, every and at", "for example {\"cron\": \"0 9 * * 1-5\"}")),
    }
}

fn add(call: &CallContext, params: CronParams, w: &mut Tx) -> Result<Output> {
    let job = match (params.job, params.name, params.schedule, params.message) {
        (Some(job), None, None, None) if params.options.is_none() => job,
        (None, Some(name), Some(schedule), Some(message)) => {
            Job { name, schedule, message, missed: None, options: params.options }
        }
        _ => {
            return Err(wrong(
                "add takes a job, or name, schedule and message",
                "for example name: \"mail\", schedule: {\"every\": \"1h\"}, message: \"look at the mail\"",
            ));
        }
    };
    if w.schedule_find(&call.caller.agent_id, ScheduleKind::Cron, job.name.trim())?.is_some() {
        return Err(refusal!(Conflict, "there is a job `{}` already", clip(&job.name, 64))
            .hint("use action update, or another name"));
    }
    let mode = mode(call, job.options.unwrap_or_default(), &job.name, None)?;
    let missed = job.missed.unwrap_or(Missed::Skip);
    let new = new_schedule(call, ScheduleKind::Cron, job.name, rule(call, &job.schedule)?, job.message);
    set(call, NewSchedule { mode, missed, ..new }, w)
}

fn update(call: &CallContext, params: CronParams, w: &mut Tx) -> Result<Output> {
    let before = job(call, &params, w)?;
    let Some(patch) = params.patch else {
        return Err(wrong("update takes a patch", "for example patch: {\"enabled\": false}"));
    };
    let mode = match patch.options {
        None => before.mode,
        Some(given) => mode(call, given, &before.name, Some(&before.mode))?,
    };
    if patch.enabled == Some(true) {
        call.services.plan().check_job(&mode)?;
    }
    let when = patch.schedule.as_ref().map(|schedule| rule(call, schedule)).transpose()?.unwrap_or(before.when);
    let (missed, enabled) = (patch.missed.unwrap_or(before.missed), patch.enabled.unwrap_or(before.enabled));
    let new = new_schedule(call, before.kind, before.name, when, patch.message.unwrap_or(before.message));
    set(call, NewSchedule { mode, missed, enabled, ..new }, w)
}

/// Sends a message to the agent itself, now or with its next heartbeat.
fn wake(call: &CallContext, params: CronParams, w: &mut Tx) -> Result<Output> {
    let text = params.message.unwrap_or_default();
    not_blank("message", &text)?;
    let now = params.mode != Some(WakeMode::NextHeartbeat);
    let new_message = NewMessage {
        subject: Some("Note to yourself".to_owned()),
        wake: now,
        ..NewMessage::new(&call.caller.agent_id, call.party(), Kind::Cron, text, call.chain())
    };
    let envelope = deliver(w, new_message)?;
    let mut content = json!({ "message_id": envelope.message_id, "wakes": now });
    if !now {
        let heartbeats = w.schedule_list(Some(&call.caller.agent_id), Some(ScheduleKind::Heartbeat), None)?;
        match heartbeats.iter().filter(|heartbeat| heartbeat.enabled).find_map(|heartbeat| heartbeat.next_at) {
            Some(at) => content["next_heartbeat_at"] = json!(at.rfc3339()),
            None => content["note"] = json!("you have no heartbeat: it waits until something else wakes you"),
        }
    }
    Ok(content.into())
}

params! {
    /// The options of a job.
    #[derive(Default)]
    pub(super) struct Options {
        /// `main`: in your ongoing conversation; `isolated`: separate from it.
        session: Option<Session>,
        /// `systemEvent` (the default) is mail to you, in `main`; `agentTurn` is a separate turn, in `isolated`, that
        /// recalls nothing of your other turns.
        payload: Option<Payload>,
        /// For a systemEvent: wake you `now` (the default), or with your `next-heartbeat`.
        wake: Option<WakeMode>,
        /// For an agentTurn: where its final text goes: `announce` (the default), `webhook` or `none`.
        deliver: Option<Deliver>,
        /// For `announce`: `last` (your last conversation with someone outside; the default), a chat channel, or the id of
        /// a conversation. For `webhook`: its name, for a thread of the job; name/thread only if the webhook's threads go
        /// to you.
        to: Option<String>,
        /// For an agentTurn: the longest time it may take, such as 90s.
        timeout: Option<String>,
        /// For an agentTurn: the largest number of model calls.
        max_rounds: Option<u32>,
        /// For an agentTurn: the model, as model or provider/model.
        model: Option<String>,
    }
}

impl Options {
    fn given(self) -> Result<JobOptions> {
        let timeout_seconds = match self.timeout.as_deref().map(|text| duration("options.timeout", text)).transpose()? {
            Some(timeout) if timeout.subsec_millis() > 0 => {
                return Err(wrong("options.timeout is whole seconds", "write for example 90s or 2m"));
            }
            timeout => timeout.map(|timeout| u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX)),
        };
        let Self { session, payload, wake, deliver, to, max_rounds, model, .. } = self;
        Ok(JobOptions { session, payload, wake, deliver, to, timeout_seconds, max_rounds, model })
    }
}

/// The mode of a job, after checking its model and webhook. The target is checked only when it is
/// set or changed; an unchanged target is checked when the job runs.
pub(super) fn mode(call: &CallContext, given: Options, name: &str, before: Option<&JobMode>) -> Result<JobMode> {
    let (agent_id, limits) = (&call.caller.agent_id, call.services.ctx.limits());
    let mode = JobMode::parse(given.given()?, before, agent_id, name.trim(), &limits).map_err(with_tool_field)?;
    let plan = call.services.plan();
    plan.check_job(&mode)?;
    let target = |mode: &JobMode| mode.own_turn().map(|turn| turn.target.clone());
    if let Some(target) = target(&mode).filter(|new| before.and_then(target).as_ref() != Some(new)) {
        plan.check_target(agent_id, &target)?;
    }
    Ok(mode)
}

/// Renames the field in a refusal: this tool takes the timeout as text.
fn with_tool_field(mut refusal: Refusal) -> Refusal {
    const RENAMED: (&str, &str) = ("timeout_seconds", "options.timeout");
    refusal.message = refusal.message.replace(RENAMED.0, RENAMED.1);
    refusal.hint = refusal.hint.map(|hint| hint.replace(RENAMED.0, RENAMED.1));
    if let Some(field) = refusal.details.as_mut().and_then(|details| details.get_mut("field"))
        && field == RENAMED.0
    {
        *field = json!(RENAMED.1);
    }
    refusal
}
