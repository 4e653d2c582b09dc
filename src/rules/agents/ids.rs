//! Ids of agents: which are free, and what is said of one that is not.
//!
//! Must never: create anything, or name a command that does not help with the id in question.

use ghost_domain::text::clip;
use ghost_domain::{Agent, AgentId, AgentKind, AgentStatus, Code, Party, Refusal};
use ghost_store::Writes;
use serde_json::{Value, json};

use crate::{Result, RuleContext};

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

/// Refuses an id that a living agent bears.
pub(super) fn borne(ctx: &RuleContext, by: &Party, there: &Agent) -> Refusal {
    let Agent { agent_id, status, .. } = there;
    let refusal = Refusal::new(Code::Conflict, format!("there is an agent `{agent_id}` already; it is {status}"));
    refusal.hint(way_out(ctx, by, there)).details(details(agent_id, Some(there)))
}

/// Refuses an id that the world file keeps for an agent of its own, which `there` is the record of, if there is one.
#[must_use]
pub fn reserved(ctx: &RuleContext, by: &Party, agent_id: &AgentId, there: Option<&Agent>) -> Refusal {
    if let Some(living) = there.filter(|agent| !agent.is_deleted()) {
        return borne(ctx, by, living);
    }
    let gone = if there.is_some() { ", which was deleted" } else { "" };
    let hint = match by.agent() {
        Some(_) => "choose another id",
        None => "reload the world to have that agent back, or choose another id",
    };
    Refusal::new(Code::Conflict, format!("the world file names an agent `{agent_id}`{gone}"))
        .hint(hint)
        .details(details(agent_id, there))
}

/// What someone can do who wants an id that this agent bears.
fn way_out(ctx: &RuleContext, by: &Party, there: &Agent) -> String {
    if by.agent().is_some() {
        return "choose another id, or use that agent".to_owned();
    }
    let Agent { agent_id, kind, status, .. } = there;
    let away = match kind {
        AgentKind::Dynamic => {
            format!("choose another id, or delete that agent first: `ghostctl agent delete {agent_id}`")
        }
        // A reload would bring it back.
        AgentKind::Persistent => "choose another id: that agent is the world file's".to_owned(),
    };
    match ctx.may_run(there) {
        Err(why) => format!("{}, or choose another id", why.in_words()),
        Ok(()) if matches!(status, AgentStatus::Running | AgentStatus::Restarting) => {
            format!("use it as it is, or {away}")
        }
        Ok(()) => format!("start it with `ghostctl agent start {agent_id}`, or {away}"),
    }
}

/// How the agent of an id stands, for programs.
fn details(agent_id: &AgentId, there: Option<&Agent>) -> Value {
    match there {
        None => json!({ "agent_id": agent_id }),
        Some(agent) => {
            let status = if agent.is_deleted() { "deleted" } else { agent.status.as_str() };
            json!({ "agent_id": agent_id, "status": status, "archetype": agent.archetype })
        }
    }
}

/// Refuses an agent the id of a deleted one that living agents lead back to, unless it has created that one itself: they
/// would pay to someone else from then on, or to nobody but one another.
pub(super) async fn not_of_another(w: &mut dyn Writes, by: &Party, before: Option<&Agent>) -> Result<()> {
    let Some(old) = before.filter(|old| by.agent().is_some() && old.owner != Some(by.to_string())) else {
        return Ok(());
    };
    let living = w.agent_list(false).await?;
    let Some(child) = living.iter().find(|agent| agent.creator().as_ref() == Some(&old.agent_id)) else {
        return Ok(());
    };
    let what = format!("`{}` was deleted, and `{}`, which it created, is still there", old.agent_id, child.agent_id);
    Err(Refusal::new(Code::Conflict, what).hint("choose another id").details(details(&old.agent_id, Some(old))))
}
