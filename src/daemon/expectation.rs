//! What a job that is paid for is expected to take, and which budgets hold, before any model is asked.
//!
//! This module must never keep a job from starting: a budget does that.

use ghost_config::plan::{JobExpectation, Plan};
use ghost_domain::{Money, Price, Refusal, RootId, Scope};
use ghost_provider::{is_free, price, tokens_of_bytes};
use ghost_store::Store;

use crate::job::Input;

/// What a job is expected to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expectation {
    /// Input tokens of the files alone, and of the whole job as the world states it.
    pub(crate) files: u64,
    /// `None` if the world does not state it.
    pub(crate) job: Option<u64>,
    /// The cost of these input tokens with the dearest of the agents' models; `None` if a price is unknown.
    pub(crate) cost: Option<Money>,
    /// What is left of each budget that bounds the job: its name, tokens and money.
    pub(crate) budgets: Vec<(String, Option<u64>, Option<Money>)>,
}

/// What a job with these files is expected to take. `None` if no agent of the world has a model that costs something.
pub(crate) fn of_files(plan: &Plan, files: &[Input]) -> Option<Expectation> {
    let prices = plan.agents.iter().filter_map(|agent| {
        let resolved = plan.llm.resolve(&agent.model);
        let (provider, model) = (resolved.provider?, resolved.model?);
        let kind = plan.llm.providers.get(&provider)?.kind;
        let price = price(&plan.llm, &provider, kind, &model);
        (!is_free(kind, price.as_ref())).then_some(price)
    });
    let prices: Vec<_> = prices.collect();
    let dearest = prices.iter().copied().collect::<Option<Vec<_>>>();
    let dearest = dearest.map(|prices| prices.iter().map(Price::dearest_read).max());
    let own = files.iter().map(|file| tokens_of_bytes(file.bytes.len())).sum();
    let job = plan.job.as_ref().and_then(|job| job.expects).map(|expects| in_all(expects, own, files.len()));
    let cost = dearest.map(Option::unwrap_or_default).map(|input| {
        let micros = u128::from(input.0).saturating_mul(job.unwrap_or(own).into()).div_ceil(1_000_000);
        Money(u64::try_from(micros).unwrap_or(u64::MAX))
    });
    (!prices.is_empty()).then_some(Expectation { files: own, job, cost, budgets: Vec::new() })
}

fn in_all(expects: JobExpectation, own: u64, files: usize) -> u64 {
    let each = u64::try_from(files).unwrap_or(u64::MAX).saturating_mul(expects.per_file.into());
    own.saturating_mul(expects.per_token.into()).saturating_add(each).saturating_add(expects.base.into())
}

/// The budgets of the world and of the job's root that have a limit, with what is left of them. `root_tokens` is the
/// limit of a new root; 0 is none.
pub(crate) async fn budgets(
    store: &Store,
    root_id: Option<RootId>,
    root_tokens: u64,
) -> Result<Vec<(String, Option<u64>, Option<Money>)>, Refusal> {
    let scopes = [Some(Scope::World), Scope::World.daily(), root_id.map(Scope::Root)];
    let read = store.read_latest(move |r| {
        let mut found = Vec::new();
        for scope in scopes.into_iter().flatten() {
            found.extend(r.budget_get(&scope)?);
        }
        Ok::<_, Refusal>(found)
    });
    let mut held = Vec::new();
    let mut root_is_open = false;
    for budget in read.await? {
        let of_root = matches!(budget.scope, Scope::Root(_));
        root_is_open |= of_root;
        let budget = if of_root { budget.with_default(root_tokens) } else { budget };
        let tokens = budget.limits.tokens.map(|limit| limit.saturating_sub(budget.spent_tokens));
        let money = budget.limits.money.map(|limit| Money(limit.0.saturating_sub(budget.spent_money.0)));
        if tokens.is_some() || money.is_some() {
            let name = if of_root { "the job".to_owned() } else { budget.scope.to_string() };
            held.push((name, tokens, money));
        }
    }
    if !root_is_open && root_tokens > 0 {
        held.push(("the job".to_owned(), Some(root_tokens), None));
    }
    Ok(held)
}
