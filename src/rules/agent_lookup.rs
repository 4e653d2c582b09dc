//! The roster: the agents on record, found by their names, written, and told of when they are gone.
//!
//! Must never: give or carry out an order. What becomes of an agent is the business of [`crate::agents`].

use ghost_domain::{Agent, AgentId, AgentKind, AgentStatus, Code, Desired, Party, Refusal};
use ghost_store::{Reads, Writes};

use crate::suggestion::{self, Unknown};
use crate::{Result, RuleContext};

/// What helps whoever names an agent that is not there, and no other name is near.
const LIST: &str = "list the agents to see which there are";

/// The live record of an agent, or a refusal that says that it was deleted, or names the nearest one. Its words are for
/// agents too; [`agent_for`] has more for operators.
///
/// # Errors
/// `NotFound`.
pub async fn agent_named(r: &mut dyn Reads, agent_id: &AgentId) -> Result<Agent> {
    agent_or(r, agent_id, |_| LIST).await
}

/// The same for `by`: an operator is told how a deleted agent that the world file names comes back.
///
/// # Errors
/// `NotFound`.
pub async fn agent_for(r: &mut dyn Reads, ctx: &RuleContext, by: &Party, agent_id: &AgentId) -> Result<Agent> {
    match by {
        Party::Operator(_) => agent_for_operator(r, |agent| ctx.may_run(agent), agent_id).await,
        Party::Agent(_) | Party::Outside(_) | Party::System => agent_named(r, agent_id).await,
    }
}

/// The same for an operator, where `may_run` judges by the world's files, as [`RuleContext::may_run`] does.
///
/// # Errors
/// `NotFound`.
pub async fn agent_for_operator(
    r: &mut dyn Reads,
    may_run: impl Fn(&Agent) -> Result<()> + Send,
    agent_id: &AgentId,
) -> Result<Agent> {
    agent_or(r, agent_id, move |deleted| {
        // One that the file names no longer has no place in it, and no reload brings it back.
        let comes_back = deleted.kind == AgentKind::Persistent && may_run(deleted).is_ok();
        if comes_back {
            "the world file names it: reload the world to have that agent back, with `ghostctl reload`"
        } else {
            LIST
        }
    })
    .await
}

/// The live record of an agent, or a refusal; `way_back` is the hint if it was deleted.
async fn agent_or(
    r: &mut dyn Reads,
    agent_id: &AgentId,
    way_back: impl FnOnce(&Agent) -> &'static str + Send,
) -> Result<Agent> {
    match r.agent_get(agent_id).await? {
        Some(agent) if !agent.is_deleted() => Ok(agent),
        Some(deleted) => Err(Refusal::new(Code::NotFound, deleted_words(agent_id)).hint(way_back(&deleted))),
        None => {
            let refusal = Refusal::not_found("agent", agent_id.as_str(), None).hint(LIST);
            Err(suggestion::missed(r, refusal, Unknown::Agent(agent_id.to_string())).await?)
        }
    }
}

/// The words about an agent that was deleted, for everyone, whether they waited for it or come too late. Its code is `NotFound`.
#[must_use]
pub fn deleted_words(agent_id: &AgentId) -> String {
    format!("there is no agent `{agent_id}` any more: it was deleted")
}

/// What those are told who wait for an agent that is being deleted.
pub(crate) fn deleted(agent_id: &AgentId) -> Refusal {
    Refusal::new(Code::NotFound, deleted_words(agent_id)).hint("ask someone else")
}

/// Why nothing is done that is an agent's to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Idle {
    Deleted,
    Failed,
    Stopped,
}

impl Idle {
    /// In words, after its name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "is deleted",
            Self::Failed => "has failed",
            Self::Stopped => "is stopped",
        }
    }
}

/// Why nothing is done that is this agent's to do; nothing if it runs. One that is stopping may end its turn yet.
pub(crate) async fn idle(r: &mut dyn Reads, agent_id: &AgentId) -> Result<Option<Idle>> {
    let agent = r.agent_get(agent_id).await?.filter(|agent| !agent.is_deleted());
    Ok(match agent {
        None => Some(Idle::Deleted),
        Some(agent) if agent.status == AgentStatus::Failed => Some(Idle::Failed),
        Some(agent) if agent.desired == Desired::Stopped && agent.status != AgentStatus::Stopping => {
            Some(Idle::Stopped)
        }
        Some(_) => None,
    })
}

/// Writes the record of an agent that has changed.
pub(crate) async fn put(w: &mut dyn Writes, ctx: &RuleContext, agent: &mut Agent) -> Result<()> {
    agent.updated_at = ctx.now();
    w.agent_put(agent).await?;
    Ok(())
}

/// What those are told who wait for an agent that `how` says is there for them no longer.
pub(crate) fn gone(agent: &Agent, how: &str) -> Refusal {
    Refusal::new(Code::Unavailable, format!("{} {how}", agent.agent_id)).hint("ask someone else, or try later")
}
