//! The roster: the agents on record, found by their names, written, and told of when they are gone.
//!
//! Must never: give or carry out an order. What becomes of an agent is the business of [`crate::agents`].

use ghost_domain::text::nearest;
use ghost_domain::{Agent, AgentId, AgentKind, AgentStatus, Code, Desired, Party, Refusal};
use ghost_store::{Reads, Store, Writes, in_command};
use serde_json::{Value, json};

use crate::{Cx, Result};

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
pub async fn agent_for(r: &mut dyn Reads, cx: &Cx, by: &Party, agent_id: &AgentId) -> Result<Agent> {
    match by {
        Party::Operator(_) => agent_for_operator(r, |agent| cx.may_run(agent), agent_id).await,
        Party::Agent(_) | Party::Outside(_) | Party::System => agent_named(r, agent_id).await,
    }
}

/// The same for an operator, where `may_run` judges by the world's files, as [`Cx::may_run`] does.
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
            // Everyone's commits wait for a command: who gets the refusal looks for the name, see `with_nearest`.
            let unknown = refusal.details(json!({ UNKNOWN: agent_id }));
            Err(if in_command() { unknown } else { offer(r, unknown).await? })
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

/// Ids among which a near name is looked for: those that begin like it, and the first of all.
const NEAR_MAX: u32 = 2_000;

/// The detail of a refusal that names an agent that is not there, and for which no near name has been looked for.
const UNKNOWN: &str = "unknown_agent";

/// The same of a post that mentions one.
const MENTION: &str = "mention";

/// How a hint with a near name begins.
const MEANT: &str = "did you mean";

/// A refusal with the nearest name, if a command refused because it was given an agent that is not there. A command does
/// not look for it itself: a model invents names, and a world may have very many agents.
pub async fn with_nearest(store: &Store, refusal: Refusal) -> Refusal {
    let asks = refusal.details.as_ref().is_some_and(|details| unknown(details).is_some());
    let has_one = refusal.hint.as_ref().is_some_and(|hint| hint.starts_with(MEANT));
    if !asks || has_one {
        return refusal;
    }
    let plain = refusal.clone();
    // Without a hint it is as good a refusal.
    let offered = store.read(move |r| Box::pin(async move { offer(r, refusal).await })).await;
    offered.unwrap_or_else(|error: Refusal| {
        tracing::debug!(%error, "no near name could be looked for");
        plain
    })
}

fn unknown(details: &Value) -> Option<&str> {
    [UNKNOWN, MENTION].iter().find_map(|key| details.get(key)?.as_str())
}

async fn offer(r: &mut dyn Reads, mut refusal: Refusal) -> Result<Refusal> {
    let Some(name) = refusal.details.as_ref().and_then(unknown).map(str::to_owned) else { return Ok(refusal) };
    let first = name.chars().next().map(String::from).unwrap_or_default();
    let mut near = None;
    for from in [first.as_str(), ""] {
        let ids = r.agent_ids(from, NEAR_MAX).await?;
        near = nearest(&name, ids.iter().map(AgentId::as_str)).map(str::to_owned);
        if near.is_some() {
            break;
        }
    }
    let is_mention = refusal.details.as_ref().is_some_and(|details| details.get(MENTION).is_some());
    if !is_mention {
        refusal.details = None;
    }
    Ok(match near {
        Some(near) if is_mention => {
            let rest = refusal.hint.take().unwrap_or_default();
            refusal.hint(format!("{MEANT} `@{near}`? {rest}"))
        }
        Some(near) => refusal.hint(format!("{MEANT} `{near}`?")),
        None => refusal,
    })
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
pub(crate) async fn put(w: &mut dyn Writes, cx: &Cx, agent: &mut Agent) -> Result<()> {
    agent.updated_at = cx.now();
    w.agent_put(agent).await?;
    Ok(())
}

/// What those are told who wait for an agent that `how` says is there for them no longer.
pub(crate) fn gone(agent: &Agent, how: &str) -> Refusal {
    Refusal::new(Code::Unavailable, format!("{} {how}", agent.agent_id)).hint("ask someone else, or try later")
}
