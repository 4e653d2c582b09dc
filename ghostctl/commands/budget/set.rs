//! `ghostctl budget set`

use ghost_proto::json;
use ghost_proto::v1::budgets_client::BudgetsClient;
use ghost_proto::v1::{Budget, SetBudgetRequest};

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::text::{Limit, cost, dollars, parse_tokens, parse_usd};

/// Set or remove the limits of a scope
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl budget set world --usd 5\n  ghostctl budget set agent:chora --tokens 200000\n  ghostctl budget set world/day --usd 10\n  ghostctl budget set team:desk --usd none"
)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true))]
pub struct Set {
    /// world, team:NAME, agent:ID or root:UUID; add /day to the first three for a daily limit (UTC)
    scope: String,
    /// Limit the tokens; none removes the limit
    #[arg(long = "tokens", id = "limit_tokens", value_name = "N", group = "limit", value_parser = parse_tokens)]
    tokens: Option<Limit>,
    /// Limit the cost in US dollars; none removes the limit
    #[arg(long = "usd", id = "limit_micros", value_name = "X", group = "limit", value_parser = parse_usd)]
    usd: Option<Limit>,
}

impl Set {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let at = |limit| match limit {
            Some(Limit::At(value)) => Some(value),
            Some(Limit::None) | None => None,
        };
        let request = SetBudgetRequest {
            request_id: new_request_id(),
            scope: self.scope,
            limit_tokens: at(self.tokens),
            limit_micros: at(self.usd),
            clear_tokens: self.tokens == Some(Limit::None),
            clear_micros: self.usd == Some(Limit::None),
        };
        let budget = rpc!(client, BudgetsClient::set, request).await?;
        let tokens = budget.limit_tokens.map_or("no token limit".to_owned(), |limit| format!("{limit} tokens"));
        let money = budget.limit_micros.map_or("no cost limit".to_owned(), dollars);
        let mut text = format!(
            "{}: {tokens}, {money} (spent: {} tokens; {})",
            budget.scope,
            budget.spent_tokens,
            cost(budget.spent_micros, budget.unpriced_tokens)
        );
        text.extend(already_passed(&budget));
        Ok(Answer::object(json::value(&budget), text))
    }
}

/// A line that warns if the new limit is already reached, or if it is 0 dollars.
fn already_passed(budget: &Budget) -> Option<String> {
    let passed: Vec<String> = budget
        .passed
        .iter()
        .filter_map(|limit| match limit.as_str() {
            "tokens" => budget.limit_tokens.map(|limit| format!("{} of {limit} tokens", budget.spent_tokens)),
            _ => budget.limit_micros.map(|limit| format!("{} of {}", dollars(budget.spent_micros), dollars(limit))),
        })
        .collect();
    if passed.is_empty() {
        let free = "only models with a known price of 0 can be called (`llm.prices` in world-config.yaml)";
        return (budget.limit_micros == Some(0)).then(|| format!("\nthe cost limit is 0: {free}"));
    }
    let until =
        if budget.scope.ends_with("/day") { "the limit is raised, or 00:00 UTC" } else { "the limit is raised" };
    // A cost limit does not block a model with a price of 0.
    let call = match budget.passed.iter().any(|limit| limit == "tokens") {
        true => "its next model call",
        false => "its next call of a model with a price",
    };
    let what = format!("every turn under this budget waits before {call}");
    Some(format!("\nlimit already reached: {}; {what}, until {until}", passed.join(", ")))
}
