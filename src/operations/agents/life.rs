//! The supervisor's records about an agent: stopped, crashed, restarted, failed, and claimed by a
//! new daemon.
//!
//! This module must never give an agent an order. [`super::orders`] does that.

use super::orders::set_going;
use crate::agent_lookup::{emit_stopped, gone, put};
use crate::droids::family::{self, Parent};
use crate::prelude::*;
use crate::{asks, budgets, questions, turns};

/// Records that an agent has stopped. An open turn stays open and continues when the agent is
/// started again. Returns the record, which is unchanged if the agent has stopped before or is to run.
pub fn stopped(w: &mut Tx, agent_id: &AgentId) -> Result<Agent> {
    let mut agent = turns::owned(w, agent_id)?;
    if agent.desired != Desired::Stopped || agent.status == AgentStatus::Stopped {
        return Ok(agent);
    }
    agent.status = AgentStatus::Stopped;
    put(w, &mut agent)?;
    interrupt_open_turn(w, agent_id)?;
    match agent.kind {
        // Whatever ended it, its own droids end with it. Nobody asks a droid.
        AgentKind::Droid => family::ended_with_parent(w, agent_id, Parent::Stopped)?,
        _ => asks::fail_all_to(w, agent_id, &gone(&agent, "was stopped"))?,
    }
    emit_stopped(w, &agent)?;
    Ok(agent)
}

/// Records a crash of an agent and of its open turn, and that a restart follows. Returns whether
/// its mail became a dead letter. The cause of the crash is then removed.
pub fn crashed(w: &mut Tx, agent_id: &AgentId, reason: &str) -> Result<bool> {
    turns::owned(w, agent_id)?;
    let turn_id = w.turn_open_of(agent_id)?.map(|turn| turn.turn_id);
    turns::crashed(w, agent_id, reason)?;
    // A new dead letter may have stopped the agent, so its record is read again.
    let mut agent = turns::owned(w, agent_id)?;
    let turn = turn_id.map(|turn_id| w.turn_get(turn_id)).transpose()?.flatten();
    let dead_lettered = turn.is_some_and(|turn| turn.status == TurnStatus::Dead);
    let reason = w.ctx.excerpt(reason, 500);
    if agent.desired == Desired::Running && agent.status == AgentStatus::Running {
        agent.status = AgentStatus::Restarting;
        agent.status_reason = Some(reason.clone());
        put(w, &mut agent)?;
    }
    w.emit(NewEvent::new(EventKind::AgentCrashed, json!({ "reason": reason })).agent(agent_id))?;
    Ok(dead_lettered)
}

/// Records that a crashed agent runs again.
pub fn restarted(w: &mut Tx, agent_id: &AgentId) -> Result<()> {
    let mut agent = turns::owned(w, agent_id)?;
    if agent.status != AgentStatus::Restarting {
        return Ok(());
    }
    agent.status = AgentStatus::Running;
    agent.status_reason = None;
    agent.restarts = agent.restarts.saturating_add(1);
    agent.started_at = Some(w.ctx.now());
    put(w, &mut agent)?;
    w.emit(NewEvent::new(EventKind::AgentRestarted, json!({ "restarts": agent.restarts })).agent(agent_id))?;
    w.wake(agent_id);
    Ok(())
}

/// Records that an agent has failed and is not restarted any more.
pub fn failed(w: &mut Tx, agent_id: &AgentId, reason: &str) -> Result<()> {
    let agent = turns::owned(w, agent_id)?;
    fail(w, agent, false, reason)
}

/// Records that an agent cannot run with the world's files as they are. Its status is `failed`
/// until the files are repaired and [`repaired`] is called. Meanwhile it takes no mail and its open
/// turn stays open, so nothing is lost.
pub fn cannot_run(w: &mut Tx, agent_id: &AgentId, why: &Refusal) -> Result<()> {
    let agent = turns::owned(w, agent_id)?;
    let runs = matches!(agent.status, AgentStatus::Running | AgentStatus::Restarting);
    if agent.desired != Desired::Running || !runs {
        return Ok(());
    }
    if w.ctx.may_run(&agent).is_ok() {
        // The caller used a plan that is no longer current, or not yet. The agent checks again.
        w.wake(agent_id);
        return Ok(());
    }
    fail(w, agent, true, &why.in_words())?;
    w.signal(Signal::Reconcile(agent_id.clone()));
    Ok(())
}

/// Starts an agent again that was marked by [`cannot_run`], because it can run with the world's files
/// now. Returns whether it was started. An agent that failed for another reason, or that was
/// stopped by an order, stays as it is.
pub fn repaired(w: &mut Tx, by: &Party, agent_id: &AgentId) -> Result<bool> {
    let mut agent = turns::owned(w, agent_id)?;
    if !agent.cannot_run || agent.desired != Desired::Running {
        return Ok(false);
    }
    set_going(w, by, &mut agent)?;
    Ok(true)
}

fn fail(w: &mut Tx, mut agent: Agent, cannot_run: bool, reason: &str) -> Result<()> {
    let agent_id = &agent.agent_id.clone();
    let reason = w.ctx.excerpt(reason, 1_000);
    agent.cannot_run = cannot_run;
    agent.status = AgentStatus::Failed;
    agent.status_reason = Some(reason.clone());
    put(w, &mut agent)?;
    interrupt_open_turn(w, agent_id)?;
    asks::fail_all_to(w, agent_id, &gone(&agent, "has failed"))?;
    family::ended_with_parent(w, agent_id, Parent::Failed)?;
    if agent.kind == AgentKind::Droid {
        family::crashed(w, agent_id, &reason)?;
    }
    w.emit(NewEvent::new(EventKind::AgentFailed, json!({ "reason": reason })).agent(agent_id))
}

/// Takes ownership of every agent for this daemon's epoch. Completes the stops that an earlier
/// daemon had begun. Returns the agents.
pub fn claim_all(w: &mut Tx) -> Result<Vec<Agent>> {
    let mut agents = w.agent_list(false)?;
    for agent in &mut agents {
        agent.node = w.ctx.node.to_string();
        agent.epoch = w.ctx.epoch;
        if agent.status == AgentStatus::Restarting {
            agent.status = AgentStatus::Running;
        }
        w.agent_put(agent)?;
    }
    // The daemon died before it could record these stops. Callers that wait for the agents are notified now. A stop may
    // stop droids, too: it comes after all records are claimed, and the droids' own come in the next round.
    loop {
        let is_stopping = |agent: &&Agent| agent.status == AgentStatus::Stopping && agent.desired == Desired::Stopped;
        let stopping: Vec<AgentId> = agents.iter().filter(is_stopping).map(|agent| agent.agent_id.clone()).collect();
        if stopping.is_empty() {
            return Ok(agents);
        }
        for agent_id in stopping {
            stopped(w, &agent_id)?;
        }
        agents = w.agent_list(false)?;
    }
}

/// Books the reservations of a stopped agent's open turn as spent and takes its questions back. Its calls were interrupted,
/// and it may take long until the turn continues.
fn interrupt_open_turn(w: &mut Tx, agent_id: &AgentId) -> Result<()> {
    if let Some(mut turn) = w.turn_open_of(agent_id)? {
        budgets::forfeit_held(w, &mut turn)?;
        questions::end_all(w, &mut turn)?;
    }
    Ok(())
}
