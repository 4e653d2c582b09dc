//! How a cron job runs (SCHED-05, SCHED-06, SCHED-08): as a line in its agent's ongoing conversation or as a turn of its own,
//! within what bounds, with which model, and where the last text of such a turn goes.
//!
//! Must never: know which models, channels or webhooks a world has. Pure rules of what goes together.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::envelope::text_enum;
use crate::ids::{AgentId, ChannelName, ConversationId};
use crate::limits::Limits;
use crate::refusal::{Code, Refusal};
use crate::text::shown;

/// The target of an announcement that is the agent's last conversation with someone outside.
pub const LAST: &str = "last";
/// Characters of a target or of a model's name.
const NAME_MAX: usize = 200;

text_enum! {
    /// Where a cron job runs.
    Session, "session" {
        /// In the agent's ongoing conversation.
        Main = "main",
        /// Apart from it.
        Isolated = "isolated",
    }
}

text_enum! {
    /// What a cron job is to its agent.
    Payload, "payload" {
        /// Mail that its next turn takes with whatever else there is.
        SystemEvent = "systemEvent",
        /// A turn of its own, which recalls nothing of the others and of which they recall one line.
        AgentTurn = "agentTurn",
    }
}

impl Payload {
    /// The session that goes with it; there is no other.
    #[must_use]
    pub fn session(self) -> Session {
        match self {
            Self::SystemEvent => Session::Main,
            Self::AgentTurn => Session::Isolated,
        }
    }
}

text_enum! {
    /// When the mail of a cron job wakes its agent.
    WakeMode, "wake mode" {
        /// At once.
        Now = "now",
        /// With the agent's next heartbeat.
        NextHeartbeat = "next-heartbeat",
    }
}

text_enum! {
    /// Where the last text of a cron job's own turn goes.
    Deliver, "way to deliver" {
        /// Nowhere: it stays in the turn.
        None = "none",
        /// To a chat channel or a conversation.
        Announce = "announce",
        /// To a webhook of the world file, signed.
        Webhook = "webhook",
    }
}

/// How a cron job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOptions {
    /// What it is to its agent.
    pub payload: Payload,
    /// When its mail wakes.
    pub wake: WakeMode,
    /// Where its last text goes.
    pub deliver: Deliver,
    /// For `announce`: `last`, a chat channel or a conversation's id; for `webhook`: `<webhook>/<thread>`; else empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// Seconds of its turn's own work; the agent's own bound if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// Model calls of its turn; the agent's own bound if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// `model` or `provider/model`; the agent's own if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self {
            payload: Payload::SystemEvent,
            wake: WakeMode::Now,
            deliver: Deliver::None,
            to: String::new(),
            timeout_seconds: None,
            max_rounds: None,
            model: None,
        }
    }
}

/// What someone wants of [`JobOptions`]. What is not said follows from what is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobWish {
    /// Where it runs.
    pub session: Option<Session>,
    /// What it is to its agent.
    pub payload: Option<Payload>,
    /// See [`JobOptions::wake`].
    pub wake: Option<WakeMode>,
    /// See [`JobOptions::deliver`]; a turn of its own is announced unless this says otherwise.
    pub deliver: Option<Deliver>,
    /// See [`JobOptions::to`]; `last` for an announcement, the job's own thread for a webhook.
    pub to: Option<String>,
    /// See [`JobOptions::timeout_seconds`].
    pub timeout_seconds: Option<u32>,
    /// See [`JobOptions::max_rounds`].
    pub max_rounds: Option<u32>,
    /// See [`JobOptions::model`].
    pub model: Option<String>,
}

impl JobWish {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// This wish, and where it is silent what the job has. A job that becomes another thing to its agent keeps nothing.
    #[must_use]
    pub fn over(self, before: &JobOptions) -> Self {
        let payload = self.payload();
        if (self.payload.is_some() || self.session.is_some()) && payload != before.payload {
            return self;
        }
        // Another way out has another target.
        let same_way = self.deliver.is_none_or(|deliver| deliver == before.deliver);
        let to = (same_way && !before.to.is_empty()).then(|| before.to.clone());
        Self {
            session: self.session,
            payload: self.payload.or(Some(before.payload)),
            wake: self.wake.or(Some(before.wake)),
            deliver: self.deliver.or(Some(before.deliver)),
            to: self.to.or(to),
            timeout_seconds: self.timeout_seconds.or(before.timeout_seconds),
            max_rounds: self.max_rounds.or(before.max_rounds),
            model: self.model.or_else(|| before.model.clone()),
        }
    }

