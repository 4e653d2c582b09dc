//! The orders to start and stop agents: from operators, agents, `world-config.yaml` and the rules
//! themselves.
//!
//! This module must never execute an order. The supervisor does, and lets an open turn finish.

use crate::asks;
use crate::droids::family::{self, Parent};
use crate::lookup::{agent_for, agent_named, gone, may_act, put};
use crate::prelude::*;

/// Orders an agent to run. Also returns whether that changed anything.
///
/// # Errors
/// `Conflict` if the agent cannot run with the world's files, because its turns would fail and lose
/// its mail, or if it is a droid that has ended.
pub fn start(w: &mut Tx, by: &Party, agent_id: &AgentId) -> Result<(Agent, bool)> {
    let mut agent = agent_for(w, by, agent_id)?;
    let runs = matches!(agent.status, AgentStatus::Running | AgentStatus::Restarting);
    if agent.desired == Desired::Running && runs {
        return Ok((agent, false));
    }
    may_act(w, &agent)?;
    if let Err(refusal) = w.ctx.may_run(&agent) {
        let details = json!({ "agent_id": agent_id, "status": agent.status });
        return Err(Refusal { code: Code::Conflict, ..refusal }.details(details));
    }
    set_going(w, by, &mut agent)?;
    Ok((agent, true))
}

/// Sets an agent to running, without checks.
pub(super) fn set_going(w: &mut Tx, by: &Party, agent: &mut Agent) -> Result<()> {
    agent.desired = Desired::Running;
    agent.status = AgentStatus::Running;
    agent.status_reason = None;
    agent.started_at = Some(w.ctx.now());
    agent.dropped = false;
    agent.cannot_run = false;
    agent.let_go = false;
    agent.stop_grace_seconds = None;
    put(w, agent)?;
    w.emit(NewEvent::new(EventKind::AgentStarted, json!({ "by": by })).agent(&agent.agent_id))?;
    w.signal(Signal::Reconcile(agent.agent_id.clone()));
    Ok(())
}

/// Orders an agent to stop. The supervisor lets its turn finish and then records
/// [`super::stopped`]. Asks to the agent that are not yet in a turn fail at once. Also returns
/// whether the order is new.
pub fn stop(w: &mut Tx, by: &Party, agent_id: &AgentId, reason: Option<&str>) -> Result<(Agent, bool)> {
    let mut agent = agent_for(w, by, agent_id)?;
    if agent.desired == Desired::Stopped && agent.status == AgentStatus::Stopped {
        let let_go = by.agent().is_some();
        let (dropped, before) = (std::mem::take(&mut agent.dropped), std::mem::replace(&mut agent.let_go, let_go));
        if dropped || before != let_go {
            // From now on, the stop is recorded as ordered by `by`.
            put(w, &mut agent)?;
        }
        return Ok((agent, false));
    }
    let changed = agent.desired != Desired::Stopped;
    agent.dropped = false;
    agent.cannot_run = false;
    agent.let_go = by.agent().is_some();
    agent.stop_grace_seconds = None;
    agent.desired = Desired::Stopped;
    if agent.status != AgentStatus::Stopped {
        agent.status = AgentStatus::Stopping;
    }
    let why = reason.map(|reason| format!(": {}", w.ctx.excerpt(reason, 300))).unwrap_or_default();
    agent.status_reason = Some(format!("by {by}{why}"));
    put(w, &mut agent)?;
    family::ended_with_parent(w, agent_id, Parent::Stopped)?;
    family::agent_ended(w, &agent)?;
    let refusal = gone(&agent, "was stopped");
    for ask in w.asks_open_to(agent_id)? {
        if w.message_get(ask.message_id)?.is_some_and(|mail| mail.state == MailState::Pending) {
            asks::fail(w, ask.ask_id, &refusal)?;
        }
    }
    w.signal(Signal::Reconcile(agent_id.clone()));
    Ok((agent, changed))
}

/// Like [`stop`]; the agent's turn may still run for `grace_seconds`.
pub fn stop_within(
    w: &mut Tx,
    by: &Party,
    agent_id: &AgentId,
    reason: Option<&str>,
    grace_seconds: u32,
) -> Result<(Agent, bool)> {
    let (mut agent, changed) = stop(w, by, agent_id, reason)?;
    if agent.status == AgentStatus::Stopping {
        agent.stop_grace_seconds = Some(grace_seconds);
        put(w, &mut agent)?;
    }
    Ok((agent, changed))
}

/// Stops an agent that `world-config.yaml` no longer declares. The agent is kept, and
/// [`named_again`] can start it again.
pub fn drop_unnamed(w: &mut Tx, by: &Party, agent_id: &AgentId) -> Result<()> {
    let (mut agent, _) = stop(w, by, agent_id, Some("the world file no longer names it"))?;
    agent.dropped = true;
    put(w, &mut agent)
}

/// Handles an agent that `world-config.yaml` declares again. If [`drop_unnamed`] had stopped it, it
/// starts if `autostart` is set. Returns whether it was started. An agent that another order
/// stopped stays stopped.
pub fn named_again(w: &mut Tx, by: &Party, agent_id: &AgentId, autostart: bool) -> Result<bool> {
    let mut agent = agent_named(w, agent_id)?;
    if !agent.dropped {
        return Ok(false);
    }
    if autostart {
        // Whether it can run is checked for all agents together, after the whole file was applied.
        set_going(w, by, &mut agent)?;
        return Ok(true);
    }
    agent.dropped = false;
    agent.status_reason = Some("not started yet".to_owned());
    put(w, &mut agent)?;
    Ok(false)
}
