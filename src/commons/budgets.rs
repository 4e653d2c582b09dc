//! Budgets: one account per scope, held before a model call and settled after it (DESIGN.md section 2, "Budgets").

use ghost_domain::budget::{Allowance, Budget, BudgetLimits, Price, Reservation, Scope, allow};
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::usage::{UsageRow, UsageSum};
use ghost_domain::{Agent, AgentId, Code, Money, Party, Refusal, ReservationId, Turn};
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

/// The accounts that an agent's call in a turn is charged to. The world has one from its first call; every other scope
/// from when someone sets a limit for it: what it spent before is in the usage rows all the same.
async fn accounts(w: &mut dyn Writes, cx: &Cx, agent: &Agent, turn: &Turn) -> Result<Vec<Budget>> {
    let world = w.budget_get(&Scope::World).await?.unwrap_or_else(|| Budget::open(Scope::World, cx.now()));
    let mut budgets = vec![world];
    let team = agent.team.clone().map(Scope::Team);
    let scopes = [Some(Scope::Agent(agent.agent_id.clone())), team, Some(Scope::Root(turn.root_id))];
    for scope in scopes.into_iter().flatten() {
        budgets.extend(w.budget_get(&scope).await?);
    }
    Ok(budgets)
}

/// Holds the worst case of a call in all its scopes, or refuses. The answer shrinks to what is left.
pub async fn reserve(
    w: &mut dyn Writes,
    cx: &Cx,
    agent: &Agent,
    turn: &mut Turn,
    demand: &Demand,
) -> Result<(ReservationId, Allowance)> {
    // Whoever was to settle it is gone.
    forfeit_held(w, cx, turn).await?;
    let mut budgets = accounts(w, cx, agent, turn).await?;
    let allowance = allow(&budgets, demand.input, demand.max_tokens, ANSWER_FLOOR, demand.price.as_ref())?;
    for budget in &mut budgets {
        budget.reserved_tokens = budget.reserved_tokens.saturating_add(allowance.tokens);
        budget.reserved_money = budget.reserved_money.plus(allowance.money);
        budget.updated_at = cx.now();
        w.budget_put(budget).await?;
    }
    let reservation_id = ReservationId(cx.id());
    turn.held = Some(Reservation {
        reservation_id,
        model: demand.model.clone(),
        scopes: budgets.into_iter().map(|budget| budget.scope).collect(),
        tokens: allowance.tokens,
        money: allowance.money,
    });
    w.turn_put(turn).await?;
    Ok((reservation_id, allowance))
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

/// Settles a turn's reservation in all its scopes. Settling twice changes nothing.
pub async fn settle(
    w: &mut dyn Writes,
    cx: &Cx,
    turn: &mut Turn,
    reservation_id: ReservationId,
    settlement: Settlement,
) -> Result<Option<Reservation>> {
    let Some(held) = turn.held.take_if(|held| held.reservation_id == reservation_id) else { return Ok(None) };
    let (tokens, money) = match settlement {
        Settlement::Used { tokens, money } => (tokens, money),
        Settlement::Released => (0, Money(0)),
        Settlement::Forfeited => (held.tokens, held.money),
    };
    for scope in &held.scopes {
        let mut budget = match w.budget_get(scope).await? {
            Some(budget) => budget,
            None => Budget::open(scope.clone(), cx.now()),
        };
        budget.reserved_tokens = budget.reserved_tokens.saturating_sub(held.tokens);
        budget.reserved_money = budget.reserved_money.minus(held.money);
        budget.spent_tokens = budget.spent_tokens.saturating_add(tokens);
        budget.spent_money = budget.spent_money.plus(money);
        budget.updated_at = cx.now();
        w.budget_put(&budget).await?;
    }
    w.turn_put(turn).await?;
    Ok(Some(held))
}

/// Counts what a turn still holds as spent: its call was cut off (promise 2).
pub async fn forfeit_held(w: &mut dyn Writes, cx: &Cx, turn: &mut Turn) -> Result<()> {
    let Some(reservation_id) = turn.held.as_ref().map(|held| held.reservation_id) else { return Ok(()) };
    let Some(held) = settle(w, cx, turn, reservation_id, Settlement::Forfeited).await? else { return Ok(()) };
    w.usage_append(&UsageRow {
        agent_id: turn.agent_id.clone(),
        turn_id: turn.turn_id,
        root_id: turn.root_id,
        provider: String::new(),
        model: held.model,
        tokens: ghost_domain::transcript::TokenUsage { input: held.tokens, ..Default::default() },
        cost: held.money,
        estimated: true,
        duration_ms: 0,
        at: cx.now(),
    })
    .await?;
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

/// Sets limits, and gives the account. A new one starts with what its scope has spent, as far as the usage rows go back.
pub async fn set(w: &mut dyn Writes, cx: &Cx, by: &Party, scope: &Scope, limits: NewLimits) -> Result<Budget> {
    let agents = w.agent_list(false).await?;
    if let Scope::Agent(agent_id) = scope {
        crate::mail::agent_named(w, agent_id).await?;
    }
    if let Scope::Team(team) = scope
        && !agents.iter().any(|agent| agent.team.as_ref() == Some(team))
    {
        let near = ghost_domain::text::nearest(team, agents.iter().filter_map(|agent| agent.team.as_deref()));
        let refusal = Refusal::not_found("team", team, near);
        return Err(if near.is_some() { refusal } else { refusal.hint("`teams:` in the world file names them") });
    }
    if limits == NewLimits::default() {
        return Err(
            Refusal::new(Code::InvalidArguments, "no limit was given").hint("give limit_tokens, limit_micros or both")
        );
    }
    let mut budget = match w.budget_get(scope).await? {
        Some(budget) => budget,
        None => opened_late(w, cx, scope, &agents).await?,
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

/// An account for a scope that has spent already. The calls under way are charged to it too: their usage rows are not there
/// yet.
async fn opened_late(w: &mut dyn Writes, cx: &Cx, scope: &Scope, agents: &[Agent]) -> Result<Budget> {
    let mut budget = Budget::open(scope.clone(), cx.now());
    let in_team = |agent_id: &AgentId, team: &str| {
        agents.iter().any(|agent| agent.agent_id == *agent_id && agent.team.as_deref() == Some(team))
    };
    let filter = match scope {
        Scope::World | Scope::Team(_) => UsageFilter::default(),
        Scope::Agent(agent_id) => UsageFilter { agent_id: Some(agent_id.clone()), ..UsageFilter::default() },
        Scope::Root(root_id) => UsageFilter { root_id: Some(*root_id), ..UsageFilter::default() },
    };
    for sum in w.usage_sum(&filter).await? {
        if let Scope::Team(team) = scope
            && !in_team(&sum.agent_id, team)
        {
            continue;
        }
        budget.spent_tokens = budget.spent_tokens.saturating_add(sum.tokens.total());
        budget.spent_money = budget.spent_money.plus(sum.cost);
    }
    for mut turn in w.turns_open().await? {
        let charged = match scope {
            Scope::World => true,
            Scope::Team(team) => in_team(&turn.agent_id, team),
            Scope::Agent(agent_id) => turn.agent_id == *agent_id,
            Scope::Root(root_id) => turn.root_id == *root_id,
        };
        if charged && let Some(held) = &mut turn.held {
            budget.reserved_tokens = budget.reserved_tokens.saturating_add(held.tokens);
            budget.reserved_money = budget.reserved_money.plus(held.money);
            held.scopes.push(scope.clone());
            w.turn_put(&turn).await?;
        }
    }
    Ok(budget)
}

/// Accounts, those without a limit only if asked for.
pub async fn list(r: &mut dyn Reads, all: bool) -> Result<Vec<Budget>> {
    Ok(r.budget_list(all).await?)
}

/// Sums of usage.
pub async fn usage(r: &mut dyn Reads, filter: &UsageFilter) -> Result<Vec<UsageSum>> {
    Ok(r.usage_sum(filter).await?)
}
