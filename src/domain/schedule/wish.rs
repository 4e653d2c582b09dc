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

/// A field that goes with one payload alone.
struct Row {
    field: &'static str,
    /// With which.
    payload: Payload,
    /// What a wish says in it, if it says what goes with that payload alone.
    given: fn(&JobWish) -> Option<String>,
    /// Why not with the other.
    why: &'static str,
}

const NOT_ALONE: &str = "the turn that takes the job's mail is not the job's alone";

/// What goes with what. To wake at once is true of every job; all else is of one payload, whatever its value.
const GOES_WITH: [Row; 6] = [
    Row {
        field: "wake",
        payload: Payload::SystemEvent,
        given: |wish| wish.wake.filter(|wake| *wake != WakeMode::Now).map(|wake| format!("wake {wake}")),
        why: "a turn of its own runs alone, in its own time",
    },
    Row {
        field: "deliver",
        payload: Payload::AgentTurn,
        given: |wish| wish.deliver.map(|deliver| format!("deliver {deliver}")),
        why: NOT_ALONE,
    },
    Row {
        field: "to",
        payload: Payload::AgentTurn,
        given: |wish| wish.to.as_ref().map(|_| "to".to_owned()),
        why: NOT_ALONE,
    },
    Row {
        field: "timeout_seconds",
        payload: Payload::AgentTurn,
        given: |wish| wish.timeout_seconds.map(|_| "timeout_seconds".to_owned()),
        why: NOT_ALONE,
    },
    Row {
        field: "max_rounds",
        payload: Payload::AgentTurn,
        given: |wish| wish.max_rounds.map(|_| "max_rounds".to_owned()),
        why: NOT_ALONE,
    },
    Row {
        field: "model",
        payload: Payload::AgentTurn,
        given: |wish| wish.model.as_ref().map(|_| "model".to_owned()),
        why: NOT_ALONE,
    },
];

impl JobWish {
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
    /// As [`JobWish::options`].
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
mod tests {
    use super::*;

    fn options(wish: JobWish) -> Result<JobOptions, Refusal> {
        wish.options(&"ada".parse().unwrap(), "report", &Limits::default())
    }

    fn options_of(wish: JobWish) -> JobOptions {
        options(wish).unwrap()
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
            JobWish { deliver: Some(Deliver::None), ..main() },
            JobWish { deliver: Some(Deliver::None), wake: Some(WakeMode::NextHeartbeat), ..JobWish::default() },
        ] {
            assert_eq!(refused(wish.clone()), Code::PayloadMismatch, "{wish:?}");
        }
        let alone = JobWish { deliver: Some(Deliver::None), ..JobWish::default() };
        let quiet = options(alone.clone()).unwrap();
        assert_eq!((quiet.payload, quiet.deliver), (Payload::AgentTurn, Deliver::None));
        let refusal = options(JobWish { wake: Some(WakeMode::NextHeartbeat), ..alone }).unwrap_err();
        assert!(refusal.message.starts_with("wake next-heartbeat does not go with deliver none: "), "{refusal}");
        assert_eq!(refusal.hint.unwrap(), "leave wake out, or leave deliver out");
        let refusal = options(JobWish { timeout_seconds: Some(5), ..main() }).unwrap_err();
        assert!(refusal.message.starts_with("timeout_seconds does not go with session main: "), "{refusal}");
        assert_eq!(refusal.details, Some(json!({ "field": "timeout_seconds" })));
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

    /// Every way to fill the fields, with one value each that is within its bounds.
    fn wishes() -> Vec<JobWish> {
        let mut all = Vec::new();
        for session in [None, Some(Session::Main), Some(Session::Isolated)] {
            for payload in [None, Some(Payload::SystemEvent), Some(Payload::AgentTurn)] {
                for wake in [None, Some(WakeMode::Now), Some(WakeMode::NextHeartbeat)] {
                    for deliver in [None, Some(Deliver::None), Some(Deliver::Announce), Some(Deliver::Webhook)] {
                        for rest in 0..16_u8 {
                            let has = |bit: u8| rest & bit != 0;
                            all.push(JobWish {
                                session,
                                payload,
                                wake,
                                deliver,
                                to: has(1).then(|| "ops".to_owned()),
                                timeout_seconds: has(2).then_some(5),
                                max_rounds: has(4).then_some(2),
                                model: has(8).then(|| "m".to_owned()),
                            });
                        }
                    }
                }
            }
        }
        all
    }

