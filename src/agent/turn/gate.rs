//! The gate before a model call: waiting until a model may be asked. A running turn parks here with its journal until a
//! probe succeeds, its budget has room, or a pause is over.
//!
//! The gate must never hold a slot of a provider while it waits for a model.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{FutureExt as _, select_all};
use ghost_config::plan::{Plan, ProviderKind, ProviderPlan};
use ghost_config::spec::AgentSpec;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::model_facts::ModelFacts;
use ghost_domain::{Activity, AgentId, Code, Price, Refusal, Scope, Timestamp, budget};
use ghost_operations::{Wait, asks, turns};
use ghost_provider::{Admitted, Entry, ErrorKind, Outage, Pass, ProviderError, Slot};
use serde_json::json;
use tokio::sync::futures::Notified;

use super::attempts::{Attempts, Candidate, RoundEnd};
use super::runner::{End, Runner};
use crate::budget_queue::Ticket;
use crate::engine::Engine;
use crate::session::AgentSession;

/// How often a wait for the next day checks the clock.
const DAY_STEP: Duration = Duration::from_secs(60);
/// The hint when no model has answered.
const UNANSWERED: &str = "see `ghostctl events --kind model.failed`, then `ghostctl turn retry --failed`";

/// An agent at work.
#[derive(Clone, Copy)]
pub(super) struct Worker<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) agent_id: &'a AgentId,
    pub(super) session: &'a Arc<AgentSession>,
}

impl Worker<'_> {
    /// Waits while all turns are held back, because what they write would soon find no room. Returns whether it has waited.
    pub(super) async fn wait_for_room(self) -> bool {
        let mut held = self.engine.services.ctx.held();
        let Some(why) = held.borrow_and_update().clone() else { return false };
        self.engine.activity.show(self.agent_id, Activity::Queued);
        let _waiting = Waiting::begin(self, Wait::for_reason(why));
        // The sender is in the context, so the wait itself cannot fail.
        let _ = held.wait_for(Option::is_none).await;
        true
    }
}

/// Marks an agent as waiting until it is dropped. A stop need not let a waiting agent finish.
pub(super) struct Waiting<'a> {
    worker: Worker<'a>,
    wait: u64,
    /// Whether askers see why they get no answer.
    is_shown: bool,
    /// What a person must repair before the models can answer.
    pub(super) repair: Option<&'static str>,
}

impl<'a> Waiting<'a> {
    pub(super) fn begin(worker: Worker<'a>, why: Wait) -> Self {
        let repair = why.repair;
        worker.engine.services.ctx.set_waiting(worker.agent_id, Some(why));
        // Agents that cannot work must not keep others from it.
        worker.engine.activity.set_waits(worker.agent_id, true);
        Self { worker, wait: worker.session.begin_wait(), is_shown: true, repair }
    }

    /// Begins a wait for a slot, which every agent that works has.
    pub(super) fn in_queue(worker: Worker<'a>) -> Self {
        Self { worker, wait: worker.session.begin_wait(), is_shown: false, repair: None }
    }

