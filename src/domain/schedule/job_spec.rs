//! What someone wants of a cron job (SCHED-05, SCHED-06, SCHED-08): which of it goes together, and what follows from what is
//! not said.
//!
//! Must never: know which models, channels or webhooks a world has. Pure rules, and the one place for them, however a job is
//! set.

use serde_json::json;

use super::options::{Deliver, JobOptions, LAST, Payload, Session, WakeMode, check_own_thread, own_thread};
use crate::ids::{AgentId, ChannelName, ConversationId};
use crate::limits::Limits;
use crate::refusal::{Code, Refusal};
use crate::text::shown;

/// Characters of a target or of a model's name.
const NAME_MAX: usize = 200;

/// What someone wants of [`JobOptions`]. What is not said follows from what is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobSpec {
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

/// A field that goes with one payload alone.
struct Row {
    field: &'static str,
    /// With which.
    payload: Payload,
    /// What a wish says in it, if it says what goes with that payload alone.
    given: fn(&JobSpec) -> Option<String>,
    /// Why not with the other.
    why: &'static str,
}

const NOT_ALONE: &str = "the turn that takes the job's mail is not the job's alone";

/// What goes with what. To wake at once is true of every job; all else is of one payload, whatever its value.
const GOES_WITH: [Row; 6] = [
    Row {
        field: "wake",
        payload: Payload::SystemEvent,
        given: |spec| spec.wake.filter(|wake| *wake != WakeMode::Now).map(|wake| format!("wake {wake}")),
        why: "a turn of its own runs alone, in its own time",
    },
    Row {
        field: "deliver",
        payload: Payload::AgentTurn,
        given: |spec| spec.deliver.map(|deliver| format!("deliver {deliver}")),
        why: NOT_ALONE,
    },
    Row {
        field: "to",
        payload: Payload::AgentTurn,
        given: |spec| spec.to.as_ref().map(|_| "to".to_owned()),
        why: NOT_ALONE,
    },
    Row {
        field: "timeout_seconds",
        payload: Payload::AgentTurn,
        given: |spec| spec.timeout_seconds.map(|_| "timeout_seconds".to_owned()),
        why: NOT_ALONE,
    },
    Row {
        field: "max_rounds",
        payload: Payload::AgentTurn,
        given: |spec| spec.max_rounds.map(|_| "max_rounds".to_owned()),
        why: NOT_ALONE,
    },
    Row {
        field: "model",
        payload: Payload::AgentTurn,
        given: |spec| spec.model.as_ref().map(|_| "model".to_owned()),
        why: NOT_ALONE,
    },
];

impl JobSpec {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// This wish, and where it is silent what the job has. A job that becomes another thing to its agent keeps nothing.
    fn over(self, before: &JobOptions) -> Self {
        let (payload, ..) = self.payload();
        if (self.payload.is_some() || self.session.is_some()) && payload != before.payload {
            return self;
        }
        // Another way out has another target.
        let same_way = self.deliver.is_none_or(|deliver| deliver == before.deliver);
        let to = (same_way && !before.to.is_empty()).then(|| before.to.clone());
        // Only what goes with the payload was ever said of the job; the rest is what every such job has.
        let own_turn = before.payload == Payload::AgentTurn;
        Self {
            session: self.session,
            payload: Some(before.payload),
            wake: self.wake.or((!own_turn).then_some(before.wake)),
            deliver: self.deliver.or(own_turn.then_some(before.deliver)),
            to: self.to.or(to),
            timeout_seconds: self.timeout_seconds.or(before.timeout_seconds),
            max_rounds: self.max_rounds.or(before.max_rounds),
            model: self.model.or_else(|| before.model.clone()),
        }
    }

    /// What the job is to its agent, and what says so: a payload or a session, or a field that goes with one payload alone.
    fn payload(&self) -> (Payload, String, Option<&'static Row>) {
        let own = GOES_WITH.iter().find(|row| row.payload == Payload::AgentTurn && (row.given)(self).is_some());
        match (self.payload, self.session, own) {
            (Some(payload), ..) => (payload, format!("payload {payload}"), None),
            (None, Some(session), _) => (session.payload(), format!("session {session}"), None),
            (None, None, Some(row)) => (row.payload, (row.given)(self).unwrap_or_default(), Some(row)),
            (None, None, None) => (Payload::SystemEvent, "payload systemEvent".to_owned(), None),
        }
    }

