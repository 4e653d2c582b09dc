//! `ghostctl budget set`

use ghost_proto::v1::budgets_client::BudgetsClient;
use ghost_proto::v1::{Budget, SetBudgetRequest};

use crate::connection::{Client, new_request_id, rpc};
use crate::failure::Failure;
use crate::output::Answer;
use crate::record;
use crate::text::{Limit, cost, dollars, parse_tokens, parse_usd};

/// Set or take away the limits of a scope
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ghostctl budget set world --usd 5\n  ghostctl budget set agent:chora --tokens 200000\n  ghostctl budget set world/day --usd 10\n  ghostctl budget set team:desk --usd none"
)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true))]
pub struct Set {
    /// world, team:NAME, agent:ID or root:UUID; the first three with /day for one day (UTC)
    scope: String,
    /// Most tokens, or none
    #[arg(long, value_name = "N", group = "limit", value_parser = parse_tokens)]
    tokens: Option<Limit>,
    /// Most US dollars, or none
    #[arg(long, value_name = "X", group = "limit", value_parser = parse_usd)]
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
        let tokens = budget.limit_tokens.map_or("no limit of tokens".to_owned(), |limit| format!("{limit} tokens"));
        let money = budget.limit_micros.map_or("no limit of money".to_owned(), dollars);
        let mut text = format!(
            "{}: {tokens}, {money} (spent: {} tokens; {})",
            budget.scope,
            budget.spent_tokens,
            cost(budget.spent_micros, budget.unpriced_tokens)
        );
        text.extend(already_passed(&budget));
        Ok(Answer::object(record::budget(&budget), text))
    }
}

/// What a limit that is passed as soon as it is set does, in a line of its own; and one of no money, which is not.
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
        let free = "only models whose price is known to be 0 can be asked (`llm.prices` in the world file)";
        return (budget.limit_micros == Some(0)).then(|| format!("\nno money may be spent: {free}"));
    }
    let until = if budget.scope.ends_with("/day") { "it is raised, or 00:00 UTC" } else { "it is raised" };
    // Money alone keeps nobody from a model without cost.
    let call = match budget.passed.iter().any(|limit| limit == "tokens") {
        true => "its next model call",
        false => "its next call of a model that costs something",
    };
    let what = format!("every turn that it is charged for waits before {call}");
    Some(format!("\nalready passed: {}; {what}, until {until}", passed.join(", ")))
}
