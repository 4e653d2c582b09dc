//! `ghostctl approval list`

use ghost_proto::json;
use ghost_proto::v1::ListApprovalsRequest;
use ghost_proto::v1::approvals_client::ApprovalsClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;

/// List calls that wait for an operator, newest first
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl approval list\n  ghostctl approval list --status all\n  ghostctl approval list --always"
)]
pub struct List {
    /// Show only calls of this agent
    #[arg(long = "agent", id = "agent_id", value_name = "A")]
    agent: Option<String>,
    /// Show this status: pending, approved, denied, expired, cancelled or all (default: pending)
    #[arg(long, value_name = "S")]
    status: Option<String>,
    /// Show approvals that hold for later calls, too
    #[arg(long)]
    always: bool,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let approvals = collect(&self.bound, async |limit, cursor| {
            let (agent_id, status) = (self.agent.clone(), self.status.clone());
            let request = ListApprovalsRequest { agent_id, status, always: self.always, limit, cursor };
            let page = rpc!(client, ApprovalsClient::list, request).await?;
            Ok((page.approvals, page.next_cursor))
        })
        .await?;
        let mut table = Table::new(&["APPROVAL", "AGENT", "STATUS", "SINCE", "EXPIRES", "WHAT"]);
        for row in &approvals.rows {
            let status = if row.always { format!("{} always", row.status) } else { row.status.clone() };
            table.row([
                row.approval_id.clone(),
                row.agent_id.clone(),
                status,
                client.view.moment(row.requested_at_ms),
                client.view.moment(row.expires_at_ms),
                row.summary.clone(),
            ]);
        }
        let json = approvals.rows.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: approvals.note, failure: None })
    }
}
