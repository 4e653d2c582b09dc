//! `ghostctl grant list`

use ghost_proto::json;
use ghost_proto::v1::ListGrantsRequest;
use ghost_proto::v1::grants_client::GrantsClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;

/// List the write grants that hold now
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl grant list\n  ghostctl grant list --agent chora")]
pub struct List {
    /// Show only grants of this agent
    #[arg(long = "agent", id = "agent_id", value_name = "A")]
    agent: Option<String>,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let grants = collect(&self.bound, async |limit, cursor| {
            let request = ListGrantsRequest { agent_id: self.agent.clone(), limit, cursor };
            let page = rpc!(client, GrantsClient::list, request).await?;
            Ok((page.grants, page.next_cursor))
        })
        .await?;
        let mut table = Table::new(&["GRANT", "AGENT", "DIRECTORY", "UNTIL", "BY", "SOURCE", "REASON"]);
        for grant in &grants.rows {
            table.row([
                grant.grant_id.clone(),
                grant.agent_id.clone(),
                grant.prefix.clone(),
                client.view.moment(grant.expires_at_ms),
                grant.created_by.clone(),
                grant.source.clone(),
                grant.reason.clone().unwrap_or_default(),
            ]);
        }
        let json = grants.rows.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: grants.note, failure: None })
    }
}
