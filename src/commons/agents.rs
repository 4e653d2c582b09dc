//! Agents as records: created, asked to run or to stop, and what the supervisor says of them. The supervisor works
//! towards what is recorded here, so that an order survives whatever dies while it is carried out.

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::ports::Signal;
use ghost_domain::text::clip;
use ghost_domain::{
    Agent, AgentId, AgentKind, AgentStatus, Code, Desired, Kind, MailState, MessageId, Money, Party, Refusal, Scope,
    TurnStatus,
};
use ghost_store::Writes;
use serde_json::{Value, json};

use crate::budgets::NewLimits;
use crate::mail::{self, Chain, Draft};
use crate::turns::{self, Ending};
use crate::{Cx, Result, asks, budgets, chat, conversations, schedules};

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

/// The number that ids of one archetype have reached, as a fact about the world.
const NUMBER: &str = "agent_number:";

/// Ids that are looked at for one that is free.
const TRIES: u32 = 48;

/// An id that no agent on record bears or has borne, for one of `archetype`: `<archetype>-<number>`. The number only rises, so
/// that it costs one look however many agents there were. Ids that someone chose by hand may be in its way: past the
/// first few it doubles its step, which leaves any row of them behind within [`TRIES`] looks.
///
/// # Errors
/// When every id that was looked at is taken, which takes someone who means it.
pub async fn free_id(w: &mut dyn Writes, archetype: &str) -> Result<AgentId> {
    let clean: String = archetype
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' })
        .take(40)
        .collect();
    let clean = clean.trim_start_matches(['.', '_', '-']);
    let base = if clean.is_empty() { "agent" } else { clean };
    let key = format!("{NUMBER}{base}");
    let mut number: u64 = match w.meta_get(&key).await? {
        None => 0,
        Some(text) => text.parse().map_err(|error| {
            Refusal::new(Code::Internal, format!("the fact `{key}` is `{}`: {error}", clip(&text, 40)))
        })?,
    };
    let mut step = 1;
    for tries in 0..TRIES {
        number = number.saturating_add(step);
        if tries >= 16 {
            step *= 2;
        }
        let agent_id: AgentId = format!("{base}-{number}").parse()?;
        if w.agent_get(&agent_id).await?.is_none() {
            w.meta_put(&key, &number.to_string()).await?;
            return Ok(agent_id);
        }
    }
    Err(Refusal::new(Code::Conflict, format!("no free id was found for an agent of {archetype}"))
        .hint("give it an agent_id of its own"))
}

/// Creates an agent. An id that a living agent bears is a conflict. The incarnation counts on after a tombstone, and
/// after one that was pruned: a turn or a dead letter of a predecessor that is still there must not be taken for its own.
pub async fn create(w: &mut dyn Writes, cx: &Cx, by: &Party, new: NewAgent) -> Result<Agent> {
    let before = w.agent_get(&new.agent_id).await?;
    if before.as_ref().is_some_and(|agent| !agent.is_deleted()) {
        return Err(Refusal::new(Code::Conflict, format!("there is an agent `{}` already", new.agent_id))
            .hint("choose another id, or delete that agent first"));
    }
    if new.kind == AgentKind::Dynamic {
        crate::storms::spawned(w, cx, by, new.chain).await?;
        budgets::may_create(w, by).await?;
        let (count, most) = (w.agent_count_dynamic().await?, cx.limits().dynamic_agents_max);
        if count >= most {
            return Err(Refusal::new(
                Code::RateLimited,
                format!("the world has {count} dynamic agents, which is its bound"),
            )
            .hint("delete some, or raise limits.dynamic_agents_max"));
        }
        crate::storms::filled(w, cx, "dynamic_agents_max", None, count.into(), most.into()).await?;
    }
    let last = match before {
        Some(old) => old.incarnation,
        None => w.agent_incarnation_floor().await?,
    };
    let now = cx.now();
    let running = new.desired == Desired::Running;
    let agent = Agent {
        agent_id: new.agent_id,
        incarnation: last.saturating_add(1),
        archetype: new.archetype,
        name: new.name,
        team: new.team,
        owner: (new.kind == AgentKind::Dynamic).then(|| by.to_string()),
        kind: new.kind,
        desired: new.desired,
        status: if running { AgentStatus::Running } else { AgentStatus::Stopped },
        status_reason: (!running).then(|| "not started yet".to_owned()),
        restarts: 0,
        overrides: new.overrides,
        node: cx.node.to_string(),
        epoch: cx.epoch,
        created_at: now,
        started_at: running.then_some(now),
        updated_at: now,
        last_active_at: None,
        deleted_at: None,
        dropped: false,
    };
    w.agent_put(&agent).await?;
    if let Some((day, money)) = Scope::Agent(agent.agent_id.clone()).daily().zip(new.daily_money) {
        // One that is created again under its id goes on with what it spent today.
        let limits = NewLimits { tokens: None, money: Some(Some(money)) };
        budgets::set(w, cx, by, &day, limits).await?;
    }
    let payload = json!({
        "archetype": agent.archetype, "kind": agent.kind, "by": by, "incarnation": agent.incarnation,
    });
    cx.emit(w, NewEvent::new(EventKind::AgentCreated, payload).agent(&agent.agent_id)).await?;
    if running {
        cx.emit(w, NewEvent::new(EventKind::AgentStarted, json!({ "by": by })).agent(&agent.agent_id)).await?;
    }
    if let Some(goal) = new.goal {
        let draft = Draft {
            subject: Some("Your first goal".into()),
            ..Draft::new(&agent.agent_id, by.clone(), Kind::System, goal, new.chain)
        };
        mail::deliver(w, cx, draft).await?;
    }
    w.signal(Signal::Reconcile(agent.agent_id.clone()));
    Ok(agent)
}

