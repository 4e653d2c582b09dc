//! Agents as the services show them.

use ghost_domain::{Agent, AgentId, TurnId};
use ghost_rules::mail;
use ghost_world::World;

use super::outcome::{Result, refused};

/// The records of agents, those that do not exist left out.
pub async fn agents(world: &World, ids: Vec<AgentId>) -> Result<Vec<Agent>> {
    world
        .store()
        .read(move |r| {
            Box::pin(async move {
                let mut found = Vec::with_capacity(ids.len());
                for id in &ids {
                    found.extend(r.agent_get(id).await?);
                }
                Ok(found)
            })
        })
        .await
}

/// Every record, tombstones included, in order of id.
pub async fn all_agents(world: &World) -> Result<Vec<Agent>> {
    world.store().read(|r| Box::pin(async move { r.agent_list(true).await })).await.map_err(refused)
}

/// What only the store knows of an agent at work.
#[derive(Clone, Debug)]
pub struct AtWork {
    /// Its record.
    pub agent: Agent,
    /// Pending mail.
    pub inbox_pending: u64,
    /// The turn under way.
    pub turn_id: Option<TurnId>,
    /// Why that turn is parked, if it is.
    pub parked: Option<String>,
}

/// A live agent at work, or a refusal that names the nearest one.
pub async fn at_work(world: &World, agent_id: &AgentId) -> Result<AtWork> {
    let (ctx, id) = (world.ctx().clone(), agent_id.clone());
    world
        .store()
        .read(move |r| {
            Box::pin(async move {
                let agent = mail::agent_for_operator(r, |agent| ctx.may_run(agent), &id).await?;
                let inbox_pending = r.inbox_depth(&id).await?.into();
                let turn = r.turn_open_of(&id).await?;
                let turn_id = turn.as_ref().map(|turn| turn.turn_id);
                let parked = turn.and_then(|turn| turn.parked).map(|parked| parked.reason);
                Ok(AtWork { agent, inbox_pending, turn_id, parked })
            })
        })
        .await
}
