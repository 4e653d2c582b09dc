//! `ghostctl agent delete`

use ghost_proto::v1::DeleteAgentRequest;
use ghost_proto::v1::agents_client::AgentsClient;

use super::change::changed;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::optional_text;

/// Stop an agent and delete it; its record is kept, marked as deleted
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl agent delete scout-2")]
pub struct Delete {
    /// Agent id
    agent_id: String,
    /// Record this reason in the event feed
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Delete {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let reason = optional_text(self.reason)?;
        let request = DeleteAgentRequest { request_id: new_request_id(), agent_id: self.agent_id, reason };
        changed(rpc!(client, AgentsClient::delete, request).await?, "deleted")
    }
}
