//! `ghostctl droid kill`

use ghost_proto::json;
use ghost_proto::v1::KillDroidRequest;
use ghost_proto::v1::droids_client::DroidsClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// End a droid; its parent is told
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl droid kill droid-1a2b3c4d --reason 'no longer needed'")]
pub struct Kill {
    /// Droid id
    droid_id: String,
    /// Why, for its parent
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Kill {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = KillDroidRequest { request_id: new_request_id(), droid_id: self.droid_id, reason: self.reason };
        let droid = rpc!(client, DroidsClient::kill, request).await?;
        let text = format!("{} is {}\n", droid.droid_id, droid.state);
        Ok(Answer::object(json::value(&droid), text))
    }
}