/// Asks an agent to run. Says whether that changed anything.
pub async fn start(w: &mut dyn Writes, cx: &Cx, by: &Party, agent_id: &AgentId) -> Result<(Agent, bool)> {
    let mut agent = mail::agent_named(w, agent_id).await?;
    let runs = matches!(agent.status, AgentStatus::Running | AgentStatus::Restarting);
    if agent.desired == Desired::Running && runs {
        return Ok((agent, false));
    }
    agent.desired = Desired::Running;
    agent.status = AgentStatus::Running;
    agent.status_reason = None;
    agent.started_at = Some(cx.now());
    agent.dropped = false;
    put(w, cx, &mut agent).await?;
    cx.emit(w, NewEvent::new(EventKind::AgentStarted, json!({ "by": by })).agent(agent_id)).await?;
    w.signal(Signal::Reconcile(agent_id.clone()));
    Ok((agent, true))
}

/// Asks an agent to stop. The supervisor lets its turn finish, and then records [`stopped`]. Questions that it has not
/// begun to work on are failed at once.
pub async fn stop(
    w: &mut dyn Writes,
    cx: &Cx,
    by: &Party,
    agent_id: &AgentId,
    reason: Option<&str>,
) -> Result<(Agent, bool)> {
    let mut agent = mail::agent_named(w, agent_id).await?;
    if agent.desired == Desired::Stopped && agent.status == AgentStatus::Stopped {
        if std::mem::take(&mut agent.dropped) {
            // From now on it is stopped because someone said so.
            put(w, cx, &mut agent).await?;
        }
        return Ok((agent, false));
    }
    let changed = agent.desired != Desired::Stopped;
    agent.dropped = false;
    agent.desired = Desired::Stopped;
    if agent.status != AgentStatus::Stopped {
        agent.status = AgentStatus::Stopping;
    }
    agent.status_reason = Some(match reason {
        Some(reason) => format!("by {by}: {}", cx.excerpt(reason, 300)),
        None => format!("by {by}"),
    });
    put(w, cx, &mut agent).await?;
    let refusal = gone(&agent, "was stopped");
    for ask in w.asks_open_to(agent_id).await? {
        let waits = w.message_get(ask.message_id).await?.is_some_and(|mail| mail.state == MailState::Pending);
        if waits {
            asks::fail(w, cx, ask.ask_id, &refusal).await?;
        }
    }
    w.signal(Signal::Reconcile(agent_id.clone()));
    Ok((agent, changed))
}

/// Stops an agent that the world file names no longer. It is kept, and [`named_again`] brings it back.
pub async fn drop_unnamed(w: &mut dyn Writes, cx: &Cx, by: &Party, agent_id: &AgentId) -> Result<()> {
    let (mut agent, _) = stop(w, cx, by, agent_id, Some("the world file no longer names it")).await?;
    agent.dropped = true;
    put(w, cx, &mut agent).await
}

/// Takes up an agent that the world file names again: one that it had dropped is started, if it is to start by itself.
/// Gives whether it was. Who was stopped by someone, before or after, stays stopped.
pub async fn named_again(w: &mut dyn Writes, cx: &Cx, by: &Party, agent_id: &AgentId, autostart: bool) -> Result<bool> {
    let mut agent = mail::agent_named(w, agent_id).await?;
    if !agent.dropped {
        return Ok(false);
    }
    if autostart {
        return start(w, cx, by, agent_id).await.map(|(_, changed)| changed);
    }
    agent.dropped = false;
    agent.status_reason = Some("not started yet".to_owned());
    put(w, cx, &mut agent).await?;
    Ok(false)
}

