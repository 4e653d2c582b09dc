//! Agents as records: created, asked to run or to stop, changed and deleted. The supervisor works towards what is recorded
//! here, so that an order survives whatever dies while it is carried out; what it says of them itself is in [`life`].

mod end;
mod ids;
mod life;
pub(crate) mod orders;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::ports::Signal;
use ghost_domain::text::{is_strange, shown};
use ghost_domain::{Agent, AgentId, AgentKind, AgentStatus, Code, Desired, Kind, Money, Party, Refusal};
use ghost_store::Writes;
use serde_json::{Value, json};

use crate::agent_lookup::{agent_named, put};
use crate::budgets::Since;
use crate::chain::Chain;
use crate::mail::{self, NewMessage};
use crate::{Result, RuleContext, budgets, tasks};

pub use end::{Deleted, Left, delete, delete_because, delete_own, end_helpers};
pub use ids::{free_id, reserved};
pub use life::{claim_all, crashed, failed, repaired, restarted, stopped, unfit};
pub use orders::{drop_unnamed, named_again, start, stop};

/// An agent to be created.
#[derive(Clone, Debug)]
pub struct NewAgent {
    /// Its id.
    pub agent_id: AgentId,
    /// Its archetype; checked by the caller.
    pub archetype: String,
    /// The name people see.
    pub name: String,
    /// Its team.
    pub team: Option<String>,
    /// Where it comes from.
    pub kind: AgentKind,
    /// Whether it starts.
    pub desired: Desired,
    /// What narrows its archetype; checked by the caller.
    pub overrides: Value,
    /// What it may cost in one day, if that has a limit.
    pub daily_money: Option<Money>,
    /// What it is told first. Without it the agent waits.
    pub goal: Option<String>,
    /// The chain that its goal belongs to.
    pub chain: Chain,
}

/// Creates an agent, unless the same was done before: one that is there, made from the same archetype with the same overrides
/// and by whoever asks, is given as it stands. Says whether it is new. With a goal it is always to be new: what an agent is
/// told may not come to nothing.
pub async fn create_once(w: &mut dyn Writes, ctx: &RuleContext, by: &Party, new: NewAgent) -> Result<(Agent, bool)> {
    let there = w.agent_get(&new.agent_id).await?.filter(|agent| !agent.is_deleted());
    let bare = |overrides: &Value| overrides.as_object().is_none_or(serde_json::Map::is_empty);
    let same = |there: &Agent| {
        let own = by.agent().is_none() || there.owner == Some(by.to_string());
        // An agent that is given no name bears its id.
        let called = there.name == new.name || new.name == new.agent_id.as_str();
        let overrides = there.overrides == new.overrides || (bare(&there.overrides) && bare(&new.overrides));
        own && overrides && called && there.kind == new.kind && there.archetype == new.archetype && new.goal.is_none()
    };
    match there {
        Some(there) if same(&there) => Ok((there, false)),
        _ => create(w, ctx, by, new).await.map(|agent| (agent, true)),
    }
}

