//! The state of a running turn, and helpers that its steps share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_config::spec::AgentSpec;
use ghost_domain::journal::CallOutcome;
use ghost_domain::time::Clock;
use ghost_domain::transcript::Message;
use ghost_domain::{Activity, AgentId, CallId, Code, Limits, Refusal, Turn};
use ghost_operations::turns::BriefedLog;
use ghost_provider::Class;
use ghost_tools::loop_guard::LoopGuard;
use ghost_tools::view::model_view;
use ghost_tools::{CallContext, Registry};
use serde_json::json;

use super::admission::Admission;
use super::call::{Checked, Checking};
use super::pending_result::PendingResult;
use super::session::AgentSession;
use super::turn_tools::TurnTools;
use crate::engine::Engine;
use crate::log::Log;
use crate::prompt::Part;
use crate::transcript::{Failure, OpenCall};

/// A running turn.
pub(super) struct Runner {
    pub(super) engine: Arc<Engine>,
    pub(super) agent_id: AgentId,
    pub(super) turn: Turn,
    pub(super) spec: Arc<AgentSpec>,
    pub(super) registry: Registry,
    /// The system part of the prompt.
    pub(super) system: Arc<Part>,
    /// The briefing part of the prompt.
    pub(super) briefing: Arc<Part>,
    /// The session's log without this turn.
    pub(super) log: Log,
    /// The [`Engine::log_version`] under which the log was read.
    pub(super) log_version: u64,
    /// What is journaled of the log.
    pub(super) briefed_log: BriefedLog,
    /// The mail as the model reads it.
    pub(super) mail: String,
    /// Whether the prompt is in the journal.
    pub(super) briefed: bool,
    /// The whole conversation.
    pub(super) messages: Arc<Vec<Message>>,
    /// Number of messages before the mail: the briefing and the log.
    pub(super) past: usize,
    /// Whether the messages after the mail are those of the journal, so that they may become part of the log in
    /// memory.
    pub(super) whole: bool,
    /// Limit of the conversation in bytes; smaller than the agent's setting once a model has
    /// refused it as too long.
    pub(super) context: usize,
    /// Calls of the last answer that have no result yet.
    pub(super) open: Vec<OpenCall>,
    /// The sole call of the last answer, checked; with its id if its start is in the journal.
    pub(super) prepared: Option<(Checking, Option<CallId>)>,
    /// A result that is journaled with the next write.
    pub(super) pending_result: Option<Arc<PendingResult>>,
    pub(super) rounds: u32,
    pub(super) corrections: u32,
    pub(super) failures: Vec<Failure>,
    pub(super) guard: LoopGuard,
    /// Set when the loop guard ends the turn.
    pub(super) loop_stop: Option<Refusal>,
    /// Time spent on the turn's own work; waiting in a pool or for a reply is excluded.
    pub(super) worked: Duration,
    /// The total wait of the turn's writes for the store, in milliseconds.
    pub(super) paused_ms: AtomicU64,
    pub(super) session: Arc<AgentSession>,
    /// Whether the turn's time limit is a cron job's own. That limit interrupts running calls.
    pub(super) timed: bool,
    /// Whether the turn calls its model for a person or for a machine.
    pub(super) class: Class,
    /// Failed rounds while the same model answered others.
    pub(super) alone: u32,
    /// The pass and the slot for the first model call, obtained before the turn was opened.
    pub(super) admission: Option<Admission>,
    /// The plan under which the turn was opened.
    pub(super) plan: Arc<Plan>,
    /// The plan that the registry was built from.
    pub(super) plan_of_tools: Arc<Plan>,
    /// The tools as the model saw them; `None` if the world's tools stay as they are.
    pub(super) live: Option<TurnTools>,
    /// Whether the turn must be opened again, because another plan is current.
    pub(super) reopen: bool,
    /// Whether the turn's activity is shown as the agent's. False for an operator's call, which
    /// runs beside the agent's own turns.
    pub(super) reports_activity: bool,
}

impl Runner {
    /// The conversation, to be changed. It is copied if a request still shares it.
    pub(super) fn messages_mut(&mut self) -> &mut Vec<Message> {
        Arc::make_mut(&mut self.messages)
    }

    /// The refusal that ends the turn, if it has used its time.
    pub(super) fn out_of_time(&self) -> Option<Refusal> {
        let limit = self.spec.limits.turn_seconds;
        if self.worked < Limits::seconds(limit) {
            return None;
        }
        let what = format!("the turn worked for {} s, which is its limit", self.worked.as_secs());
        if !self.timed {
            return Some(limit_reached(what, "turn_seconds"));
        }
        let refusal = Refusal::new(Code::Timeout, what).hint("give the job smaller work, or a longer timeout");
        Some(refusal.details(json!({ "limit": "timeout_seconds", "value": limit })))
    }

    /// `duration`, or the job's remaining time if that is less.
    pub(super) fn capped(&self, duration: Duration) -> Duration {
        if self.timed { duration.min(self.time_left()) } else { duration }
    }

    /// The remaining time of the turn.
    pub(super) fn time_left(&self) -> Duration {
        Limits::seconds(self.spec.limits.turn_seconds).saturating_sub(self.worked)
    }

    pub(super) fn show(&self, activity: Activity) {
        if self.reports_activity {
            self.session.set_activity(activity);
            self.engine.activity.show(&self.agent_id, activity);
        }
    }

    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.engine.services.ctx.ports.clock)
    }

    pub(super) fn limits(&self) -> Arc<Limits> {
        self.engine.services.ctx.limits()
    }

    /// The context of a call. A call that needs an approval runs only after it was approved.
    pub(super) fn call_context(&self, call_id: CallId, checked: &Checked) -> CallContext {
        CallContext {
            services: Arc::clone(&self.engine.services),
            caller: Arc::clone(self.registry.caller()),
            tools: self.registry.specs(),
            turn_id: self.turn.turn_id,
            root_id: self.turn.root_id,
            hop: self.turn.hop,
            conversation_id: self.turn.conversation_id,
            call_id,
            provider_call_id: checked.call.id.clone(),
            approved: checked.needs_approval.is_some(),
            progress: checked.call.begun.as_ref().and_then(|begun| begun.progress.clone()),
        }
    }

    /// The name of a call in all records: the tool's own name, or, if there is no such tool, a
    /// label made from the name that the model wrote.
    pub(super) fn recorded_name(&self, name: &str) -> String {
        self.registry.known(name).map_or_else(|| self.engine.services.ctx.label(name), str::to_owned)
    }

    pub(super) fn view(&self, tool: &str, outcome: &CallOutcome) -> (String, bool) {
        view(&self.registry, &self.limits(), self.spec.limits.result_view_bytes, tool, outcome)
    }
}

/// The text of an outcome for the model.
pub(super) fn view(
    registry: &Registry,
    limits: &Limits,
    own: u32,
    tool: &str,
    outcome: &CallOutcome,
) -> (String, bool) {
    let bytes = registry.find(tool).ok().and_then(|(tool, _)| tool.view_bytes).unwrap_or(own);
    model_view(outcome, Some(bytes), limits)
}

pub(super) fn limit_reached(what: String, setting: &str) -> Refusal {
    Refusal::new(Code::LoopGuard, what)
        .hint(format!("give it smaller work, or raise limits.{setting}"))
        .details(serde_json::json!({ "limit": setting }))
}
