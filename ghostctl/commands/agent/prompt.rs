//! `ghostctl agent prompt`

use ghost_proto::v1::AgentPromptRequest;
use ghost_proto::v1::agents_client::AgentsClient;
use serde_json::json;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::record::parsed;

/// Show the prompt that the agent's next turn would start with
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl agent prompt chora | less")]
pub struct Prompt {
    /// The agent
    agent_id: String,
}

impl Prompt {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = AgentPromptRequest { agent_id: self.agent_id.clone() };
        let prompt = rpc!(client, AgentsClient::prompt, request).await?;
        let text = format!("{}\n\n{}", prompt.system.trim_end(), prompt.briefing.trim_end());
        let json = json!({
            "agent_id": self.agent_id,
            "model": prompt.model,
            "system": prompt.system,
            "briefing": prompt.briefing,
            "tools": parsed(&prompt.tools_json),
            "system_hash": prompt.system_hash,
            "briefing_hash": prompt.briefing_hash,
        });
        Ok(Answer::object(json, text))
    }
}
