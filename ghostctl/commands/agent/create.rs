//! `ghostctl agent create`

use ghost_proto::v1::CreateAgentRequest;
use ghost_proto::v1::agents_client::AgentsClient;

use super::change::changed;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::optional_text;

/// Create an agent from an archetype and start it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl agent create scout --id scout-2 --goal 'Read notes/ and report'")]
pub struct Create {
    /// Name of the archetype
    archetype: String,
    /// Set the agent's id (default: derived from the archetype's name)
    #[arg(long = "id", id = "agent_id", value_name = "ID")]
    id: Option<String>,
    /// Set the display name
    #[arg(long, value_name = "N")]
    name: Option<String>,
    /// Start a first turn with this text; - reads standard input; without a goal the agent waits for messages
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    goal: Option<String>,
}

impl Create {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = CreateAgentRequest {
            request_id: new_request_id(),
            archetype: self.archetype,
            agent_id: self.id,
            name: self.name,
            goal: optional_text(self.goal)?,
            overrides_json: String::new(),
        };
        changed(rpc!(client, AgentsClient::create, request).await?, "created")
    }
}
