//! Budgets: one account for each scope. A model call reserves its worst case before it starts. When
//! it ends, its real use is charged and the reservation is released: the reservation is settled
//! (docs/design.md, "Outages, breakers and budgets").

mod accounts;
mod calls;
mod late;
mod limits;
mod payers;
#[cfg(test)]
pub(crate) mod scans;

use std::collections::BTreeSet;

use ghost_domain::admission::{Admission, Allowance, allow};
use ghost_domain::budget::{Budget, Reservation};
use ghost_domain::ports::Signal;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::{UsageRow, UsageSum};
use ghost_domain::{Agent, Money, ReservationId, Turn};
use ghost_domain::{Price, Scope};
use ghost_store::Tx;
use ghost_store::tables::UsageFilter;

use accounts::{accounts, with_root_hint};
pub(crate) use calls::charged;
pub use calls::{hold, may_charge, release};
pub(crate) use limits::of_first_archetype;
pub use limits::{NewLimits, each, follow_file, of_archetype, of_archetypes, set};
pub use payers::OWNERS_MAX;
pub(crate) use payers::{Since, may_create};

use crate::{OperationContext, Result};

/// The smallest answer, in tokens, that is worth a model call.
pub const ANSWER_FLOOR: u64 = 16;

/// The maximum use of one model call.
#[derive(Clone, Debug)]
pub struct Demand {
    /// Name of the provider.
    pub provider: String,
    /// Name of the model.
    pub model: String,
    /// Input tokens, estimated from above.
    pub input: u64,
    /// Maximum output tokens.
    pub max_tokens: u64,
    /// The model's price, if it is known.
    pub price: Option<Price>,
    /// Whether the call is free, for example answered by a script. A free call uses no budget of
    /// tokens or money. A model with a price of zero is not free: it uses the budget of tokens.
    pub free: bool,
    /// Accounts that earlier calls already wait for. This call must not overtake them.
    pub behind: BTreeSet<Scope>,
    /// Whether the turn has another model to wait for. Then a spent budget does not park it.
    pub another: bool,
}

/// The result of a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The worst case of the call is reserved.
    Granted(ReservationId, Allowance),
    /// Nothing is reserved. The call waits for reservations of other calls in this scope.
    /// [`Signal::BudgetsFreed`] says when to try again.
    Waits(Scope),
    /// Nothing is reserved. This scope is spent, and the turn waits until its limit is raised or,
    /// for a daily budget, the next day begins.
    Spent(Scope),
}

/// Reserves the worst case of a call in all its scopes. If other calls hold the rest, the call must
/// wait. The size of the answer shrinks to the budget that is left.
///
/// # Errors
/// `BudgetExhausted` if a scope is spent, or if the model has no price and a scope limits money.
pub fn reserve(
    w: &mut Tx,
    ctx: &OperationContext,
    agent: &Agent,
    turn: &mut Turn,
    demand: &Demand,
) -> Result<Reserved> {
    // No running call can settle an earlier reservation of this turn any more.
    forfeit_held(w, ctx, turn)?;
    let price = demand.price.as_ref();
    // The usage of a free call is still recorded.
    let mut budgets = if demand.free { Vec::new() } else { accounts(w, ctx, agent, turn)? };
    let root_tokens = ctx.limits().root_tokens_max;
    let bounds: Vec<Budget> = budgets.iter().map(|budget| budget.clone().with_default(root_tokens)).collect();
    let model = format!("{}/{}", demand.provider, demand.model);
    let allowed = allow(&bounds, &model, demand.input, demand.max_tokens, ANSWER_FLOOR, price);
    let allowance = match allowed.map_err(|refusal| with_root_hint(refusal, &budgets, root_tokens))? {
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
        w.budget_put(budget)?;
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
    w.turn_put(turn)?;
    Ok(Reserved::Granted(reservation_id, allowance))
}

/// The usage of an answered call, or of a failed call whose usage the provider reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Name of the model that answered.
    pub model: String,
    /// The tokens used.
    pub tokens: TokenUsage,
    /// The model's price, if it is known.
    pub price: Option<Price>,
    /// Duration of the call in milliseconds.
    pub duration_ms: u64,
}

/// The way in which a reservation is settled: the charge for the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The call used this much.
    Used(Taken),
    /// The call used about this much: numbers that the provider omitted are estimated.
    Estimated(Taken),
    /// The call used nothing.
    Released,
    /// The usage is unknown, so the whole reservation is charged (promise 2).
    Forfeited,
}

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

/// Settles a turn's reservation in all its scopes, adds the charge to the turn, and appends the
/// usage row. The caller writes the turn. A second settlement changes nothing and returns `None`.
pub fn settle(
    w: &mut Tx,
    ctx: &OperationContext,
    turn: &mut Turn,
    reservation_id: ReservationId,
    settlement: Settlement,
) -> Result<Option<Charged>> {
    let Some(held) = turn.held.take_if(|held| held.reservation_id == reservation_id) else { return Ok(None) };
    // Every call is charged to the world, except a free one.
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
    // No call waits for a scope without a limit.
    let mut freed = Vec::new();
    for scope in &held.scopes {
        let mut budget = match w.budget_get(scope)? {
            Some(budget) => budget.at(ctx.now()),
            None => Budget::open(scope.clone(), ctx.now()),
        };
        budget.reserved_tokens = budget.reserved_tokens.saturating_sub(held.tokens);
        budget.reserved_money = budget.reserved_money.minus(held.money.unwrap_or(Money(0)));
        budget.spent_tokens = budget.spent_tokens.saturating_add(tokens);
        budget.spent_money = budget.spent_money.plus(money);
        budget.unpriced_tokens = budget.unpriced_tokens.saturating_add(unpriced);
        budget.updated_at = ctx.now();
        w.budget_put(&budget)?;
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
        })?;
    }
    Ok(Some(charged))
}

/// Charges the whole reservations of a turn, if the turn still has any, because its calls were interrupted (promise 2).
pub fn forfeit_held(w: &mut Tx, ctx: &OperationContext, turn: &mut Turn) -> Result<()> {
    if let Some(reservation_id) = turn.held.as_ref().map(|held| held.reservation_id) {
        settle(w, ctx, turn, reservation_id, Settlement::Forfeited)?;
        w.turn_put(turn)?;
    }
    calls::forfeit(w, ctx, turn)
}

/// Sums the usage rows that match `filter`.
pub fn usage(r: &mut Tx, filter: &UsageFilter) -> Result<Vec<UsageSum>> {
    Ok(r.usage_sum(filter)?)
}
