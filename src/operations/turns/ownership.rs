//! Checks that this daemon may write for a turn: the turn is open and the daemon owns the agent.
//!
//! This module must never change the store.

use crate::agent_lookup::agent_named;
use crate::prelude::*;

/// Returns the record of an agent that this daemon may act for: the agent exists and carries this
/// daemon's fencing epoch.
///
/// # Errors
/// `NotFound`; `Conflict` if another daemon owns the agent.
pub fn owned(w: &mut Tx, agent_id: &AgentId) -> Result<Agent> {
    let agent = agent_named(w, agent_id)?;
    if agent.epoch != w.ctx.epoch || agent.node != *w.ctx.node {
        return Err(refusal!(Conflict, "{agent_id} belongs to node {} (epoch {}) now", agent.node, agent.epoch)
            .hint("another daemon has taken the agent over; this daemon must stop working for it"));
    }
    Ok(agent)
}

/// Returns an open turn. A refusal means that the turn was ended while its agent worked.
pub fn open_turn(w: &mut StoreTx, turn_id: TurnId) -> Result<Turn> {
    match w.turn_get(turn_id)? {
        Some(turn) if turn.status == TurnStatus::Open => Ok(turn),
        Some(turn) => Err(refusal!(Cancelled, "turn {turn_id} is {}", turn.status)),
        None => Err(Refusal::not_found("turn", &turn_id.to_string(), None)),
    }
}

/// Returns an open turn of an agent that this daemon owns. Every write of a turn's own work begins
/// with this check, so that a daemon which has lost an agent cannot write for it.
pub fn working_turn(w: &mut Tx, turn_id: TurnId) -> Result<Turn> {
    let turn = open_turn(w, turn_id)?;
    let agent = w.agent_columns(&turn.agent_id)?;
    if !agent.is_some_and(|agent| !agent.deleted && agent.epoch == w.ctx.epoch && agent.node == *w.ctx.node) {
        // It says why not.
        owned(w, &turn.agent_id)?;
    }
    Ok(turn)
}
