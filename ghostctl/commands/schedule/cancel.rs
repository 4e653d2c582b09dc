//! `ghostctl timer|cron|watch cancel`

use ghost_proto::json;
use ghost_proto::v1::CancelScheduleRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use super::lookup::find_schedule;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Cancel one and remove it; the record of its runs is kept
#[derive(Debug, clap::Args)]
pub struct Cancel {
    /// Schedule id, or AGENT/NAME
    #[arg(id = "schedule_id", value_name = "ID")]
    id: String,
}

impl Cancel {
    pub async fn run(self, client: &Client, kind: &str) -> Result<Answer, Failure> {
        let schedule_id = find_schedule(client, kind, &self.id).await?.schedule_id;
        let request = CancelScheduleRequest { request_id: new_request_id(), schedule_id };
        let schedule = rpc!(client, SchedulesClient::cancel, request).await?;
        let text = format!("{} {} of {} cancelled", schedule.kind, schedule.name, schedule.agent_id);
        Ok(Answer::object(json::value(&schedule), text))
    }
}
