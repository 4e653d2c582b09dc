//! `ghostctl turn list`

use ghost_proto::json;
use ghost_proto::v1::ListTurnsRequest;
use ghost_proto::v1::turns_client::TurnsClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;
use crate::text::cost;

/// List turns, newest first
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl turn list --agent chora --limit 20\n  ghostctl turn list --status open")]
pub struct List {
    /// Show only turns of this agent
    #[arg(long = "agent", id = "agent_id", value_name = "A")]
    agent: Option<String>,
    /// Show only this status: open, parked, finished, failed, timed_out, cancelled, split or dead
    #[arg(long, value_name = "S")]
    status: Option<String>,
    /// Show only turns of this root: the event that started a chain of work
    #[arg(long = "root", id = "root_id", value_name = "ID")]
    root: Option<String>,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let turns = collect(&self.bound, async |limit, cursor| {
            let request = ListTurnsRequest {
                agent_id: self.agent.clone(),
                status: self.status.clone(),
                root_id: self.root.clone(),
                limit,
                cursor,
            };
            let page = rpc!(client, TurnsClient::list, request).await?;
            Ok((page.turns, page.next_cursor))
        })
        .await?;
        let mut table =
            Table::new(&["TURN", "AGENT", "STATUS", "STARTED", "AGE", "ROUNDS", "CALLS", "TOKENS", "COST", "ABOUT"]);
        for turn in &turns.rows {
            table.row([
                turn.turn_id.clone(),
                turn.agent_id.clone(),
                turn.status.clone(),
                client.view.moment(turn.started_at_ms),
                client.view.age(turn.started_at_ms),
                turn.rounds.to_string(),
                turn.calls.to_string(),
                turn.input_tokens.saturating_add(turn.output_tokens).to_string(),
                cost(turn.cost_micros, turn.unpriced_tokens),
                turn.reason.clone().unwrap_or_else(|| turn.about.clone()),
            ]);
        }
        let json = turns.rows.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: turns.note, failure: None })
    }
}
