//! `ghostctl grant add`

use std::time::Duration;

use ghost_proto::json;
use ghost_proto::v1::AddGrantRequest;
use ghost_proto::v1::grants_client::GrantsClient;

use super::told::told;
use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::text::parse_duration;

/// Let an agent write to a directory of the workspace for some time
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl grant add chora output/reviews/\n  ghostctl grant add mux shared/plans/ --for 30m --reason 'takes over the plan'"
)]
pub struct Add {
    /// Agent id
    agent_id: String,
    /// The directory, relative to the workspace, with a / at its end
    directory: String,
    /// How long the grant lasts, at most 366d (default: 4h)
    #[arg(long = "for", id = "lasts_ms", value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    lasts: Option<Duration>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// What the grant is for (default: manual)
    #[arg(long, value_name = "S", value_parser = ["manual", "mission", "session"])]
    source: Option<String>,
}

impl Add {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = AddGrantRequest {
            request_id: new_request_id(),
            agent_id: self.agent_id,
            prefix: self.directory,
            lasts_ms: self.lasts.map(|lasts| u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX)),
            source: self.source,
            reason: self.reason,
        };
        let grant = rpc!(client, GrantsClient::add, request).await?;
        Ok(Answer::object(json::value(&grant), told(&grant, "added", client)))
    }
}
