//! Budgets: one account per scope, held before a model call and settled after it (DESIGN.md section 2, "Budgets").

use ghost_domain::budget::{Allowance, Budget, BudgetLimits, Price, Reservation, ReservationStatus, Scope, allow};
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::usage::{UsageRow, UsageSum};
use ghost_domain::{Agent, Code, Money, Party, Refusal, ReservationId, RootId, Turn};
use ghost_store::tables::UsageFilter;
use ghost_store::{Reads, Writes};
use serde_json::json;

use crate::{Cx, Result};

/// The fewest tokens that are worth a model call: below this an answer would only be a stump.
pub const ANSWER_FLOOR: u64 = 16;

/// What a model call is about to use, at most.
#[derive(Clone, Debug)]
pub struct Demand {
    /// The model.
    pub model: String,
    /// Tokens to be read, estimated from above.
    pub input: u64,
    /// Tokens to be written, at most.
    pub max_tokens: u64,
    /// The model's price, if it is known.
    pub price: Option<Price>,
}

/// The accounts that an agent's call in a turn is charged to. A root has an account only where someone set a limit:
/// what it spent is in the usage rows all the same.
async fn accounts(w: &mut dyn Writes, cx: &Cx, agent: &Agent, turn: &Turn) -> Result<Vec<Budget>> {
    let mut scopes = vec![Scope::World, Scope::Agent(agent.agent_id.clone())];
    if let Some(team) = &agent.team {
        scopes.push(Scope::Team(team.clone()));
    }
    let mut budgets = Vec::with_capacity(4);
    for scope in scopes {
        budgets.push(match w.budget_get(&scope).await? {
            Some(budget) => budget,
            None => Budget::open(scope, cx.now()),
        });
    }
    if let Some(budget) = w.budget_get(&Scope::Root(turn.root_id)).await? {
        budgets.push(budget);
    }
    Ok(budgets)
}

/// Holds the worst case of a call in all its scopes, or refuses. The answer shrinks to what is left.
pub async fn reserve(
    w: &mut dyn Writes,
    cx: &Cx,
    agent: &Agent,
    turn: &Turn,
    demand: &Demand,
) -> Result<(ReservationId, Allowance)> {
    let mut budgets = accounts(w, cx, agent, turn).await?;
    let allowance = allow(&budgets, demand.input, demand.max_tokens, ANSWER_FLOOR, demand.price.as_ref())?;
    let now = cx.now();
    for budget in &mut budgets {
        budget.reserved_tokens = budget.reserved_tokens.saturating_add(allowance.tokens);
        budget.reserved_money = budget.reserved_money.plus(allowance.money);
        budget.updated_at = now;
        w.budget_put(budget).await?;
    }
    let reservation = Reservation {
        reservation_id: ReservationId(cx.id()),
        agent_id: agent.agent_id.clone(),
        turn_id: turn.turn_id,
        model: demand.model.clone(),
        scopes: budgets.into_iter().map(|budget| budget.scope).collect(),
        tokens: allowance.tokens,
        money: allowance.money,
        status: ReservationStatus::Held,
        created_at: now,
    };
    w.reservation_put(&reservation).await?;
    Ok((reservation.reservation_id, allowance))
}

/// What became of a held reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    /// The call took this much.
    Used {
        /// Tokens.
        tokens: u64,
        /// Money.
        money: Money,
    },
    /// The call took nothing.
    Released,
    /// Nobody knows what the call took: all of it counts as spent.
    Forfeited,
}

/// Settles a reservation in all its scopes. Settling twice changes nothing.
pub async fn settle(
    w: &mut dyn Writes,
    cx: &Cx,
    reservation_id: ReservationId,
    settlement: Settlement,
) -> Result<Option<Reservation>> {
    let Some(mut reservation) = w.reservation_get(reservation_id).await? else { return Ok(None) };
    if reservation.status != ReservationStatus::Held {
        return Ok(None);
    }
    let (status, tokens, money) = match settlement {
        Settlement::Used { tokens, money } => (ReservationStatus::Settled, tokens, money),
        Settlement::Released => (ReservationStatus::Released, 0, Money(0)),
        Settlement::Forfeited => (ReservationStatus::Forfeited, reservation.tokens, reservation.money),
    };
    for scope in &reservation.scopes {
        let mut budget = match w.budget_get(scope).await? {
            Some(budget) => budget,
            None => Budget::open(scope.clone(), cx.now()),
        };
        budget.reserved_tokens = budget.reserved_tokens.saturating_sub(reservation.tokens);
        budget.reserved_money = budget.reserved_money.minus(reservation.money);
        budget.spent_tokens = budget.spent_tokens.saturating_add(tokens);
        budget.spent_money = budget.spent_money.plus(money);
        budget.updated_at = cx.now();
        w.budget_put(&budget).await?;
    }
    reservation.status = status;
    w.reservation_put(&reservation).await?;
    Ok(Some(reservation))
}

