//! `ghostctl tool list`

use ghost_proto::v1::ListToolsRequest;
use ghost_proto::v1::tools_client::ToolsClient;
use serde_json::{Value, json};

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body};

/// List an agent's tools, as a JSON array of {name, description}
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl tool list chora | jq -r '.[].name'")]
pub struct List {
    /// The agent
    agent_id: String,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let answer = rpc!(client, ToolsClient::list, ListToolsRequest { agent_id: self.agent_id }).await?;
        let tools: Vec<Value> =
            answer.tools.iter().map(|tool| json!({ "name": tool.name, "description": tool.description })).collect();
        Ok(Body::Json(Value::Array(tools)).into())
    }
}
