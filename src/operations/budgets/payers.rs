//! Determines the accounts that pay for an agent's calls besides the world and the root: the agent,
//! its team, and the chain of agents that created it, with their teams. So an agent cannot evade
//! its own budget by creating other agents.

use crate::prelude::*;

/// The longest chain of agents in which each created the next. All of them pay for the last one, so
/// the length is limited.
pub const OWNERS_MAX: usize = 32;

/// The beginning of time: a scope that has always paid.
pub(super) const ALWAYS: Timestamp = Timestamp(0);

/// The scopes that pay, each with the time from which it pays. Earlier spending of the same ids was
/// charged to other scopes.
#[derive(Default)]
struct Payers {
    scopes: Vec<(Scope, Timestamp)>,
    agents: usize,
    since: Timestamp,
}

impl Payers {
    /// Adds an agent and returns the id of its creator. `agent` is `None` if the agent has no
    /// record.
    fn add(&mut self, agent_id: &AgentId, agent: Option<&Agent>) -> Option<AgentId> {
        let own = Scope::Agent(agent_id.clone());
        // A deleted agent may have been created again by one of its descendants, which makes a
        // cycle.
        if self.agents >= OWNERS_MAX || self.has(&own) {
            return None;
        }
        self.agents += 1;
        // An agent's own account belongs to its id, whichever agent has it.
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

/// The times from which the creator and the team of an agent pay for the spending of its id. `None`
/// means always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since {
    /// The time from which the creator pays; see [`Agent::paid_since`].
    pub(crate) creator: Option<Timestamp>,
    /// The time from which the team pays; see [`Agent::team_since`].
    pub(crate) team: Option<Timestamp>,
}

impl Since {
    /// For an agent whose id `before` has or had: an unchanged creator or team keeps its time, a
    /// new one pays from `now` on.
    pub(crate) fn after(before: &Agent, team: Option<&str>, owner: Option<&str>, now: Timestamp) -> Self {
        let creator = if before.owner.as_deref() == owner { before.creator_pays_since() } else { now };
        let team = if before.team.as_deref() == team { before.team_pays_since() } else { now };
        let since = |from: Timestamp| Some(from).filter(|from| *from != ALWAYS);
        // If the record has no time for the team, the creator's time applies.
        Self { creator: since(creator), team: Some(team).filter(|team| *team != creator) }
    }

    /// For an agent whose id has no record. If tombstones were pruned, an earlier agent may have
    /// had the id, and the creator does not pay for its spending.
    pub(crate) fn of_new(pruned: bool, now: Timestamp) -> Self {
        Self { creator: pruned.then_some(now), team: None }
    }
}

fn all(r: &mut StoreTx, agent: &Agent) -> Result<Payers> {
    let mut payers = Payers::default();
    let mut next = payers.add(&agent.agent_id, Some(agent));
    while let Some(agent_id) = next {
        let owner = r.agent_get(&agent_id)?;
        next = payers.add(&agent_id, owner.as_ref());
    }
    Ok(payers)
}

/// Returns the agents and teams that a call of `agent` is charged to, its own first. Reads nothing
/// for an agent that no agent created.
pub(super) fn payers(r: &mut StoreTx, agent: &Agent) -> Result<Vec<Scope>> {
    Ok(all(r, agent)?.scopes.into_iter().map(|(scope, _)| scope).collect())
}

/// Refuses an agent `new_id` that `owner` pays for if the chain of owners is too long, or would become a cycle.
pub(crate) fn may_create(r: &mut StoreTx, owner: &Party, new_id: &AgentId) -> Result<()> {
    let Some(creator) = owner.agent() else { return Ok(()) };
    let Some(creator) = r.agent_get(creator)? else { return Ok(()) };
    let payers = all(r, &creator)?;
    // An agent that is made again by its own last turn pays for itself.
    if creator.agent_id != *new_id && payers.has(&Scope::Agent(new_id.clone())) {
        return Err(refusal!(Conflict, "an agent `{new_id}` created {owner}, directly or through others")
            .hint("choose another id"));
    }
    if payers.agents < OWNERS_MAX {
        return Ok(());
    }
    Err(refusal!(RateLimited, "{owner} is the last of {OWNERS_MAX} agents that created one another, the limit")
        .hint("let an agent that the world file names create it"))
}

/// All agents on record, loaded once to compute many accounts.
pub(super) struct AllAgents(BTreeMap<AgentId, Agent>);

impl AllAgents {
    /// Reads all agents, including deleted ones, because their spending is still included.
    pub(super) fn read(r: &mut StoreTx) -> Result<Self> {
        #[cfg(test)]
        super::scans::count();
        let agents = r.agent_list(true)?;
        Ok(Self(agents.into_iter().map(|agent| (agent.agent_id.clone(), agent)).collect()))
    }

    /// The ids of all agents, in order.
    pub(super) fn ids(&self) -> impl Iterator<Item = &AgentId> {
        self.0.keys()
    }

    /// Returns the agents and teams that the calls of `agent_id` are charged to, each with the time
    /// from which it pays.
    pub(super) fn payers(&self, agent_id: &AgentId) -> Vec<(Scope, Timestamp)> {
        let mut payers = Payers::default();
        let mut next = Some(agent_id.clone());
        while let Some(agent_id) = next {
            next = payers.add(&agent_id, self.0.get(&agent_id));
        }
        payers.scopes
    }
}