    /// Begins a wait for models. If a person must repair one, people who wait for an answer learn it at once.
    pub(super) async fn for_models(worker: Worker<'a>, why: Wait) -> Result<Self, Refusal> {
        let waiting = Self::begin(worker, why.clone());
        if why.repair.is_some() {
            let agent_id = worker.agent_id.clone();
            worker.engine.services.write(move |w| asks::tell_people(w, &agent_id, &why)).await?;
        }
        Ok(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Worker { engine, agent_id, session } = self.worker;
        if session.end_wait(self.wait) && self.is_shown {
            engine.activity.set_waits(agent_id, false);
            engine.services.ctx.set_waiting(agent_id, None);
        }
    }
}

/// A registered wait for a [`tokio::sync::Notify`].
type Notification<'a> = Pin<Box<Notified<'a>>>;

/// Registers the notification at once, so that later notifications are not missed.
pub(super) fn registered(notification: Notified<'_>) -> Notification<'_> {
    let mut notification = Box::pin(notification);
    notification.as_mut().enable();
    notification
}

/// What may let a model be asked. It is noticed from here on, so this is created before breakers and budgets are read.
pub(super) struct Changes<'a> {
    engine: &'a Engine,
    /// Breakers and budget limits.
    available: Vec<Notification<'a>>,
    retry_now: Notification<'a>,
    plan_changed: Notification<'a>,
}

/// What has changed.
pub(super) enum Change {
    /// A breaker, a budget limit or the time.
    Availability,
    /// An operator or the world asked to try again now.
    RetryRequested,
    /// Another plan is current.
    PlanChanged,
}

impl<'a> Changes<'a> {
    pub(super) fn begin(engine: &'a Engine, session: &'a AgentSession, available: Vec<Notification<'a>>) -> Self {
        let retry_now = registered(session.retry_now.notified());
        Self { engine, available, retry_now, plan_changed: registered(engine.plan_changed.notified()) }
    }

    /// Waits for a change, at most until this time.
    pub(super) async fn until(self, until: Option<Timestamp>) -> Change {
        let clock = Arc::clone(&self.engine.services.ctx.ports.clock);
        let due = async {
            match until {
                Some(until) => clock.sleep(until.since(clock.steady())).await,
                None => std::future::pending().await,
            }
        };
        self.or(due).await
    }

    /// Waits for a change. `due` counts as one.
    async fn or(self, due: impl Future<Output = ()>) -> Change {
        tokio::select! {
            biased;
            () = self.plan_changed => Change::PlanChanged,
            () = self.retry_now => Change::RetryRequested,
            _ = select_all(self.available) => Change::Availability,
            () = due => Change::Availability,
        }
    }
}

/// Why none of these models can be asked: what is wrong with the first. A person must help if waiting helps none.
pub(super) fn why_down<'a>(models: impl Iterator<Item = (&'a Entry, &'a str)>) -> Wait {
    let (mut reason, mut repairs) = (None, Vec::new());
    for (entry, model) in models {
        let outage = entry.breaker.outage(model);
        repairs.push(outage.as_ref().and_then(|outage| outage.kind.repair()));
        let outage = outage.map_or_else(String::new, |outage| format!(": {}", outage.reason));
        reason.get_or_insert_with(|| format!("{model} at {} is down{outage}", entry.name));
    }
    let repair = repairs.first().copied().flatten().filter(|_| repairs.iter().all(Option::is_some));
    Wait { reason: reason.unwrap_or_default().into(), repair }
}

/// What a model call needs.
pub(super) struct Admission {
    /// A pass of the model.
    pub(super) pass: Pass,
    /// A slot of its provider.
    pub(super) slot: Slot,
}

/// The models that an agent asks, in order: provider and model.
pub(super) fn model_order(plan: &Plan, spec: &AgentSpec) -> Vec<(String, String)> {
    let first = spec.model.provider.clone().unwrap_or_else(|| plan.llm.default_provider.clone());
    let model = spec.model.model.clone().unwrap_or_else(|| plan.llm.default_model.clone());
    let fallbacks = spec.model.fallback_models.iter().map(|fallback| {
        let (provider, model) = plan.llm.fallback_target(&first, fallback);
        (provider.to_owned(), model.to_owned())
    });
    let fallbacks: Vec<_> = fallbacks.collect();
    std::iter::once((first, model)).chain(fallbacks).collect()
}

/// A model of a provider that the turn may ask.
pub(super) struct Choice {
    pub(super) entry: Arc<Entry>,
    pub(super) model: String,
    pub(super) price: Option<Price>,
    pub(super) facts: Arc<ModelFacts>,
}

impl Choice {
    /// Whether the model answers from a file of this world. What it refuses once, it refuses always.
    pub(super) fn answers_here(&self) -> bool {
        matches!(self.entry.plan.kind, ProviderKind::Scripted | ProviderKind::Recorded)
    }

