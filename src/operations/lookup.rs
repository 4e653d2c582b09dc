//! Finds agents and open turns, checks that this daemon may work for them, and builds the refusals about names that are
//! unknown, deleted or stopped, with a suggestion ("did you mean `x`?").
//!
//! A command does not search for a suggestion. Commands run one at a time, a model may invent many names, and a world may
//! have very many agents. So the refusal records the unknown name, and the caller runs [`with_nearest`] after the command.

use ghost_store::in_command;

use crate::prelude::*;

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
            Err(unknown_name(r, refusal, unknown(agent_id.to_string()))?)
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

/// Returns the record of an agent that this daemon may act for: the agent exists and carries this
/// daemon's fencing epoch.
///
/// # Errors
/// `NotFound`; `Conflict` if another daemon owns the agent.
pub fn owned(w: &mut Tx, agent_id: &AgentId) -> Result<Agent> {
    let agent = agent_named(w, agent_id)?;
    if agent.epoch != w.ctx.epoch || agent.node != *w.ctx.node {
        return Err(refusal!(Conflict, "{agent_id} belongs to node {} (epoch {}) now", agent.node, agent.epoch)
            .hint("another daemon has taken the agent over; this daemon must stop working for it"));
    }
    Ok(agent)
}

/// The mail that a turn has taken and not given back, in order.
pub(crate) fn taken_mail(w: &mut StoreTx, turn_id: TurnId) -> Result<Vec<Envelope>> {
    let mut mail = w.messages_of_turn(turn_id)?;
    mail.retain(|envelope| envelope.state == MailState::Taken);
    Ok(mail)
}

/// Returns an open turn. A refusal means that the turn was ended while its agent worked.
pub fn open_turn(w: &mut StoreTx, turn_id: TurnId) -> Result<Turn> {
    match w.turn_get(turn_id)? {
        Some(turn) if turn.status == TurnStatus::Open => Ok(turn),
        Some(turn) => Err(refusal!(Cancelled, "turn {turn_id} is {}", turn.status)),
        None => Err(Refusal::not_found("turn", &turn_id.to_string(), None)),
    }
}

/// Returns an open turn of an agent that this daemon owns. Every write of a turn's own work begins
/// with this check, so that a daemon which has lost an agent cannot write for it.
pub fn working_turn(w: &mut Tx, turn_id: TurnId) -> Result<Turn> {
    let turn = open_turn(w, turn_id)?;
    let agent = w.agent_columns(&turn.agent_id)?;
    if !agent.is_some_and(|agent| !agent.deleted && agent.epoch == w.ctx.epoch && agent.node == *w.ctx.node) {
        // It says why not.
        owned(w, &turn.agent_id)?;
    }
    Ok(turn)
}

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
