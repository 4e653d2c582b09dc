//! Text output of timers, cron jobs and watches.

use ghost_proto::json;
use ghost_proto::v1::Schedule;
use serde_json::Value;

use crate::output::Answer;
use crate::view::View;

/// The answer of a command that set or changed a schedule.
pub fn schedule_answer(schedule: &Schedule, view: &View) -> Answer {
    let next = match (schedule.enabled, schedule.next_at_ms) {
        (false, _) => "is disabled".to_owned(),
        (true, Some(at)) => format!("runs next at {}", view.when(at)),
        (true, None) => "is set".to_owned(),
    };
    let text = format!("{} {} of {} {next}\n{}", schedule.kind, schedule.name, schedule.agent_id, schedule.schedule_id);
    Answer::object(json::value(schedule), text)
}

/// When a schedule runs, in a few words.
pub fn rule(schedule: &Schedule, view: &View) -> String {
    let when: Value = serde_json::from_str(&schedule.when_json).unwrap_or_default();
    let text = |key: &str| when[key].as_str().unwrap_or_default().to_owned();
    match when["type"].as_str() {
        Some("at") => match text("at").parse::<jiff::Timestamp>() {
            Ok(at) => view.moment(at.as_millisecond()),
            Err(_) => text("at"),
        },
        Some("every") => format!("every {} s", when["every_ms"].as_u64().unwrap_or_default() / 1_000),
        Some("cron") => match when["zone"].as_str() {
            Some(zone) => format!("{} {zone}", text("expression")),
            None => format!("{} UTC", text("expression")),
        },
        Some("change") => {
            let path = text("path");
            let path = if path.is_empty() { ".".to_owned() } else { path };
            if when["recursive"] == true { format!("{path} (recursive)") } else { path }
        }
        _ => String::new(),
    }
}
