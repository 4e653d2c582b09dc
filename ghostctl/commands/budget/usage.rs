//! `ghostctl usage`

use ghost_proto::json;
use ghost_proto::v1::budgets_client::BudgetsClient;
use ghost_proto::v1::{UsageRequest, UsageSum};

use crate::commands::since::since;
use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::collect_all;
use crate::output::{Answer, Body};
use crate::table::Table;
use crate::text::{cost, dollars};

/// Show tokens and cost of model calls, by agent and model
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl usage --since 24h\n  ghostctl --json usage --agent chora | jq 'map(.cost_usd) | add'"
)]
pub struct Usage {
    /// Show only this agent
    #[arg(long = "agent", id = "agent_id", value_name = "A")]
    agent: Option<String>,
    /// Show only calls of the last TIME, for example 24h
    #[arg(long = "since", value_name = "TIME", value_parser = since, allow_hyphen_values = true)]
    since_at_ms: Option<i64>,
}

impl Usage {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let sums = collect_all(async |_, cursor| {
            // Each page sums up the whole time again, so a page is as large as an answer can be.
            let (agent_id, since_at_ms) = (self.agent.clone(), self.since_at_ms);
            let request = UsageRequest { agent_id, since_at_ms, limit: 0, cursor };
            let page = rpc!(client, BudgetsClient::usage, request).await?;
            Ok((page.sums, page.next_cursor))
        })
        .await?;
        let mut table = Table::new(&[
            "AGENT",
            "MODEL",
            "CALLS",
            "INPUT",
            "OUTPUT",
            "CACHE READ",
            "CACHE WRITE",
            "COST",
            "ESTIMATED",
        ]);
        let mut row = |sum: &UsageSum| {
            let tokens = sum.tokens.unwrap_or_default();
            let estimated = match sum.estimated_calls {
                0 => String::new(),
                1 => format!("1 call, {}", dollars(sum.estimated_micros)),
                calls => format!("{calls} calls, {}", dollars(sum.estimated_micros)),
            };
            table.row([
                sum.agent_id.clone(),
                sum.model.clone(),
                sum.calls.to_string(),
                tokens.input.to_string(),
                tokens.output.to_string(),
                tokens.cache_read.to_string(),
                tokens.cache_write.to_string(),
                cost(sum.cost_micros, sum.unpriced_tokens),
                estimated,
            ]);
        };
        let mut total = UsageSum { agent_id: "total".into(), ..UsageSum::default() };
        for sum in &sums {
            row(sum);
            add(&mut total, sum);
        }
        row(&total);
        let json = sums.iter().map(json::value).collect();
        Ok(Body::List { json, table }.into())
    }
}

fn add(total: &mut UsageSum, sum: &UsageSum) {
    let (all, tokens) = (total.tokens.get_or_insert_default(), sum.tokens.unwrap_or_default());
    for (total, count) in [
        (&mut all.input, tokens.input),
        (&mut all.output, tokens.output),
        (&mut all.cache_read, tokens.cache_read),
        (&mut all.cache_write, tokens.cache_write),
        (&mut total.calls, sum.calls),
        (&mut total.cost_micros, sum.cost_micros),
        (&mut total.estimated_calls, sum.estimated_calls),
        (&mut total.estimated_micros, sum.estimated_micros),
        (&mut total.unpriced_tokens, sum.unpriced_tokens),
    ] {
        *total = total.saturating_add(count);
    }
}
