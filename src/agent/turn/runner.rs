//! The state of a running turn, and what all its phases share: its writes, its clock and its bounds.
//!
//! Nothing here decides what a turn does next.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ghost_config::plan::Plan;
use ghost_config::spec::AgentSpec;
use ghost_domain::journal::{CallOutcome, FilePlan};
use ghost_domain::time::Clock;
use ghost_domain::{Activity, Agent, CallId, Code, HeldSkill, Limits, Refusal, SeenTools, Timestamp, Turn, TurnId};
use ghost_operations::Tx;
use ghost_operations::turns::{self, BriefedLog, CallStart, Ending};
use ghost_provider::Class;
use ghost_tools::loop_guard::LoopGuard;
use ghost_tools::{CallContext, Output, Registry};
use serde_json::json;

use super::call::{Checked, Ended, PendingResult, start_of};
use super::conversation::Conversation;
use crate::engine::Engine;
use crate::log::Log;
use crate::log::view;
use crate::prompt::Part;
use crate::retry_write;
use crate::session::AgentSession;
use crate::transcript::Failure;

/// A running turn.
pub(super) struct Runner {
    pub(super) engine: Arc<Engine>,
    pub(super) session: Arc<AgentSession>,
    /// The turn's row as the turn's last write left it.
    pub(super) turn: Turn,
    pub(super) terms: Terms,
    pub(super) tools: TurnTools,
    pub(super) prompt: Prompt,
    pub(super) conversation: Conversation,
    pub(super) progress: Progress,
    pub(super) guard: LoopGuard,
    /// A result that is journaled with the next write.
    pub(super) pending_result: Option<Arc<PendingResult>>,
}

/// What stays as it is while the turn runs.
pub(super) struct Terms {
    pub(super) spec: Arc<AgentSpec>,
    /// The plan under which the turn was opened.
    pub(super) plan: Arc<Plan>,
    /// Whether the turn calls its model for a person or for a machine.
    pub(super) class: Class,
    /// Whether the turn's time limit is a cron job's own. That limit interrupts running calls.
    pub(super) timed: bool,
    /// Whether the turn is an operator's call, which runs beside the agent's own turns. It is not shown as the agent's
    /// activity, and waits for nobody.
    pub(super) for_operator: bool,
}

/// The tools of a turn.
pub(super) struct TurnTools {
    pub(super) registry: Registry,
    /// The plan that the registry was built from.
    pub(super) plan: Arc<Plan>,
    /// `None` if the world's tools stay as they are.
    pub(super) live: Option<LiveTools>,
}

/// What a turn remembers of its tools, in a world whose tools come and go.
pub(super) struct LiveTools {
    /// The agent as the turn was opened.
    pub(super) agent: Agent,
    /// The skills that it held when the tools were taken.
    pub(super) held: Vec<HeldSkill>,
    /// The tools as the model saw them.
    pub(super) seen: SeenTools,
    /// Whether the agent may hold other skills than before.
    pub(super) skills_changed: bool,
}

/// The prompt of a turn, without its tools.
pub(super) struct Prompt {
    /// The system part.
    pub(super) system: Arc<Part>,
    /// The mail as the model reads it.
    pub(super) mail: String,
    /// The session's log without this turn.
    pub(super) log: Log,
    /// The [`Engine::log_version`] under which the log was read.
    pub(super) log_version: u64,
    /// The rest of what is journaled of the prompt; `None` once it is in the journal.
    pub(super) unwritten: Option<Unwritten>,
}

/// What only the journal needs of a prompt.
pub(super) struct Unwritten {
    /// The briefing part.
    pub(super) briefing: Arc<Part>,
    /// What is journaled of the log.
    pub(super) log: BriefedLog,
}

/// What a turn has done so far.
#[derive(Default)]
pub(super) struct Progress {
    /// Answers so far.
    pub(super) rounds: u32,
    /// Corrections of malformed answers so far.
    pub(super) corrections: u32,
    /// The model calls that failed before a restart, since the last answer.
    pub(super) failures: Vec<Failure>,
    /// Failed rounds while the same model answered others.
    pub(super) alone: u32,
    /// Time spent on the turn's own work; waiting in a pool or for a reply is excluded.
    pub(super) worked: Duration,
    /// The total wait of the turn's writes for the store, in milliseconds.
    pub(super) paused_ms: AtomicU64,
}