/// Records that an agent has stopped. An open turn stays open: it goes on when the agent is started again.
pub async fn stopped(w: &mut dyn Writes, cx: &Cx, agent_id: &AgentId) -> Result<()> {
    let mut agent = turns::owned(w, cx, agent_id).await?;
    if agent.desired != Desired::Stopped || agent.status == AgentStatus::Stopped {
        return Ok(());
    }
    agent.status = AgentStatus::Stopped;
    put(w, cx, &mut agent).await?;
    let_go(w, cx, agent_id).await?;
    asks::fail_all_to(w, cx, agent_id, &gone(&agent, "was stopped")).await?;
    let payload = json!({ "reason": agent.status_reason });
    cx.emit(w, NewEvent::new(EventKind::AgentStopped, payload).agent(agent_id)).await
}

/// Records a crash: the turn's accounts, and that a restart will follow. Says whether its mail was set aside, so that what
/// made it crash is out of the way.
pub async fn crashed(w: &mut dyn Writes, cx: &Cx, agent_id: &AgentId, reason: &str) -> Result<bool> {
    turns::owned(w, cx, agent_id).await?;
    let turn_id = w.turn_open_of(agent_id).await?.map(|turn| turn.turn_id);
    turns::crashed(w, cx, agent_id, reason).await?;
    // What was set aside may have stopped it.
    let mut agent = turns::owned(w, cx, agent_id).await?;
    let set_aside = match turn_id {
        Some(turn_id) => w.turn_get(turn_id).await?.is_some_and(|turn| turn.status == TurnStatus::Dead),
        None => false,
    };
    let reason = cx.excerpt(reason, 500);
    if agent.desired == Desired::Running && agent.status == AgentStatus::Running {
        agent.status = AgentStatus::Restarting;
        agent.status_reason = Some(reason.clone());
        put(w, cx, &mut agent).await?;
    }
    cx.emit(w, NewEvent::new(EventKind::AgentCrashed, json!({ "reason": reason })).agent(agent_id)).await?;
    Ok(set_aside)
}

/// Records that a crashed agent is back.
pub async fn restarted(w: &mut dyn Writes, cx: &Cx, agent_id: &AgentId) -> Result<()> {
    let mut agent = turns::owned(w, cx, agent_id).await?;
    if agent.status != AgentStatus::Restarting {
        return Ok(());
    }
    agent.status = AgentStatus::Running;
    agent.status_reason = None;
    agent.restarts = agent.restarts.saturating_add(1);
    agent.started_at = Some(cx.now());
    put(w, cx, &mut agent).await?;
    let payload = json!({ "restarts": agent.restarts });
    cx.emit(w, NewEvent::new(EventKind::AgentRestarted, payload).agent(agent_id)).await?;
    cx.wake(w, agent_id);
    Ok(())
}

/// Records that an agent will not be restarted any more.
pub async fn failed(w: &mut dyn Writes, cx: &Cx, agent_id: &AgentId, reason: &str) -> Result<()> {
    let mut agent = turns::owned(w, cx, agent_id).await?;
    let reason = cx.excerpt(reason, 1_000);
    agent.status = AgentStatus::Failed;
    agent.status_reason = Some(reason.clone());
    put(w, cx, &mut agent).await?;
    let_go(w, cx, agent_id).await?;
    asks::fail_all_to(w, cx, agent_id, &gone(&agent, "has failed")).await?;
    cx.emit(w, NewEvent::new(EventKind::AgentFailed, json!({ "reason": reason })).agent(agent_id)).await
}

/// Deletes an agent: a tombstone with its incarnation stays, and everything that waited on it is failed.
pub async fn delete(w: &mut dyn Writes, cx: &Cx, by: &Party, agent_id: &AgentId) -> Result<Agent> {
    delete_because(w, cx, by, agent_id, None).await
}

