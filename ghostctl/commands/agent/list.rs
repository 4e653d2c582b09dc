//! `ghostctl agent list`

use ghost_proto::json;
use ghost_proto::v1::ListAgentsRequest;
use ghost_proto::v1::agents_client::AgentsClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;

/// List agents
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl agent list\n  ghostctl agent list --status failed")]
pub struct List {
    /// Show only agents with this status: running, restarting, stopping, stopped or failed
    #[arg(long, value_name = "S")]
    status: Option<String>,
    /// Show only agents of this archetype
    #[arg(long, value_name = "A")]
    archetype: Option<String>,
    /// Include deleted agents
    #[arg(long)]
    deleted: bool,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let agents = collect(&self.bound, async |limit, cursor| {
            let request = ListAgentsRequest {
                status: self.status.clone(),
                archetype: self.archetype.clone(),
                deleted: self.deleted,
                limit,
                cursor,
            };
            let page = rpc!(client, AgentsClient::list, request).await?;
            Ok((page.agents, page.next_cursor))
        })
        .await?;
        let mut table = Table::new(&["AGENT", "ARCHETYPE", "STATUS", "ACTIVITY", "KIND", "RESTARTS", "REASON"]);
        for agent in &agents.rows {
            table.row([
                agent.agent_id.clone(),
                agent.archetype.clone(),
                agent.status.clone(),
                agent.activity.clone().unwrap_or_default(),
                agent.kind.clone(),
                agent.restarts.to_string(),
                agent.status_reason.clone().unwrap_or_default(),
            ]);
        }
        let json = agents.rows.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: agents.note, failure: None })
    }
}