    /// The number of its answers so far, to anyone.
    pub(super) fn answers(&self) -> u64 {
        self.entry.breaker.answers(&self.model)
    }
}

impl Candidate for Choice {
    fn model(&self) -> &str {
        &self.model
    }

    fn provider(&self) -> &str {
        &self.entry.name
    }

    fn plan(&self) -> &ProviderPlan {
        &self.entry.plan
    }
}

/// The call for the next answer, over all its attempts.
pub(super) struct ModelCall {
    /// The models that may be asked, in order.
    pub(super) choices: Vec<Choice>,
    pub(super) attempts: Attempts,
    /// Its place in the queue for budget.
    pub(super) ticket: Ticket,
    /// The pass and the slot for the first attempt, if the turn has them already.
    pub(super) admission: Option<Admission>,
    /// Whether guidance that has come for a droid goes before the call.
    pub(super) may_guide: bool,
    /// Work time of the turn before the call.
    pub(super) worked: Duration,
}

impl ModelCall {
    /// The model that is asked.
    pub(super) fn choice(&self) -> &Choice {
        &self.choices[self.attempts.at()]
    }

    /// The last model that failed, and its error.
    fn last(&self) -> Option<(&Choice, &ProviderError)> {
        self.attempts.last().map(|(at, error)| (&self.choices[at], error))
    }

    /// Why a turn ends when no model that may be asked is left: what was wrong with the last one.
    pub(super) fn refused(&self) -> Refusal {
        let Some((choice, error)) = self.last() else {
            // After a restart, only the events have details.
            return unanswered(&format!("{} has failed in this turn", self.choices[0].model));
        };
        let details = format!("{} ({}): {}", choice.model, choice.entry.name, error.message);
        if error.kind != ErrorKind::ContextTooLong {
            return unanswered(&details);
        }
        Refusal::new(Code::TooLarge, format!("no model takes this conversation: {details}")).hint(
            "give the agent a model with a larger context window, or send smaller messages; `context_window_tokens` of its \
             archetype is the size of its model's window",
        )
    }
}

/// Why an attempt gave no answer.
pub(super) enum Unanswered {
    /// Another attempt follows.
    Again,
    /// All models that could be asked in this round have failed or are down. The next round may help.
    RoundOver,
    /// Guidance has come for the droid.
    Guided,
    /// The turn runs no further.
    End(End),
}

impl From<Refusal> for Unanswered {
    fn from(refusal: Refusal) -> Self {
        Self::End(End::Broken(refusal))
    }
}

/// The numbers of answers of these models so far.
pub(super) fn answers_of(choices: &[Choice]) -> Vec<u64> {
    choices.iter().map(Choice::answers).collect()
}

