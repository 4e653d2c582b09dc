//! What happens to an agent: it has stopped, crashed, restarted or failed, a new daemon claims it, and it is deleted.
//!
//! After a deletion, nothing must wait for the deleted agent.

use super::orders::set_going;
use crate::droids::family::{self, Parent};
use crate::lookup::{agent_for, deleted, emit_stopped, gone, put};
use crate::mail::ids;
use crate::prelude::*;
use crate::turns::{self, Ending};
use crate::{approvals, asks, budgets, chat, conversations, grants, jobs, questions, schedules, tasks};

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
        w.message_mark(&ids(&mail), MailState::Consumed, None, 0)?;
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
