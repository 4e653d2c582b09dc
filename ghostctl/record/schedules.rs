//! Timers, cron jobs, watches and heartbeats as JSON objects.

use ghost_proto::v1;
use ghost_record::parsed;
use serde_json::{Value, json};

use crate::text::rfc3339;

/// A timer, cron job, watch or heartbeat as JSON.
pub fn schedule(schedule: &v1::Schedule) -> Value {
    json!({
        "schedule_id": schedule.schedule_id,
        "kind": schedule.kind,
        "agent_id": schedule.agent_id,
        "name": schedule.name,
        "when": parsed(&schedule.when_json),
        "message": schedule.message,
        "missed": schedule.missed,
        "options": schedule.options.as_ref().map(options),
        "enabled": schedule.enabled,
        "next_at": schedule.next_at_ms.map(rfc3339),
        "last_at": schedule.last_at_ms.map(rfc3339),
        "last_status": schedule.last_status,
        "runs": schedule.runs,
        "creator": schedule.creator,
        "created_at": rfc3339(schedule.created_at_ms),
    })
}

/// The options of a cron job as JSON.
fn options(options: &v1::JobOptions) -> Value {
    json!({
        "session": options.session,
        "payload": options.payload,
        "wake": options.wake,
        "deliver": options.deliver,
        "to": (!options.to.is_empty()).then_some(&options.to),
        "timeout_seconds": options.timeout_seconds,
        "max_rounds": options.max_rounds,
        "model": options.model,
    })
}

/// One run of a schedule as JSON.
pub fn run(run: &v1::ScheduleRun) -> Value {
    json!({
        "schedule_id": run.schedule_id,
        "run": run.run,
        "agent_id": run.agent_id,
        "slot_at": rfc3339(run.slot_at_ms),
        "fired_at": rfc3339(run.fired_at_ms),
        "late": run.late,
        "missed": run.missed,
        "status": run.status,
        "message_id": run.message_id,
        "note": run.note,
    })
}
