//! The options of a cron job (SCHED-05, SCHED-06, SCHED-08): mail in a shared turn or a turn of its
//! own, its limits, its model, and the target of its last text. Also the rules for threads of
//! webhooks.
//!
//! Must never: depend on the models, channels or webhooks of a world.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::envelope::text_enum;
use crate::ids::AgentId;
use crate::refusal::{Code, Refusal};
use crate::text::shown;

/// The target `last`: the agent's last conversation with someone outside.
pub const LAST: &str = "last";
/// Prefix of the threads of webhooks that belong to cron jobs; see [`own_thread`].
pub const OWN_THREADS: &str = "cron:";

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
    #[must_use]
    pub fn session(self) -> Session {
        match self {
            Self::SystemEvent => Session::Main,
            Self::AgentTurn => Session::Isolated,
        }
    }
}

impl Session {
    /// The payload of this session. Each session has exactly one.
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

/// How a cron job runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobOptions {
    /// What a run is.
    pub payload: Payload,
    /// When its mail wakes the agent.
    pub wake: WakeMode,
    /// Where the last text of its turn goes.
    pub deliver: Deliver,
    /// Target: for `announce` `last`, a chat channel or the id of a conversation; for `webhook`
    /// `<webhook>/<thread>`; otherwise empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// Most seconds of its turn's own work; `None` is the agent's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u32>,
    /// Most model calls of its turn; `None` is the agent's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// `model` or `provider/model`; `None` is the agent's model.
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

/// The thread of a webhook that belongs to one job. The outside cannot begin such a thread, and no
/// other job writes in it. Only operators, and the agent that answers the webhook's threads, may
/// choose another thread.
#[must_use]
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

/// Checks the thread `to` (`<webhook>/<thread>`) of a job of `agent_id` that no operator has set.
/// The job may write in threads of its agent's jobs, and in any thread if its agent answers the
/// webhook's threads. Otherwise the job could take over a thread: later messages in a thread go to
/// the agent that began it. `answers` is the agent that answers the webhook's threads now.
///
/// # Errors
/// `AccessDenied` for any other thread.
pub fn check_thread(agent_id: &AgentId, to: &str, answers: &AgentId) -> Result<(), Refusal> {
    let (webhook, thread) = to.split_once('/').unwrap_or((to, ""));
    if answers == agent_id || thread.starts_with(&own_thread(agent_id, "")) {
        return Ok(());
    }
    let what = format!("{agent_id} may not choose a thread of the webhook {webhook}: its threads go to {answers}");
    Err(Refusal::new(Code::AccessDenied, what)
        .hint(format!("name only the webhook, {webhook}, for the job's own thread, or ask the operator to set the job"))
        .details(json!({ "field": "to" })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_may_use_its_own_thread_or_threads_that_its_agent_answers() {
        let (ada, bob): (AgentId, AgentId) = ("ada".parse().unwrap(), "bob".parse().unwrap());
        check_thread(&ada, "ops/free", &ada).unwrap();
        check_thread(&ada, "ops/cron:ada/report", &bob).unwrap();
        for other in ["ops/free", "ops/cron:adam/report", "ops"] {
            assert_eq!(check_thread(&ada, other, &bob).unwrap_err().code, Code::AccessDenied, "{other}");
        }
        let own = |name, thread| check_own_thread(&ada, name, "ops", thread).is_ok();
        for (thread, allowed_for_report, allowed_for_deleted_job) in [
            ("free", true, true),
            ("cron:ada/report", true, true),
            ("cron:ada/other", false, true),
            ("cron:adam/report", false, false),
            ("cron:", false, false),
        ] {
            let allowed = (own(Some("report"), thread), own(None, thread));
            assert_eq!(allowed, (allowed_for_report, allowed_for_deleted_job), "{thread}");
        }
    }
}