/// [`delete`] with a reason in the words of who asks, which the tombstone and the feed keep.
pub async fn delete_because(
    w: &mut dyn Writes,
    cx: &Cx,
    by: &Party,
    agent_id: &AgentId,
    reason: Option<&str>,
) -> Result<Agent> {
    let mut agent = mail::agent_named(w, agent_id).await?;
    let refusal = gone(&agent, "was deleted");
    let ending = format!("{agent_id} was deleted by {by}");
    // The operator's turns in its name are among them.
    for turn in w.turns_open().await?.into_iter().filter(|turn| turn.agent_id == *agent_id) {
        turns::finish(w, cx, turn.turn_id, Ending::Cancelled(ending.clone())).await?;
        w.signal(Signal::TurnCancelled { agent_id: agent_id.clone(), turn_id: turn.turn_id });
    }
    loop {
        // Its successor must not find mail that was meant for it.
        let mail = w.inbox_pending(agent_id, 500).await?;
        if mail.is_empty() {
            break;
        }
        conversations::dropped(w, cx, &mail, &format!("{ending}: nobody answers until an operator hands this over"))
            .await?;
        for mail in &mail {
            schedules::lost(w, cx, mail.message_id, mail.kind, &ending).await?;
        }
        let pending: Vec<MessageId> = mail.into_iter().map(|mail| mail.message_id).collect();
        w.message_mark(&pending, MailState::Consumed, None, 0).await?;
    }
    asks::fail_all_to(w, cx, agent_id, &refusal).await?;
    chat::leave_all(w, cx, by, agent_id).await?;
    schedules::cancel_all(w, cx, by, agent_id).await?;
    for held in w.skills_held(agent_id).await? {
        w.skill_remove(agent_id, &held.skill).await?;
    }
    agent.desired = Desired::Stopped;
    agent.status = AgentStatus::Stopped;
    let reason = reason.map(|reason| cx.excerpt(reason, 300)).filter(|reason| !reason.is_empty());
    agent.status_reason = Some(match &reason {
        Some(reason) => format!("deleted by {by}: {reason}"),
        None => format!("deleted by {by}"),
    });
    agent.deleted_at = Some(cx.now());
    put(w, cx, &mut agent).await?;
    let payload = json!({ "by": by, "incarnation": agent.incarnation, "reason": reason });
    cx.emit(w, NewEvent::new(EventKind::AgentDeleted, payload).agent(agent_id)).await?;
    w.signal(Signal::Reconcile(agent_id.clone()));
    Ok(agent)
}

/// Takes ownership of every agent for this daemon's epoch, and settles what a death of the last one left half-said.
pub async fn claim_all(w: &mut dyn Writes, cx: &Cx) -> Result<Vec<Agent>> {
    let mut agents = w.agent_list(false).await?;
    for agent in &mut agents {
        agent.node = cx.node.to_string();
        agent.epoch = cx.epoch;
        if agent.status == AgentStatus::Restarting {
            agent.status = AgentStatus::Running;
        }
        w.agent_put(agent).await?;
        if agent.status == AgentStatus::Stopping {
            // The daemon died before it could say so: whoever waits for the agent is told now.
            stopped(w, cx, &agent.agent_id).await?;
            agent.status = AgentStatus::Stopped;
        }
    }
    Ok(agents)
}

/// Changes what the world file says of an agent. Gives whether anything changed.
pub async fn update(
    w: &mut dyn Writes,
    cx: &Cx,
    agent_id: &AgentId,
    archetype: &str,
    name: &str,
    team: Option<&str>,
) -> Result<bool> {
    let mut agent = mail::agent_named(w, agent_id).await?;
    let same = agent.archetype == archetype
        && agent.name == name
        && agent.team.as_deref() == team
        && agent.kind == AgentKind::Persistent;
    if same {
        return Ok(false);
    }
    agent.archetype = archetype.to_owned();
    agent.name = name.to_owned();
    agent.team = team.map(str::to_owned);
    agent.kind = AgentKind::Persistent;
    put(w, cx, &mut agent).await?;
    let payload = json!({ "archetype": archetype, "name": name, "team": team });
    cx.emit(w, NewEvent::new(EventKind::AgentUpdated, payload).agent(agent_id)).await?;
    w.signal(Signal::Reconcile(agent_id.clone()));
    Ok(true)
}

async fn put(w: &mut dyn Writes, cx: &Cx, agent: &mut Agent) -> Result<()> {
    agent.updated_at = cx.now();
    w.agent_put(agent).await?;
    Ok(())
}

/// Counts as spent what the open turn of an agent that no longer runs still holds: its model call was cut off, and it may
/// be long before the turn goes on.
async fn let_go(w: &mut dyn Writes, cx: &Cx, agent_id: &AgentId) -> Result<()> {
    if let Some(mut turn) = w.turn_open_of(agent_id).await? {
        budgets::forfeit_held(w, cx, &mut turn).await?;
    }
    Ok(())
}

fn gone(agent: &Agent, how: &str) -> Refusal {
    Refusal::new(Code::Unavailable, format!("{} {how}", agent.agent_id)).hint("ask someone else, or try later")
}
