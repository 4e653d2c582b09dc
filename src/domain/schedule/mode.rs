//! How a cron job runs: as mail, or in a turn of its own; the options that say so, and the threads of webhooks that jobs
//! write in. The only place where [`JobOptions`] become a mode, and a mode becomes options.
//!
//! This module must never depend on the models, channels or webhooks of a world.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::ids::{AgentId, ChannelName, ConversationId};
use crate::limits::Limits;
use crate::macros::text_enum;
use crate::refusal::{Code, Refusal};
use crate::text::shown;

/// The target `last`: the agent's last conversation with someone outside.
pub const LAST: &str = "last";
/// Most characters of a target or of a model's name.
const NAME_MAX: usize = 200;

/// How a cron job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "JobOptions", into = "JobOptions")]
pub enum JobMode {
    /// As mail. The agent's next turn takes it together with other mail.
    Mail {
        /// When the mail wakes the agent.
        wake: WakeMode,
    },
    /// In a turn of its own.
    OwnTurn(OwnTurn),
}

/// A cron job's own turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "JobOptions", into = "JobOptions")]
pub struct OwnTurn {
    /// Where its last text goes.
    pub target: Target,
    /// Most seconds of its own work; `None` is the agent's limit.
    pub timeout_seconds: Option<u32>,
    /// Most model calls; `None` is the agent's limit.
    pub max_rounds: Option<u32>,
    /// `model` or `provider/model`; `None` is the agent's model.
    pub model: Option<String>,
}

/// Where the last text of a turn goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Nowhere. The text stays in the turn's record.
    Nowhere,
    /// To the agent's last conversation with someone outside.
    Last,
    /// To a chat channel.
    Channel(ChannelName),
    /// To a conversation.
    Conversation(ConversationId),
    /// To a thread of a webhook of the world file.
    Webhook {
        /// Name of the webhook.
        webhook: String,
        /// The thread.
        thread: String,
    },
}

impl Default for JobMode {
    fn default() -> Self {
        Self::Mail { wake: WakeMode::Now }
    }
}

impl From<Target> for JobMode {
    /// A turn of its own without limits or a model of its own.
    fn from(target: Target) -> Self {
        Self::OwnTurn(OwnTurn { target, timeout_seconds: None, max_rounds: None, model: None })
    }
}

impl JobMode {
    /// What a run is.
    pub fn payload(&self) -> Payload {
        match self {
            Self::Mail { .. } => Payload::SystemEvent,
            Self::OwnTurn(_) => Payload::AgentTurn,
        }
    }

    /// The turn of its own, if a run is one.
    pub fn own_turn(&self) -> Option<&OwnTurn> {
        match self {
            Self::Mail { .. } => None,
            Self::OwnTurn(turn) => Some(turn),
        }
    }

