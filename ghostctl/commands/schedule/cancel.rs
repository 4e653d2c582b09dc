//! `ghostctl timer|cron|watch cancel`

use ghost_proto::v1::CancelScheduleRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use super::named::named;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::record::schedules as record;

/// Take one away; the record of its runs stays
#[derive(Debug, clap::Args)]
pub struct Cancel {
    /// Its id, or <agent>/<name>
    #[arg(value_name = "ID")]
    id: String,
}

impl Cancel {
    pub async fn run(self, client: &Client, kind: &str) -> Result<Answer, Failure> {
        let schedule_id = named(client, kind, &self.id).await?.schedule_id;
        let request = CancelScheduleRequest { request_id: new_request_id(), schedule_id };
        let schedule = rpc!(client, SchedulesClient::cancel, request).await?;
        let text = format!("{} {} of {} is cancelled", schedule.kind, schedule.name, schedule.agent_id);
        Ok(Answer::object(record::schedule(&schedule), text))
    }
}