impl Runner {
    /// The agent of the turn.
    pub(super) fn worker(&self) -> Worker<'_> {
        Worker { engine: &self.engine, agent_id: &self.turn.agent_id, session: &self.session }
    }

    /// The models to try, in order.
    pub(super) fn choices(&self) -> Result<Vec<Choice>, Refusal> {
        let providers = self.engine.providers();
        let plan = self.engine.services.plan();
        let models = model_order(&plan, &self.terms.spec).into_iter().map(|(provider, model)| {
            let entry = providers.get(&provider).ok_or_else(|| {
                Refusal::new(Code::Unavailable, format!("there is no provider `{provider}`"))
                    .hint("name it under llm.providers in world-config.yaml")
            })?;
            let price = ghost_provider::price(&plan.llm, &provider, entry.plan.kind, &model);
            let facts = Arc::new(plan.llm.facts(entry.plan.kind, &provider, &model));
            Ok(Choice { entry, model, price, facts })
        });
        models.collect()
    }

    /// Waits until a model may be asked, and returns its pass, with the slot of its provider if the turn has one already. It
    /// begins with the model of the last attempt, and skips those that have refused this conversation or do not fit a
    /// budget. The turn parks while no model may be asked.
    pub(super) async fn gate(&mut self, call: &mut ModelCall) -> Result<(Pass, Option<Slot>), Unanswered> {
        if call.attempts.all_refused() {
            return Err(Unanswered::End(End::Failed(call.refused())));
        }
        let (engine, session) = (Arc::clone(&self.engine), Arc::clone(&self.session));
        let agent_id = self.turn.agent_id.clone();
        let worker = Worker { engine: &engine, agent_id: &agent_id, session: &session };
        if engine.services.ctx.held().borrow().is_some() {
            call.ticket.pass_on();
            self.flush().await?;
            worker.wait_for_room().await;
        }
        let choices = &call.choices;
        if let Some(Admission { pass, slot }) = call.admission.take()
            && let Some(at) = choices.iter().position(|choice| pass.is_of(&choice.entry.breaker, &choice.model))
            && call.attempts.may_ask(at)
        {
            call.attempts.opened(at);
            return Ok((pass, Some(slot)));
        }
        let mut waiting: Option<Waiting<'_>> = None;
        loop {
            let breakers = choices.iter().map(|choice| choice.entry.breaker.changed());
            let available = breakers.chain([engine.queue.limits_changed.notified()]).map(registered);
            let mut changes = Changes::begin(&engine, &session, available.collect());
            call.attempts.recheck_budgets(engine.queue.limit_changes());
            let mut until = None;
            for (at, choice) in choices.iter().enumerate().skip(call.attempts.at()) {
                if !call.attempts.may_ask(at) {
                    continue;
                }
                match choice.entry.breaker.admit(&choice.model) {
                    Admitted::Pass(pass) => {
                        call.attempts.opened(at);
                        return Ok((pass, None));
                    }
                    Admitted::Wait(due) => until = until.into_iter().chain(due).min(),
                }
            }
            if call.attempts.at() > 0 {
                // The first models may answer in the next round.
                return Err(Unanswered::RoundOver);
            }
            if !Arc::ptr_eq(&self.terms.plan, &engine.services.plan()) {
                return Err(Unanswered::End(End::Reopened));
            }
            let why = why_down(choices.iter().map(|choice| (&*choice.entry, &*choice.model)));
            let probe_now = || choices.iter().for_each(|choice| choice.entry.breaker.probe_now(&choice.model));
            if waiting.as_ref().is_none_or(|waiting| waiting.repair != why.repair) {
                // Meanwhile, calls that wait only for budget continue.
                call.ticket.pass_on();
                self.flush().await?;
                self.park(&choices[0], &why.reason).await?;
                self.show(Activity::Queued);
                waiting = Some(Waiting::for_models(worker, why).await?);
                // The state may have changed during these writes, and a retry may have been requested.
                if (&mut changes.retry_now).now_or_never().is_some() {
                    probe_now();
                }
                continue;
            }
            match changes.until(until).await {
                Change::Availability => {}
                Change::RetryRequested => probe_now(),
                Change::PlanChanged => return Err(Unanswered::End(End::Reopened)),
            }
        }
    }

    /// Records that the turn waits for a model.
    async fn park(&mut self, choice: &Choice, reason: &str) -> Result<(), Refusal> {
        let (alone, reason) = (self.progress.alone, reason.to_owned());
        let model = (choice.entry.name.clone(), choice.model.clone());
        let parked = self.write_with_retry(move |w, turn_id| turns::park_for_model(w, turn_id, model, &reason, alone));
        self.turn.parked = parked.await?.parked;
        self.progress.failures.clear();
        Ok(())
    }

    /// Waits before another attempt with a model that fails this turn but answers others.
    async fn wait_before_retry(&mut self, choice: &Choice, reason: &str, pause: Duration) -> Result<(), Refusal> {
        let session = Arc::clone(&self.session);
        // Registered before the writes, so that a retry requested during them is not missed.
        let retry_now = registered(session.retry_now.notified());
        self.flush().await?;
        self.park(choice, reason).await?;
        self.show(Activity::Queued);
        let _waiting = Waiting::begin(self.worker(), Wait::for_reason(reason));
        tokio::select! {
            biased;
            () = retry_now => {}
            () = self.engine.services.ctx.ports.clock.sleep(pause) => {}
        }
        Ok(())
    }

    /// Waits until the limit of a spent budget is raised, a retry is requested or, for a day's
    /// budget, `next_day` begins. The caller created `changes` and computed `next_day` before it read the budget. Returns
    /// true if another plan is current.
    pub(super) async fn wait_for_budget(&self, scope: &Scope, next_day: Timestamp, changes: Changes<'_>) -> bool {
        self.show(Activity::Queued);
        let _waiting = Waiting::begin(self.worker(), Wait::for_reason(format!("budget {scope} is spent")));
        let clock = self.clock();
        let day = async {
            match scope {
                // Short steps, so that a clock that jumps to another day is noticed.
                Scope::Day(_) => {
                    while budget::next_day(clock.now()) == next_day {
                        clock.sleep_until(next_day.min(clock.now().plus(DAY_STEP))).await;
                    }
                }
                _ => std::future::pending().await,
            }
        };
        matches!(changes.or(day).await, Change::PlanChanged)
    }

    /// Ends a round in which every model that could be asked failed, at least one for a transient
    /// cause. The turn's work time excludes the time of the round.
    pub(super) async fn next_round(&mut self, call: &mut ModelCall) -> Result<(), End> {
        self.progress.worked = call.worked;
        let alone = &mut self.progress.alone;
        let end = call.attempts.next_round(&call.choices, answers_of(&call.choices), alone);
        let (rounds, Some((choice, error))) = (*alone, call.last()) else { return Ok(()) };
        match end {
            RoundEnd::Next => Ok(()),
            RoundEnd::Pause(pause) => {
                let reason = format!("{} fails this turn and answers others: {error}", choice.model);
                Ok(self.wait_before_retry(choice, &reason, pause).await?)
            }
            RoundEnd::Faulty => {
                let why = format!(
                    "{} has failed this turn in {rounds} rounds while it answered others: {}",
                    choice.model, error.message
                );
                Err(End::Failed(unanswered(&why)))
            }
        }
    }

    /// Marks the last model that failed as down until a probe succeeds.
    pub(super) async fn exhausted(&self, call: &ModelCall) -> Result<(), Refusal> {
        let Some((choice, error)) = call.last() else { return Ok(()) };
        self.is_down(choice, choice.entry.breaker.open(&choice.model, error)).await
    }

    /// Writes the event that a model is down, if its outage has just begun.
    pub(super) async fn is_down(&self, choice: &Choice, began: Option<Outage>) -> Result<(), Refusal> {
        let Some(outage) = began else { return Ok(()) };
        let payload = json!({
            "provider": choice.entry.name, "model": choice.model, "reason": outage.reason,
            "probe_at": outage.probe_at.0,
        });
        self.write_event(NewEvent::new(EventKind::ProviderDown, payload)).await
    }

    /// Writes the event that a model answers again, if it was down.
    pub(super) async fn is_up(&self, choice: &Choice, ended: Option<Outage>) -> Result<(), Refusal> {
        let Some(outage) = ended else { return Ok(()) };
        let payload = json!({
            "provider": choice.entry.name, "model": choice.model, "since": outage.since.0, "probes": outage.probes,
        });
        self.write_event(NewEvent::new(EventKind::ProviderUp, payload)).await
    }

    async fn write_event(&self, event: NewEvent) -> Result<(), Refusal> {
        self.write_with_retry(move |w, _| w.emit(event)).await
    }
}

/// The refusal with which a turn ends when no model has answered.
pub(super) fn unanswered(why: &str) -> Refusal {
    Refusal::new(Code::Unavailable, format!("no model answered: {why}")).hint(UNANSWERED)
}
