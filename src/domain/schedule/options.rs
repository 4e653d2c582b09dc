//! How a cron job runs (SCHED-05, SCHED-06, SCHED-08): as a line in its agent's ongoing conversation or as a turn of its own,
//! within what bounds, with which model, and where the last text of such a turn goes.
//!
//! Must never: know which models, channels or webhooks a world has.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::envelope::text_enum;
use crate::ids::AgentId;
use crate::refusal::{Code, Refusal};
use crate::text::shown;

/// The target of an announcement that is the agent's last conversation with someone outside.
pub const LAST: &str = "last";
/// Threads of webhooks whose names begin with this are the jobs' own; see [`own_thread`].
pub const OWN_THREADS: &str = "cron:";

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

impl Session {
    /// The payload that goes with it; there is no other.
    #[must_use]
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

/// The thread of a webhook that is a job's own: nobody outside begins it, and no other job speaks there. Another one may be
/// someone else's: only operators, and the agent that the webhook's threads go to, name one freely.
#[must_use]
pub fn own_thread(agent_id: &AgentId, name: &str) -> String {
    format!("{OWN_THREADS}{agent_id}/{name}")
}

/// Whether a job of `agent_id` may speak in the thread of a webhook at all: a thread whose name begins with [`OWN_THREADS`]
/// must be its own. Of a job that is gone, and whose `name` is lost with it, only that of another agent's is told.
///
/// # Errors
/// `AccessDenied` for another job's thread, whoever has set the job.
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

/// Whether a job of `agent_id` that no operator has set may speak in the thread `to`, written `<webhook>/<thread>`: in one of
/// its jobs' own, or in any if the webhook's threads go to it. A thread belongs to whoever begins it, and what the outside
/// says there later goes to that agent. `answers` is the agent that the webhook's threads go to now.
///
/// # Errors
/// `AccessDenied` for another's thread.
pub fn check_thread(agent_id: &AgentId, to: &str, answers: &AgentId) -> Result<(), Refusal> {
    let (webhook, thread) = to.split_once('/').unwrap_or((to, ""));
    if answers == agent_id || thread.starts_with(&own_thread(agent_id, "")) {
        return Ok(());
    }
    let what = format!("the threads of the webhook {webhook} go to {answers} and are not {agent_id}'s to choose from");
    Err(Refusal::new(Code::AccessDenied, what)
        .hint(format!("name only the webhook, {webhook}, for the job's own thread, or ask the operator to set the job"))
        .details(json!({ "field": "to" })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_its_jobs_own_or_of_the_agent_that_answers_there() {
        let (ada, bob): (AgentId, AgentId) = ("ada".parse().unwrap(), "bob".parse().unwrap());
        check_thread(&ada, "ops/free", &ada).unwrap();
        check_thread(&ada, "ops/cron:ada/report", &bob).unwrap();
        for other in ["ops/free", "ops/cron:adam/report", "ops"] {
            assert_eq!(check_thread(&ada, other, &bob).unwrap_err().code, Code::AccessDenied, "{other}");
        }
        let own = |name, thread| check_own_thread(&ada, name, "ops", thread).is_ok();
        for (thread, of_report, of_one_that_is_gone) in [
            ("free", true, true),
            ("cron:ada/report", true, true),
            ("cron:ada/other", false, true),
            ("cron:adam/report", false, false),
            ("cron:", false, false),
        ] {
            assert_eq!((own(Some("report"), thread), own(None, thread)), (of_report, of_one_that_is_gone), "{thread}");
        }
    }
}
