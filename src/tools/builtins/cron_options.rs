//! The options of a cron job in the form that a model writes (SCHED-05, SCHED-08).

use ghost_domain::Refusal;
use ghost_domain::schedule::words::duration;
use ghost_domain::schedule::{self, JobOptions, JobSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::schedules::wrong;
use crate::context::CallContext;

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mode {
    Now,
    NextHeartbeat,
}

/// The kind of a job.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
enum Payload {
    #[serde(rename = "systemEvent")]
    SystemEvent,
    #[serde(rename = "agentTurn")]
    AgentTurn,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Session {
    Main,
    Isolated,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Deliver {
    None,
    Announce,
    Webhook,
}

/// The options of a job.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// `main`: in your ongoing conversation; `isolated`: separate from it.
    #[serde(default)]
    session: Option<Session>,
    /// `systemEvent` (the default) is mail to you, in `main`; `agentTurn` is a separate turn, in `isolated`, that
    /// recalls nothing of your other turns.
    #[serde(default)]
    payload: Option<Payload>,
    /// For a systemEvent: wake you `now` (the default), or with your `next-heartbeat`.
    #[serde(default)]
    wake: Option<Mode>,
    /// For an agentTurn: where its final text goes: `announce` (the default), `webhook` or `none`.
    #[serde(default)]
    deliver: Option<Deliver>,
    /// For `announce`: `last` (your last conversation with someone outside; the default), a chat channel, or the id of
    /// a conversation. For `webhook`: its name, for a thread of the job; name/thread only if the webhook's threads go
    /// to you.
    #[serde(default)]
    to: Option<String>,
    /// For an agentTurn: the longest time it may take, such as 90s.
    #[serde(default)]
    timeout: Option<String>,
    /// For an agentTurn: the largest number of model calls.
    #[serde(default)]
    max_rounds: Option<u32>,
    /// For an agentTurn: the model, as model or provider/model.
    #[serde(default)]
    model: Option<String>,
}

impl Options {
    pub(super) fn spec(self) -> Result<JobSpec, Refusal> {
        let timeout_seconds = match self.timeout.as_deref().map(|text| duration("options.timeout", text)).transpose()? {
            Some(timeout) if timeout.subsec_millis() > 0 => {
                return Err(wrong("options.timeout is whole seconds", "write for example 90s or 2m"));
            }
            timeout => timeout.map(|timeout| u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX)),
        };
        Ok(JobSpec {
            session: self.session.map(|session| match session {
                Session::Main => schedule::Session::Main,
                Session::Isolated => schedule::Session::Isolated,
            }),
            payload: self.payload.map(|payload| match payload {
                Payload::SystemEvent => schedule::Payload::SystemEvent,
                Payload::AgentTurn => schedule::Payload::AgentTurn,
            }),
            wake: self.wake.map(|mode| match mode {
                Mode::Now => schedule::WakeMode::Now,
                Mode::NextHeartbeat => schedule::WakeMode::NextHeartbeat,
            }),
            deliver: self.deliver.map(|deliver| match deliver {
                Deliver::None => schedule::Deliver::None,
                Deliver::Announce => schedule::Deliver::Announce,
                Deliver::Webhook => schedule::Deliver::Webhook,
            }),
            to: self.to,
            timeout_seconds,
            max_rounds: self.max_rounds,
            model: self.model,
        })
    }
}

/// The options of a job, after checking its model and webhook. The target is checked only when it
/// is set or changed; an unchanged target is checked when the job runs.
pub(super) fn options(
    call: &CallContext,
    spec: JobSpec,
    name: &str,
    before: Option<&JobOptions>,
) -> Result<JobOptions, Refusal> {
    let (agent_id, name, limits) = (&call.caller.agent_id, name.trim(), call.services.ctx.limits());
    let options = match before {
        Some(before) => spec.changes(before, agent_id, name, &limits),
        None => spec.options(agent_id, name, &limits),
    };
    let options = options.map_err(with_tool_field)?;
    let plan = call.services.plan();
    plan.check_job(&options)?;
    if before.is_none_or(|before| before.to != options.to) {
        plan.check_thread(agent_id, &options)?;
    }
    Ok(options)
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
