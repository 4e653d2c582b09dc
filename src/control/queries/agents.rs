//! Queries about agents.

use ghost_domain::{Agent, AgentId, Approval, TurnId};
use ghost_operations::mail;
use ghost_world::World;

use super::outcome::{Result, refused};

/// The rows of these agents. Unknown ids are omitted.
pub async fn agents(world: &World, ids: Vec<AgentId>) -> Result<Vec<Agent>> {
    world
        .store()
        .read(move |r| {
            let mut found = Vec::with_capacity(ids.len());
            for id in &ids {
                found.extend(r.agent_get(id)?);
            }
            Ok(found)
        })
        .await
}

/// The rows of all agents, including deleted ones, ordered by id.
pub async fn all_agents(world: &World) -> Result<Vec<Agent>> {
    world.store().read(|r| r.agent_list(true)).await.map_err(refused)
}

/// The stored state of an agent's current work.
#[derive(Clone, Debug)]
pub struct AtWork {
    /// Row of the agent.
    pub agent: Agent,
    /// Number of pending messages in the inbox.
    pub inbox_pending: u64,
    /// Id of the open turn.
    pub turn_id: Option<TurnId>,
    /// Why the open turn is parked, if it is.
    pub parked: Option<String>,
    /// The oldest pending approval of the open turn's calls.
    pub approval: Option<Approval>,
}

/// The current work of an agent that is not deleted.
///
/// # Errors
/// If there is no such agent; the refusal suggests the nearest name.
pub async fn at_work(world: &World, agent_id: &AgentId) -> Result<AtWork> {
    let id = agent_id.clone();
    world
        .read(move |r| {
            let agent = mail::agent_for_operator(r, &id)?;
            let inbox_pending = r.inbox_depth(&id)?.into();
            let turn = r.turn_open_of(&id)?;
            let turn_id = turn.as_ref().map(|turn| turn.turn_id);
            let parked = turn.and_then(|turn| turn.parked).map(|parked| parked.reason);
            let approval = match turn_id {
                Some(turn_id) => r.approvals_pending_of_turn(turn_id)?.into_iter().next(),
                None => None,
            };
            Ok(AtWork { agent, inbox_pending, turn_id, parked, approval })
        })
        .await
}
