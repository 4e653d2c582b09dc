//! How a cron job runs, as a model writes it (SCHED-05, SCHED-08).

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

/// What a job is to you.
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

/// How a job runs.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    /// `main`: in your ongoing conversation; `isolated`: apart from it.
    #[serde(default)]
    session: Option<Session>,
    /// `systemEvent` (the default) is mail to you, in `main`; `agentTurn` is a turn of its own, in `isolated`, that recalls
    /// nothing of your other turns.
    #[serde(default)]
    payload: Option<Payload>,
    /// For a systemEvent: wake you `now` (the default), or with your `next-heartbeat`.
    #[serde(default)]
    wake: Option<Mode>,
    /// For an agentTurn: where its last words go. `announce` (the default), `webhook` or `none`.
    #[serde(default)]
    deliver: Option<Deliver>,
    /// For `announce`: `last` (your last conversation with someone outside; the default), a chat channel, or a conversation's
    /// id. For `webhook`: its name, for a thread of the job's own; name/thread only if its threads go to you.
    #[serde(default)]
    to: Option<String>,
    /// For an agentTurn: how long it may work, such as 90s.
    #[serde(default)]
    timeout: Option<String>,
    /// For an agentTurn: how many model calls it may make.
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
                return Err(wrong("options.timeout is whole seconds", "write such as 90s or 2m"));
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

/// How a job runs, with a model and a webhook that the world has. Where its last words go is judged when it is said: what
/// the job has from `before` is looked at when it runs.
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
    let options = options.map_err(as_called)?;
    let plan = call.services.plan();
    plan.check_job(&options)?;
    if before.is_none_or(|before| before.to != options.to) {
        plan.check_thread(agent_id, &options)?;
    }
    Ok(options)
}

/// A refusal in the words of this tool, which takes the time of a turn as a text.
fn as_called(mut refusal: Refusal) -> Refusal {
    const CALLED: (&str, &str) = ("timeout_seconds", "options.timeout");
    refusal.message = refusal.message.replace(CALLED.0, CALLED.1);
    refusal.hint = refusal.hint.map(|hint| hint.replace(CALLED.0, CALLED.1));
    if let Some(field) = refusal.details.as_mut().and_then(|details| details.get_mut("field"))
        && field == CALLED.0
    {
        *field = json!(CALLED.1);
    }
    refusal
}
