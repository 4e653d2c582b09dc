//! `ghostctl usage`

use ghost_proto::v1::UsageRequest;
use ghost_proto::v1::budgets_client::BudgetsClient;

use crate::commands::ledger::since;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::output::{Answer, Body};
use crate::record;
use crate::table::Table;
use crate::text::dollars;

/// Show what model calls took, by agent and model
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl usage --since 24h\n  ghostctl --json usage --agent chora | jq 'map(.cost_usd) | add'"
)]
pub struct Usage {
    /// Of this agent
    #[arg(long, value_name = "A")]
    agent: Option<String>,
    /// Of this time up to now, such as 24h
    #[arg(long = "since", value_name = "TIME", value_parser = since)]
    since_at_ms: Option<i64>,
}

impl Usage {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let request = UsageRequest { agent_id: self.agent, since_at_ms: self.since_at_ms };
        let usage = rpc!(client, BudgetsClient::usage, request).await?;
        let mut table =
            Table::new(&["AGENT", "MODEL", "CALLS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "COST"]);
        let (mut calls, mut cost, mut all) = (0_u64, 0_u64, [0_u64; 4]);
        let mut row = |agent: &str, model: &str, calls: u64, tokens: [u64; 4], cost: u64| {
            let [input, output, read, write] = tokens.map(|count| count.to_string());
            table.row([agent.into(), model.into(), calls.to_string(), input, output, read, write, dollars(cost)]);
        };
        for sum in &usage.sums {
            let tokens = sum.tokens.unwrap_or_default();
            let tokens = [tokens.input, tokens.output, tokens.cache_read, tokens.cache_write];
            row(&sum.agent_id, &sum.model, sum.calls, tokens, sum.cost_micros);
            calls = calls.saturating_add(sum.calls);
            cost = cost.saturating_add(sum.cost_micros);
            all.iter_mut().zip(tokens).for_each(|(total, count)| *total = total.saturating_add(count));
        }
        row("total", "", calls, all, cost);
        let json = usage.sums.iter().map(record::usage_sum).collect();
        Ok(Body::List { json, table }.into())
    }
}
