//! Budgets: one account for each scope. A model call reserves its worst case before it starts. When it ends, its real use is
//! charged and the reservation is released: the reservation is settled (docs/design.md, "Outages, breakers and budgets").
//! What a tool call costs is known only when it ends: its most is reserved before it starts, and one that tells no cost is
//! charged all of it (promise 2).

pub(crate) mod accounts;
mod limits;

use accounts::{accounts, append_usage, checked, freed, save};
use ghost_domain::admission::{Admission, Allowance, allow, any_left, has_left};
use ghost_domain::usage::UsageSum;

pub use accounts::{Charged, OWNERS_MAX};
pub(crate) use accounts::{Since, may_create};
pub(crate) use limits::of_first_archetype;
pub use limits::{NewLimits, each, follow_file, of_archetype, of_archetypes, set};

use crate::lookup::agent_named;
use crate::prelude::*;

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
pub fn reserve(w: &mut Tx, agent: &Agent, turn: &mut Turn, demand: &Demand) -> Result<Reserved> {
    // No running call can settle an earlier reservation of this turn any more.
    forfeit_held(w, turn)?;
    let price = demand.price.as_ref();
    // The usage of a free call is still recorded.
    let mut budgets = if demand.free { Vec::new() } else { accounts(w, agent, turn)? };
    let model = format!("{}/{}", demand.provider, demand.model);
    let admission = checked(w.ctx, &budgets, |bounds| {
        let admission = allow(bounds, &model, demand.input, demand.max_tokens, ANSWER_FLOOR, price)?;
        let queued = bounds.iter().find(|budget| !budget.limits.is_none() && demand.behind.contains(&budget.scope));
        Ok(match (admission, queued) {
            (Admission::Granted(_), Some(queued)) => Admission::Held(queued.scope.clone()),
            (admission, _) => admission,
        })
    })?;
    let allowance = match admission {
        Admission::Granted(allowance) => allowance,
        Admission::Held(scope) => return Ok(Reserved::Waits(scope)),
    };
    for budget in &mut budgets {
        budget.reserved_tokens = budget.reserved_tokens.saturating_add(allowance.tokens);
        budget.reserved_money = budget.reserved_money.plus(allowance.money);
        save(w, budget)?;
    }
    let reservation_id = ReservationId(w.ctx.id());
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

/// Settles a turn's reservation in all its scopes, adds the charge to the turn, and appends the
/// usage row. The caller writes the turn. A second settlement changes nothing and returns `None`.
pub fn settle(
    w: &mut Tx,
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
        Settlement::Used(Taken { model, tokens, price, duration_ms })
        | Settlement::Estimated(Taken { model, tokens, price, duration_ms }) => {
            (model, Charged { tokens, cost: price.map(|price| price.of(tokens)), estimated }, duration_ms)
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
    let mut with_limits = Vec::new();
    for scope in &held.scopes {
        let now = w.ctx.now();
        let mut budget = w.budget_get(scope)?.map_or_else(|| Budget::open(scope.clone(), now), |budget| budget.at(now));
        budget.reserved_tokens = budget.reserved_tokens.saturating_sub(held.tokens);
        budget.reserved_money = budget.reserved_money.minus(held.money.unwrap_or(Money(0)));
        budget.spent_tokens = budget.spent_tokens.saturating_add(tokens);
        budget.spent_money = budget.spent_money.plus(money);
        budget.unpriced_tokens = budget.unpriced_tokens.saturating_add(unpriced);
        save(w, &mut budget)?;
        if !budget.clone().with_default(w.ctx.limits().root_tokens_max).limits.is_none() {
            with_limits.push(budget.scope);
        }
    }
    freed(w, with_limits);
    turn.input_tokens = turn.input_tokens.saturating_add(charged.tokens.input);
    turn.output_tokens = turn.output_tokens.saturating_add(charged.tokens.output);
    turn.cost = turn.cost.plus(money);
    turn.unpriced_tokens = turn.unpriced_tokens.saturating_add(unpriced);
    if spent {
        append_usage(w, turn, (held.provider, model), charged, (free, duration_ms))?;
    }
    Ok(Some(charged))
}

/// Charges the whole reservations of a turn, if the turn still has any, because its calls were interrupted (promise 2).
pub fn forfeit_held(w: &mut Tx, turn: &mut Turn) -> Result<()> {
    if let Some(reservation_id) = turn.held.as_ref().map(|held| held.reservation_id) {
        settle(w, turn, reservation_id, Settlement::Forfeited)?;
        w.turn_put(turn)?;
    }
    forfeit_calls(w, turn)
}

/// Sums the usage rows that match `filter`.
pub fn usage(r: &mut StoreTx, filter: &UsageFilter) -> Result<Vec<UsageSum>> {
    Ok(r.usage_sum(filter)?)
}

/// The provider in the usage rows of tool calls; their model is the name of the tool.
const TOOL: &str = "tool";

/// Checks that the accounts of a turn have something left for a tool call that costs money. Nothing is reserved: what the
/// call costs is known only when it has ended, so the last call may pass a limit.
///
/// # Errors
/// `BudgetExhausted` if an account is spent.
pub fn may_charge(r: &mut Tx, agent: &Agent, turn: &Turn) -> Result<()> {
    checked(r.ctx, &accounts(r, agent, turn)?, any_left)
}

/// Reserves `most` for a running call of `tool` in all accounts of its turn. Without a `most`, nothing is reserved, and the
/// call may run only if no account counts money. Does nothing if the call holds a reservation.
///
/// # Errors
/// `BudgetExhausted` if an account has less left, or counts money and there is no `most`.
pub fn hold(w: &mut Tx, turn: &mut Turn, call_id: CallId, tool: &str, max: Option<Money>) -> Result<()> {
    if turn.held_calls.iter().any(|held| held.call_id == call_id) {
        return Ok(());
    }
    let agent = agent_named(w, &turn.agent_id)?;
    let accounts = accounts(w, &agent, turn)?;
    let Some(most) = max else {
        let counts = accounts.iter().find(|budget| budget.limits.money.is_some());
        return counts.map_or(Ok(()), |budget| Err(without_budget(&budget.scope.to_string(), tool)));
    };
    checked(w.ctx, &accounts, |bounds| has_left(bounds, most))?;
    let mut scopes = Vec::with_capacity(accounts.len());
    for mut budget in accounts {
        budget.reserved_money = budget.reserved_money.plus(most);
        save(w, &mut budget)?;
        scopes.push(budget.scope);
    }
    turn.held_calls.push(CallReservation { call_id, tool: tool.to_owned(), scopes, money: most });
    w.turn_put(turn)?;
    Ok(())
}

fn without_budget(scope: &str, tool: &str) -> Refusal {
    refusal!(BudgetExhausted, "budget {scope} counts money, and what a run of {tool} may cost is not known")
        .hint("set `coding: { run_budget: 2.00 }` in world-config.yaml, or limit the scope by tokens")
        .details(json!({ "scope": scope, "unset": "coding.run_budget" }))
}

/// Releases the reservation of a call that did nothing.
pub fn release(w: &mut Tx, turn: &mut Turn, call_id: CallId) -> Result<()> {
    if take(w, turn, call_id)?.is_some() {
        w.turn_put(turn)?;
    }
    Ok(())
}

/// Charges what a call cost that has ended: the `cost` that it told, or else all that it holds. Returns the charge. The caller
/// writes the turn.
pub(crate) fn charged(
    w: &mut Tx,
    turn: &mut Turn,
    (call_id, tool): (CallId, &str),
    cost: Option<Money>,
    duration_ms: u64,
) -> Result<Option<Money>> {
    let held = take(w, turn, call_id)?;
    let estimated = cost.is_none() && held.is_some();
    let Some(due) = cost.or(held.map(|held| held.money)) else { return Ok(None) };
    if due != Money(0) {
        let agent = agent_named(w, &turn.agent_id)?;
        for mut budget in accounts(w, &agent, turn)? {
            budget.spent_money = budget.spent_money.plus(due);
            save(w, &mut budget)?;
        }
        turn.cost = turn.cost.plus(due);
        let charged = Charged { tokens: TokenUsage::default(), cost: Some(due), estimated };
        append_usage(w, turn, (TOOL.to_owned(), tool.to_owned()), charged, (false, duration_ms))?;
    }
    Ok(Some(due))
}

/// Charges all that the interrupted calls of a turn hold.
fn forfeit_calls(w: &mut Tx, turn: &mut Turn) -> Result<()> {
    let calls: Vec<(CallId, String)> = turn.held_calls.iter().map(|held| (held.call_id, held.tool.clone())).collect();
    for (call_id, tool) in &calls {
        charged(w, turn, (*call_id, tool), None, 0)?;
    }
    if !calls.is_empty() {
        w.turn_put(turn)?;
    }
    Ok(())
}

/// Takes the reservation of a call out of the turn and its accounts.
fn take(w: &mut Tx, turn: &mut Turn, call_id: CallId) -> Result<Option<CallReservation>> {
    let Some(at) = turn.held_calls.iter().position(|held| held.call_id == call_id) else { return Ok(None) };
    let held = turn.held_calls.remove(at);
    let mut with_limits = Vec::new();
    for scope in &held.scopes {
        let Some(budget) = w.budget_get(scope)? else { continue };
        let mut budget = budget.at(w.ctx.now());
        budget.reserved_money = budget.reserved_money.minus(held.money);
        save(w, &mut budget)?;
        if budget.limits.money.is_some() {
            with_limits.push(budget.scope);
        }
    }
    freed(w, with_limits);
    Ok(Some(held))
}
