//! `ghostctl budget`, `usage` and `ledger`: what may be spent, what model calls cost, and the record of all tool calls.

use ghost_proto::json;
use ghost_proto::v1::{CallTotals, LedgerRow, UsageSum};
use serde_json::json;

use crate::arguments::{Limit, parse_tokens, parse_usd, since};
use crate::commands::prelude::*;
use crate::lists::collect;
use crate::text::{cost, dollars, plural};

#[derive(Debug, clap::Subcommand)]
pub enum Budget {
    /// List budgets with limits, reserved and spent amounts
    ///
    /// Examples:
    ///   ghostctl budget list
    ///   ghostctl budget list --scope root
    #[command(verbatim_doc_comment)]
    List {
        /// Show only this kind: world, team, agent, root or day (default: all but root)
        #[arg(long = "scope", value_name = "SORT")]
        sort: Option<String>,
        #[command(flatten)]
        bound: Bound,
    },
    /// Set or remove the limits of a scope
    ///
    /// Examples:
    ///   ghostctl budget set world --usd 5
    ///   ghostctl budget set agent:chora --tokens 200000
    ///   ghostctl budget set world/day --usd 10
    ///   ghostctl budget set team:desk --usd none
    #[command(verbatim_doc_comment)]
    #[command(group = clap::ArgGroup::new("limit").required(true).multiple(true))]
    Set {
        /// world, team:NAME, agent:ID or root:UUID; add /day to the first three for a daily limit (UTC)
        scope: String,
        /// Limit the tokens; none removes the limit
        #[arg(long = "tokens", id = "limit_tokens", value_name = "N", group = "limit", value_parser = parse_tokens)]
        tokens: Option<Limit>,
        /// Limit the cost in US dollars; none removes the limit
        #[arg(long = "usd", id = "limit_micros", value_name = "X", group = "limit", value_parser = parse_usd)]
        usd: Option<Limit>,
    },
}

const BUDGETS: &[Column<v1::Budget>] = columns![
    "SCOPE" scope, "TOKENS SPENT" spent_tokens, "HELD" reserved_tokens,
    "LIMIT" => |budget, _| budget.limit_tokens.map_or("none".to_owned(), |limit| limit.to_string()),
    "USD SPENT" => |budget, _| cost(budget.spent_micros, budget.unpriced_tokens),
    "HELD" => |budget, _| dollars(budget.reserved_micros),
    "LIMIT" => |budget, _| budget.limit_micros.map_or("none".to_owned(), dollars),
];

impl Budget {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self {
            Self::List { sort, bound } => {
                let request = v1::ListBudgetsRequest { sort, ..<_>::default() };
                list(client, &bound, request, BUDGETS).await
            }
            Self::Set { scope, tokens, usd } => {
                let at = |limit| match limit {
                    Some(Limit::At(value)) => Some(value),
                    Some(Limit::None) | None => None,
                };
                let request = v1::SetBudgetRequest {
                    request_id: new_request_id(),
                    scope,
                    limit_tokens: at(tokens),
                    limit_micros: at(usd),
                    clear_tokens: tokens == Some(Limit::None),
                    clear_micros: usd == Some(Limit::None),
                };
                let budget = client.call(request).await?;
                let tokens = budget.limit_tokens.map_or("no token limit".to_owned(), |limit| format!("{limit} tokens"));
                let money = budget.limit_micros.map_or("no cost limit".to_owned(), dollars);
                let spent = cost(budget.spent_micros, budget.unpriced_tokens);
                let mut text = format!("{}: {tokens}, {money}", budget.scope);
                text.push_str(&format!(" (spent: {} tokens; {spent})", budget.spent_tokens));
                text.extend(already_passed(&budget));
                Ok(Answer::new(&budget, text))
            }
        }
    }
}

/// A line that warns if the new limit is already reached, or if it is 0 dollars.
fn already_passed(budget: &v1::Budget) -> Option<String> {
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

/// Show tokens and cost of model calls, by agent and model
///
/// Examples:
///   ghostctl usage --since 24h
///   ghostctl --json usage --agent chora | jq 'map(.cost_usd) | add'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Usage {
    /// Show only this agent
    #[arg(long = "agent", id = "agent_id", value_name = "A")]
    agent: Option<String>,
    /// Show only calls of the last TIME, for example 24h
    #[arg(long = "since", value_name = "TIME", value_parser = since, allow_hyphen_values = true)]
    since_at_ms: Option<i64>,
}

const USAGE: &[Column<UsageSum>] = columns![
    "AGENT" agent_id, "MODEL" model, "CALLS" calls,
    "INPUT" => |sum, _| sum.tokens.unwrap_or_default().input.to_string(),
    "OUTPUT" => |sum, _| sum.tokens.unwrap_or_default().output.to_string(),
    "CACHE READ" => |sum, _| sum.tokens.unwrap_or_default().cache_read.to_string(),
    "CACHE WRITE" => |sum, _| sum.tokens.unwrap_or_default().cache_write.to_string(),
    "COST" => |sum, _| cost(sum.cost_micros, sum.unpriced_tokens),
    "ESTIMATED" => |sum, _| match sum.estimated_calls {
        0 => String::new(),
        calls => format!("{}, {}", plural(calls, "call"), dollars(sum.estimated_micros)),
    },
];

