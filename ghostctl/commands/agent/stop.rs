//! `ghostctl agent stop`

use std::time::Duration;

use ghost_proto::v1::StopAgentRequest;
use ghost_proto::v1::agents_client::AgentsClient;

use super::change::changed;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::optional_text;
use crate::text::parse_duration;

/// Stop an agent and wait until it has stopped; it stays stopped when the daemon restarts
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl agent stop chora\n  ghostctl agent stop chora --grace 5s --reason 'loops'"
)]
pub struct Stop {
    /// Agent id
    agent_id: String,
    /// Record this reason in the event feed
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Let the open turn finish within this time (default: the agent's own setting)
    #[arg(long = "grace", id = "grace_ms", value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    grace: Option<Duration>,
}

impl Stop {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = StopAgentRequest {
            request_id: new_request_id(),
            agent_id: self.agent_id,
            reason: optional_text(self.reason)?,
            grace_ms: self.grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX)),
        };
        changed(rpc!(client, AgentsClient::stop, request).await?, "stop requested")
    }
}
