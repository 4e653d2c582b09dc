//! What `timer`, `cron` and `watch` share: which one is meant, and how they look.

pub mod cancel;
pub mod list;
pub mod runs;

use ghost_proto::v1::schedules_client::SchedulesClient;
use ghost_proto::v1::{GetScheduleRequest, ListSchedulesRequest, ListSchedulesResponse, Schedule};
use serde_json::Value;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::record::schedules as record;
use crate::text::rfc3339;

/// The schedules of a kind, and whether the daemon has more than it lists.
pub async fn all(client: &Client, kind: &str, agent: Option<String>) -> Result<ListSchedulesResponse, Failure> {
    let request = ListSchedulesRequest { agent_id: agent, kind: Some(kind.to_owned()) };
    rpc!(client, SchedulesClient::list, request).await
}

/// The one that is meant, by its id or as `<agent>/<name>`. It must be of that kind: a slip must not cancel another's.
pub async fn named(client: &Client, kind: &str, text: &str) -> Result<Schedule, Failure> {
    if let Some((agent, name)) = text.split_once('/') {
        let all = all(client, kind, Some(agent.to_owned())).await?;
        let (cut, mut schedules) = (all.truncated, all.schedules.into_iter());
        return schedules.find(|schedule| schedule.name == name).ok_or_else(|| match cut {
            true => none(kind, text).hint("this agent has more than the daemon lists; give its id"),
            false => none(kind, text),
        });
    }
    let found = rpc!(client, SchedulesClient::get, GetScheduleRequest { schedule_id: text.to_owned() }).await;
    let found = found.map_err(|failure| names(kind, failure))?;
    if found.kind == kind { Ok(found) } else { Err(none(kind, text)) }
}

/// Says of what is no id how one is named besides. The daemon knows ids only.
fn names(kind: &str, failure: Failure) -> Failure {
    match failure.code.as_str() {
        "invalid_arguments" => failure.hint(format!("give its id or AGENT/NAME, as `ghostctl {kind} list` shows them")),
        _ => failure,
    }
}

fn none(kind: &str, text: &str) -> Failure {
    let text = crate::text::one_line(text, 100);
    let what = if kind == "cron" { "cron job" } else { kind };
    Failure::new("not_found", format!("there is no {what} `{text}`"))
        .hint(format!("see `ghostctl {kind} list`; one that is over is gone, and its runs are found by its id"))
}

/// A schedule that was set or changed.
pub fn shown(schedule: &Schedule) -> Answer {
    let next = match (schedule.enabled, schedule.next_at_ms) {
        (false, _) => "is off".to_owned(),
        (true, Some(at)) => format!("goes off at {}", rfc3339(at)),
        (true, None) => "is set".to_owned(),
    };
    let text = format!("{} {} of {} {next}\n{}", schedule.kind, schedule.name, schedule.agent_id, schedule.schedule_id);
    Answer::object(record::schedule(schedule), text)
}

/// The rule of a schedule in a few words.
fn rule(schedule: &Schedule) -> String {
    let when: Value = serde_json::from_str(&schedule.when_json).unwrap_or_default();
    let text = |key: &str| when[key].as_str().unwrap_or_default().to_owned();
    match when["type"].as_str() {
        Some("at") => text("at"),
        Some("every") => format!("every {} s", when["every_ms"].as_u64().unwrap_or_default() / 1_000),
        Some("cron") => match when["zone"].as_str() {
            Some(zone) => format!("{} {zone}", text("expression")),
            None => format!("{} UTC", text("expression")),
        },
        Some("change") => {
            let path = text("path");
            let path = if path.is_empty() { ".".to_owned() } else { path };
            if when["recursive"] == true { format!("{path} and below") } else { path }
        }
        _ => String::new(),
    }
}