/// Why a turn runs no further.
pub(super) enum End {
    /// This end is to be written.
    With(Ending),
    /// No model can answer it: see [`turns::fail`].
    Failed(Refusal),
    /// The transaction of the last answer wrote the end.
    Written,
    /// The root's budget is spent: the turn is parked, and the agent continues with other work.
    SetAside,
    /// It stays open: its agent cannot run under the current plan.
    CannotRun(Refusal),
    /// It stays open: its agent is being restarted.
    Yielded,
    /// It stays open: another plan is current, and the turn is opened again under it.
    Reopened,
    /// A write was refused, or the store cannot be read.
    Broken(Refusal),
}

impl From<Refusal> for End {
    fn from(refusal: Refusal) -> Self {
        Self::Broken(refusal)
    }
}

/// When some work of the turn began.
pub(super) struct Began {
    pub(super) at: Timestamp,
    paused: Duration,
}

impl Runner {
    /// The refusal that ends the turn, if it has used its time.
    pub(super) fn out_of_time(&self) -> Option<Refusal> {
        let limit = self.terms.spec.limits.turn_seconds;
        if self.progress.worked < Limits::seconds(limit) {
            return None;
        }
        let what = format!("the turn worked for {} s, which is its limit", self.progress.worked.as_secs());
        if !self.terms.timed {
            return Some(limit_reached(what, "turn_seconds"));
        }
        let refusal = Refusal::new(Code::Timeout, what).hint("give the job smaller work, or a longer timeout");
        Some(refusal.details(json!({ "limit": "timeout_seconds", "value": limit })))
    }

    /// The remaining time of the turn.
    pub(super) fn time_left(&self) -> Duration {
        Limits::seconds(self.terms.spec.limits.turn_seconds).saturating_sub(self.progress.worked)
    }

    pub(super) fn show(&self, activity: Activity) {
        if !self.terms.for_operator {
            self.session.set_activity(activity);
            self.engine.activity.show(&self.turn.agent_id, activity);
        }
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.engine.services.ctx.ports.clock
    }

    pub(super) fn limits(&self) -> Arc<Limits> {
        self.engine.services.ctx.limits()
    }

    /// Notes the time before some work of the turn.
    pub(super) fn begin(&self) -> Began {
        Began { at: self.clock().steady(), paused: self.paused() }
    }

    /// The time since then, without waiting for an unavailable store.
    pub(super) fn since(&self, began: &Began) -> Duration {
        self.clock().steady().since(began.at).saturating_sub(self.paused().saturating_sub(began.paused))
    }

    /// How long the turn's writes have waited for an unavailable store, in total. Parallel waits
    /// are added up.
    fn paused(&self) -> Duration {
        Duration::from_millis(self.progress.paused_ms.load(Ordering::Relaxed))
    }

