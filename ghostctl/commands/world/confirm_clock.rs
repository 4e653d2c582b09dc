//! `ghostctl confirm-clock`

use ghost_proto::json;
use ghost_proto::v1::ConfirmClockRequest;
use ghost_proto::v1::world_client::WorldClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Confirm that the daemon's clock is right after a jump, so that old records are deleted again
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  date\n  ghostctl confirm-clock")]
pub struct ConfirmClock {}

impl ConfirmClock {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = ConfirmClockRequest { request_id: new_request_id() };
        let answer = rpc!(client, WorldClient::confirm_clock, request).await?;
        let text = if answer.changed { "the clock is confirmed" } else { "there was no jump to confirm" };
        Ok(Answer::object(json::value(&answer), text))
    }
}
