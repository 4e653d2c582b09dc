//! Suggestions for unknown names of agents, channels and schedules ("did you mean `x`?").
//!
//! A command does not search for a suggestion. Commands run one at a time, a model may invent many
//! names, and a world may have very many agents. So the refusal records the unknown name, and the
//! caller runs [`with_nearest`] after the command.
//!
//! This module must never search an unbounded number of names, or replace a refusal because no
//! suggestion was found.

use ghost_store::in_command;

use crate::prelude::*;

/// The most names that one search compares.
const NEAR_MAX: u32 = 2_000;

/// The most agents that a hint lists.
const LISTED_MAX: u32 = 12;

/// The length, in characters, to which a text is cut that cannot be an agent's name.
const TEXT_MAX: usize = 100;

/// The key in a refusal's details that holds an unknown name for which no suggestion was searched
/// yet.
const UNKNOWN: &str = "unknown";

/// The key in a refusal's details that holds an unknown agent mentioned in a post.
const MENTION: &str = "mention";

/// The beginning of a hint with a suggestion.
const MEANT: &str = "did you mean";

/// A name that was not found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unknown {
    /// The name of an agent, or a text that cannot be one.
    Agent(String),
    /// The same, typed by an operator, who may know all agents.
    AgentForOperator(String),
    /// The name of a channel.
    Channel(ChannelName),
    /// The name of a schedule of an agent.
    Schedule { agent_id: AgentId, kind: ScheduleKind, name: String },
}

/// Adds a suggestion to a refusal about an unknown name. In a query it searches at once. In a
/// command it only records the name, and [`with_nearest`] searches later.
pub(crate) fn unknown_name(r: &mut StoreTx, refusal: Refusal, name: Unknown) -> Result<Refusal> {
    let mut details = refusal.details.clone().unwrap_or_else(|| json!({}));
    details[UNKNOWN] = json!(name);
    let refusal = refusal.details(details);
    if in_command() { Ok(refusal) } else { add_suggestion(r, refusal) }
}

/// Like [`unknown_name`], for a text that cannot be an agent's name.
pub fn no_agent(r: &mut StoreTx, refusal: Refusal, text: &str) -> Result<Refusal> {
    unknown_name(r, refusal, Unknown::Agent(clip(text, TEXT_MAX)))
}

/// Adds a suggestion to a refusal of a command, if the refusal records an unknown name.
pub async fn with_nearest(store: &Store, refusal: Refusal) -> Refusal {
    let has_unknown = refusal.details.as_ref().is_some_and(|details| unknown(details).is_some());
    let has_suggestion = refusal.hint.as_ref().is_some_and(|hint| hint.starts_with(MEANT));
    if !has_unknown || has_suggestion {
        return refusal;
    }
    let plain = refusal.clone();
    // If the search fails, the refusal is returned without a suggestion.
    let result = store.read(move |r| add_suggestion(r, refusal)).await;
    result.unwrap_or_else(|error: Refusal| {
        tracing::debug!(%error, "the search for a similar name failed");
        plain
    })
}

fn unknown(details: &Value) -> Option<Unknown> {
    let mention = || details.get(MENTION)?.as_str().map(|name| Unknown::Agent(name.to_owned()));
    details.get(UNKNOWN).and_then(|name| Unknown::deserialize(name).ok()).or_else(mention)
}

fn add_suggestion(r: &mut StoreTx, mut refusal: Refusal) -> Result<Refusal> {
    let Some(name) = refusal.details.as_ref().and_then(unknown) else { return Ok(refusal) };
    let near = match &name {
        Unknown::Agent(name) | Unknown::AgentForOperator(name) => agent(r, name)?,
        Unknown::Channel(name) => channel(r, name)?,
        Unknown::Schedule { agent_id, kind, name } => schedule(r, agent_id, *kind, name)?,
    };
    // The search is done, so the detail is removed.
    let details = refusal.details.as_mut().and_then(Value::as_object_mut);
    if details.is_some_and(|details| details.remove(UNKNOWN).is_some() && details.is_empty()) {
        refusal.details = None;
    }
    let is_mention = refusal.details.as_ref().is_some_and(|details| details.get(MENTION).is_some());
    Ok(match near {
        Some(near) if is_mention => {
            let rest = refusal.hint.take().unwrap_or_default();
            refusal.hint(format!("{MEANT} `@{near}`? {rest}"))
        }
        Some(near) => refusal.hint(format!("{MEANT} `{near}`?")),
        None if matches!(name, Unknown::AgentForOperator(_)) => match all_agents(r)? {
            Some(all) => refusal.hint(all),
            None => refusal,
        },
        None => refusal,
    })
}

/// Searches first among names that begin with the same letter, because a typing mistake is rarely in the first letter, then
/// among all names. `list` gives names from a starting point on.
fn search(name: &str, mut list: impl FnMut(String) -> Result<Vec<String>> + Send) -> Result<Option<String>> {
    for from in [name.chars().next().map(String::from).unwrap_or_default(), String::new()] {
        let names = list(from)?;
        if let Some(near) = nearest(name, names.iter().map(String::as_str)) {
            return Ok(Some(near.to_owned()));
        }
    }
    Ok(None)
}

/// The hint with all agents, if they are few. If no name is near, the one that is meant is among them.
fn all_agents(r: &mut StoreTx) -> Result<Option<String>> {
    let ids = r.agent_ids("", LISTED_MAX + 1)?;
    let few = !ids.is_empty() && ids.len() <= LISTED_MAX as usize;
    Ok(few.then(|| {
        let names: Vec<&str> = ids.iter().map(AgentId::as_str).collect();
        format!("the agents are: {}", names.join(", "))
    }))
}

fn agent(r: &mut StoreTx, name: &str) -> Result<Option<String>> {
    search(name, |from| Ok(r.agent_ids(&from, NEAR_MAX)?.into_iter().map(|agent_id| agent_id.to_string()).collect()))
}

/// `limits.chat_channels_max` limits the number of channels, so all are compared.
fn channel(r: &mut StoreTx, name: &ChannelName) -> Result<Option<String>> {
    let all = r.chat_channel_list()?;
    Ok(nearest(name.as_str(), all.iter().map(|channel| channel.channel.as_str())).map(str::to_owned))
}

fn schedule(r: &mut StoreTx, agent_id: &AgentId, kind: ScheduleKind, name: &str) -> Result<Option<String>> {
    search(name, |from| {
        let all = r.schedule_list(Some(agent_id), Some(kind), Some(&(agent_id.clone(), kind, from)))?;
        Ok(all.into_iter().map(|schedule| schedule.name).collect())
    })
}
