//! `ghostctl agent stop`

use std::time::Duration;

use ghost_proto::v1::StopAgentRequest;
use ghost_proto::v1::agents_client::AgentsClient;

use super::change::changed;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::source::words_if;
use crate::text::parse_duration;

/// Stop an agent, and return when it is stopped; it stays so over boots
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl agent stop chora\n  ghostctl agent stop chora --grace 5s --reason 'loops'"
)]
pub struct Stop {
    /// The agent
    agent_id: String,
    /// Why, for the event feed
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// How long its turn may take to finish; its own setting by default
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    grace: Option<Duration>,
}

impl Stop {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = StopAgentRequest {
            request_id: new_request_id(),
            agent_id: self.agent_id,
            reason: words_if(self.reason)?,
            grace_ms: self.grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX)),
        };
        changed(rpc!(client, AgentsClient::stop, request).await?, "is told to stop")
    }
}
