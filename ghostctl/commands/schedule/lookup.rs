//! Finds a timer, cron job or watch by its id or by `<agent>/<name>`.
//!
//! A lookup must never return a schedule of another kind.

use ghost_proto::v1::schedules_client::SchedulesClient;
use ghost_proto::v1::{GetScheduleRequest, ListSchedulesRequest, Schedule};

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::lists::collect_all;

/// All schedules of a kind.
pub async fn all_of_kind(client: &Client, kind: &str, agent: Option<String>) -> Result<Vec<Schedule>, Failure> {
    collect_all(async |limit, cursor| {
        let request = ListSchedulesRequest { agent_id: agent.clone(), kind: Some(kind.to_owned()), limit, cursor };
        let page = rpc!(client, SchedulesClient::list, request).await?;
        Ok((page.schedules, page.next_cursor))
    })
    .await
}

/// The schedule with this id or `<agent>/<name>`. A schedule of another kind is not found, so that, for example,
/// `timer cancel` cannot cancel a cron job.
pub async fn find_schedule(client: &Client, kind: &str, text: &str) -> Result<Schedule, Failure> {
    if let Some((agent, name)) = text.split_once('/') {
        let schedules = all_of_kind(client, kind, Some(agent.to_owned())).await?;
        return schedules.into_iter().find(|schedule| schedule.name == name).ok_or_else(|| not_found(kind, text));
    }
    let schedule_id = ids::full_id(client, ids::SCHEDULE, text.to_owned()).await?;
    let found = rpc!(client, SchedulesClient::get, GetScheduleRequest { schedule_id }).await;
    let found = found.map_err(|failure| add_name_hint(kind, failure))?;
    if found.kind == kind { Ok(found) } else { Err(not_found(kind, text)) }
}

/// Adds the form AGENT/NAME to the hint of a refused id. The daemon itself accepts only ids.
pub fn add_name_hint(kind: &str, failure: Failure) -> Failure {
    match failure.code.as_str() {
        "invalid_arguments" => failure.hint(format!("use its id or AGENT/NAME; `ghostctl {kind} list` shows both")),
        _ => failure,
    }
}

fn not_found(kind: &str, text: &str) -> Failure {
    let text = crate::text::one_line(text, 100);
    let what = if kind == "cron" { "cron job" } else { kind };
    Failure::new("not_found", format!("there is no {what} `{text}`"))
        .hint(format!("see `ghostctl {kind} list`; a finished one is removed, and its runs are found by its id"))
}
