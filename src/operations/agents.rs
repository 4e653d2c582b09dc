//! Agents as records: create, start, stop, change and delete. The supervisor works towards these records, so an order
//! survives any crash before it is executed. [`life`] holds the records that the supervisor itself writes.

mod life;
pub(crate) mod orders;

pub use life::{
    Deleted, Left, cannot_run, claim_all, crashed, delete, delete_because, delete_own, end_helpers, failed, repaired,
    restarted, stopped,
};
pub use orders::{drop_unnamed, named_again, start, stop, stop_within};

use crate::budgets::Since;
use crate::lookup::{agent_named, put};
use crate::mail::{self, NewMessage};
use crate::prelude::*;
use crate::schedules::{self, Wanted};
use crate::{budgets, tasks};

/// The parameters of a new agent.
#[derive(Clone, Debug)]
pub struct NewAgent {
    /// Id of the new agent.
    pub agent_id: AgentId,
    /// Name of its archetype. The caller checks that it exists.
    pub archetype: String,
    /// Display name.
    pub name: String,
    /// Name of its team, if it has one.
    pub team: Option<String>,
    /// Whether `world-config.yaml` declares the agent or a party creates it at run time.
    pub kind: AgentKind,
    /// Whether it is to run or to stay stopped.
    pub desired: Desired,
    /// Overrides that narrow its archetype. The caller checks them.
    pub overrides: Value,
    /// The money that it may spend in one day, if that is limited.
    pub daily_money: Option<Money>,
    /// The heartbeat of its archetype, if it is created at run time and has one.
    pub heartbeat: Option<Wanted>,
    /// The agent that owns it: it may delete it and pays for it. `None` is the party that creates it.
    pub owner: Option<AgentId>,
    /// The text of its first message. Without it, the agent waits for mail.
    pub goal: Option<String>,
    /// The chain that the first message belongs to.
    pub chain: Chain,
}

fn owner_of(by: &Party, new: &NewAgent) -> Party {
    new.owner.clone().map_or_else(|| by.clone(), Party::Agent)
}

/// Checks that an agent may make `owner` the owner of a new agent: itself, or one that it created, directly or
/// through others. So whoever pays is still paid for by the same account.
///
/// # Errors
/// `NotFound` for an unknown agent, `AccessDenied` otherwise.
pub fn may_own(r: &mut StoreTx, creator: &AgentId, owner: &AgentId) -> Result<()> {
    let mut agent = agent_named(r, owner)?;
    // A chain of creators is as long as the hops of a root at most; a longer one is refused.
    for _ in 0..budgets::OWNERS_MAX {
        if agent.agent_id == *creator {
            return Ok(());
        }
        let Some(above) = agent.creator() else { break };
        // A deleted agent passes nothing on: its id may get another owner.
        let Some(found) = r.agent_get(&above)?.filter(|agent| !agent.is_deleted()) else { break };
        agent = found;
    }
    Err(refusal!(AccessDenied, "{creator} did not create {owner}")
        .hint("the owner is you, or an agent that you created"))
}

/// Creates an agent, or returns the existing one if it is the same: same archetype, overrides, kind
/// and name, and created by `by` if `by` is an agent. Also returns whether the agent is new. An
/// agent with a goal must always be new, so that its goal is delivered.
pub fn create_once(w: &mut Tx, by: &Party, new: NewAgent) -> Result<(Agent, bool)> {
    let existing = w.agent_get(&new.agent_id)?.filter(|agent| !agent.is_deleted());
    let bare = |overrides: &Value| overrides.as_object().is_none_or(serde_json::Map::is_empty);
    let same = |existing: &Agent| {
        let own = by.agent().is_none() || existing.owner == Some(owner_of(by, &new).to_string());
        // An agent without a given name has its id as name.
        let called = existing.name == new.name || new.name == new.agent_id.as_str();
        let overrides = existing.overrides == new.overrides || (bare(&existing.overrides) && bare(&new.overrides));
        let made = (existing.kind, &existing.archetype) == (new.kind, &new.archetype);
        own && overrides && called && made && new.goal.is_none()
    };
    match existing {
        Some(existing) if same(&existing) => Ok((existing, false)),
        _ => create(w, by, new).map(|agent| (agent, true)),
    }
}

