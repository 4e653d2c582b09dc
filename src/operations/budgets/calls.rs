//! Tool calls that cost money. What a call costs is known only when it ends, so its most is reserved before it starts, and a
//! call that tells no cost is charged all of it (promise 2).

use ghost_domain::admission::{any_left, has_left};

use super::accounts::{Charged, accounts, append_usage, checked, freed, save};
use crate::agent_lookup::agent_named;
use crate::prelude::*;

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
pub(super) fn forfeit(w: &mut Tx, turn: &mut Turn) -> Result<()> {
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
