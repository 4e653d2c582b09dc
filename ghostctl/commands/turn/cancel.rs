//! `ghostctl turn cancel`

use ghost_proto::json;
use ghost_proto::v1::CancelTurnRequest;
use ghost_proto::v1::turns_client::TurnsClient;

use crate::connection::{Client, new_request_id, required, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::output::Answer;

/// Cancel an open turn
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ID=$(ghostctl --json turn list --status open --agent chora | jq -r '.[0].turn_id')\n  ghostctl turn cancel $ID --reason 'asked the wrong thing'"
)]
pub struct Cancel {
    /// Turn id
    turn_id: String,
    /// Record this reason in the turn
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Cancel {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let turn_id = ids::full_id(client, ids::TURN, self.turn_id).await?;
        let request = CancelTurnRequest { request_id: new_request_id(), turn_id, reason: self.reason };
        let answer = rpc!(client, TurnsClient::cancel, request).await?;
        let json = json::value(&answer);
        let turn = required(answer.turn, "turn")?;
        let already = if answer.changed { "" } else { "already " };
        Ok(Answer::object(json, format!("turn {} of {} is {already}{}", turn.turn_id, turn.agent_id, turn.status)))
    }
}