    /// What the job is to its agent: as it says, or as what it says besides makes sense.
    fn payload(&self) -> Payload {
        let of_its_own = self.deliver.is_some_and(|deliver| deliver != Deliver::None)
            || self.to.is_some()
            || self.timeout_seconds.is_some()
            || self.max_rounds.is_some()
            || self.model.is_some();
        match (self.payload, self.session) {
            (Some(payload), _) => payload,
            (None, Some(Session::Main)) => Payload::SystemEvent,
            (None, Some(Session::Isolated)) => Payload::AgentTurn,
            (None, None) if of_its_own => Payload::AgentTurn,
            (None, None) => Payload::SystemEvent,
        }
    }

    /// The options of a job that its agent calls `name`.
    ///
    /// # Errors
    /// `PayloadMismatch` for what does not go together: a session with the other's payload, and what only a turn of its own
    /// has (delivery, timeout, rounds, model) or only mail (waiting for a heartbeat) with the other. `InvalidArguments` for
    /// a bound out of range, a target that cannot be or one without a way there.
    pub fn options(self, agent_id: &AgentId, name: &str, limits: &Limits) -> Result<JobOptions, Refusal> {
        let payload = self.payload();
        if let Some(session) = self.session.filter(|session| *session != payload.session()) {
            let what = format!("session {session} does not go with payload {payload}");
            return Err(mismatch(what, "session", "main goes with systemEvent, isolated with agentTurn"));
        }
        let deliver = self.deliver.unwrap_or(match payload {
            Payload::SystemEvent => Deliver::None,
            Payload::AgentTurn => Deliver::Announce,
        });
        let wake = self.wake.unwrap_or(WakeMode::Now);
        if payload == Payload::SystemEvent {
            let given = [
                ("deliver", deliver != Deliver::None),
                ("to", self.to.is_some()),
                ("timeout", self.timeout_seconds.is_some()),
                ("max_rounds", self.max_rounds.is_some()),
                ("model", self.model.is_some()),
            ];
            if let Some((field, _)) = given.iter().find(|(_, given)| *given) {
                let what = format!("{field} does not go with payload systemEvent: its turn is not the job's alone");
                return Err(mismatch(what, field, "make it a turn of its own, with payload agentTurn"));
            }
        } else if wake == WakeMode::NextHeartbeat {
            let what = "wake next-heartbeat does not go with payload agentTurn: such a turn runs alone";
            return Err(mismatch(what.to_owned(), "wake", "leave it out, or use payload systemEvent"));
        }
        let within = |field: &str, value: Option<u32>, most: u32, setting: &str| match value {
            Some(value) if value == 0 || value > most => Err(wrong(
                field,
                format!("{field} is {value}; it must be 1 to {most}"),
                &format!("limits.{setting} is the bound"),
            )),
            value => Ok(value),
        };
        Ok(JobOptions {
            payload,
            wake,
            deliver,
            to: target(deliver, self.to.as_deref(), agent_id, name)?,
            timeout_seconds: within("timeout_seconds", self.timeout_seconds, limits.turn_seconds, "turn_seconds")?,
            max_rounds: within("max_rounds", self.max_rounds, limits.turn_rounds_max, "turn_rounds_max")?,
            model: match self.model.as_deref().map(str::trim) {
                Some(model) if model.is_empty() || model.len() > NAME_MAX || model.chars().any(char::is_control) => {
                    return Err(wrong("model", "model is not a name".to_owned(), "give model or provider/model"));
                }
                model => model.map(str::to_owned),
            },
        })
    }
}

/// The thread of a webhook that is a job's own. Another one may be someone else's: only operators, and the agent that the
/// webhook's threads go to, name one freely.
#[must_use]
pub fn own_thread(agent_id: &AgentId, name: &str) -> String {
    format!("cron:{agent_id}/{name}")
}

/// Where a text goes, written out.
fn target(deliver: Deliver, to: Option<&str>, agent_id: &AgentId, name: &str) -> Result<String, Refusal> {
    let to = to.map(str::trim);
    let bad = |hint: &str| Err(wrong("to", format!("to: `{}` is no target", shown(to.unwrap_or(""), 80)), hint));
    match (deliver, to) {
        (Deliver::None, None) => Ok(String::new()),
        (Deliver::None, Some(_)) => {
            let what = "to does not go with deliver none".to_owned();
            Err(mismatch(what, "to", "say how to deliver: announce or webhook"))
        }
        (Deliver::Announce, to) => {
            let to = to.unwrap_or(LAST);
            if to == LAST || to.parse::<ConversationId>().is_ok() || to.parse::<ChannelName>().is_ok() {
                return Ok(to.to_owned());
            }
            bad("give last, the name of a chat channel or the id of a conversation")
        }
        (Deliver::Webhook, None) => {
            bad("name a webhook of the world file, such as ops, or ops/<thread> for a thread of your choice")
        }
        (Deliver::Webhook, Some(to)) => {
            let (webhook, thread) = match to.split_once('/') {
                Some((webhook, thread)) => (webhook, thread.to_owned()),
                None => (to, own_thread(agent_id, name)),
            };
            let fits = !webhook.is_empty()
                && !thread.trim().is_empty()
                && thread.trim() == thread
                && thread.chars().count() <= NAME_MAX
                && webhook.chars().count() <= NAME_MAX
                && !to.chars().any(char::is_control);
            if fits { Ok(format!("{webhook}/{thread}")) } else { bad("write <webhook> or <webhook>/<thread>") }
        }
    }
}

