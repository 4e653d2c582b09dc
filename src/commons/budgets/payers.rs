//! Who pays for an agent's calls, beside the world and the root: the agent, its team, and whoever created it, and whoever
//! created that one. An agent does not leave its own budget by making another agent work.

use std::collections::BTreeMap;

use ghost_domain::{Agent, AgentId, Code, Party, Refusal, Scope, Timestamp};
use ghost_store::Reads;

use crate::Result;

/// The most agents that may stand in a row, each created by the one before it. All of them pay for the last, so there must
/// be an end to them.
pub const OWNERS_MAX: usize = 32;

/// Before anything was spent.
pub(super) const EVER: Timestamp = Timestamp(0);

/// Who pays, and since when: what the same ids spent before then was paid by others.
struct Payers {
    scopes: Vec<(Scope, Timestamp)>,
    agents: usize,
    since: Timestamp,
}

impl Default for Payers {
    fn default() -> Self {
        Self { scopes: Vec::new(), agents: 0, since: EVER }
    }
}

impl Payers {
    /// Adds an agent, and gives the one that created it. `None` is one that nothing is known of any more.
    fn add(&mut self, agent_id: &AgentId, agent: Option<&Agent>) -> Option<AgentId> {
        let own = Scope::Agent(agent_id.clone());
        // Who was deleted may be created anew by one of its own.
        if self.agents >= OWNERS_MAX || self.has(&own) {
            return None;
        }
        self.agents += 1;
        // Its own account goes by its id, whoever bears it.
        self.scopes.push((own, self.since));
        let agent = agent?;
        self.since = self.since.max(agent.paid_since.unwrap_or(EVER));
        let team = agent.team.clone().map(Scope::Team).filter(|team| !self.has(team));
        self.scopes.extend(team.map(|team| (team, self.since)));
        agent.creator()
    }

    fn has(&self, scope: &Scope) -> bool {
        self.scopes.iter().any(|(paying, _)| paying == scope)
    }
}

async fn all(r: &mut dyn Reads, agent: &Agent) -> Result<Payers> {
    let mut payers = Payers::default();
    let mut next = payers.add(&agent.agent_id, Some(agent));
    while let Some(agent_id) = next {
        let owner = r.agent_get(&agent_id).await?;
        next = payers.add(&agent_id, owner.as_ref());
    }
    Ok(payers)
}

/// The agents and teams that a call of `agent` is charged to, its own first. Nothing is read for an agent that no agent
/// created.
pub(super) async fn payers(r: &mut dyn Reads, agent: &Agent) -> Result<Vec<Scope>> {
    Ok(all(r, agent).await?.scopes.into_iter().map(|(scope, _)| scope).collect())
}

/// Refuses an agent that `by` creates when too many stand in a row already.
pub(crate) async fn may_create(r: &mut dyn Reads, by: &Party) -> Result<()> {
    let Some(creator) = by.agent() else { return Ok(()) };
    let Some(creator) = r.agent_get(creator).await? else { return Ok(()) };
    if all(r, &creator).await?.agents < OWNERS_MAX {
        return Ok(());
    }
    Err(Refusal::new(
        Code::RateLimited,
        format!("{} stands at the end of {OWNERS_MAX} agents that created one another, which is the bound", by),
    )
    .hint("let an agent that the world file names create it"))
}

/// Every agent that was ever heard of, for looking at many of them.
pub(super) struct Everyone(BTreeMap<AgentId, Agent>);

impl Everyone {
    /// All on record, tombstones included: what a deleted agent spent stays spent.
    pub(super) async fn read(r: &mut dyn Reads) -> Result<Self> {
        let agents = r.agent_list(true).await?;
        Ok(Self(agents.into_iter().map(|agent| (agent.agent_id.clone(), agent)).collect()))
    }

    /// Since when the calls of `agent_id` are charged to `scope`, which is that of an agent or of a team; `None` is never.
    pub(super) fn paid_since(&self, scope: &Scope, agent_id: &AgentId) -> Option<Timestamp> {
        let mut payers = Payers::default();
        let mut next = Some(agent_id.clone());
        while let Some(agent_id) = next {
            next = payers.add(&agent_id, self.0.get(&agent_id));
        }
        payers.scopes.into_iter().find_map(|(paying, since)| (paying == *scope).then_some(since))
    }
}