/// Counts every reservation that a turn still holds as spent: its calls were cut off (promise 2).
pub async fn forfeit_held(w: &mut dyn Writes, cx: &Cx, turn: &Turn) -> Result<()> {
    for reservation in w.reservations_held(turn.turn_id).await? {
        settle(w, cx, reservation.reservation_id, Settlement::Forfeited).await?;
        w.usage_append(&UsageRow {
            agent_id: turn.agent_id.clone(),
            turn_id: turn.turn_id,
            root_id: turn.root_id,
            provider: String::new(),
            model: reservation.model.clone(),
            tokens: ghost_domain::transcript::TokenUsage { input: reservation.tokens, ..Default::default() },
            cost: reservation.money,
            estimated: true,
            duration_ms: 0,
            at: cx.now(),
        })
        .await?;
    }
    Ok(())
}

/// Sets the limits of a scope. `None` in a field leaves that limit as it is; an outer `Some(None)` lifts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewLimits {
    /// Tokens.
    pub tokens: Option<Option<u64>>,
    /// Money.
    pub money: Option<Option<Money>>,
}

/// Sets limits, and gives the account. A root's account starts with what the root has spent.
pub async fn set(w: &mut dyn Writes, cx: &Cx, by: &Party, scope: &Scope, limits: NewLimits) -> Result<Budget> {
    if let Scope::Agent(agent_id) = scope {
        crate::mail::agent_named(w, agent_id).await?;
    }
    if let Scope::Team(team) = scope {
        let agents = w.agent_list(false).await?;
        if !agents.iter().any(|agent| agent.team.as_ref() == Some(team)) {
            let near = ghost_domain::text::nearest(team, agents.iter().filter_map(|agent| agent.team.as_deref()));
            return Err(Refusal::not_found("team", team, near));
        }
    }
    if limits == NewLimits::default() {
        return Err(
            Refusal::new(Code::InvalidArguments, "no limit was given").hint("give --tokens N, --usd X, or both")
        );
    }
    let mut budget = match w.budget_get(scope).await? {
        Some(budget) => budget,
        None => {
            let mut budget = Budget::open(scope.clone(), cx.now());
            if let Scope::Root(root_id) = scope {
                let filter = UsageFilter { root_id: Some(*root_id), ..UsageFilter::default() };
                for sum in w.usage_sum(&filter).await? {
                    budget.spent_tokens = budget.spent_tokens.saturating_add(sum.tokens.total());
                    budget.spent_money = budget.spent_money.plus(sum.cost);
                }
                charge_held(w, &mut budget, *root_id).await?;
            }
            budget
        }
    };
    budget.limits = BudgetLimits {
        tokens: limits.tokens.unwrap_or(budget.limits.tokens),
        money: limits.money.unwrap_or(budget.limits.money),
    };
    budget.updated_at = cx.now();
    w.budget_put(&budget).await?;
    let payload = json!({
        "scope": scope, "tokens": budget.limits.tokens, "usd": budget.limits.money.map(Money::usd), "by": by,
    });
    cx.emit(w, NewEvent::new(EventKind::BudgetSet, payload)).await?;
    Ok(budget)
}

/// Charges the calls of a root that are under way to its new account too: their usage rows are not there yet.
async fn charge_held(w: &mut dyn Writes, budget: &mut Budget, root_id: RootId) -> Result<()> {
    for turn in w.turns_open().await?.into_iter().filter(|turn| turn.root_id == root_id) {
        for mut reservation in w.reservations_held(turn.turn_id).await? {
            budget.reserved_tokens = budget.reserved_tokens.saturating_add(reservation.tokens);
            budget.reserved_money = budget.reserved_money.plus(reservation.money);
            reservation.scopes.push(budget.scope.clone());
            w.reservation_put(&reservation).await?;
        }
    }
    Ok(())
}

/// Accounts, those without a limit only if asked for.
pub async fn list(r: &mut dyn Reads, all: bool) -> Result<Vec<Budget>> {
    Ok(r.budget_list(all).await?)
}

/// Sums of usage.
pub async fn usage(r: &mut dyn Reads, filter: &UsageFilter) -> Result<Vec<UsageSum>> {
    Ok(r.usage_sum(filter).await?)
}
