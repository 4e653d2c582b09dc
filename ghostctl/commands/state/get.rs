//! `ghostctl state get`

use ghost_proto::json;
use ghost_proto::v1::GetStateRequest;
use ghost_proto::v1::state_client::StateClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body};

/// Show a value of the shared state
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl state get plan.step\n  ghostctl --json state get plan.step | jq .version"
)]
pub struct Get {
    /// Key
    key: String,
}

impl Get {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let entry = rpc!(client, StateClient::get, GetStateRequest { key: self.key }).await?;
        Ok(Body::Written { json: json::text(&entry), text: entry.value_json }.into())
    }
}
