//! A turn under way: what it works with, and what every step of it asks.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_config::spec::AgentSpec;
use ghost_domain::journal::CallOutcome;
use ghost_domain::time::Clock;
use ghost_domain::transcript::Message;
use ghost_domain::{Activity, AgentId, CallId, Code, Limits, Refusal, Turn};
use ghost_provider::{Class, Pass};
use ghost_rules::turns::Held;
use ghost_tools::loop_guard::LoopGuard;
use ghost_tools::view::model_view;
use ghost_tools::{CallContext, Registry};
use serde_json::json;

use super::call::Checking;
use super::pending_result::PendingResult;
use super::session::AgentSession;
use crate::engine::Engine;
use crate::prompt::Part;
use crate::transcript::{Failure, OpenCall};

/// A turn under way.
pub(super) struct Runner {
    pub(super) engine: Arc<Engine>,
    pub(super) agent_id: AgentId,
    pub(super) turn: Turn,
    pub(super) spec: Arc<AgentSpec>,
    pub(super) registry: Registry,
    /// The stable system part.
    pub(super) system: Arc<Part>,
    /// The stable briefing.
    pub(super) briefing: Arc<Part>,
    /// What is recalled, and the mail.
    pub(super) opening: (String, String),
    /// Whether the prompt is in the journal already.
    pub(super) briefed: bool,
    /// Everything that the model is shown.
    pub(super) messages: Vec<Message>,
    /// How many of `messages` are the opening.
    pub(super) opening_messages: usize,
    /// Bytes that the conversation may have; fewer than the agent's bound once a model has refused it as too long.
    pub(super) context: usize,
    /// Calls of the last answer that have no result yet.
    pub(super) open: Vec<OpenCall>,
    /// The one call of the last answer, checked; with its id if its start is in the journal.
    pub(super) prepared: Option<(Checking, Option<CallId>)>,
    /// The result that goes into the journal with what is written next.
    pub(super) pending_result: Option<Arc<PendingResult>>,
    /// The mail that the turn holds; `None` if only the store knows, after a restart or when mail has joined.
    pub(super) held: Option<Held>,
    pub(super) rounds: u32,
    pub(super) corrections: u32,
    pub(super) failures: Vec<Failure>,
    pub(super) guard: LoopGuard,
    /// The loop guard's last word, if it has spoken it.
    pub(super) looped: Option<Refusal>,
    /// Time spent on the turn's own work; waiting in a pool or for a reply does not count.
    pub(super) worked: Duration,
    /// For how long its writes have waited for the store, in milliseconds.
    pub(super) paused_ms: AtomicU64,
    pub(super) session: Arc<AgentSession>,
    /// Whether its time is a job's own, which cuts off what is under way when it ends.
    pub(super) timed: bool,
    /// On whose behalf it calls its model.
    pub(super) class: Class,
    /// Rounds of attempts that failed while the same model answered others.
    pub(super) alone: u32,
    /// The right to call a model, won before the turn was opened.
    pub(super) pass: Option<Pass>,
    /// The plan that the turn was opened with.
    pub(super) plan: Arc<Plan>,
    /// Whether the turn is to be opened again, with the files that are in force now.
    pub(super) anew: bool,
    /// Whether the board shows what this turn does; an operator's call stands beside the agent's own turns.
    pub(super) shown: bool,
}

impl Runner {
    /// Why the turn may not go on, if it has worked for as long as it may.
    pub(super) fn out_of_time(&self) -> Option<Refusal> {
        let most = self.spec.limits.turn_seconds;
        if self.worked < Limits::seconds(most) {
            return None;
        }
        let what = format!("the turn worked for {} s, which is its bound", self.worked.as_secs());
        if !self.timed {
            return Some(bound_reached(what, "turn_seconds"));
        }
        let refusal = Refusal::new(Code::Timeout, what).hint("give the job smaller work, or a longer timeout");
        Some(refusal.details(json!({ "limit": "timeout_seconds", "value": most })))
    }

    /// `most`, or what is left of a job's own time if that is less.
    pub(super) fn at_most(&self, most: Duration) -> Duration {
        if self.timed { most.min(self.left()) } else { most }
    }

    /// What is left of the time that the turn may work.
    pub(super) fn left(&self) -> Duration {
        Limits::seconds(self.spec.limits.turn_seconds).saturating_sub(self.worked)
    }

    pub(super) fn show(&self, activity: Activity) {
        if self.shown {
            self.session.shows(activity);
            self.engine.activity.show(&self.agent_id, activity);
        }
    }

    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.engine.services.ctx.ports.clock)
    }

    pub(super) fn limits(&self) -> Arc<Limits> {
        self.engine.services.ctx.limits()
    }

    pub(super) fn call_cx(&self, call_id: CallId, provider_call_id: &str) -> CallContext {
        call_cx(&self.engine, &self.registry, &self.turn, call_id, provider_call_id)
    }

    /// The name that a call has in every record: the tool's own. What is no tool's name is only words of the model's.
    pub(super) fn recorded_name(&self, name: &str) -> String {
        self.registry.known(name).map_or_else(|| self.engine.services.ctx.label(name), str::to_owned)
    }

    pub(super) fn view(&self, tool: &str, outcome: &CallOutcome) -> (String, bool) {
        view(&self.registry, &self.limits(), self.spec.limits.result_view_bytes, tool, outcome)
    }
}

/// What a tool is told of one call.
pub(super) fn call_cx(
    engine: &Arc<Engine>,
    registry: &Registry,
    turn: &Turn,
    call_id: CallId,
    provider_call_id: &str,
) -> CallContext {
    CallContext {
        services: Arc::clone(&engine.services),
        caller: Arc::clone(registry.caller()),
        turn_id: turn.turn_id,
        root_id: turn.root_id,
        hop: turn.hop,
        call_id,
        provider_call_id: provider_call_id.to_owned(),
    }
}

/// The text that a model is shown for an outcome.
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

pub(super) fn bound_reached(what: String, setting: &str) -> Refusal {
    Refusal::new(Code::LoopGuard, what)
        .hint(format!("give it smaller work, or raise limits.{setting}"))
        .details(serde_json::json!({ "limit": setting }))
}
