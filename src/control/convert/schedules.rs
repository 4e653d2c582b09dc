//! Schedules as wire messages. Text by agents is redacted.

use ghost_domain::redact::Redactor;
use ghost_domain::schedule::{JobMode, JobOptions};
use ghost_domain::{Schedule, ScheduleKind, ScheduleRun, TextEnum};
use ghost_proto::v1;

/// A timer, a cron job, a watch or a heartbeat.
#[must_use]
pub fn schedule(schedule: &Schedule, redactor: &Redactor) -> v1::Schedule {
    let when = schedule.when.shown();
    v1::Schedule {
        schedule_id: schedule.schedule_id.to_string(),
        kind: schedule.kind.as_str().to_owned(),
        agent_id: schedule.agent_id.to_string(),
        name: redactor.redact(&schedule.name),
        when_json: redactor.clean_json(when).to_string(),
        message: redactor.redact(&schedule.message),
        missed: schedule.missed.as_str().to_owned(),
        enabled: schedule.enabled,
        next_at_ms: schedule.next_at.map(|at| at.0),
        last_at_ms: schedule.last_at.map(|at| at.0),
        last_status: schedule.last_status.map(|status| status.as_str().to_owned()),
        runs: schedule.runs,
        creator: schedule.creator.to_string(),
        created_at_ms: schedule.created_at.0,
        conversation_id: schedule.conversation_id.map(|id| id.to_string()),
        options: (schedule.kind == ScheduleKind::Cron).then(|| options(&schedule.mode, redactor)),
    }
}

/// How a cron job runs.
fn options(mode: &JobMode, redactor: &Redactor) -> v1::JobOptions {
    let options = JobOptions::from(mode.clone());
    v1::JobOptions {
        session: options.session.map(TextEnum::as_str).unwrap_or_default().to_owned(),
        payload: options.payload.map(TextEnum::as_str).unwrap_or_default().to_owned(),
        wake: options.wake.map(TextEnum::as_str).unwrap_or_default().to_owned(),
        deliver: options.deliver.map(TextEnum::as_str).unwrap_or_default().to_owned(),
        to: redactor.redact(&options.to.unwrap_or_default()),
        timeout_seconds: options.timeout_seconds,
        max_rounds: options.max_rounds,
        model: options.model,
    }
}

/// One run of a schedule.
#[must_use]
pub fn run(run: &ScheduleRun, redactor: &Redactor) -> v1::ScheduleRun {
    v1::ScheduleRun {
        schedule_id: run.schedule_id.to_string(),
        run: run.run,
        agent_id: run.agent_id.to_string(),
        slot_at_ms: run.slot_at.0,
        fired_at_ms: run.fired_at.0,
        late: run.late,
        missed: run.missed,
        status: run.status.as_str().to_owned(),
        message_id: run.message_id.map(|id| id.to_string()),
        note: run.note.as_deref().map(|note| redactor.redact(note)),
    }
}
