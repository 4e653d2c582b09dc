//! Agents as records: created, asked to run or to stop, changed and deleted. The supervisor works towards what is recorded
//! here, so that an order survives whatever dies while it is carried out; what it says of them itself is in [`life`].

mod life;
pub(crate) mod orders;

use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::ports::Signal;
use ghost_domain::text::clip;
use ghost_domain::{
    Agent, AgentId, AgentKind, AgentStatus, Code, Desired, Kind, MailState, MessageId, Money, Party, Refusal, Timestamp,
};
use ghost_store::Writes;
use serde_json::{Value, json};

use crate::chain::Chain;
use crate::mail::{self, Draft};
use crate::roster::{agent_named, gone, put};
use crate::turns::{self, Ending};
use crate::{Cx, Result, asks, budgets, chat, conversations, schedules, tasks};

pub use life::{claim_all, crashed, failed, mended, restarted, stopped, unfit};
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

/// The number that ids of one archetype have reached, as a fact about the world.
const NUMBER: &str = "agent_number:";

/// Messages, and tasks, that the end of an agent names one by one; more are counted.
const NAMED: usize = 100;

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

/// Creates an agent, unless the same was done before: one that is there, made from the same archetype with the same overrides
/// and by whoever asks, is given as it stands. Says whether it is new. With a goal it is always to be new: what an agent is
/// told may not come to nothing.
pub async fn create_once(w: &mut dyn Writes, cx: &Cx, by: &Party, new: NewAgent) -> Result<(Agent, bool)> {
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
        _ => create(w, cx, by, new).await.map(|agent| (agent, true)),
    }
}

/// Creates an agent. An id that a living agent bears is a conflict. The incarnation counts on after a tombstone, and
/// after one that was pruned: a turn or a dead letter of a predecessor that is still there must not be taken for its own.
pub async fn create(w: &mut dyn Writes, cx: &Cx, by: &Party, new: NewAgent) -> Result<Agent> {
    let before = w.agent_get(&new.agent_id).await?;
    if let Some(there) = before.as_ref().filter(|agent| !agent.is_deleted()) {
        let Agent { agent_id, status, archetype, .. } = there;
        return Err(Refusal::new(Code::Conflict, format!("there is an agent `{agent_id}` already; it is {status}"))
            .hint("choose another id, or delete that agent first")
            .details(json!({ "agent_id": agent_id, "status": status, "archetype": archetype })));
    }
    new.agent_id.check_new()?;
    if new.kind == AgentKind::Dynamic {
        not_of_another(w, by, before.as_ref()).await?;
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
    let now = cx.now();
    let owner = (new.kind == AgentKind::Dynamic).then(|| by.to_string());
    let paid_since = before.as_ref().and_then(|old| paid_since(old, new.team.as_deref(), owner.as_deref(), now));
    let last = match before {
        Some(old) => old.incarnation,
        None => w.agent_incarnation_floor().await?,
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
        node: cx.node.to_string(),
        epoch: cx.epoch,
        created_at: now,
        started_at: running.then_some(now),
        updated_at: now,
        last_active_at: None,
        deleted_at: None,
        paid_since,
        dropped: false,
        unfit: false,
    };
    w.agent_put(&agent).await?;
    // One that is created again under its id goes on with what it spent today.
    budgets::of_archetype(w, cx, by, &agent.agent_id, new.daily_money).await?;
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
    if last > 0 {
        tasks::handed_on(w, cx, &agent.agent_id).await?;
    }
    w.signal(Signal::Reconcile(agent.agent_id.clone()));
    Ok(agent)
}

/// Refuses an agent the id of a deleted one that living agents lead back to, unless it has created that one itself: they
/// would pay to someone else from then on, or to nobody but one another.
async fn not_of_another(w: &mut dyn Writes, by: &Party, before: Option<&Agent>) -> Result<()> {
    let Some(old) = before.filter(|old| by.agent().is_some() && old.owner != Some(by.to_string())) else {
        return Ok(());
    };
    let living = w.agent_list(false).await?;
    let Some(child) = living.iter().find(|agent| agent.creator().as_ref() == Some(&old.agent_id)) else {
        return Ok(());
    };
    let what = format!("`{}` was deleted, and `{}`, which it created, is still there", old.agent_id, child.agent_id);
    Err(Refusal::new(Code::Conflict, what).hint("choose another id"))
}

/// Deletes an agent: a tombstone with its incarnation stays, and everything that waited on it is failed. Its tasks stay open, and
/// their creators are told; what mail it had not read is told in the event. What its archetype
/// let it cost in a day is lifted with it; a limit that someone set for its id stays.
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
    let mut agent = agent_named(w, agent_id).await?;
    let refusal = gone(&agent, "was deleted");
    let ending = format!("{agent_id} was deleted by {by}");
    // The operator's turns in its name are among them.
    for turn in w.turns_open().await?.into_iter().filter(|turn| turn.agent_id == *agent_id) {
        turns::finish(w, cx, turn.turn_id, Ending::Cancelled(ending.clone())).await?;
        w.signal(Signal::TurnCancelled { agent_id: agent_id.clone(), turn_id: turn.turn_id });
    }
    let mut dropped = Vec::new();
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
        dropped.extend(mail.iter().filter(|mail| !mail.is_chat_wake()).map(|mail| mail.message_id));
        let pending: Vec<MessageId> = mail.into_iter().map(|mail| mail.message_id).collect();
        w.message_mark(&pending, MailState::Consumed, None, 0).await?;
    }
    asks::fail_all_to(w, cx, agent_id, &refusal).await?;
    chat::leave_all(w, cx, by, agent_id).await?;
    schedules::cancel_all(w, cx, by, agent_id).await?;
    let left = tasks::left_behind(w, cx, agent_id).await?;
    for held in w.skills_held(agent_id).await? {
        w.skill_remove(agent_id, &held.skill).await?;
    }
    budgets::of_archetype(w, cx, by, agent_id, None).await?;
    agent.desired = Desired::Stopped;
    agent.status = AgentStatus::Stopped;
    let reason = reason.map(|reason| cx.excerpt(reason, 300)).filter(|reason| !reason.is_empty());
    agent.status_reason = Some(match &reason {
        Some(reason) => format!("deleted by {by}: {reason}"),
        None => format!("deleted by {by}"),
    });
    agent.deleted_at = Some(cx.now());
    put(w, cx, &mut agent).await?;
    let payload = json!({
        "by": by, "incarnation": agent.incarnation, "reason": reason,
        "mail_dropped": dropped.len(), "messages": &dropped[..dropped.len().min(NAMED)],
        "tasks_left": left.len(), "tasks": &left[..left.len().min(NAMED)],
    });
    cx.emit(w, NewEvent::new(EventKind::AgentDeleted, payload).agent(agent_id)).await?;
    w.signal(Signal::Reconcile(agent_id.clone()));
    Ok(agent)
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
    let mut agent = agent_named(w, agent_id).await?;
    let same = agent.archetype == archetype
        && agent.name == name
        && agent.team.as_deref() == team
        && agent.kind == AgentKind::Persistent;
    if same {
        return Ok(false);
    }
    agent.paid_since = paid_since(&agent, team, agent.owner.as_deref(), cx.now());
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

/// Since when `team` and `owner` pay for the id of `before`: as long as before if they did already, else from `now` on.
fn paid_since(before: &Agent, team: Option<&str>, owner: Option<&str>, now: Timestamp) -> Option<Timestamp> {
    let same = before.team.as_deref() == team && before.owner.as_deref() == owner;
    if same { before.paid_since } else { Some(now) }
}