    /// Writes, and retries until the store commits the write. An operator's call is written only
    /// once, because the operator waits for the answer.
    pub(super) async fn write_with_retry<T, F>(&self, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce(&mut Tx, TurnId) -> Result<T, Refusal> + Clone + Send + 'static,
    {
        let turn_id = self.turn.turn_id;
        let work = move |w: &mut Tx| work(w, turn_id);
        if self.terms.for_operator {
            return retry_write::attempt(&self.engine, work).await.map_err(Refusal::from);
        }
        let paused = |pause: Duration| {
            let took = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            self.progress.paused_ms.fetch_add(took, Ordering::Relaxed);
        };
        retry_write::write_with_retry(&self.engine, turn_id, work, paused).await
    }

    /// Records the pending result, if there is one, in a transaction of its own.
    pub(super) async fn flush(&mut self) -> Result<(), Refusal> {
        let Some(pending_result) = self.pending_result.take() else { return Ok(()) };
        self.write_with_retry(move |w, turn_id| pending_result.record(w, turn_id)).await
    }

    pub(super) async fn record_start(&self, start: CallStart) -> Result<(), Refusal> {
        let turn_id = self.turn.turn_id;
        let written = self.engine.services.write(move |w| {
            let turn = turns::working_turn(w, turn_id)?;
            turns::record_call_start(w, &turn, &start)
        });
        written.await
    }

    /// Records the end of a call; with `start`, the start also, in the same transaction.
    pub(super) async fn record_result(
        &self,
        start: Option<CallStart>,
        ended: Ended,
        result: Result<Output, Refusal>,
    ) -> Result<CallOutcome, Refusal> {
        self.write_with_retry(move |w, turn_id| {
            let turn = turns::working_turn(w, turn_id)?;
            if let Some(start) = start {
                turns::record_call_start(w, &turn, &start)?;
            }
            ended.record(w, &turn, result)
        })
        .await
    }

    /// A new id of a call.
    pub(super) fn call_id(&self) -> CallId {
        CallId(self.engine.services.ctx.id())
    }

    pub(super) fn call_start(&self, checked: &Checked, call_id: CallId, files: Vec<FilePlan>) -> CallStart {
        let Checked { call, tool, alias, run, .. } = checked;
        CallStart { files, ..start_of(call_id, call, &tool.spec.name, alias.clone(), run.effect()) }
    }

    pub(super) fn ended(&self, checked: &Checked, call_id: CallId) -> Ended {
        let (id, tool) = (checked.call.id.clone(), checked.tool.spec.name.clone());
        Ended { call_id, id, tool, view_bytes: Some(self.view_bytes(checked)) }
    }

    /// The largest part of a result that the model sees, in bytes.
    pub(super) fn view_bytes(&self, checked: &Checked) -> u32 {
        checked.tool.view_bytes.unwrap_or(self.terms.spec.limits.result_view_bytes)
    }

    /// The context of a call. A call that needs an approval runs only after it was approved.
    pub(super) fn call_context(&self, call_id: CallId, checked: &Checked) -> CallContext {
        CallContext {
            services: Arc::clone(&self.engine.services),
            caller: Arc::clone(self.tools.registry.caller()),
            tools: self.tools.registry.specs(),
            turn_id: self.turn.turn_id,
            root_id: self.turn.root_id,
            hop: self.turn.hop,
            conversation_id: self.turn.conversation_id,
            call_id,
            provider_call_id: checked.call.id.clone(),
            approved: checked.needs_approval.is_some(),
            progress: checked.call.begun.as_ref().and_then(|begun| begun.progress.as_deref().cloned()),
        }
    }

    /// The name of a call in all records: the tool's own name, or, if there is no such tool, a
    /// label made from the name that the model wrote.
    pub(super) fn recorded_name(&self, name: &str) -> String {
        self.tools.registry.known(name).map_or_else(|| self.engine.services.ctx.label(name), str::to_owned)
    }

    pub(super) fn view(&self, tool: &str, outcome: &CallOutcome) -> (String, bool) {
        view(&self.tools.registry, &self.limits(), self.terms.spec.limits.result_view_bytes, tool, outcome)
    }
}

/// The refusal of a turn that has reached a limit of its agent.
pub(super) fn limit_reached(what: String, setting: &str) -> Refusal {
    Refusal::new(Code::LoopGuard, what)
        .hint(format!("give it smaller work, or raise limits.{setting}"))
        .details(json!({ "limit": setting }))
}

/// The result of `work`, or `None` if `limit` elapses first; then `work` is cancelled. `work` is
/// polled first, so it wins if both are ready at the same instant. The timer also runs if `work`
/// uses up the task's cooperative budget.
pub(super) async fn within<T>(clock: &dyn Clock, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let late = tokio::task::unconstrained(clock.sleep(limit));
    tokio::select! {
        biased;
        done = work => Some(done),
        () = late => None,
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::testing::ManualClock;

    use super::*;

    #[tokio::test]
    async fn the_limit_applies_while_the_work_uses_up_the_task_budget() {
        let clock = ManualClock::at(0);
        let busy = async {
            clock.advance(Duration::from_secs(1));
            for _ in 0..1_000_000 {
                tokio::task::coop::consume_budget().await;
            }
        };
        assert_eq!(within(&*clock, Duration::from_secs(1), busy).await, None);
    }
}
