//! `ghostctl agent start`

use ghost_proto::v1::StartAgentRequest;
use ghost_proto::v1::agents_client::AgentsClient;

use super::change::changed;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// Start a stopped or failed agent
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl agent start chora")]
pub struct Start {
    /// Agent id
    agent_id: String,
}

impl Start {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = StartAgentRequest { request_id: new_request_id(), agent_id: self.agent_id };
        changed(rpc!(client, AgentsClient::start, request).await?, "started")
    }
}
