//! Budgets: one account per scope, held before a model call and settled after it (DESIGN.md section 2, "Budgets").

mod late;
mod limits;
#[cfg(test)]
pub(crate) mod looks;
mod payers;

use std::collections::BTreeSet;

use ghost_domain::admission::{Admission, Allowance, allow};
use ghost_domain::budget::{Budget, Reservation};
use ghost_domain::ports::Signal;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::{UsageRow, UsageSum};
use ghost_domain::{Agent, Money, Refusal, ReservationId, Turn};
use ghost_domain::{Price, Scope};
use ghost_store::tables::UsageFilter;
use ghost_store::{Reads, Writes};

pub(crate) use limits::of_first_archetype;
pub use limits::{NewLimits, each, follow_file, of_archetype, of_archetypes, set};
pub use payers::OWNERS_MAX;
use payers::payers;
pub(crate) use payers::{Since, may_create};

use crate::{Result, RuleContext};

/// The fewest tokens that are worth a model call: below this an answer would only be a stump.
pub const ANSWER_FLOOR: u64 = 16;

/// What a model call is about to use, at most.
#[derive(Clone, Debug)]
pub struct Demand {
    /// The provider.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Tokens to be read, estimated from above.
    pub input: u64,
    /// Tokens to be written, at most.
    pub max_tokens: u64,
    /// The model's price, if it is known.
    pub price: Option<Price>,
    /// Whether asking it costs nobody anything, as of a script: it uses up no budget, of tokens neither. A model that somebody
    /// has priced at nothing is not: its tokens are somebody's work.
    pub free: bool,
    /// The accounts for whose room others wait who came first. They are not overtaken by what fits beside what is held.
    pub behind: BTreeSet<Scope>,
    /// Whether the turn has another model to wait for: a spent budget does not park it then.
    pub another: bool,
}

/// The accounts that an agent's call in a turn is charged to. The world and, where roots have a default limit, its root have one
/// from the first call; every other scope from when someone sets a limit for it: what it spent before is in the usage rows
/// all the same.
async fn accounts(w: &mut dyn Writes, ctx: &RuleContext, agent: &Agent, turn: &Turn) -> Result<Vec<Budget>> {
    let world = w.budget_get(&Scope::World).await?.unwrap_or_else(|| Budget::open(Scope::World, ctx.now()));
    let mut budgets = vec![world];
    let scopes = payers(w, agent).await?;
    let daily: Vec<Scope> = scopes.iter().chain([&Scope::World]).filter_map(Scope::daily).collect();
    for scope in scopes.into_iter().chain(daily) {
        budgets.extend(w.budget_get(&scope).await?.map(|budget| budget.at(ctx.now())));
    }
    let root = Scope::Root(turn.root_id);
    let account = w.budget_get(&root).await?;
    let new = (ctx.limits().root_tokens_max > 0).then(|| Budget::open(root, ctx.now()));
    budgets.extend(account.or(new));
    Ok(budgets)
}

/// What becomes of a call that wants to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// Its worst case is held.
    Granted(ReservationId, Allowance),
    /// It holds nothing, and waits for what other calls hold in this scope. [`Signal::BudgetsFreed`] says when to try again.
    Waits(Scope),
    /// It holds nothing: this scope is spent, and the turn is parked until its limit is raised or, for a day, the next one begins.
    Spent(Scope),
}

/// Holds the worst case of a call in all its scopes, or refuses, or has it wait for what others hold. The answer shrinks to
/// what is not spent.
pub async fn reserve(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    agent: &Agent,
    turn: &mut Turn,
    demand: &Demand,
) -> Result<Reserved> {
    // Whoever was to settle it is gone.
    forfeit_held(w, ctx, turn).await?;
    let price = demand.price.as_ref();
    // Its usage is counted all the same.
    let mut budgets = if demand.free { Vec::new() } else { accounts(w, ctx, agent, turn).await? };
    let root_tokens = ctx.limits().root_tokens_max;
    let bounds: Vec<Budget> = budgets.iter().map(|budget| budget.clone().with_default(root_tokens)).collect();
    let model = format!("{}/{}", demand.provider, demand.model);
    let allowed = allow(&bounds, &model, demand.input, demand.max_tokens, ANSWER_FLOOR, price);
    let allowance = match allowed.map_err(|refusal| of_default(refusal, &budgets, root_tokens))? {
        Admission::Granted(allowance) => allowance,
        Admission::Held(scope) => return Ok(Reserved::Waits(scope)),
    };
    if let Some(full) = bounds.iter().find(|budget| !budget.limits.is_none() && demand.behind.contains(&budget.scope)) {
        return Ok(Reserved::Waits(full.scope.clone()));
    }
    for budget in &mut budgets {
        budget.reserved_tokens = budget.reserved_tokens.saturating_add(allowance.tokens);
        budget.reserved_money = budget.reserved_money.plus(allowance.money);
        budget.updated_at = ctx.now();
        w.budget_put(budget).await?;
    }
    let reservation_id = ReservationId(ctx.id());
    turn.held = Some(Reservation {
        reservation_id,
        provider: demand.provider.clone(),
        model: demand.model.clone(),
        scopes: budgets.into_iter().map(|budget| budget.scope).collect(),
        tokens: allowance.tokens,
        output: allowance.max_tokens,
        money: demand.price.map(|_| allowance.money),
    });
    w.turn_put(turn).await?;
    Ok(Reserved::Granted(reservation_id, allowance))
}

