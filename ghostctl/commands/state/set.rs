//! `ghostctl state set`

use ghost_proto::json;
use ghost_proto::v1::SetStateRequest;
use ghost_proto::v1::state_client::StateClient;

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body};
use crate::source::text_or_stdin;
use crate::text::from_0;

/// Set a value of the shared state
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl state set plan.step '{\"n\": 2}' --expect 1\n  ghostctl state set mood '\"calm\"'\n  ghostctl state set mood null  # deletes it"
)]
pub struct Set {
    /// Key
    key: String,
    /// The value as JSON; null deletes the key; - reads standard input
    #[arg(value_name = "JSON", allow_negative_numbers = true)]
    value_json: String,
    /// Fail unless the key has this version; 0 means that it does not exist
    #[arg(long = "expect", id = "expected_version", value_name = "N", value_parser = from_0::<i64>)]
    expect: Option<i64>,
    /// Act as this agent
    #[arg(long = "as", value_name = "AGENT")]
    as_agent: Option<String>,
}

impl Set {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = SetStateRequest {
            request_id: new_request_id(),
            key: self.key,
            value_json: text_or_stdin(self.value_json)?,
            expected_version: self.expect,
            as_agent: self.as_agent,
        };
        let entry = rpc!(client, StateClient::set, request).await?;
        let text = match entry.value_json.as_str() {
            "null" => format!("{} deleted", entry.key),
            _ => format!("{} is now version {}", entry.key, entry.version),
        };
        Ok(Body::Written { json: json::text(&entry), text }.into())
    }
}
