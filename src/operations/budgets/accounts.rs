//! The accounts that a call is charged to.

use ghost_domain::budget::Budget;
use ghost_domain::{Agent, Refusal, Scope, Turn};
use ghost_store::Tx;

use super::payers::payers;
use crate::{OperationContext, Result};

/// Returns the accounts that a call of an agent is charged to. The world has an account from the
/// first call on. A root has one too if roots have a default limit. Other scopes get an account
/// when a limit is set for them; their earlier spending is in the usage rows.
pub(super) fn accounts(r: &mut Tx, ctx: &OperationContext, agent: &Agent, turn: &Turn) -> Result<Vec<Budget>> {
    let world = r.budget_get(&Scope::World)?.unwrap_or_else(|| Budget::open(Scope::World, ctx.now()));
    let mut budgets = vec![world];
    let scopes = payers(r, agent)?;
    let daily: Vec<Scope> = scopes.iter().chain([&Scope::World]).filter_map(Scope::daily).collect();
    for scope in scopes.into_iter().chain(daily) {
        budgets.extend(r.budget_get(&scope)?.map(|budget| budget.at(ctx.now())));
    }
    let root = Scope::Root(turn.root_id);
    let account = r.budget_get(&root)?;
    let new = (ctx.limits().root_tokens_max > 0).then(|| Budget::open(root, ctx.now()));
    budgets.extend(account.or(new));
    Ok(budgets)
}

/// Adds a hint to the refusal of a root that has reached the default limit of roots: it says how to
/// raise it.
pub(super) fn with_root_hint(refusal: Refusal, budgets: &[Budget], root_tokens: u64) -> Refusal {
    let reached = |budget: &&Budget| {
        let named = refusal.details.as_ref().and_then(|details| details["scope"].as_str());
        named.is_some_and(|scope| scope == budget.scope.to_string())
    };
    let account = budgets.iter().find(reached).cloned();
    let Some(Budget { scope, .. }) = account.filter(|budget| {
        budget.limits.tokens.is_none() && budget.clone().with_default(root_tokens).limits.tokens.is_some()
    }) else {
        return refusal;
    };
    refusal.hint(format!(
        "raise it for this root with `ghostctl budget set {scope} --tokens N` or lift it with `--tokens none`; \
         `limits.root_tokens_max` in the world file is the limit of every root, 0 means no limit"
    ))
}
