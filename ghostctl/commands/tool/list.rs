//! `ghostctl tool list`

use ghost_proto::v1::ListToolsRequest;
use ghost_proto::v1::tools_client::ToolsClient;
use serde_json::{Value, json};

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::collect_all;
use crate::output::{Answer, Body};
use crate::table::Table;

/// List the tools of an agent
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl tool list chora\n  ghostctl --json tool list chora | jq -r '.[].name'")]
pub struct List {
    /// Agent id
    agent_id: String,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let tools = collect_all(async |limit, cursor| {
            let request = ListToolsRequest { agent_id: self.agent_id.clone(), limit, cursor };
            let page = rpc!(client, ToolsClient::list, request).await?;
            Ok((page.tools, page.next_cursor))
        })
        .await?;
        let json: Vec<Value> =
            tools.iter().map(|tool| json!({ "name": tool.name, "description": tool.description })).collect();
        let mut table = Table::new(&["TOOL", "DESCRIPTION"]);
        for tool in tools {
            // The other lines are instructions for models; `agent prompt` shows them.
            let about = tool.description.lines().next().unwrap_or_default().to_owned();
            table.row([tool.name, about]);
        }
        Ok(Body::List { json, table }.into())
    }
}
