//! Deletes agents: fails all asks that wait for the agent, releases its resources, and reports its
//! unread mail and open tasks.
//!
//! After a deletion, nothing must wait for the deleted agent.

use crate::agent_lookup::{agent_for, deleted, put};
use crate::droids::family::{self, Parent};
use crate::prelude::*;
use crate::turns::{self, Ending};
use crate::{approvals, asks, budgets, chat, conversations, grants, jobs, schedules, tasks};

/// Maximum messages, and maximum tasks, that a deletion event lists by id. It always gives the full
/// counts.
const NAMED: usize = 100;

/// The unfinished work of a deleted agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Number of unread messages that are dropped.
    pub mail_dropped: u64,
    /// Number of open tasks that it owned. They stay open.
    pub tasks_left: u64,
}

/// The result of a deletion.
#[derive(Clone, Debug, PartialEq)]
pub struct Deleted {
    /// The agent's tombstone.
    pub agent: Agent,
    /// The unfinished work of the agent.
    pub left: Left,
}

/// Deletes an agent. A tombstone with its incarnation stays, and all asks and turns that wait for
/// the agent fail. Its tasks stay open and their creators are notified. The event lists the unread
/// mail. The daily limit of its archetype is removed; a limit that an operator set for its id
/// stays.
pub fn delete(w: &mut Tx, by: &Party, agent_id: &AgentId) -> Result<Deleted> {
    delete_because(w, by, agent_id, None)
}

/// Like [`delete`], with a reason that the tombstone and the event keep.
pub fn delete_because(w: &mut Tx, by: &Party, agent_id: &AgentId, why: Option<&str>) -> Result<Deleted> {
    let mut agent = agent_for(w, by, agent_id)?;
    let ending = format!("{agent_id} was deleted by {by}");
    // Done before the agent's turns end. Otherwise an asker would learn that the turn was
    // cancelled, and not that the agent was deleted.
    asks::fail_all_to(w, agent_id, &deleted(agent_id))?;
    approvals::end_standing(w, agent_id)?;
    family::ended_with_parent(w, agent_id, Parent::Deleted)?;
    family::agent_ended(w, &agent)?;
    // These include turns that run an operator's tool calls for the agent.
    for turn in w.turns_open_of(agent_id)? {
        turns::finish(w, turn.turn_id, Ending::Cancelled(ending.clone()))?;
        w.signal(Signal::TurnCancelled { agent_id: agent_id.clone(), turn_id: turn.turn_id });
    }
    let mut dropped = Vec::new();
    loop {
        // A later agent with the same id must not receive this mail.
        let mail = w.inbox_pending(agent_id, 500)?;
        if mail.is_empty() {
            break;
        }
        conversations::dropped(w, &mail, &format!("{ending}: nobody answers until an operator hands this over"))?;
        for mail in &mail {
            schedules::lost(w, mail.message_id, mail.kind, &ending)?;
        }
        dropped.extend(mail.iter().filter(|mail| !mail.is_chat_wake()).map(|mail| mail.message_id));
        let pending: Vec<MessageId> = mail.into_iter().map(|mail| mail.message_id).collect();
        w.message_mark(&pending, MailState::Consumed, None, 0)?;
    }
    chat::leave_all(w, by, agent_id)?;
    schedules::cancel_all(w, by, agent_id)?;
    let left = tasks::left_behind(w, agent_id)?;
    for held in w.skills_held(agent_id)? {
        w.skill_remove(agent_id, &held.skill)?;
    }
    grants::revoke_all(w, by, agent_id)?;
    budgets::of_archetype(w, by, agent_id, None)?;
    agent.desired = Desired::Stopped;
    agent.status = AgentStatus::Stopped;
    let reason = why.map(|reason| w.ctx.excerpt(reason, 300)).filter(|reason| !reason.is_empty());
    let why = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    agent.status_reason = Some(format!("deleted by {by}{why}"));
    agent.deleted_at = Some(w.ctx.now());
    put(w, &mut agent)?;
    let payload = json!({
        "by": by, "incarnation": agent.incarnation, "reason": reason,
        "mail_dropped": dropped.len(), "messages": &dropped[..dropped.len().min(NAMED)],
        "tasks_left": left.len(), "tasks": &left[..left.len().min(NAMED)],
    });
    w.emit(NewEvent::new(EventKind::AgentDeleted, payload).agent(agent_id))?;
    w.signal(Signal::Reconcile(agent_id.clone()));
    let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    Ok(Deleted { agent, left: Left { mail_dropped: count(dropped.len()), tasks_left: count(left.len()) } })
}

/// Deletes an agent on behalf of the agent that created it.
///
/// # Errors
/// `AccessDenied` if `by` did not create it, or if `world-config.yaml` declares it.
pub fn delete_own(w: &mut Tx, by: &Party, agent_id: &AgentId, reason: Option<&str>) -> Result<Deleted> {
    let agent = agent_for(w, by, agent_id)?;
    if agent.kind != AgentKind::Dynamic || agent.owner != Some(by.to_string()) {
        return Err(refusal!(AccessDenied, "{by} did not create {agent_id}")
            .hint("only the creator of an agent can delete it; anyone else can ask an operator"));
    }
    delete_because(w, by, agent_id, reason)
}

/// Deletes helpers: agents of `stopped` that another agent created and stopped. It deletes them
/// when the work of the root for which they were created has ended. Returns the number of deleted
/// agents. An agent with mail, open tasks or dead letters is kept, and so is an agent that an
/// operator stopped.
pub async fn end_helpers(store: &Store, ctx: &Context, stopped: Vec<AgentId>) -> Result<usize> {
    let mut ended = 0;
    for agent_id in stopped {
        let id = agent_id.clone();
        // Checked outside the writer first, because most agents are still needed in each sweep.
        if !store.read_latest(move |r| is_not_needed(r, &id)).await? {
            continue;
        }
        let gone = ctx.write(store, move |w| {
            if !is_not_needed(w, &agent_id)? {
                return Ok(false);
            }
            let why = "the work that it was created for is over";
            delete_because(w, &Party::System, &agent_id, Some(why)).map(|_| true)
        });
        ended += usize::from(gone.await?);
    }
    Ok(ended)
}

/// Whether this agent is no longer needed, by the rules of [`end_helpers`].
fn is_not_needed(r: &mut StoreTx, agent_id: &AgentId) -> Result<bool> {
    let is_let_go = |agent: &Agent| agent.let_go && !agent.is_deleted() && agent.desired == Desired::Stopped;
    let agent = r.agent_get(agent_id)?.filter(|agent| is_let_go(agent) && agent.status == AgentStatus::Stopped);
    let Some(root_id) = agent.and_then(|agent| agent.helps) else { return Ok(false) };
    let busy = r.inbox_depth(agent_id)? > 0
        || !r.tasks_open(Some(agent_id), None, 1)?.is_empty()
        || r.dead_letter_count_held(Some(agent_id))? > 0
        || !r.turns_open_of(agent_id)?.is_empty()
        || jobs::is_at_work(r, root_id)?;
    Ok(!busy)
}
