//! `ghostctl droid steer`

use ghost_proto::json;
use ghost_proto::v1::SteerDroidRequest;
use ghost_proto::v1::droids_client::DroidsClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Give a droid guidance; it reads it before its next answer
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl droid steer droid-1a2b3c4d 'Leave the drafts out'")]
pub struct Steer {
    /// Droid id
    droid_id: String,
    /// What it should know or do
    message: String,
}

impl Steer {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request =
            SteerDroidRequest { request_id: new_request_id(), droid_id: self.droid_id, message: self.message };
        let droid = rpc!(client, DroidsClient::steer, request).await?;
        let text = format!("{} reads it before its next answer\n", droid.droid_id);
        Ok(Answer::object(json::value(&droid), text))
    }
}
