//! `ghostctl cron enable` and `disable`

use ghost_proto::v1::EnableScheduleRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use crate::commands::schedule::display::schedule_answer;
use crate::commands::schedule::lookup::find_schedule;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// The job to enable or disable.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Job id, or AGENT/NAME
    #[arg(id = "schedule_id", value_name = "ID")]
    id: String,
}

impl Which {
    pub async fn run(self, client: &Client, kind: &str, enabled: bool) -> Result<Answer, Failure> {
        let schedule_id = find_schedule(client, kind, &self.id).await?.schedule_id;
        let request = EnableScheduleRequest { request_id: new_request_id(), schedule_id, enabled };
        Ok(schedule_answer(&rpc!(client, SchedulesClient::enable, request).await?, &client.view))
    }
}
