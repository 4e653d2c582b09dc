//! `ghostctl tool brief`

use ghost_proto::v1::BriefToolsRequest;
use ghost_proto::v1::tools_client::ToolsClient;
use serde_json::json;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::Answer;

/// List an agent's tools, `- name: description` a line
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl tool brief chora")]
pub struct Brief {
    /// The agent
    agent_id: String,
}

impl Brief {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = BriefToolsRequest { agent_id: self.agent_id.clone() };
        let answer = rpc!(client, ToolsClient::brief, request).await?;
        Ok(Answer::object(json!({ "agent_id": self.agent_id, "text": answer.text }), answer.text))
    }
}
