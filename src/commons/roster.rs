//! The roster: the agents on record, found by their names, written, and told of when they are gone.
//!
//! Must never: give or carry out an order. What becomes of an agent is the business of [`crate::agents`].

use ghost_domain::text::nearest;
use ghost_domain::{Agent, AgentId, AgentStatus, Code, Desired, Refusal};
use ghost_store::{Reads, Writes};

use crate::{Cx, Result};

/// The live record of an agent, or a refusal that names the nearest one.
pub async fn agent_named(w: &mut dyn Reads, agent_id: &AgentId) -> Result<Agent> {
    match w.agent_get(agent_id).await? {
        Some(agent) if !agent.is_deleted() => Ok(agent),
        _ => {
            let all = w.agent_list(false).await?;
            let near = nearest(agent_id.as_str(), all.iter().map(|agent| agent.agent_id.as_str()));
            let refusal = Refusal::not_found("agent", agent_id.as_str(), near);
            Err(if near.is_some() { refusal } else { refusal.hint("list the agents to see which there are") })
        }
    }
}

/// Why nothing is done that is an agent's to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    Deleted,
    Failed,
    Stopped,
}

impl Idle {
    /// In words, after its name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "is deleted",
            Self::Failed => "has failed",
            Self::Stopped => "is stopped",
        }
    }
}

/// Why nothing is done that is this agent's to do; nothing if it runs. One that is stopping may end its turn yet.
pub(crate) async fn idle(r: &mut dyn Reads, agent_id: &AgentId) -> Result<Option<Idle>> {
    let agent = r.agent_get(agent_id).await?.filter(|agent| !agent.is_deleted());
    Ok(match agent {
        None => Some(Idle::Deleted),
        Some(agent) if agent.status == AgentStatus::Failed => Some(Idle::Failed),
        Some(agent) if agent.desired == Desired::Stopped && agent.status != AgentStatus::Stopping => {
            Some(Idle::Stopped)
        }
        Some(_) => None,
    })
}

/// Writes the record of an agent that has changed.
pub(crate) async fn put(w: &mut dyn Writes, cx: &Cx, agent: &mut Agent) -> Result<()> {
    agent.updated_at = cx.now();
    w.agent_put(agent).await?;
    Ok(())
}

/// What those are told who wait for an agent that `how` says is there for them no longer.
pub(crate) fn gone(agent: &Agent, how: &str) -> Refusal {
    Refusal::new(Code::Unavailable, format!("{} {how}", agent.agent_id)).hint("ask someone else, or try later")
}