/// Creates an agent. The incarnation number continues after a deleted agent of the same id, even if
/// its tombstone was pruned. So turns and dead letters of the earlier agent are never mistaken for
/// those of the new one.
///
/// # Errors
/// `Conflict` if a living agent has the id; `RateLimited` if a limit of the world, of the root or
/// of the creator is reached; `InvalidArguments` for an unusable name.
pub fn create(w: &mut Tx, by: &Party, new: NewAgent) -> Result<Agent> {
    // Nothing ever had the id of a new droid.
    let is_droid = new.kind == AgentKind::Droid;
    let before = if is_droid { None } else { w.agent_get(&new.agent_id)? };
    if let Some(existing) = before.as_ref().filter(|agent| !agent.is_deleted()) {
        return Err(id_taken(w.ctx, by, existing));
    }
    if !is_droid {
        new.agent_id.check_new()?;
    }
    if new.kind != AgentKind::Persistent && new.name.contains(is_strange) {
        let name = shown(&new.name, 80);
        return Err(refusal!(InvalidArguments, "the name `{name}` contains characters that names must not contain")
            .hint("give a name of one line, without control characters and characters that change the text direction")
            .details(json!({ "field": "name" })));
    }
    if new.kind != AgentKind::Persistent {
        let owner = owner_of(by, &new);
        check_former_owner(w, &owner, before.as_ref())?;
        crate::root_limits::spawned(w, by, new.chain)?;
        budgets::may_create(w, &owner, &new.agent_id)?;
    }
    if new.kind == AgentKind::Dynamic {
        let (count, limit) = (w.agent_count_dynamic()?, w.ctx.limits().dynamic_agents_max);
        let hint = "delete some that you created (syscall.agent.delete), or raise limits.dynamic_agents_max";
        let words = ("dynamic agents are in this world", hint);
        crate::root_limits::room(w, "dynamic_agents_max", count, limit, words)?;
    }
    let now = w.ctx.now();
    let owner = (new.kind != AgentKind::Persistent).then(|| owner_of(by, &new).to_string());
    let first = before.is_none();
    let (last, since) = match before {
        Some(old) => (old.incarnation, Since::after(&old, new.team.as_deref(), owner.as_deref(), now)),
        None => {
            let floor = w.agent_incarnation_floor()?;
            (floor, Since::of_new(floor > 0, now))
        }
    };
    let running = new.desired == Desired::Running;
    let agent = Agent {
        incarnation: last.saturating_add(1),
        name: new.name,
        team: new.team,
        owner,
        desired: new.desired,
        status: if running { AgentStatus::Running } else { AgentStatus::Stopped },
        status_reason: (!running).then(|| "not started yet".to_owned()),
        overrides: new.overrides,
        node: w.ctx.node.to_string(),
        epoch: w.ctx.epoch,
        started_at: running.then_some(now),
        paid_since: since.creator,
        team_since: since.team,
        helps: (new.kind == AgentKind::Dynamic && by.agent().is_some()).then_some(new.chain.root_id),
        ..Agent::new(new.agent_id, &new.archetype, new.kind, now)
    };
    w.agent_put(&agent)?;
    match first {
        _ if is_droid => {}
        true => budgets::of_first_archetype(w, by, &agent.agent_id, new.daily_money)?,
        // An agent that is created again under its id keeps today's spending.
        false => budgets::of_archetype(w, by, &agent.agent_id, new.daily_money)?,
    }
    let Agent { archetype, kind, incarnation, .. } = &agent;
    let payload = json!({ "archetype": archetype, "kind": kind, "by": by, "incarnation": incarnation });
    w.emit(NewEvent::new(EventKind::AgentCreated, payload).agent(&agent.agent_id))?;
    if running {
        w.emit(NewEvent::new(EventKind::AgentStarted, json!({ "by": by })).agent(&agent.agent_id))?;
    }
    if let Some(goal) = new.goal {
        let first = NewMessage::new(&agent.agent_id, by.clone(), Kind::System, goal, new.chain);
        mail::deliver(w, first.subject("Your first goal"))?;
    }
    if let Some(heartbeat) = &new.heartbeat {
        schedules::set_heartbeat(w, &agent.agent_id, heartbeat)?;
    }
    if last > 0 && !is_droid {
        tasks::handed_on(w, &agent.agent_id)?;
    }
    w.signal(match is_droid {
        true => Signal::DroidCreated(Box::new(agent.clone())),
        false => Signal::Reconcile(agent.agent_id.clone()),
    });
    Ok(agent)
}

/// Applies an agent's entry in `world-config.yaml` to its record. Returns whether anything changed.
pub fn update(w: &mut Tx, agent_id: &AgentId, archetype: &str, name: &str, team: Option<&str>) -> Result<bool> {
    let mut agent = agent_named(w, agent_id)?;
    let before = (agent.archetype.as_str(), agent.name.as_str(), agent.team.as_deref(), agent.kind);
    if before == (archetype, name, team, AgentKind::Persistent) {
        return Ok(false);
    }
    let since = Since::after(&agent, team, agent.owner.as_deref(), w.ctx.now());
    (agent.paid_since, agent.team_since) = (since.creator, since.team);
    agent.archetype = archetype.to_owned();
    agent.name = name.to_owned();
    agent.team = team.map(str::to_owned);
    agent.kind = AgentKind::Persistent;
    put(w, &mut agent)?;
    let payload = json!({ "archetype": archetype, "name": name, "team": team });
    w.emit(NewEvent::new(EventKind::AgentUpdated, payload).agent(agent_id))?;
    w.signal(Signal::Reconcile(agent_id.clone()));
    Ok(true)
}

/// The prefix of the world fact that stores the last number used for an archetype.
const NUMBER: &str = "agent_number:";