    /// The mode that options give the job `name` of an agent. `before` is its present mode, if the
    /// job exists: options that are not given stay as they are and are not checked again. If the
    /// payload changes, nothing stays.
    ///
    /// # Errors
    /// `PayloadMismatch` for options that exclude each other. `InvalidArguments` for a number out
    /// of range, and for an invalid or missing target. `AccessDenied` for the thread of another
    /// job. The details name the option as `field`.
    pub fn parse(
        given: JobOptions,
        before: Option<&Self>,
        agent_id: &AgentId,
        name: &str,
        limits: &Limits,
    ) -> Result<Self, Refusal> {
        let turn_option = given.turn_option();
        let payload = match (given.payload.or(given.session.map(Session::payload)), before) {
            (Some(payload), _) => payload,
            (None, Some(before)) => before.payload(),
            (None, None) if turn_option.is_some() => Payload::AgentTurn,
            (None, None) => Payload::SystemEvent,
        };
        if let Some(session) = given.session.filter(|session| *session != payload.session()) {
            let what = format!("session {session} does not go with payload {payload}");
            return Err(mismatch("session", what, "main goes with systemEvent, isolated with agentTurn"));
        }
        if payload == Payload::SystemEvent {
            if let Some(option) = turn_option {
                let what = format!("{option} goes with payload agentTurn only: mail shares its turn with other mail");
                let hint = format!("leave {option} out, or have session isolated with payload agentTurn");
                return Err(mismatch(option, what, &hint));
            }
            let before = match before {
                Some(Self::Mail { wake }) => *wake,
                _ => WakeMode::Now,
            };
            return Ok(Self::Mail { wake: given.wake.unwrap_or(before) });
        }
        if given.wake == Some(WakeMode::NextHeartbeat) {
            let what = "wake next-heartbeat goes with payload systemEvent only: a turn of its own does not wait";
            let hint = match (given.payload, given.session, turn_option) {
                (None, None, Some(option)) => format!("leave wake out, or leave {option} out"),
                _ => "leave wake out, or have session main with payload systemEvent".to_owned(),
            };
            return Err(mismatch("wake", what.to_owned(), &hint));
        }
        let before = before.and_then(Self::own_turn);
        let within = |field: &str, value: Option<u32>, max: u32, setting: &str| match value {
            Some(value) if value == 0 || value > max => Err(wrong(
                field,
                format!("{field} is {value}; it must be 1 to {max}"),
                &format!("limits.{setting} is the limit"),
            )),
            value => Ok(value),
        };
        let timeout = within("timeout_seconds", given.timeout_seconds, limits.turn_seconds, "turn_seconds")?;
        let max_rounds = within("max_rounds", given.max_rounds, limits.turn_rounds_max, "turn_rounds_max")?;
        let model = match given.model.as_deref().map(str::trim) {
            Some(model) if model.is_empty() || model.len() > NAME_MAX || model.chars().any(char::is_control) => {
                return Err(wrong("model", "model is not a name".to_owned(), "give model or provider/model"));
            }
            model => model.map(str::to_owned),
        };
        Ok(Self::OwnTurn(OwnTurn {
            target: Target::given(&given, before.map(|before| &before.target), agent_id, name)?,
            timeout_seconds: timeout.or(before.and_then(|before| before.timeout_seconds)),
            max_rounds: max_rounds.or(before.and_then(|before| before.max_rounds)),
            model: model.or_else(|| before.and_then(|before| before.model.clone())),
        }))
    }
}

impl Target {
    /// How the text is delivered.
    pub fn deliver(&self) -> Deliver {
        match self {
            Self::Nowhere => Deliver::None,
            Self::Last | Self::Channel(_) | Self::Conversation(_) => Deliver::Announce,
            Self::Webhook { .. } => Deliver::Webhook,
        }
    }

    /// The option `to`.
    pub fn to(&self) -> Option<String> {
        match self {
            Self::Nowhere => None,
            Self::Last => Some(LAST.to_owned()),
            Self::Channel(channel) => Some(channel.to_string()),
            Self::Conversation(conversation_id) => Some(conversation_id.to_string()),
            Self::Webhook { webhook, thread } => Some(format!("{webhook}/{thread}")),
        }
    }

    /// The target that `deliver` and `to` name. `own_thread` is the thread of a webhook that is
    /// named alone.
    ///
    /// # Errors
    /// `PayloadMismatch` for `to` without a delivery; `InvalidArguments` for an invalid or missing
    /// target.
    pub fn parse(deliver: Deliver, to: Option<&str>, own_thread: &str) -> Result<Self, Refusal> {
        let to = to.map(str::trim);
        match (deliver, to) {
            (Deliver::None, None) => Ok(Self::Nowhere),
            (Deliver::None, Some(_)) => Err(mismatch(
                "to",
                "to does not go with deliver none".to_owned(),
                "set deliver to announce or webhook, or leave to out",
            )),
            (Deliver::Announce, None | Some(LAST)) => Ok(Self::Last),
            (Deliver::Announce, Some(to)) => match (to.parse(), to.parse()) {
                (Ok(conversation_id), _) => Ok(Self::Conversation(conversation_id)),
                (_, Ok(channel)) => Ok(Self::Channel(channel)),
                _ => Err(no_target(to, "give last, the name of a chat channel or the id of a conversation")),
            },
            (Deliver::Webhook, None) => Err(wrong(
                "to",
                "to is missing: deliver webhook needs the name of a webhook".to_owned(),
                "name a webhook of the world file, such as ops, or ops/<thread> for a thread of your choice",
            )),
            (Deliver::Webhook, Some(to)) => {
                let (webhook, thread) = to.split_once('/').unwrap_or((to, own_thread));
                Ok(Self::Webhook { webhook: webhook.to_owned(), thread: thread.to_owned() })
            }
        }
    }

    /// The target of a heartbeat's alerts: `none`, or as for `announce`.
    ///
    /// # Errors
    /// `InvalidArguments` for an invalid target.
    pub fn of_alerts(text: &str) -> Result<Self, Refusal> {
        match text.trim() {
            "none" => Ok(Self::Nowhere),
            text => Self::parse(Deliver::Announce, Some(text), ""),
        }
    }

