//! `ghostctl agent create`

use ghost_proto::v1::CreateAgentRequest;
use ghost_proto::v1::agents_client::AgentsClient;

use super::change::changed;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::words_if;

/// Make an agent from an archetype and start it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl agent create scout --id scout-2 --goal 'Read notes/ and report'")]
pub struct Create {
    /// The archetype
    archetype: String,
    /// Its id; made from the archetype's name by default
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The name people see
    #[arg(long, value_name = "N")]
    name: Option<String>,
    /// Starts a first turn with this text, for - with that of standard input; without it the agent waits
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
            goal: words_if(self.goal)?,
            overrides_json: String::new(),
        };
        changed(rpc!(client, AgentsClient::create, request).await?, "is created")
    }
}
