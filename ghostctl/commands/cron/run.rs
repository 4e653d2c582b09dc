//! `ghostctl cron run`

use ghost_proto::json;
use ghost_proto::v1::RunScheduleRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use crate::commands::schedule::lookup::find_schedule;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Run a job now, in addition to its schedule
#[derive(Debug, clap::Args)]
pub struct Run {
    /// Job id, or AGENT/NAME
    #[arg(id = "schedule_id", value_name = "ID")]
    id: String,
}

impl Run {
    pub async fn run(self, client: &Client, kind: &str) -> Result<Answer, Failure> {
        let schedule = find_schedule(client, kind, &self.id).await?;
        let job = format!("{}/{}", schedule.agent_id, schedule.name);
        let schedule_id = schedule.schedule_id;
        let request = RunScheduleRequest { request_id: new_request_id(), schedule_id };
        let run = rpc!(client, SchedulesClient::run, request).await?;
        let text = match &run.note {
            Some(note) => format!("run {} of {job}: {}: {note}", run.run, run.status),
            None => format!("run {} of {job}: {}", run.run, run.status),
        };
        Ok(Answer::object(json::value(&run), text))
    }
}
