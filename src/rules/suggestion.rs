//! Near names: what may have been meant by the name of an agent, a channel or a schedule that is not there. A command that is
//! refused for such a name does not look for it, since everyone's commits wait for a command: a model invents names, and a
//! world may have very many. Whoever gets the refusal has [`with_nearest`] look when the command is over.
//!
//! Must never: look at more than a bounded number of names, or make a refusal worse for failing to find one.

use ghost_domain::text::{clip, nearest};
use ghost_domain::{AgentId, ChannelName, Refusal, ScheduleKind};
use ghost_store::tables::SchedulePlace;
use ghost_store::{Reads, Store, in_command};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Result;

/// Names among which a near one is looked for: those that begin like it, and the first of all.
const NEAR_MAX: u32 = 2_000;

/// Characters of a text that is no name which are compared with names.
const TEXT_MAX: usize = 100;

/// The detail of a refusal that names something that is not there, and for which no near name has been looked for.
const UNKNOWN: &str = "unknown";

/// The detail of a post that mentions an agent that is not there.
const MENTION: &str = "mention";

/// How a hint with a near name begins.
const MEANT: &str = "did you mean";

/// A name that nothing has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unknown {
    /// An agent's. It may be a text that no agent could be called.
    Agent(String),
    /// A channel's.
    Channel(ChannelName),
    /// What an agent calls one of its schedules.
    Schedule { agent_id: AgentId, kind: ScheduleKind, name: String },
}

/// `refusal`, which is over a name that nothing has, with the nearest one: now if this is a query, and by whoever gets it if it
/// is a command.
pub(crate) async fn missed(r: &mut dyn Reads, refusal: Refusal, name: Unknown) -> Result<Refusal> {
    let mut details = refusal.details.clone().unwrap_or_else(|| json!({}));
    details[UNKNOWN] = json!(name);
    let refusal = refusal.details(details);
    if in_command() { Ok(refusal) } else { offer(r, refusal).await }
}

/// The same of a text that no agent could be called.
pub async fn no_agent(r: &mut dyn Reads, refusal: Refusal, text: &str) -> Result<Refusal> {
    missed(r, refusal, Unknown::Agent(clip(text, TEXT_MAX))).await
}

/// A refusal with the nearest name, if a command refused because it was given one that nothing has.
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

fn unknown(details: &Value) -> Option<Unknown> {
    let mention = || details.get(MENTION)?.as_str().map(|name| Unknown::Agent(name.to_owned()));
    details.get(UNKNOWN).and_then(|name| Unknown::deserialize(name).ok()).or_else(mention)
}

async fn offer(r: &mut dyn Reads, mut refusal: Refusal) -> Result<Refusal> {
    let Some(name) = refusal.details.as_ref().and_then(unknown) else { return Ok(refusal) };
    let near = match &name {
        Unknown::Agent(name) => agent(r, name).await?,
        Unknown::Channel(name) => channel(r, name).await?,
        Unknown::Schedule { agent_id, kind, name } => schedule(r, agent_id, *kind, name).await?,
    };
    // The search is over: the detail is nobody's business any more.
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
        None => refusal,
    })
}

/// The beginnings from which names are looked at: a slip of the keyboard is rarely in the first letter.
fn beginnings(name: &str) -> [String; 2] {
    [name.chars().next().map(String::from).unwrap_or_default(), String::new()]
}

async fn agent(r: &mut dyn Reads, name: &str) -> Result<Option<String>> {
    for from in beginnings(name) {
        let ids = r.agent_ids(&from, NEAR_MAX).await?;
        if let Some(near) = nearest(name, ids.iter().map(AgentId::as_str)) {
            return Ok(Some(near.to_owned()));
        }
    }
    Ok(None)
}

/// There are at most as many channels as a list holds (`limits.chat_channels_max`).
async fn channel(r: &mut dyn Reads, name: &ChannelName) -> Result<Option<String>> {
    let all = r.chat_channel_list().await?;
    Ok(nearest(name.as_str(), all.iter().map(|channel| channel.channel.as_str())).map(str::to_owned))
}

async fn schedule(r: &mut dyn Reads, agent_id: &AgentId, kind: ScheduleKind, name: &str) -> Result<Option<String>> {
    for from in beginnings(name) {
        let behind: SchedulePlace = (agent_id.clone(), kind, from);
        let all = r.schedule_list(Some(agent_id), Some(kind), Some(&behind)).await?;
        if let Some(near) = nearest(name, all.iter().map(|schedule| schedule.name.as_str())) {
            return Ok(Some(near.to_owned()));
        }
    }
    Ok(None)
}
