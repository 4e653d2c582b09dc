//! The accounts that a call is charged to.

use super::payers::payers;
use crate::prelude::*;

/// The charge for a settled call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// The tokens used.
    pub tokens: TokenUsage,
    /// Their cost; `None` if the price is unknown.
    pub cost: Option<Money>,
    /// Whether the numbers are an estimate, or the whole reservation because the usage is unknown.
    pub estimated: bool,
}

impl Charged {
    /// No charge.
    pub const NOTHING: Self = Self {
        tokens: TokenUsage { input: 0, output: 0, cache_read: 0, cache_write: 0 },
        cost: Some(Money(0)),
        estimated: false,
    };
}

/// Returns the accounts that a call of an agent is charged to. The world has an account from the
/// first call on. A root has one too if roots have a default limit. Other scopes get an account
/// when a limit is set for them; their earlier spending is in the usage rows.
pub(super) fn accounts(r: &mut Tx, agent: &Agent, turn: &Turn) -> Result<Vec<Budget>> {
    let world = r.budget_get(&Scope::World)?.unwrap_or_else(|| Budget::open(Scope::World, r.ctx.now()));
    let mut budgets = vec![world];
    let scopes = payers(r, agent)?;
    let daily: Vec<Scope> = scopes.iter().chain([&Scope::World]).filter_map(Scope::daily).collect();
    for scope in scopes.into_iter().chain(daily) {
        budgets.extend(r.budget_get(&scope)?.map(|budget| budget.at(r.ctx.now())));
    }
    let root = Scope::Root(turn.root_id);
    let account = r.budget_get(&root)?;
    let new = (r.ctx.limits().root_tokens_max > 0).then(|| Budget::open(root, r.ctx.now()));
    budgets.extend(account.or(new));
    Ok(budgets)
}

/// Runs a check over these accounts, with the default limit of roots where it holds.
pub(super) fn checked<T>(ctx: &Context, accounts: &[Budget], check: impl FnOnce(&[Budget]) -> Result<T>) -> Result<T> {
    let root_tokens = ctx.limits().root_tokens_max;
    let bounds: Vec<Budget> = accounts.iter().map(|budget| budget.clone().with_default(root_tokens)).collect();
    check(&bounds).map_err(|refusal| with_root_hint(refusal, accounts, root_tokens))
}

/// Writes a changed account.
pub(super) fn save(w: &mut Tx, budget: &mut Budget) -> Result<()> {
    budget.updated_at = w.ctx.now();
    Ok(w.budget_put(budget)?)
}

/// Tells those who wait that these accounts have more left.
pub(super) fn freed(w: &mut StoreTx, scopes: Vec<Scope>) {
    if !scopes.is_empty() {
        w.signal(Signal::BudgetsFreed(scopes));
    }
}

/// Appends what a call of this turn has used.
pub(super) fn append_usage(
    w: &mut Tx,
    turn: &Turn,
    (provider, model): (String, String),
    charged: Charged,
    (free, duration_ms): (bool, u64),
) -> Result<()> {
    let at = w.ctx.now();
    Ok(w.usage_append(&UsageRow {
        agent_id: turn.agent_id.clone(),
        turn_id: turn.turn_id,
        root_id: turn.root_id,
        provider,
        model,
        tokens: charged.tokens,
        cost: charged.cost,
        estimated: charged.estimated,
        free,
        duration_ms,
        at,
    })?)
}

/// Adds a hint to the refusal of a root that has reached the default limit of roots: it says how to
/// raise it.
fn with_root_hint(refusal: Refusal, budgets: &[Budget], root_tokens: u64) -> Refusal {
    let named = refusal.details.as_ref().and_then(|details| details["scope"].as_str()).unwrap_or_default();
    let has_default = |budget: &&Budget| {
        budget.limits.tokens.is_none() && (*budget).clone().with_default(root_tokens).limits.tokens.is_some()
    };
    let account = budgets.iter().find(|budget| budget.scope.to_string() == named).filter(has_default);
    let Some(Budget { scope, .. }) = account else { return refusal };
    refusal.hint(format!(
        "raise it for this root with `ghostctl budget set {scope} --tokens N` or lift it with `--tokens none`; \
         `limits.root_tokens_max` in the world file is the limit of every root, 0 means no limit"
    ))
}
