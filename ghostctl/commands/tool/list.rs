//! `ghostctl tool list`

use std::cell::RefCell;

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
#[command(
    after_help = "Examples:\n  ghostctl tool list chora\n  ghostctl tool list chora --all\n  ghostctl --json tool list chora | jq -r '.[].name'"
)]
pub struct List {
    /// Agent id
    agent_id: String,
    /// Also list the tools that the agent does not have, with the reason
    #[arg(long = "all", id = "include_absent")]
    all: bool,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let absent = RefCell::new(Vec::new());
        let tools = collect_all(async |limit, cursor| {
            let (agent_id, include_absent) = (self.agent_id.clone(), self.all);
            let request = ListToolsRequest { agent_id, limit, cursor, include_absent };
            let page = rpc!(client, ToolsClient::list, request).await?;
            absent.borrow_mut().extend(page.absent);
            Ok((page.tools, page.next_cursor))
        })
        .await?;
        let absent = absent.into_inner();
        let mut json: Vec<Value> =
            tools.iter().map(|tool| json!({ "name": tool.name, "description": tool.description })).collect();
        json.extend(absent.iter().map(|tool| json!({ "name": tool.name, "absent": tool.reason })));
        let mut table = Table::new(&["TOOL", "DESCRIPTION"]);
        for tool in tools {
            // The other lines are instructions for models; `agent prompt` shows them.
            let about = tool.description.lines().next().unwrap_or_default().to_owned();
            table.row([tool.name, about]);
        }
        for tool in absent {
            table.row([tool.name, format!("absent: {}", tool.reason)]);
        }
        Ok(Body::List { json, table }.into())
    }
}
