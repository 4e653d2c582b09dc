//! `ghostctl cron enable` and `disable`

use ghost_proto::v1::EnableScheduleRequest;
use ghost_proto::v1::schedules_client::SchedulesClient;

use crate::commands::schedule::named::named;
use crate::commands::schedule::shown::shown;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Which job.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// Its id, or <agent>/<name>
    #[arg(value_name = "ID")]
    id: String,
}

impl Which {
    pub async fn run(self, client: &Client, kind: &str, enabled: bool) -> Result<Answer, Failure> {
        let schedule_id = named(client, kind, &self.id).await?.schedule_id;
        let request = EnableScheduleRequest { request_id: new_request_id(), schedule_id, enabled };
        Ok(shown(&rpc!(client, SchedulesClient::enable, request).await?, &client.view))
    }
}
