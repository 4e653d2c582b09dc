//! The job specification: the options that a caller gives for a cron job (SCHED-05, SCHED-06,
//! SCHED-08). Checks which options exclude each other and fills in defaults. Pure rules, used by
//! every way to set a job.
//!
//! Must never: depend on the models, channels or webhooks of a world.

use serde_json::json;

use super::options::{Deliver, JobOptions, LAST, Payload, Session, WakeMode, check_own_thread, own_thread};
use crate::ids::{AgentId, ChannelName, ConversationId};
use crate::limits::Limits;
use crate::refusal::{Code, Refusal};
use crate::text::shown;

/// Most characters of a target or of a model's name.
const NAME_MAX: usize = 200;

/// The given options of a cron job. An absent option (`None`) gets its value from the others; see
/// [`JobOptions`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobSpec {
    /// Where the job runs.
    pub session: Option<Session>,
    /// What a run of the job is.
    pub payload: Option<Payload>,
    /// See [`JobOptions::wake`].
    pub wake: Option<WakeMode>,
    /// See [`JobOptions::deliver`]. The default for a turn of its own is `announce`.
    pub deliver: Option<Deliver>,
    /// See [`JobOptions::to`]. The default for an announcement is `last`. For a webhook without a
    /// thread, it is the job's own thread.
    pub to: Option<String>,
    /// See [`JobOptions::timeout_seconds`].
    pub timeout_seconds: Option<u32>,
    /// See [`JobOptions::max_rounds`].
    pub max_rounds: Option<u32>,
    /// See [`JobOptions::model`].
    pub model: Option<String>,
}

/// A field that is allowed with one payload only.
struct FieldRule {
    field: &'static str,
    /// The payload that allows it.
    payload: Payload,
    /// The field as text for an error message, if it has a value that only this payload allows.
    given: fn(&JobSpec) -> Option<String>,
    /// Why the other payload does not allow it.
    why: &'static str,
}

const NOT_ALONE: &str = "the turn that takes the job's mail is not the job's alone";

/// The rules for all such fields. `wake: now` is allowed with both payloads.
const FIELD_RULES: [FieldRule; 6] = [
    FieldRule {
        field: "wake",
        payload: Payload::SystemEvent,
        given: |spec| spec.wake.filter(|wake| *wake != WakeMode::Now).map(|wake| format!("wake {wake}")),
        why: "a turn of its own does not wait for a heartbeat",
    },
    FieldRule {
        field: "deliver",
        payload: Payload::AgentTurn,
        given: |spec| spec.deliver.map(|deliver| format!("deliver {deliver}")),
        why: NOT_ALONE,
    },
    FieldRule {
        field: "to",
        payload: Payload::AgentTurn,
        given: |spec| spec.to.as_ref().map(|_| "to".to_owned()),
        why: NOT_ALONE,
    },
    FieldRule {
        field: "timeout_seconds",
        payload: Payload::AgentTurn,
        given: |spec| spec.timeout_seconds.map(|_| "timeout_seconds".to_owned()),
        why: NOT_ALONE,
    },
    FieldRule {
        field: "max_rounds",
        payload: Payload::AgentTurn,
        given: |spec| spec.max_rounds.map(|_| "max_rounds".to_owned()),
        why: NOT_ALONE,
    },
    FieldRule {
        field: "model",
        payload: Payload::AgentTurn,
        given: |spec| spec.model.as_ref().map(|_| "model".to_owned()),
        why: NOT_ALONE,
    },
];