    /// The target that options give the job `name` of an agent. A target that stays is not checked
    /// again: an older job may write in another job's thread, from before that was refused.
    fn given(given: &JobOptions, before: Option<&Self>, agent_id: &AgentId, name: &str) -> Result<Self, Refusal> {
        let deliver = given.deliver.or(before.map(Self::deliver)).unwrap_or(Deliver::Announce);
        let target = match before {
            // If the delivery changes, the present target no longer applies.
            Some(before) if given.to.is_none() && deliver == before.deliver() => before.clone(),
            _ => Self::parse(deliver, given.to.as_deref(), &own_thread(agent_id, name))?,
        };
        if let Self::Webhook { webhook, thread } = &target
            && before != Some(&target)
        {
            let valid = |name: &str| {
                let chars = name.chars().count();
                (1..=NAME_MAX).contains(&chars) && name.trim() == name && !name.chars().any(char::is_control)
            };
            if !valid(webhook) || !valid(thread) {
                let to = given.to.as_deref().unwrap_or_default();
                return Err(no_target(to, "write <webhook> or <webhook>/<thread>"));
            }
            check_own_thread(agent_id, Some(name), webhook, thread)?;
        }
        Ok(target)
    }
}

impl From<OwnTurn> for JobOptions {
    fn from(turn: OwnTurn) -> Self {
        Self {
            session: Some(Session::Isolated),
            payload: Some(Payload::AgentTurn),
            wake: Some(WakeMode::Now),
            deliver: Some(turn.target.deliver()),
            to: turn.target.to(),
            timeout_seconds: turn.timeout_seconds,
            max_rounds: turn.max_rounds,
            model: turn.model,
        }
    }
}

impl From<JobMode> for JobOptions {
    fn from(mode: JobMode) -> Self {
        match mode {
            JobMode::OwnTurn(turn) => turn.into(),
            JobMode::Mail { wake } => Self {
                session: Some(Session::Main),
                payload: Some(Payload::SystemEvent),
                wake: Some(wake),
                deliver: Some(Deliver::None),
                ..Self::default()
            },
        }
    }
}

// Stored options decide for themselves: what the payload does not use is ignored, and no number is
// checked, because limits may have changed.

impl TryFrom<JobOptions> for OwnTurn {
    type Error = Refusal;

    fn try_from(stored: JobOptions) -> Result<Self, Refusal> {
        let deliver = stored.deliver.unwrap_or(Deliver::None);
        let to = stored.to.as_deref().filter(|_| deliver != Deliver::None);
        Ok(Self {
            target: Target::parse(deliver, to, "cron")?,
            timeout_seconds: stored.timeout_seconds,
            max_rounds: stored.max_rounds,
            model: stored.model,
        })
    }
}

impl TryFrom<JobOptions> for JobMode {
    type Error = Refusal;

    fn try_from(stored: JobOptions) -> Result<Self, Refusal> {
        match stored.payload {
            Some(Payload::AgentTurn) => stored.try_into().map(Self::OwnTurn),
            Some(Payload::SystemEvent) | None => Ok(Self::Mail { wake: stored.wake.unwrap_or(WakeMode::Now) }),
        }
    }
}

fn no_target(to: &str, hint: &str) -> Refusal {
    wrong("to", format!("to: `{}` is not a target", shown(to, 80)), hint)
}

fn mismatch(field: &str, what: String, hint: &str) -> Refusal {
    Refusal::new(Code::PayloadMismatch, what).hint(hint).details(json!({ "field": field }))
}

fn wrong(field: &str, what: String, hint: &str) -> Refusal {
    Refusal::new(Code::InvalidArguments, what).hint(hint).details(json!({ "field": field }))
}

text_enum! {
    /// Where a cron job runs.
    Session, "session" {
        /// In the agent's shared turns.
        Main = "main",
        /// In a turn of its own.
        Isolated = "isolated",
    }
}

text_enum! {
    /// What a run of a cron job is.
    Payload, "payload" {
        /// Mail. The agent's next turn takes it together with other mail.
        SystemEvent = "systemEvent",
        /// A turn of its own. It recalls nothing of other turns; other turns recall one line of it.
        AgentTurn = "agentTurn",
    }
}

impl Payload {
    /// The session of this payload. Each payload has exactly one.
    pub fn session(self) -> Session {
        match self {
            Self::SystemEvent => Session::Main,
            Self::AgentTurn => Session::Isolated,
        }
    }
}

