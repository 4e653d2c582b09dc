//! The accounts that a call is charged to: the world, the root, the agent, its team, and the chain of agents that created it,
//! with their teams. So an agent cannot evade its own budget by creating other agents.

use crate::prelude::*;

/// The charge for a settled call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// The tokens used.
    pub tokens: TokenUsage,
    /// Their cost; `None` if the price is unknown.
    pub cost: Option<Money>,
    /// Whether the numbers are an estimate, or the whole reservation because the usage is unknown.
    pub estimated: bool,
}

impl Charged {
    /// No charge.
    pub const NOTHING: Self = Self {
        tokens: TokenUsage { input: 0, output: 0, cache_read: 0, cache_write: 0 },
        cost: Some(Money(0)),
        estimated: false,
    };
}

/// Returns the accounts that a call of an agent is charged to. The world has an account from the
/// first call on. A root has one too if roots have a default limit. Other scopes get an account
/// when a limit is set for them; their earlier spending is in the usage rows.
pub(super) fn accounts(r: &mut Tx, agent: &Agent, turn: &Turn) -> Result<Vec<Budget>> {
    let world = r.budget_get(&Scope::World)?.unwrap_or_else(|| Budget::open(Scope::World, r.ctx.now()));
    let mut budgets = vec![world];
    let scopes = payers(r, agent)?;
    let daily: Vec<Scope> = scopes.iter().chain([&Scope::World]).filter_map(Scope::daily).collect();
    for scope in scopes.into_iter().chain(daily) {
        budgets.extend(r.budget_get(&scope)?.map(|budget| budget.at(r.ctx.now())));
    }
    let root = Scope::Root(turn.root_id);
    let account = r.budget_get(&root)?;
    let new = (r.ctx.limits().root_tokens_max > 0).then(|| Budget::open(root, r.ctx.now()));
    budgets.extend(account.or(new));
    Ok(budgets)
}

/// Runs a check over these accounts, with the default limit of roots where it holds.
pub(super) fn checked<T>(ctx: &Context, accounts: &[Budget], check: impl FnOnce(&[Budget]) -> Result<T>) -> Result<T> {
    let root_tokens = ctx.limits().root_tokens_max;
    let bounds: Vec<Budget> = accounts.iter().map(|budget| budget.clone().with_default(root_tokens)).collect();
    check(&bounds).map_err(|refusal| with_root_hint(refusal, accounts, root_tokens))
}

/// Writes a changed account.
pub(super) fn save(w: &mut Tx, budget: &mut Budget) -> Result<()> {
    budget.updated_at = w.ctx.now();
    Ok(w.budget_put(budget)?)
}

/// Tells those who wait that these accounts have more left.
pub(super) fn freed(w: &mut StoreTx, scopes: Vec<Scope>) {
    if !scopes.is_empty() {
        w.signal(Signal::BudgetsFreed(scopes));
    }
}

/// Appends what a call of this turn has used.
pub(super) fn append_usage(
    w: &mut Tx,
    turn: &Turn,
    (provider, model): (String, String),
    charged: Charged,
    (free, duration_ms): (bool, u64),
) -> Result<()> {
    let at = w.ctx.now();
    Ok(w.usage_append(&UsageRow {
        agent_id: turn.agent_id.clone(),
        turn_id: turn.turn_id,
        root_id: turn.root_id,
        provider,
        model,
        tokens: charged.tokens,
        cost: charged.cost,
        estimated: charged.estimated,
        free,
        duration_ms,
        at,
    })?)
}

/// Adds a hint to the refusal of a root that has reached the default limit of roots: it says how to
/// raise it.
fn with_root_hint(refusal: Refusal, budgets: &[Budget], root_tokens: u64) -> Refusal {
    let named = refusal.details.as_ref().and_then(|details| details["scope"].as_str()).unwrap_or_default();
    let has_default = |budget: &&Budget| {
        budget.limits.tokens.is_none() && (*budget).clone().with_default(root_tokens).limits.tokens.is_some()
    };
    let account = budgets.iter().find(|budget| budget.scope.to_string() == named).filter(has_default);
    let Some(Budget { scope, .. }) = account else { return refusal };
    refusal.hint(format!(
        "raise it for this root with `ghostctl budget set {scope} --tokens N` or lift it with `--tokens none`; \
         `limits.root_tokens_max` in the world file is the limit of every root, 0 means no limit"
    ))
}

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
        scans::count();
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

/// Counts full scans of large tables, so that tests can check their number. A test on time would not be reliable.
#[cfg(test)]
pub(crate) mod scans {
    use std::cell::Cell;

    thread_local!(static SCANS: Cell<u32> = const { Cell::new(0) });

    /// Counts one scan.
    pub(in super::super) fn count() {
        SCANS.set(SCANS.get() + 1);
    }

    /// Returns the number of scans on this thread since the last call, and resets it.
    pub(crate) fn taken() -> u32 {
        SCANS.replace(0)
    }
}
