//! `ghostctl ledger`

use ghost_proto::json;
use ghost_proto::v1::ledger_client::LedgerClient;
use ghost_proto::v1::{LedgerTotalsRequest, ListLedgerRequest};

use super::rows::rows_table;
use super::totals::totals;
use crate::commands::since::since;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::ids;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};

/// List tool calls, newest first
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl ledger --agent chora --since 24h\n  ghostctl ledger --status unknown\n  ghostctl ledger --tool tool.cli --since 24h --totals"
)]
pub struct List {
    /// Show only calls of this agent
    #[arg(long = "agent", id = "agent_id", value_name = "A")]
    agent: Option<String>,
    /// Show only calls of this tool
    #[arg(long, value_name = "T")]
    tool: Option<String>,
    /// Show only calls with this status
    #[arg(long, value_name = "S", value_parser = ["started", "ok", "failed", "unknown"])]
    status: Option<String>,
    /// Show only calls of this turn
    #[arg(long = "turn", id = "turn_id", value_name = "ID")]
    turn: Option<String>,
    /// Show only calls of the last TIME, for example 24h
    // Converted to an instant once, so that all pages start at the same instant.
    #[arg(long = "since", value_name = "TIME", value_parser = since, allow_hyphen_values = true)]
    since_at_ms: Option<i64>,
    /// Print what the calls cost, by tool and status, and list only those that did not succeed
    #[arg(long)]
    totals: bool,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let turn_id = ids::full_id_if_given(client, ids::TURN, self.turn).await?;
        if self.totals {
            let filter = LedgerTotalsRequest {
                agent_id: self.agent,
                tool: self.tool,
                status: self.status,
                turn_id,
                since_at_ms: self.since_at_ms,
            };
            return totals(client, filter, &self.bound).await;
        }
        let calls = collect(&self.bound, async |limit, cursor| {
            let request = ListLedgerRequest {
                agent_id: self.agent.clone(),
                tool: self.tool.clone(),
                status: self.status.clone(),
                turn_id: turn_id.clone(),
                since_at_ms: self.since_at_ms,
                limit,
                cursor,
            };
            let page = rpc!(client, LedgerClient::list, request).await?;
            Ok((page.rows, page.next_cursor))
        })
        .await?;
        let table = rows_table(client, &calls.rows);
        let json = calls.rows.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: calls.note, failure: None })
    }
}
