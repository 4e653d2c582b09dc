//! Ids of agents: finds a free one, and builds the refusals for used and reserved ids.
//!
//! This module must never create an agent or suggest a command that does not help with the id in
//! question.

use crate::prelude::*;

/// The prefix of the world fact that stores the last number used for an archetype.
const NUMBER: &str = "agent_number:";

/// Maximum ids that are tried.
const TRIES: u32 = 48;

/// Finds an id `<archetype>-<number>` that no recorded agent has or had. The number only rises, so
/// one lookup is enough in most cases. Ids that users chose may be in the way: after 16 tries the
/// step doubles each time, so any block of them is skipped within [`TRIES`] lookups.
///
/// # Errors
/// `Conflict` if every tried id is used.
pub fn free_id(w: &mut StoreTx, archetype: &str) -> Result<AgentId> {
    let clean: String = archetype
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' })
        .take(40)
        .collect();
    let clean = clean.trim_start_matches(['.', '_', '-']);
    let base = if clean.is_empty() { "agent" } else { clean };
    let key = format!("{NUMBER}{base}");
    let text = w.meta_get(&key)?.unwrap_or_else(|| "0".to_owned());
    let unreadable = |error| refusal!(Internal, "the fact `{key}` is `{}`: {error}", clip(&text, 40));
    let mut number = text.parse::<u64>().map_err(unreadable)?;
    let mut step = 1;
    for tries in 0..TRIES {
        number = number.saturating_add(step);
        if tries >= 16 {
            step *= 2;
        }
        let agent_id: AgentId = format!("{base}-{number}").parse()?;
        if w.agent_get(&agent_id)?.is_none() {
            w.meta_put(&key, &number.to_string())?;
            return Ok(agent_id);
        }
    }
    Err(refusal!(Conflict, "no free id was found for an agent of {archetype}").hint("choose an agent_id yourself"))
}

/// Builds the refusal for an id that a living agent has.
pub(super) fn id_taken(ctx: &Context, by: &Party, there: &Agent) -> Refusal {
    let Agent { agent_id, status, .. } = there;
    let refusal = refusal!(Conflict, "there is an agent `{agent_id}` already; it is {status}");
    refusal.hint(hint_for_taken_id(ctx, by, there)).details(details(agent_id, Some(there)))
}

/// Builds the refusal for an id that `world-config.yaml` declares. `there` is the record of that
/// agent, if one exists.
#[must_use]
pub fn reserved(ctx: &Context, by: &Party, agent_id: &AgentId, there: Option<&Agent>) -> Refusal {
    if let Some(living) = there.filter(|agent| !agent.is_deleted()) {
        return id_taken(ctx, by, living);
    }
    let gone = if there.is_some() { ", which was deleted" } else { "" };
    let hint = match by.agent() {
        Some(_) => "choose another id",
        None => "reload the world to have that agent back, or choose another id",
    };
    refusal!(Conflict, "the world file names an agent `{agent_id}`{gone}").hint(hint).details(details(agent_id, there))
}

/// The hint for a caller that wants an id which a living agent has.
fn hint_for_taken_id(ctx: &Context, by: &Party, there: &Agent) -> String {
    if by.agent().is_some() {
        return "choose another id, or use that agent".to_owned();
    }
    let Agent { agent_id, kind, status, .. } = there;
    let away = match kind {
        AgentKind::Dynamic | AgentKind::Droid => {
            format!("choose another id, or delete that agent first: `ghostctl agent delete {agent_id}`")
        }
        // Deleting it would not help: a reload creates it again.
        AgentKind::Persistent => "choose another id: the world file names that agent".to_owned(),
    };
    match ctx.may_run(there) {
        Err(why) => format!("{}, or choose another id", why.in_words()),
        Ok(()) if matches!(status, AgentStatus::Running | AgentStatus::Restarting) => {
            format!("use it as it is, or {away}")
        }
        Ok(()) => format!("start it with `ghostctl agent start {agent_id}`, or {away}"),
    }
}

/// The details of such a refusal, for programs.
fn details(agent_id: &AgentId, there: Option<&Agent>) -> Value {
    match there {
        None => json!({ "agent_id": agent_id }),
        Some(agent) => {
            let status = if agent.is_deleted() { "deleted" } else { agent.status.as_str() };
            json!({ "agent_id": agent_id, "status": status, "archetype": agent.archetype })
        }
    }
}

/// Refuses `by` the id of a deleted agent that another party created, if the deleted agent created
/// agents that still live. Otherwise the calls of those agents would be charged to a different
/// account, or to a cycle of accounts.
pub(super) fn check_former_owner(w: &mut StoreTx, by: &Party, before: Option<&Agent>) -> Result<()> {
    let is_other = |old: &&Agent| by.agent().is_some() && old.owner != Some(by.to_string());
    let Some(Agent { agent_id, .. }) = before.filter(is_other) else { return Ok(()) };
    let living = w.agent_list(false)?;
    match living.iter().find(|agent| agent.creator().as_ref() == Some(agent_id)) {
        None => Ok(()),
        Some(Agent { agent_id: child, .. }) => {
            Err(refusal!(Conflict, "`{agent_id}` was deleted, and `{child}`, which it created, is still there")
                .hint("choose another id")
                .details(details(agent_id, before)))
        }
    }
}