impl JobSpec {
    /// Whether no option is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These options, completed by the job's present ones. If the payload changes, the present
    /// options are not used.
    fn over(self, before: &JobOptions) -> Self {
        let (payload, ..) = self.payload();
        if (self.payload.is_some() || self.session.is_some()) && payload != before.payload {
            return self;
        }
        // If the delivery changes, the present target no longer applies.
        let same_way = self.deliver.is_none_or(|deliver| deliver == before.deliver);
        let to = (same_way && !before.to.is_empty()).then(|| before.to.clone());
        // Options that only the other payload allows have defaults in `before`; they were not
        // given.
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

    /// The payload, and the option that decides it: a payload, a session, or a field that only one
    /// payload allows. The option is returned as text, and as a rule if it is such a field.
    fn payload(&self) -> (Payload, String, Option<&'static FieldRule>) {
        let own = FIELD_RULES.iter().find(|rule| rule.payload == Payload::AgentTurn && (rule.given)(self).is_some());
        match (self.payload, self.session, own) {
            (Some(payload), ..) => (payload, format!("payload {payload}"), None),
            (None, Some(session), _) => (session.payload(), format!("session {session}"), None),
            (None, None, Some(rule)) => (rule.payload, (rule.given)(self).unwrap_or_default(), Some(rule)),
            (None, None, None) => (Payload::SystemEvent, "payload systemEvent".to_owned(), None),
        }
    }

    /// Refuses options that exclude each other. Returns the payload.
    fn check_together(&self) -> Result<Payload, Refusal> {
        let (payload, because, field) = self.payload();
        if let Some(session) = self.session.filter(|session| *session != payload.session()) {
            let what = format!("session {session} does not go with payload {payload}");
            return Err(mismatch(what, "session", "main goes with systemEvent, isolated with agentTurn"));
        }
        for rule in FIELD_RULES.iter().filter(|rule| rule.payload != payload) {
            if let Some(given) = (rule.given)(self) {
                let what = format!("{given} does not go with {because}: {}", rule.why);
                let (out, session, other) = (rule.field, rule.payload.session(), rule.payload);
                let hint = match field {
                    Some(other) => format!("leave {out} out, or leave {} out", other.field),
                    None => format!("leave {out} out, or have session {session} with payload {other}"),
                };
                return Err(mismatch(what, rule.field, &hint));
            }
        }
        if self.deliver == Some(Deliver::None) && self.to.is_some() {
            let what = "to does not go with deliver none".to_owned();
            return Err(mismatch(what, "to", "set deliver to announce or webhook, or leave to out"));
        }
        Ok(payload)
    }

    /// The complete options of a new job with the name `name`.
    ///
    /// # Errors
    /// `PayloadMismatch` for options that exclude each other, and for a target without a delivery.
    /// `InvalidArguments` for a number out of range, and for an invalid or missing target.
    /// `AccessDenied` for the thread of another job.
    pub fn options(self, agent_id: &AgentId, name: &str, limits: &Limits) -> Result<JobOptions, Refusal> {
        self.complete("", agent_id, name, limits)
    }

    /// The complete options of a job that had the options `before`. Options that are not given stay
    /// as they were. A target that stays is not checked again: an older job may have another job's
    /// thread as its target, from before that was refused.
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
        self.over(before).complete(&before.to, agent_id, name, limits)
    }

    /// Checks the options and fills in defaults. `kept` is the job's present target.
    fn complete(self, kept: &str, agent_id: &AgentId, name: &str, limits: &Limits) -> Result<JobOptions, Refusal> {
        let payload = self.check_together()?;
        let deliver = self.deliver.unwrap_or(match payload {
            Payload::SystemEvent => Deliver::None,
            Payload::AgentTurn => Deliver::Announce,
        });
        let wake = self.wake.unwrap_or(WakeMode::Now);
        let within = |field: &str, value: Option<u32>, max: u32, setting: &str| match value {
            Some(value) if value == 0 || value > max => Err(wrong(
                field,
                format!("{field} is {value}; it must be 1 to {max}"),
                &format!("limits.{setting} is the limit"),
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

/// The complete target of a delivery.
fn target(deliver: Deliver, to: Option<&str>, kept: &str, agent_id: &AgentId, name: &str) -> Result<String, Refusal> {
    let to = to.map(str::trim);
    let bad = |hint: &str| Err(wrong("to", format!("to: `{}` is not a target", shown(to.unwrap_or(""), 80)), hint));
    match (deliver, to) {
        // `check_together` has refused a target.
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
            "to is missing: deliver webhook needs the name of a webhook".to_owned(),
            "name a webhook of the world file, such as ops, or ops/<thread> for a thread of your choice",
        )),
        (Deliver::Webhook, Some(to)) => {
            let (webhook, thread) = match to.split_once('/') {
                Some((webhook, thread)) => (webhook, thread.to_owned()),
                None => (to, own_thread(agent_id, name)),
            };
            let valid = !webhook.is_empty()
                && !thread.trim().is_empty()
                && thread.trim() == thread
                && thread.chars().count() <= NAME_MAX
                && webhook.chars().count() <= NAME_MAX
                && !to.chars().any(char::is_control);
            if !valid {
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
