//! `ghostctl turn settle`

use clap::ValueEnum;
use ghost_proto::json;
use ghost_proto::v1::SettleCallRequest;
use ghost_proto::v1::turns_client::TurnsClient;

use crate::connection::{Client, new_request_id, required, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Say what became of a call whose outcome nobody knows
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl ledger --status unknown\n  CALL=$(ghostctl --json ledger --status unknown | jq -r '.[0].call_id')\n  ghostctl turn settle $CALL happened --note 'the invoice is paid'\n\nA call is `unknown` if the daemon died while it ran. The ledger gets what you say. A turn that waits for it\n(`idempotency: person`) goes on; otherwise the agent is told with a message. Nothing is called again."
)]
pub struct Settle {
    /// Call id, as `ghostctl ledger` prints it
    call_id: String,
    /// What became of it
    outcome: Outcome,
    /// Tell the agent this, too
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Outcome {
    Happened,
    DidNot,
}

impl Settle {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let outcome = match self.outcome {
            Outcome::Happened => "happened",
            Outcome::DidNot => "did-not",
        };
        let request = SettleCallRequest {
            request_id: new_request_id(),
            call_id: self.call_id,
            outcome: outcome.to_owned(),
            note: self.note,
        };
        let answer = rpc!(client, TurnsClient::settle, request).await?;
        let call = required(answer.call, "call")?;
        let text = format!("call {} of {} by {} is {} now", call.call_id, call.tool, call.agent_id, call.status);
        Ok(Answer::object(json::value(&call), text))
    }
}
