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
        let team = agent.team.clone().map(Scope::Team).filter(|team| !self.has(team));
        self.scopes.extend(team.map(|team| (team, self.since.max(agent.team_pays_since()))));
        self.since = self.since.max(agent.creator_pays_since());
        agent.creator()
    }

    fn has(&self, scope: &Scope) -> bool {
        self.scopes.iter().any(|(paying, _)| paying == scope)
    }
}

/// Since when the creator and the team of an agent pay for what its id spends; `None` is ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since {
    /// See [`Agent::paid_since`].
    pub(crate) creator: Option<Timestamp>,
    /// See [`Agent::team_since`].
    pub(crate) team: Option<Timestamp>,
}

impl Since {
    /// Of an agent whose id `before` bears or has borne: each of the two as long as before, if it is the same, else from
    /// `now` on.
    pub(crate) fn after(before: &Agent, team: Option<&str>, owner: Option<&str>, now: Timestamp) -> Self {
        let creator = if before.owner.as_deref() == owner { before.creator_pays_since() } else { now };
        let team = if before.team.as_deref() == team { before.team_pays_since() } else { now };
        let since = |from: Timestamp| Some(from).filter(|from| *from != EVER);
        // Where the record says nothing of the team, it pays for as long as the creator.
        Self { creator: since(creator), team: Some(team).filter(|team| *team != creator) }
    }

    /// Of an agent whose id bears no record. Where tombstones were pruned, an earlier one may have borne it, whose spending is
    /// nobody's who is known; elsewhere there was none.
    pub(crate) fn of_new(pruned: bool, now: Timestamp) -> Self {
        Self { creator: pruned.then_some(now), team: None }
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
        #[cfg(test)]
        super::looks::count();
        let agents = r.agent_list(true).await?;
        Ok(Self(agents.into_iter().map(|agent| (agent.agent_id.clone(), agent)).collect()))
    }

    /// Their ids, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = &AgentId> {
        self.0.keys()
    }

    /// The agents and teams that the calls of `agent_id` are charged to, and since when.
    pub(super) fn payers(&self, agent_id: &AgentId) -> Vec<(Scope, Timestamp)> {
        let mut payers = Payers::default();
        let mut next = Some(agent_id.clone());
        while let Some(agent_id) = next {
            next = payers.add(&agent_id, self.0.get(&agent_id));
        }
        payers.scopes
    }
}
