//! `ghostctl agent delete`

use ghost_proto::v1::DeleteAgentRequest;
use ghost_proto::v1::agents_client::AgentsClient;

use super::change::changed;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::words_if;

/// Stop an agent and leave a tombstone
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl agent delete scout-2")]
pub struct Delete {
    /// The agent
    agent_id: String,
    /// Why, for the event feed
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Delete {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let reason = words_if(self.reason)?;
        let request = DeleteAgentRequest { request_id: new_request_id(), agent_id: self.agent_id, reason };
        changed(rpc!(client, AgentsClient::delete, request).await?, "is deleted")
    }
}
