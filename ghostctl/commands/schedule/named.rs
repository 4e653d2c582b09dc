//! Which timer, cron job or watch is meant.
//!
//! Must never: take one of another kind for it.

use ghost_proto::v1::schedules_client::SchedulesClient;
use ghost_proto::v1::{GetScheduleRequest, ListSchedulesRequest, Schedule};

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::lists::whole;

/// The schedules of a kind, and whether the daemon has more than it lists.
pub async fn all(client: &Client, kind: &str, agent: Option<String>) -> Result<(Vec<Schedule>, bool), Failure> {
    whole(async |limit, cursor| {
        let request = ListSchedulesRequest { agent_id: agent.clone(), kind: Some(kind.to_owned()), limit, cursor };
        let page = rpc!(client, SchedulesClient::list, request).await?;
        Ok((page.schedules, page.next_cursor, page.truncated))
    })
    .await
}

/// The one that is meant, by its id or as `<agent>/<name>`. It must be of that kind: a slip must not cancel another's.
pub async fn named(client: &Client, kind: &str, text: &str) -> Result<Schedule, Failure> {
    if let Some((agent, name)) = text.split_once('/') {
        let (schedules, cut) = all(client, kind, Some(agent.to_owned())).await?;
        return schedules.into_iter().find(|schedule| schedule.name == name).ok_or_else(|| match cut {
            true => none(kind, text).hint("this agent has more than the daemon lists; give its id"),
            false => none(kind, text),
        });
    }
    let schedule_id = ids::whole(client, ids::SCHEDULE, text.to_owned()).await?;
    let found = rpc!(client, SchedulesClient::get, GetScheduleRequest { schedule_id }).await;
    let found = found.map_err(|failure| names(kind, failure))?;
    if found.kind == kind { Ok(found) } else { Err(none(kind, text)) }
}

/// Says of what is no id how one is named besides. The daemon knows ids only.
pub fn names(kind: &str, failure: Failure) -> Failure {
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