impl Usage {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let sums = collect(&Bound::ALL, async |_, cursor| {
            // Each page sums up the whole time again, so a page is as large as an answer can be.
            let (agent_id, since_at_ms) = (self.agent.clone(), self.since_at_ms);
            let request = v1::UsageRequest { agent_id, since_at_ms, limit: 0, cursor };
            let page = client.call(request).await?;
            Ok((page.sums, page.next_cursor))
        })
        .await?
        .rows;
        let mut total = UsageSum { agent_id: "total".into(), ..UsageSum::default() };
        for sum in &sums {
            let (all, tokens) = (total.tokens.get_or_insert_default(), sum.tokens.unwrap_or_default());
            add(&mut [
                (&mut all.input, tokens.input),
                (&mut all.output, tokens.output),
                (&mut all.cache_read, tokens.cache_read),
                (&mut all.cache_write, tokens.cache_write),
                (&mut total.calls, sum.calls),
                (&mut total.cost_micros, sum.cost_micros),
                (&mut total.estimated_calls, sum.estimated_calls),
                (&mut total.estimated_micros, sum.estimated_micros),
                (&mut total.unpriced_tokens, sum.unpriced_tokens),
            ]);
        }
        Ok(Answer::new(&sums, table(sums.iter().chain([&total]), &client.view, USAGE)))
    }
}

/// Adds each count to its total.
fn add(counts: &mut [(&mut u64, u64)]) {
    for (total, count) in counts {
        **total = total.saturating_add(*count);
    }
}

/// List tool calls, newest first
///
/// Examples:
///   ghostctl ledger --agent chora --since 24h
///   ghostctl ledger --status unknown
///   ghostctl ledger --tool tool.cli --since 24h --totals
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Ledger {
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

const CALLS: &[Column<LedgerRow>] = columns![
    "CALL" call_id, "STARTED" moment started_at_ms, "AGE" age started_at_ms, "AGENT" agent_id, "TOOL" tool,
    "STATUS" status, "ERROR" error_code, "MS" duration_ms, "TOKENS" tokens,
    "COST" => |call, _| call.cost_micros.map(dollars).unwrap_or_default(),
    "ARGUMENTS" arguments_json,
];

const TOTALS: &[Column<CallTotals>] = columns![
    "TOOL" tool, "STATUS" status, "CALLS" calls, "MS" duration_ms, "BYTES IN" bytes_in, "BYTES OUT" bytes_out,
    "TOKENS" tokens,
    "COST" => |sum, _| dollars(sum.cost_micros),
];

/// The statuses of calls that did not succeed, beside those that still run.
const FAILED: [&str; 2] = ["failed", "unknown"];

impl Ledger {
    pub async fn run(self, client: &Client) -> Result<Answer, Failure> {
        let Self { agent: agent_id, tool, status, turn, since_at_ms, totals: sums, bound } = self;
        let turn_id = full_id_if_given(client, IdKind::TURN, turn).await?;
        let filter = v1::ListLedgerRequest { agent_id, tool, status, turn_id, since_at_ms, ..<_>::default() };
        if sums {
            return totals(client, filter, &bound).await;
        }
        list(client, &bound, filter.clone(), CALLS).await
    }
}

/// Sums the calls that `filter` lets through, and lists those that did not succeed.
async fn totals(client: &Client, filter: v1::ListLedgerRequest, bound: &Bound) -> Result<Answer, Failure> {
    let v1::ListLedgerRequest { agent_id, tool, status, turn_id, since_at_ms, .. } = filter.clone();
    let request = v1::LedgerTotalsRequest { agent_id, tool, status, turn_id, since_at_ms };
    let totals = client.call(request).await?.totals;
    let (mut failed, mut note) = (Vec::new(), None);
    for status in FAILED.into_iter().filter(|status| totals.iter().any(|sum| sum.status == *status)) {
        let request = v1::ListLedgerRequest { status: Some(status.to_owned()), ..filter.clone() };
        let found = pages(client, bound, request).await?;
        failed.extend(found.rows);
        note = note.or(found.note);
    }
    failed.sort_by_key(|row: &LedgerRow| std::cmp::Reverse(row.started_at_ms));
    let mut all = CallTotals { tool: "total".into(), ..CallTotals::default() };
    for sum in &totals {
        add(&mut [
            (&mut all.calls, sum.calls),
            (&mut all.duration_ms, sum.duration_ms),
            (&mut all.bytes_in, sum.bytes_in),
            (&mut all.bytes_out, sum.bytes_out),
            (&mut all.tokens, sum.tokens),
            (&mut all.cost_micros, sum.cost_micros),
        ]);
    }
    let mut text = table(totals.iter().chain([&all]), &client.view, TOTALS);
    if !failed.is_empty() {
        text.push_str(&format!("\n{}", table(&failed, &client.view, CALLS)));
    }
    let json = json!({ "totals": json::value(&totals), "failed": json::value(&failed) });
    Ok(Answer { note, ..Answer::new(&json, text) })
}