/// Creates an agent. An id that a living agent bears is a conflict. The incarnation counts on after a tombstone, and
/// after one that was pruned: a turn or a dead letter of a predecessor that is still there must not be taken for its own.
pub async fn create(w: &mut dyn Writes, ctx: &RuleContext, by: &Party, new: NewAgent) -> Result<Agent> {
    let before = w.agent_get(&new.agent_id).await?;
    if let Some(there) = before.as_ref().filter(|agent| !agent.is_deleted()) {
        return Err(ids::borne(ctx, by, there));
    }
    new.agent_id.check_new()?;
    if new.kind == AgentKind::Dynamic && new.name.contains(is_strange) {
        let what = format!("the name `{}` holds characters that no name has", shown(&new.name, 80));
        return Err(Refusal::new(Code::InvalidArguments, what)
            .hint("give a name of one line, without characters that turn the order in which it is shown")
            .details(json!({ "field": "name" })));
    }
    if new.kind == AgentKind::Dynamic {
        ids::not_of_another(w, by, before.as_ref()).await?;
        crate::root_limits::spawned(w, ctx, by, new.chain).await?;
        budgets::may_create(w, by).await?;
        let (count, most) = (w.agent_count_dynamic().await?, ctx.limits().dynamic_agents_max);
        if count >= most {
            return Err(Refusal::new(
                Code::RateLimited,
                format!("the world has {count} dynamic agents, which is its bound"),
            )
            .hint("delete some that you created (syscall.agent.delete), or raise limits.dynamic_agents_max"));
        }
        crate::root_limits::filled(w, ctx, "dynamic_agents_max", None, count.into(), most.into()).await?;
    }
    let now = ctx.now();
    let owner = (new.kind == AgentKind::Dynamic).then(|| by.to_string());
    let first = before.is_none();
    let (last, since) = match before {
        Some(old) => (old.incarnation, Since::after(&old, new.team.as_deref(), owner.as_deref(), now)),
        None => {
            let floor = w.agent_incarnation_floor().await?;
            (floor, Since::of_new(floor > 0, now))
        }
    };
    let running = new.desired == Desired::Running;
    let agent = Agent {
        agent_id: new.agent_id,
        incarnation: last.saturating_add(1),
        archetype: new.archetype,
        name: new.name,
        team: new.team,
        owner,
        kind: new.kind,
        desired: new.desired,
        status: if running { AgentStatus::Running } else { AgentStatus::Stopped },
        status_reason: (!running).then(|| "not started yet".to_owned()),
        restarts: 0,
        overrides: new.overrides,
        node: ctx.node.to_string(),
        epoch: ctx.epoch,
        created_at: now,
        started_at: running.then_some(now),
        updated_at: now,
        last_active_at: None,
        deleted_at: None,
        paid_since: since.creator,
        team_since: since.team,
        dropped: false,
        unfit: false,
        helps: (new.kind == AgentKind::Dynamic && by.agent().is_some()).then_some(new.chain.root_id),
        let_go: false,
    };
    w.agent_put(&agent).await?;
    if first {
        budgets::of_first_archetype(w, ctx, by, &agent.agent_id, new.daily_money).await?;
    } else {
        // One that is created again under its id goes on with what it spent today.
        budgets::of_archetype(w, ctx, by, &agent.agent_id, new.daily_money).await?;
    }
    let payload = json!({
        "archetype": agent.archetype, "kind": agent.kind, "by": by, "incarnation": agent.incarnation,
    });
    ctx.emit(w, NewEvent::new(EventKind::AgentCreated, payload).agent(&agent.agent_id)).await?;
    if running {
        ctx.emit(w, NewEvent::new(EventKind::AgentStarted, json!({ "by": by })).agent(&agent.agent_id)).await?;
    }
    if let Some(goal) = new.goal {
        let new_message = NewMessage {
            subject: Some("Your first goal".into()),
            ..NewMessage::new(&agent.agent_id, by.clone(), Kind::System, goal, new.chain)
        };
        mail::deliver(w, ctx, new_message).await?;
    }
    if last > 0 {
        tasks::handed_on(w, ctx, &agent.agent_id).await?;
    }
    w.signal(Signal::Reconcile(agent.agent_id.clone()));
    Ok(agent)
}

/// Changes what the world file says of an agent. Gives whether anything changed.
pub async fn update(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    agent_id: &AgentId,
    archetype: &str,
    name: &str,
    team: Option<&str>,
) -> Result<bool> {
    let mut agent = agent_named(w, agent_id).await?;
    let same = agent.archetype == archetype
        && agent.name == name
        && agent.team.as_deref() == team
        && agent.kind == AgentKind::Persistent;
    if same {
        return Ok(false);
    }
    let since = Since::after(&agent, team, agent.owner.as_deref(), ctx.now());
    (agent.paid_since, agent.team_since) = (since.creator, since.team);
    agent.archetype = archetype.to_owned();
    agent.name = name.to_owned();
    agent.team = team.map(str::to_owned);
    agent.kind = AgentKind::Persistent;
    put(w, ctx, &mut agent).await?;
    let payload = json!({ "archetype": archetype, "name": name, "team": team });
    ctx.emit(w, NewEvent::new(EventKind::AgentUpdated, payload).agent(agent_id)).await?;
    w.signal(Signal::Reconcile(agent_id.clone()));
    Ok(true)
}
