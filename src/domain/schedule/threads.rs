//! The threads of webhooks that cron jobs write in, and which job may use which.

use serde_json::json;

use crate::ids::AgentId;
use crate::refusal::{Code, Refusal};
use crate::text::shown;

/// Prefix of the threads of webhooks that belong to cron jobs; see [`own_thread`].
pub const OWN_THREADS: &str = "cron:";

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
mod tests {
    use super::*;

    #[test]
    fn a_job_may_use_its_own_thread_or_threads_that_its_agent_answers() {
        let (ada, bob): (AgentId, AgentId) = ("ada".parse().unwrap(), "bob".parse().unwrap());
        check_thread(&ada, "ops", "free", &ada).unwrap();
        check_thread(&ada, "ops", "cron:ada/report", &bob).unwrap();
        for other in ["free", "cron:adam/report"] {
            assert_eq!(check_thread(&ada, "ops", other, &bob).unwrap_err().code, Code::AccessDenied, "{other}");
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