/// Maximum ids that are tried.
const TRIES: u32 = 48;

/// Finds an id `<archetype>-<number>` that no recorded agent has or had. The number only rises, so
/// one lookup is enough in most cases. Ids that users chose may be in the way: after 16 tries the
/// step doubles each time, so any block of them is skipped within [`TRIES`] lookups.
///
/// # Errors
/// `Conflict` if every tried id is used.
pub fn free_id(w: &mut StoreTx, archetype: &str) -> Result<AgentId> {
    let clean: String = archetype
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' })
        .take(40)
        .collect();
    let clean = clean.trim_start_matches(['.', '_', '-']);
    let base = if clean.is_empty() { "agent" } else { clean };
    let key = format!("{NUMBER}{base}");
    let text = w.meta_get(&key)?.unwrap_or_else(|| "0".to_owned());
    let unreadable = |error| refusal!(Internal, "the fact `{key}` is `{}`: {error}", clip(&text, 40));
    let mut number = text.parse::<u64>().map_err(unreadable)?;
    let mut step = 1;
    for tries in 0..TRIES {
        number = number.saturating_add(step);
        if tries >= 16 {
            step *= 2;
        }
        let agent_id: AgentId = format!("{base}-{number}").parse()?;
        if w.agent_get(&agent_id)?.is_none() {
            w.meta_put(&key, &number.to_string())?;
            return Ok(agent_id);
        }
    }
    Err(refusal!(Conflict, "no free id was found for an agent of {archetype}").hint("choose an agent_id yourself"))
}

/// Builds the refusal for an id that a living agent has.
fn id_taken(ctx: &Context, by: &Party, there: &Agent) -> Refusal {
    let Agent { agent_id, status, .. } = there;
    let refusal = refusal!(Conflict, "there is an agent `{agent_id}` already; it is {status}");
    refusal.hint(hint_for_taken_id(ctx, by, there)).details(details(agent_id, Some(there)))
}

/// Builds the refusal for an id that `world-config.yaml` declares. `there` is the record of that
/// agent, if one exists.
#[must_use]
pub fn reserved(ctx: &Context, by: &Party, agent_id: &AgentId, there: Option<&Agent>) -> Refusal {
    if let Some(living) = there.filter(|agent| !agent.is_deleted()) {
        return id_taken(ctx, by, living);
    }
    let gone = if there.is_some() { ", which was deleted" } else { "" };
    let hint = match by.agent() {
        Some(_) => "choose another id",
        None => "reload the world to have that agent back, or choose another id",
    };
    refusal!(Conflict, "the world file names an agent `{agent_id}`{gone}").hint(hint).details(details(agent_id, there))
}

/// The hint for a caller that wants an id which a living agent has.
fn hint_for_taken_id(ctx: &Context, by: &Party, there: &Agent) -> String {
    if by.agent().is_some() {
        return "choose another id, or use that agent".to_owned();
    }
    let Agent { agent_id, kind, status, .. } = there;
    let away = match kind {
        AgentKind::Dynamic | AgentKind::Droid => {
            format!("choose another id, or delete that agent first: `ghostctl agent delete {agent_id}`")
        }
        // Deleting it would not help: a reload creates it again.
        AgentKind::Persistent => "choose another id: the world file names that agent".to_owned(),
    };
    match ctx.may_run(there) {
        Err(why) => format!("{}, or choose another id", why.in_words()),
        Ok(()) if matches!(status, AgentStatus::Running | AgentStatus::Restarting) => {
            format!("use it as it is, or {away}")
        }
        Ok(()) => format!("start it with `ghostctl agent start {agent_id}`, or {away}"),
    }
}

/// The details of such a refusal, for programs.
fn details(agent_id: &AgentId, there: Option<&Agent>) -> Value {
    match there {
        None => json!({ "agent_id": agent_id }),
        Some(agent) => {
            let status = if agent.is_deleted() { "deleted" } else { agent.status.as_str() };
            json!({ "agent_id": agent_id, "status": status, "archetype": agent.archetype })
        }
    }
}

/// Refuses `by` the id of a deleted agent that another party created, if the deleted agent created
/// agents that still live. Otherwise the calls of those agents would be charged to a different
/// account, or to a cycle of accounts.
fn check_former_owner(w: &mut StoreTx, by: &Party, before: Option<&Agent>) -> Result<()> {
    let is_other = |old: &&Agent| by.agent().is_some() && old.owner != Some(by.to_string());
    let Some(Agent { agent_id, .. }) = before.filter(is_other) else { return Ok(()) };
    let living = w.agent_list(false)?;
    match living.iter().find(|agent| agent.creator().as_ref() == Some(agent_id)) {
        None => Ok(()),
        Some(Agent { agent_id: child, .. }) => {
            Err(refusal!(Conflict, "`{agent_id}` was deleted, and `{child}`, which it created, is still there")
                .hint("choose another id")
                .details(details(agent_id, before)))
        }
    }
}