    /// Refuses what does not go together: the one place where that is said, for every way in which a job is set.
    fn check_together(&self) -> Result<Payload, Refusal> {
        let (payload, because, field) = self.payload();
        if let Some(session) = self.session.filter(|session| *session != payload.session()) {
            let what = format!("session {session} does not go with payload {payload}");
            return Err(mismatch(what, "session", "main goes with systemEvent, isolated with agentTurn"));
        }
        for row in GOES_WITH.iter().filter(|row| row.payload != payload) {
            if let Some(given) = (row.given)(self) {
                let what = format!("{given} does not go with {because}: {}", row.why);
                let (out, session, other) = (row.field, row.payload.session(), row.payload);
                let hint = match field {
                    Some(other) => format!("leave {out} out, or leave {} out", other.field),
                    None => format!("leave {out} out, or have session {session} with payload {other}"),
                };
                return Err(mismatch(what, row.field, &hint));
            }
        }
        if self.deliver == Some(Deliver::None) && self.to.is_some() {
            let what = "to does not go with deliver none".to_owned();
            return Err(mismatch(what, "to", "name the way there, announce or webhook, or leave to out"));
        }
        Ok(payload)
    }

    /// The options of a job that its agent calls `name`.
    ///
    /// # Errors
    /// `PayloadMismatch` for what does not go together: a session with the other's payload, and what only a turn of its own
    /// has (delivery, timeout, rounds, model) or only mail (waiting for a heartbeat) with the other. `InvalidArguments` for
    /// a bound out of range, a target that cannot be or one without a way there. `AccessDenied` for the thread of another
    /// job.
    pub fn options(self, agent_id: &AgentId, name: &str, limits: &Limits) -> Result<JobOptions, Refusal> {
        self.settled("", agent_id, name, limits)
    }

    /// The options of a job that has `before`, of which it keeps what this wish does not name. What it keeps is not judged
    /// again: a job may be set to another job's thread since before that was refused, and the rest of it can be changed.
    ///
    /// # Errors
    /// As [`JobSpec::options`].
    pub fn changes(
        self,
        before: &JobOptions,
        agent_id: &AgentId,
        name: &str,
        limits: &Limits,
    ) -> Result<JobOptions, Refusal> {
        self.over(before).settled(&before.to, agent_id, name, limits)
    }

    /// The options, of which the job has the target `kept` already.
    fn settled(self, kept: &str, agent_id: &AgentId, name: &str, limits: &Limits) -> Result<JobOptions, Refusal> {
        let payload = self.check_together()?;
        let deliver = self.deliver.unwrap_or(match payload {
            Payload::SystemEvent => Deliver::None,
            Payload::AgentTurn => Deliver::Announce,
        });
        let wake = self.wake.unwrap_or(WakeMode::Now);
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
            to: target(deliver, self.to.as_deref(), kept, agent_id, name)?,
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

/// Where a text goes, written out.
fn target(deliver: Deliver, to: Option<&str>, kept: &str, agent_id: &AgentId, name: &str) -> Result<String, Refusal> {
    let to = to.map(str::trim);
    let bad = |hint: &str| Err(wrong("to", format!("to: `{}` is no target", shown(to.unwrap_or(""), 80)), hint));
    match (deliver, to) {
        // With a target it was refused before.
        (Deliver::None, _) => Ok(String::new()),
        (Deliver::Announce, to) => {
            let to = to.unwrap_or(LAST);
            if to == LAST || to.parse::<ConversationId>().is_ok() || to.parse::<ChannelName>().is_ok() {
                return Ok(to.to_owned());
            }
            bad("give last, the name of a chat channel or the id of a conversation")
        }
        (Deliver::Webhook, None) => Err(wrong(
            "to",
            "to is missing: deliver webhook does not say which".to_owned(),
            "name a webhook of the world file, such as ops, or ops/<thread> for a thread of your choice",
        )),
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
            if !fits {
                return bad("write <webhook> or <webhook>/<thread>");
            }
            if to != kept {
                check_own_thread(agent_id, Some(name), webhook, &thread)?;
            }
            Ok(format!("{webhook}/{thread}"))
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
#[path = "job_spec_tests.rs"]
mod tests;
