//! The options of a cron job in the form that a model writes (SCHED-05, SCHED-08).

use ghost_domain::Refusal;
use ghost_domain::schedule::words::duration;
use ghost_domain::schedule::{Deliver, JobMode, JobOptions, Payload, Session, WakeMode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::schedules::wrong;
use crate::context::CallContext;

/// The options of a job.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// `main`: in your ongoing conversation; `isolated`: separate from it.
    session: Option<Session>,
    /// `systemEvent` (the default) is mail to you, in `main`; `agentTurn` is a separate turn, in `isolated`, that
    /// recalls nothing of your other turns.
    payload: Option<Payload>,
    /// For a systemEvent: wake you `now` (the default), or with your `next-heartbeat`.
    wake: Option<WakeMode>,
    /// For an agentTurn: where its final text goes: `announce` (the default), `webhook` or `none`.
    deliver: Option<Deliver>,
    /// For `announce`: `last` (your last conversation with someone outside; the default), a chat channel, or the id of
    /// a conversation. For `webhook`: its name, for a thread of the job; name/thread only if the webhook's threads go
    /// to you.
    to: Option<String>,
    /// For an agentTurn: the longest time it may take, such as 90s.
    timeout: Option<String>,
    /// For an agentTurn: the largest number of model calls.
    max_rounds: Option<u32>,
    /// For an agentTurn: the model, as model or provider/model.
    model: Option<String>,
}

impl Options {
    fn given(self) -> Result<JobOptions, Refusal> {
        let timeout_seconds = match self.timeout.as_deref().map(|text| duration("options.timeout", text)).transpose()? {
            Some(timeout) if timeout.subsec_millis() > 0 => {
                return Err(wrong("options.timeout is whole seconds", "write for example 90s or 2m"));
            }
            timeout => timeout.map(|timeout| u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX)),
        };
        let Self { session, payload, wake, deliver, to, max_rounds, model, .. } = self;
        Ok(JobOptions { session, payload, wake, deliver, to, timeout_seconds, max_rounds, model })
    }
}

/// The mode of a job, after checking its model and webhook. The target is checked only when it is
/// set or changed; an unchanged target is checked when the job runs.
pub(super) fn mode(
    call: &CallContext,
    given: Options,
    name: &str,
    before: Option<&JobMode>,
) -> Result<JobMode, Refusal> {
    let (agent_id, limits) = (&call.caller.agent_id, call.services.ctx.limits());
    let mode = JobMode::parse(given.given()?, before, agent_id, name.trim(), &limits).map_err(with_tool_field)?;
    let plan = call.services.plan();
    plan.check_job(&mode)?;
    let target = |mode: &JobMode| mode.own_turn().map(|turn| turn.target.clone());
    if let Some(target) = target(&mode).filter(|new| before.and_then(target).as_ref() != Some(new)) {
        plan.check_target(agent_id, &target)?;
    }
    Ok(mode)
}

/// Renames the field in a refusal: this tool takes the timeout as text.
fn with_tool_field(mut refusal: Refusal) -> Refusal {
    const RENAMED: (&str, &str) = ("timeout_seconds", "options.timeout");
    refusal.message = refusal.message.replace(RENAMED.0, RENAMED.1);
    refusal.hint = refusal.hint.map(|hint| hint.replace(RENAMED.0, RENAMED.1));
    if let Some(field) = refusal.details.as_mut().and_then(|details| details.get_mut("field"))
        && field == RENAMED.0
    {
        *field = json!(RENAMED.1);
    }
    refusal
}