    #[test]
    fn of_all_that_can_be_said_together_only_what_fits_is_taken_and_taken_as_it_was_said() {
        let all = wishes();
        assert_eq!(all.len(), 3 * 3 * 3 * 4 * 16);
        let mut taken = 0;
        for wish in all {
            let main = wish.session == Some(Session::Main) || wish.payload == Some(Payload::SystemEvent);
            let own = wish.session == Some(Session::Isolated) || wish.payload == Some(Payload::AgentTurn);
            let of_mail = wish.wake == Some(WakeMode::NextHeartbeat);
            let bounded = wish.timeout_seconds.is_some() || wish.max_rounds.is_some() || wish.model.is_some();
            let of_turn = wish.deliver.is_some() || wish.to.is_some() || bounded;
            let nowhere = wish.deliver == Some(Deliver::None);
            let pairs =
                [(main, own), (own, of_mail), (main, of_turn), (of_mail, of_turn), (nowhere, wish.to.is_some())];
            let fits = !pairs.iter().any(|(one, other)| *one && *other);
            let missing = wish.deliver == Some(Deliver::Webhook) && wish.to.is_none();
            match options(wish.clone()) {
                Err(refusal) => {
                    let code = if fits { Code::InvalidArguments } else { Code::PayloadMismatch };
                    assert_eq!(refusal.code, code, "{wish:?}: {refusal}");
                    assert!(!fits || missing, "{wish:?}: {refusal}");
                    assert!(refusal.hint.is_some() && refusal.details.unwrap()["field"].is_string(), "{wish:?}");
                }
                Ok(options) => {
                    assert!(fits && !missing, "{wish:?}");
                    taken += 1;
                    let payload = if own || of_turn { Payload::AgentTurn } else { Payload::SystemEvent };
                    assert_eq!(options.payload, payload, "{wish:?}");
                    assert_eq!(options.wake, wish.wake.unwrap_or(WakeMode::Now), "{wish:?}");
                    let usual = if payload == Payload::AgentTurn { Deliver::Announce } else { Deliver::None };
                    assert_eq!(options.deliver, wish.deliver.unwrap_or(usual), "{wish:?}");
                    let said = (wish.timeout_seconds, wish.max_rounds, wish.model.clone());
                    assert_eq!((options.timeout_seconds, options.max_rounds, options.model.clone()), said, "{wish:?}");
                    // A change that names nothing changes nothing.
                    assert_eq!(options_of(JobWish::default().over(&options)), options, "{wish:?}");
                }
            }
        }
        assert!(taken > 100, "{taken}");
    }

    fn hook(to: &str) -> JobWish {
        JobWish { deliver: Some(Deliver::Webhook), to: Some(to.into()), ..JobWish::default() }
    }

    #[test]
    fn a_job_has_one_thread_of_its_own_and_no_other_jobs() {
        for (given, thread) in [("ops", "ops/cron:ada/report"), ("ops/cron:ada/report", "ops/cron:ada/report")] {
            assert_eq!(options(hook(given)).unwrap().to, thread);
        }
        assert_eq!(options(hook("ops/free")).unwrap().to, "ops/free");
        for other in ["ops/cron:ada/other", "ops/cron:bob/report", "ops/cron:", "ops/cron:x"] {
            let refusal = options(hook(other)).unwrap_err();
            assert_eq!(
                (refusal.code, refusal.details),
                (Code::AccessDenied, Some(json!({ "field": "to" }))),
                "{other}"
            );
        }
    }

    #[test]
    fn a_job_that_was_set_to_another_jobs_thread_can_be_changed_and_not_be_set_to_it_anew() {
        let before = JobOptions { to: "ops/cron:bob/report".into(), ..options_of(hook("ops/free")) };
        let change = |wish: JobWish| wish.changes(&before, &"ada".parse().unwrap(), "report", &Limits::default());
        let changed = change(JobWish { max_rounds: Some(2), ..JobWish::default() }).unwrap();
        assert_eq!((changed.max_rounds, changed.to.as_str()), (Some(2), "ops/cron:bob/report"));
        assert_eq!(change(hook("ops")).unwrap().to, "ops/cron:ada/report");
        assert_eq!(change(hook("ops/cron:bob/other")).unwrap_err().code, Code::AccessDenied);
    }
}
