//! Whose turns this daemon may write for: those that are open, of the agents that are its own.
//!
//! Must never: change anything.

use ghost_domain::{Agent, AgentId, Code, Refusal, Turn, TurnId, TurnStatus};
use ghost_store::Writes;

use crate::agent_lookup::agent_named;
use crate::{Result, RuleContext};

/// The record of an agent that this daemon may act for: it exists, and this daemon's fencing epoch still holds.
pub async fn owned(w: &mut dyn Writes, ctx: &RuleContext, agent_id: &AgentId) -> Result<Agent> {
    let agent = agent_named(w, agent_id).await?;
    if agent.epoch != ctx.epoch || agent.node != *ctx.node {
        return Err(Refusal::new(
            Code::Conflict,
            format!("{agent_id} belongs to node {} (epoch {}) now", agent.node, agent.epoch),
        )
        .hint("this daemon has lost the agent to another one and must let it go"));
    }
    Ok(agent)
}

/// An open turn, or a refusal: it was cancelled, or set aside, while its agent was at work.
pub async fn open_turn(w: &mut dyn Writes, turn_id: TurnId) -> Result<Turn> {
    match w.turn_get(turn_id).await? {
        Some(turn) if turn.status == TurnStatus::Open => Ok(turn),
        Some(turn) => Err(Refusal::new(Code::Cancelled, format!("turn {turn_id} is {}", turn.status))),
        None => Err(Refusal::not_found("turn", &turn_id.to_string(), None)),
    }
}

/// An open turn of an agent that this daemon may act for: what every write of a turn's own work begins with, so that a
/// daemon which has lost the agent can no longer write for it.
pub async fn working_turn(w: &mut dyn Writes, ctx: &RuleContext, turn_id: TurnId) -> Result<Turn> {
    let turn = open_turn(w, turn_id).await?;
    owned(w, ctx, &turn.agent_id).await?;
    Ok(turn)
}
