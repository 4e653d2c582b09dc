//! Finds the records of agents by name, writes them, and builds the refusals about agents that are
//! missing, deleted or stopped.
//!
//! This module must never give or execute an order. [`crate::agents`] does that.

use crate::prelude::*;
use crate::suggestion::{self, Unknown};

/// The hint of a refusal about an unknown agent for which no similar name is found.
const LIST: &str = "list the agents to see which there are";

/// Returns the record of a living agent. The refusal says that the agent was deleted, or suggests a
/// similar name. Its text is meant for agents too; [`agent_for`] adds hints for operators.
///
/// # Errors
/// `NotFound`.
pub fn agent_named(r: &mut StoreTx, agent_id: &AgentId) -> Result<Agent> {
    agent_or(r, agent_id, Unknown::Agent, |_| LIST)
}

/// Checks that something may still be done as an agent, also by an operator: a droid that has ended does nothing more.
///
/// # Errors
/// `Conflict` for a droid that has ended.
pub fn may_act(r: &mut StoreTx, agent: &Agent) -> Result<()> {
    if agent.kind != AgentKind::Droid || r.droid_get(&agent.agent_id)?.is_some_and(|droid| !droid.state.is_over()) {
        return Ok(());
    }
    Err(refusal!(Conflict, "{} is a droid that has ended", agent.agent_id)
        .hint("its parent can start another one; `ghostctl droid show` has what it did"))
}

/// Like [`agent_named`], with hints for `by`: an operator learns how to create again a deleted
/// agent that `world-config.yaml` declares.
///
/// # Errors
/// `NotFound`.
pub fn agent_for(r: &mut Tx, by: &Party, agent_id: &AgentId) -> Result<Agent> {
    match by {
        Party::Operator(_) => agent_for_operator(r, agent_id),
        Party::Agent(_) | Party::Outside(_) | Party::System => agent_named(r, agent_id),
    }
}

/// Like [`agent_named`], for an operator.
///
/// # Errors
/// `NotFound`.
pub fn agent_for_operator(r: &mut Tx, agent_id: &AgentId) -> Result<Agent> {
    let ctx = r.ctx;
    agent_or(r, agent_id, Unknown::AgentForOperator, move |deleted| {
        // If the file no longer declares the agent, no reload creates it again.
        if deleted.kind == AgentKind::Persistent && ctx.may_run(deleted).is_ok() {
            "the world file names it: reload the world to have that agent back, with `ghostctl reload`"
        } else {
            LIST
        }
    })
}

/// Returns the record of a living agent. If it was deleted, `deleted_hint` gives the refusal's
/// hint; if there was never one, `unknown` says for whom a similar name is searched.
fn agent_or(
    r: &mut StoreTx,
    agent_id: &AgentId,
    unknown: impl FnOnce(String) -> Unknown + Send,
    deleted_hint: impl FnOnce(&Agent) -> &'static str + Send,
) -> Result<Agent> {
    match r.agent_get(agent_id)? {
        Some(agent) if !agent.is_deleted() => Ok(agent),
        Some(deleted) => Err(Refusal::new(Code::NotFound, deleted_words(agent_id)).hint(deleted_hint(&deleted))),
        None => {
            let refusal = Refusal::not_found("agent", agent_id.as_str(), None).hint(LIST);
            Err(suggestion::unknown_name(r, refusal, unknown(agent_id.to_string()))?)
        }
    }
}

/// Why the mail of an agent waits, and until when, as text; `None` if the agent takes its mail. It is for answers to
/// senders: the message is accepted, so this is no refusal.
#[must_use]
pub fn why_mail_waits(ctx: &Context, agent: &Agent) -> Option<String> {
    let agent_id = &agent.agent_id;
    let why = out_of_service(agent)?;
    Some(match ctx.may_run(agent) {
        Err(refusal) => format!("{agent_id} {why}; its mail waits until it can run: {}", refusal.in_words()),
        Ok(()) => {
            format!("{agent_id} {why}; its mail waits until it is started, with `ghostctl agent start {agent_id}`")
        }
    })
}

/// Says that an agent is stopped or has failed; `None` if it is neither.
#[must_use]
pub fn out_of_service(agent: &Agent) -> Option<&'static str> {
    match (agent.desired, agent.status) {
        (_, AgentStatus::Failed) => Some("has failed"),
        (Desired::Stopped, _) | (_, AgentStatus::Stopped | AgentStatus::Stopping) => Some("is stopped"),
        _ => None,
    }
}

/// The message about a deleted agent, with code `NotFound`. Callers that waited for the agent and
/// later callers get the same message.
#[must_use]
pub fn deleted_words(agent_id: &AgentId) -> String {
    format!("there is no agent `{agent_id}` any more: it was deleted")
}

/// The refusal for callers that wait for an agent which is being deleted.
pub(crate) fn deleted(agent_id: &AgentId) -> Refusal {
    Refusal::new(Code::NotFound, deleted_words(agent_id)).hint("ask someone else")
}

/// Writes the changed record of an agent and sets its `updated_at`.
pub(crate) fn put(w: &mut Tx, agent: &mut Agent) -> Result<()> {
    agent.updated_at = w.ctx.now();
    Ok(w.agent_put(agent)?)
}

/// The refusal for callers that wait for an agent which is no longer available. `how` is the
/// reason, for example "was stopped".
pub(crate) fn gone(agent: &Agent, how: &str) -> Refusal {
    refusal!(Unavailable, "{} {how}", agent.agent_id).hint("ask someone else, or try later")
}

/// Writes the event that an agent has stopped.
pub(crate) fn emit_stopped(w: &mut Tx, agent: &Agent) -> Result<()> {
    let payload = json!({ "reason": agent.status_reason });
    w.emit(NewEvent::new(EventKind::AgentStopped, payload).agent(&agent.agent_id))
}
