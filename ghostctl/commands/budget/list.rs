//! `ghostctl budget list`

use ghost_proto::json;
use ghost_proto::v1::ListBudgetsRequest;
use ghost_proto::v1::budgets_client::BudgetsClient;

use crate::connection::{Client, rpc};
use crate::failure::Failure;
use crate::lists::{Bound, collect};
use crate::output::{Answer, Body};
use crate::table::Table;
use crate::text::{cost, dollars};

/// List budgets with limits, reserved and spent amounts
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ghostctl budget list\n  ghostctl budget list --scope root")]
pub struct List {
    /// Show only this kind: world, team, agent, root or day (default: all but root)
    #[arg(long = "scope", value_name = "SORT")]
    sort: Option<String>,
    #[command(flatten)]
    bound: Bound,
}

impl List {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let budgets = collect(&self.bound, async |limit, cursor| {
            let request = ListBudgetsRequest { sort: self.sort.clone(), limit, cursor };
            let page = rpc!(client, BudgetsClient::list, request).await?;
            Ok((page.budgets, page.next_cursor))
        })
        .await?;
        let mut table = Table::new(&["SCOPE", "TOKENS SPENT", "HELD", "LIMIT", "USD SPENT", "HELD", "LIMIT"]);
        for budget in &budgets.rows {
            table.row([
                budget.scope.clone(),
                budget.spent_tokens.to_string(),
                budget.reserved_tokens.to_string(),
                budget.limit_tokens.map_or("none".to_owned(), |limit| limit.to_string()),
                cost(budget.spent_micros, budget.unpriced_tokens),
                dollars(budget.reserved_micros),
                budget.limit_micros.map_or("none".to_owned(), dollars),
            ]);
        }
        let json = budgets.rows.iter().map(json::value).collect();
        Ok(Answer { body: Body::List { json, table }, note: budgets.note, failure: None })
    }
}