fn mismatch(what: String, field: &str, hint: &str) -> Refusal {
    Refusal::new(Code::PayloadMismatch, what).hint(hint).details(json!({ "field": field }))
}

fn wrong(field: &str, what: String, hint: &str) -> Refusal {
    Refusal::new(Code::InvalidArguments, what).hint(hint).details(json!({ "field": field }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(wish: JobWish) -> Result<JobOptions, Refusal> {
        wish.options(&"ada".parse().unwrap(), "report", &Limits::default())
    }

    fn refused(wish: JobWish) -> Code {
        options(wish).unwrap_err().code
    }

    #[test]
    fn what_is_not_said_follows_from_what_is() {
        assert_eq!(options(JobWish::default()).unwrap(), JobOptions::default());
        let own = options(JobWish { session: Some(Session::Isolated), ..JobWish::default() }).unwrap();
        assert_eq!((own.payload, own.deliver, own.to.as_str()), (Payload::AgentTurn, Deliver::Announce, "last"));
        let bounded = options(JobWish { max_rounds: Some(2), deliver: Some(Deliver::None), ..JobWish::default() });
        let bounded = bounded.unwrap();
        assert_eq!((bounded.payload, bounded.deliver, bounded.to.as_str()), (Payload::AgentTurn, Deliver::None, ""));
        let hook = JobWish { deliver: Some(Deliver::Webhook), to: Some("ops".into()), ..JobWish::default() };
        assert_eq!(options(hook).unwrap().to, "ops/cron:ada/report");
    }

    #[test]
    fn what_does_not_go_together_has_a_code_of_its_own() {
        let main = || JobWish { session: Some(Session::Main), ..JobWish::default() };
        let turn = || JobWish { payload: Some(Payload::AgentTurn), ..JobWish::default() };
        for wish in [
            JobWish { payload: Some(Payload::AgentTurn), ..main() },
            JobWish { session: Some(Session::Isolated), payload: Some(Payload::SystemEvent), ..JobWish::default() },
            JobWish { deliver: Some(Deliver::Announce), ..main() },
            JobWish { timeout_seconds: Some(5), ..main() },
            JobWish { max_rounds: Some(5), ..main() },
            JobWish { model: Some("m".into()), ..main() },
            JobWish { to: Some("last".into()), ..main() },
            JobWish { wake: Some(WakeMode::NextHeartbeat), ..turn() },
            JobWish { deliver: Some(Deliver::None), to: Some("last".into()), ..turn() },
        ] {
            assert_eq!(refused(wish.clone()), Code::PayloadMismatch, "{wish:?}");
        }
        for wish in [
            JobWish { timeout_seconds: Some(0), ..turn() },
            JobWish { timeout_seconds: Some(301), ..turn() },
            JobWish { max_rounds: Some(16), ..turn() },
            JobWish { model: Some(" ".into()), ..turn() },
            JobWish { to: Some("No Channel!".into()), ..turn() },
            JobWish { deliver: Some(Deliver::Webhook), ..turn() },
            JobWish { deliver: Some(Deliver::Webhook), to: Some("ops/".into()), ..turn() },
        ] {
            assert_eq!(refused(wish.clone()), Code::InvalidArguments, "{wish:?}");
        }
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name_unless_the_job_becomes_another_thing() {
        let before = JobWish { max_rounds: Some(3), to: Some("alerts".into()), ..JobWish::default() };
        let before = options(before).unwrap();
        let kept = options(JobWish { timeout_seconds: Some(9), ..JobWish::default() }.over(&before)).unwrap();
        assert_eq!((kept.max_rounds, kept.timeout_seconds, kept.to.as_str()), (Some(3), Some(9), "alerts"));
        let quiet = options(JobWish { deliver: Some(Deliver::None), ..JobWish::default() }.over(&before)).unwrap();
        assert_eq!((quiet.deliver, quiet.to.as_str(), quiet.max_rounds), (Deliver::None, "", Some(3)));
        let mail = options(JobWish { session: Some(Session::Main), ..JobWish::default() }.over(&before)).unwrap();
        assert_eq!(mail, JobOptions::default());
    }
}
