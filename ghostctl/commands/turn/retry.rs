//! `ghostctl turn retry`

use ghost_proto::json;
use ghost_proto::v1::RetryTurnRequest;
use ghost_proto::v1::turns_client::TurnsClient;

use crate::connection::{Client, new_request_id, required, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;

/// Retry a parked turn now
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl turn list --status parked\n  ID=$(ghostctl --json turn list --status parked | jq -r '.[0].turn_id')\n  ghostctl turn retry $ID"
)]
pub struct Retry {
    /// Turn id
    turn_id: String,
}

impl Retry {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let turn_id = ids::full_id(client, ids::TURN, self.turn_id).await?;
        let request = RetryTurnRequest { request_id: new_request_id(), turn_id };
        let answer = rpc!(client, TurnsClient::retry, request).await?;
        let turn = required(answer.turn, "turn")?;
        let text = format!("turn {} of {} will be retried now", turn.turn_id, turn.agent_id);
        Ok(Answer::object(json::value(&turn), text))
    }
}