impl Session {
    /// The payload of this session. Each session has exactly one.
    pub fn payload(self) -> Payload {
        match self {
            Self::Main => Payload::SystemEvent,
            Self::Isolated => Payload::AgentTurn,
        }
    }
}

text_enum! {
    /// When the mail of a cron job wakes its agent.
    WakeMode, "wake mode" {
        /// At once.
        Now = "now",
        /// Together with the agent's next heartbeat.
        NextHeartbeat = "next-heartbeat",
    }
}

text_enum! {
    /// Where the last text of a cron job's own turn goes.
    Deliver, "way to deliver" {
        /// Nowhere. The text stays in the turn's record.
        None = "none",
        /// To a chat channel or a conversation.
        Announce = "announce",
        /// To a webhook of the world file; the request is signed.
        Webhook = "webhook",
    }
}

/// The options of a cron job. `None` is an option that is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOptions {
    /// Where the job runs. It is not stored, because the payload says the same.
    #[serde(skip)]
    pub session: Option<Session>,
    /// What a run of the job is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Payload>,
    /// When its mail wakes the agent. The default is `now`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<WakeMode>,
    /// Where the last text of its turn goes. The default for a turn of its own is `announce`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver: Option<Deliver>,
    /// For `announce` `last` (the default), a chat channel or the id of a conversation; for
    /// `webhook` `<webhook>/<thread>`, or `<webhook>` for the job's own thread.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Most seconds of its turn's own work. The default is the agent's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// Most model calls of its turn. The default is the agent's limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// `model` or `provider/model`. The default is the agent's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl JobOptions {
    /// The name of the first given option that only a turn of its own has.
    pub fn turn_option(&self) -> Option<&'static str> {
        let given = [
            ("deliver", self.deliver.is_some()),
            ("to", self.to.is_some()),
            ("timeout_seconds", self.timeout_seconds.is_some()),
            ("max_rounds", self.max_rounds.is_some()),
            ("model", self.model.is_some()),
        ];
        given.into_iter().find_map(|(option, given)| given.then_some(option))
    }
}

/// Prefix of the threads of webhooks that belong to cron jobs; see [`own_thread`].
pub const OWN_THREADS: &str = "cron:";

/// The thread of a webhook that belongs to one job. The outside cannot begin such a thread, and no
/// other job writes in it. Only operators, and the agent that answers the webhook's threads, may
/// choose another thread.
pub fn own_thread(agent_id: &AgentId, name: &str) -> String {
    format!("{OWN_THREADS}{agent_id}/{name}")
}

/// Checks that a job of `agent_id` does not write in another job's thread: a thread that begins
/// with [`OWN_THREADS`] must be the job's own. If the job is deleted, its `name` is unknown
/// (`None`); then every thread of its agent's jobs is allowed.
///
/// # Errors
/// `AccessDenied` for another job's thread, also if an operator set the job.
pub fn check_own_thread(agent_id: &AgentId, name: Option<&str>, webhook: &str, thread: &str) -> Result<(), Refusal> {
    let own = match name {
        Some(name) => thread == own_thread(agent_id, name),
        None => thread.starts_with(&own_thread(agent_id, "")),
    };
    if own || !thread.starts_with(OWN_THREADS) {
        return Ok(());
    }
    let what = format!("to: the thread `{}` is not this job's own", shown(thread, 80));
    Err(Refusal::new(Code::AccessDenied, what)
        .hint(format!("write {webhook} for its own; other threads have names that do not begin with {OWN_THREADS}"))
        .details(json!({ "field": "to" })))
}

/// Checks the thread of a job of `agent_id` that no operator has set. The job may write in threads
/// of its agent's jobs, and in any thread if its agent answers the webhook's threads. Otherwise the
/// job could take over a thread: later messages in a thread go to the agent that began it.
/// `answers` is the agent that answers the webhook's threads now.
///
/// # Errors
/// `AccessDenied` for any other thread.
pub fn check_thread(agent_id: &AgentId, webhook: &str, thread: &str, answers: &AgentId) -> Result<(), Refusal> {
    if answers == agent_id || thread.starts_with(&own_thread(agent_id, "")) {
        return Ok(());
    }
    let what = format!("{agent_id} may not choose a thread of the webhook {webhook}: its threads go to {answers}");
    Err(Refusal::new(Code::AccessDenied, what)
        .hint(format!("name only the webhook, {webhook}, for the job's own thread, or ask the operator to set the job"))
        .details(json!({ "field": "to" })))
}

#[cfg(test)]
#[path = "mode_tests.rs"]
mod tests;