/// The refusal of a root that has reached the limit which every root has says how that is raised.
fn of_default(refusal: Refusal, budgets: &[Budget], root_tokens: u64) -> Refusal {
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
        "raise it for this one with `ghostctl budget set {scope} --tokens N` or lift it with `--tokens none`; \
         `limits.root_tokens_max` in the world file is the bound of every root, 0 is none"
    ))
}

/// What an answered call took, or one that failed after the provider had counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The model that answered.
    pub model: String,
    /// The tokens.
    pub tokens: TokenUsage,
    /// The model's price, if it is known.
    pub price: Option<Price>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
}

/// What became of a held reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The call took this much.
    Used(Taken),
    /// The call took about this much: what its provider left out is estimated.
    Estimated(Taken),
    /// The call took nothing.
    Released,
    /// Nobody knows what the call took: all of it counts as spent (promise 2).
    Forfeited,
}

/// What a settled call is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// The tokens.
    pub tokens: TokenUsage,
    /// Their price; `None` if nobody has said it.
    pub cost: Option<Money>,
    /// Whether this is what was held, because nobody knows what the call took, or holds an estimate of what was left out.
    pub estimated: bool,
}

impl Charged {
    /// Nothing at all.
    pub const NOTHING: Self = Self {
        tokens: TokenUsage { input: 0, output: 0, cache_read: 0, cache_write: 0 },
        cost: Some(Money(0)),
        estimated: false,
    };
}

/// Settles a turn's reservation in all its scopes, adds it to the turn, and appends the usage row. Settling twice changes
/// nothing, and gives `None`.
pub async fn settle(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    turn: &mut Turn,
    reservation_id: ReservationId,
    settlement: Settlement,
) -> Result<Option<Charged>> {
    let Some(held) = turn.held.take_if(|held| held.reservation_id == reservation_id) else { return Ok(None) };
    // The world pays for every call but a free one.
    let free = held.scopes.is_empty();
    let spent = settlement != Settlement::Released;
    let estimated = matches!(settlement, Settlement::Estimated(_));
    let (model, charged, duration_ms) = match settlement {
        Settlement::Used(taken) | Settlement::Estimated(taken) => {
            let Taken { model, tokens, price, duration_ms } = taken;
            let cost = price.map(|price| price.of(tokens));
            (model, Charged { tokens, cost, estimated }, duration_ms)
        }
        Settlement::Released => (String::new(), Charged::NOTHING, 0),
        Settlement::Forfeited => {
            let charged = Charged { tokens: held.at_most(), cost: held.money, estimated: true };
            (held.model.clone(), charged, 0)
        }
    };
    let (tokens, money) = (charged.tokens.total(), charged.cost.unwrap_or(Money(0)));
    let unpriced = if charged.cost.is_none() { tokens } else { 0 };
    // Nobody waits where nothing is limited.
    let mut freed = Vec::new();
    for scope in &held.scopes {
        let mut budget = match w.budget_get(scope).await? {
            Some(budget) => budget.at(ctx.now()),
            None => Budget::open(scope.clone(), ctx.now()),
        };
        budget.reserved_tokens = budget.reserved_tokens.saturating_sub(held.tokens);
        budget.reserved_money = budget.reserved_money.minus(held.money.unwrap_or(Money(0)));
        budget.spent_tokens = budget.spent_tokens.saturating_add(tokens);
        budget.spent_money = budget.spent_money.plus(money);
        budget.unpriced_tokens = budget.unpriced_tokens.saturating_add(unpriced);
        budget.updated_at = ctx.now();
        w.budget_put(&budget).await?;
        if !budget.clone().with_default(ctx.limits().root_tokens_max).limits.is_none() {
            freed.push(budget.scope);
        }
    }
    if !freed.is_empty() {
        w.signal(Signal::BudgetsFreed(freed));
    }
    turn.input_tokens = turn.input_tokens.saturating_add(charged.tokens.input);
    turn.output_tokens = turn.output_tokens.saturating_add(charged.tokens.output);
    turn.cost = turn.cost.plus(money);
    turn.unpriced_tokens = turn.unpriced_tokens.saturating_add(unpriced);
    w.turn_put(turn).await?;
    if spent {
        w.usage_append(&UsageRow {
            agent_id: turn.agent_id.clone(),
            turn_id: turn.turn_id,
            root_id: turn.root_id,
            provider: held.provider,
            model,
            tokens: charged.tokens,
            cost: charged.cost,
            estimated: charged.estimated,
            free,
            duration_ms,
            at: ctx.now(),
        })
        .await?;
    }
    Ok(Some(charged))
}

/// Counts what a turn still holds as spent: its call was cut off (promise 2).
pub async fn forfeit_held(w: &mut dyn Writes, ctx: &RuleContext, turn: &mut Turn) -> Result<()> {
    if let Some(reservation_id) = turn.held.as_ref().map(|held| held.reservation_id) {
        settle(w, ctx, turn, reservation_id, Settlement::Forfeited).await?;
    }
    Ok(())
}

/// Sums of usage.
pub async fn usage(r: &mut dyn Reads, filter: &UsageFilter) -> Result<Vec<UsageSum>> {
    Ok(r.usage_sum(filter).await?)
}
