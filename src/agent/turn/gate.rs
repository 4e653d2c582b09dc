//! The gate before a model call. No turn opens while all its models are down, or before its provider has a slot for it:
//! mail in the inbox costs less memory than an open turn, and mail that arrives meanwhile joins it. A turn that needs a
//! model parks here with its journal until a probe succeeds.
//!
//! The gate must never consume mail. It must never hold a slot of a provider while it waits for a model.

use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_util::future::{FutureExt as _, poll_immediate, select_all};
use ghost_config::plan::Plan;
use ghost_domain::{Activity, AgentId, Refusal, Scope, Timestamp, budget};
use ghost_operations::{Wait, asks, turns};
use ghost_provider::{Admitted, Class, Entry, Pass, Slot};
use tokio::sync::futures::Notified;

use super::admission::Admission;
use super::round::{Choice, Round};
use super::runner::Runner;
use super::session::AgentSession;
use crate::budget_queue::Ticket;
use crate::engine::Engine;

/// How often a wait for the next day checks the clock.
const DAY_STEP: std::time::Duration = std::time::Duration::from_secs(60);

/// Marks an agent as waiting until it is dropped. A stop need not let a waiting agent finish, and
/// askers see why they get no answer.
pub(super) struct Waiting<'a> {
    engine: &'a Engine,
    agent_id: &'a AgentId,
    session: &'a AgentSession,
    wait: u64,
    repair: Option<&'static str>,
}

impl<'a> Waiting<'a> {
    pub(super) fn begin(engine: &'a Engine, agent_id: &'a AgentId, session: &'a AgentSession, why: Wait) -> Self {
        let repair = why.repair;
        engine.services.ctx.set_waiting(agent_id, Some(why));
        // Agents that cannot work must not keep others from it.
        engine.activity.set_waits(agent_id, true);
        Self { engine, agent_id, session, wait: session.begin_wait(), repair }
    }

    /// Begins a wait for models. If a person must repair one, people who wait for an answer learn it at once.
    async fn for_models(
        engine: &'a Engine,
        agent_id: &'a AgentId,
        session: &'a AgentSession,
        why: Wait,
    ) -> Result<Self, Refusal> {
        let waiting = Self::begin(engine, agent_id, session, why.clone());
        if why.repair.is_some() {
            let (ctx, agent_id) = (engine.services.ctx.clone(), agent_id.clone());
            let told = engine.services.store.write(move |w| asks::tell_people(w, &ctx, &agent_id, &why));
            told.await?;
        }
        Ok(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.session.end_wait(self.wait) {
            self.engine.activity.set_waits(self.agent_id, false);
            self.engine.services.ctx.set_waiting(self.agent_id, None);
        }
    }
}

/// Marks a session as waiting for a slot until it is dropped, so that a stop need not wait for it.
struct InQueue<'a> {
    session: &'a AgentSession,
    wait: u64,
}

impl<'a> InQueue<'a> {
    fn begin(session: &'a AgentSession) -> Self {
        Self { session, wait: session.begin_wait() }
    }
}

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        self.session.end_wait(self.wait);
    }
}

/// A registered wait for a [`tokio::sync::Notify`].
pub(super) type Notification<'a> = Pin<Box<Notified<'a>>>;

/// Why a wait for a model ended.
enum Change {
    /// A breaker, a budget limit or the time has changed.
    Availability,
    /// An operator or the world asked to try again now.
    RetryRequested,
    /// Another plan is current.
    PlanChanged,
}

/// Waits for any change that may let one of these models be asked.
async fn change(
    engine: &Engine,
    notifications: Vec<Notification<'_>>,
    until: Option<Timestamp>,
    retry_now: Notification<'_>,
    plan_changed: Notification<'_>,
) -> Change {
    let clock = &engine.services.ctx.ports.clock;
    let due = async {
        match until {
            Some(until) => clock.sleep(until.since(clock.steady())).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = plan_changed => Change::PlanChanged,
        () = retry_now => Change::RetryRequested,
        _ = select_all(notifications) => Change::Availability,
        () = due => Change::Availability,
    }
}

/// The earlier of two times; `None` means never.
fn earlier(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Whether a turn may be opened.
pub(super) enum Opening {
    /// It may. There is no admission if the turn itself must report that its provider does not exist.
    Now(Option<Admission>),
    /// This provider has no slot: wait with [`wait_for_slot`], then read the agent's next work again.
    Queue(Arc<Entry>),
    /// This has waited for a model: the agent's next work must be read again.
    Waited,
}

/// Waits while all turns are held back, because what they write would soon find no room. Returns whether it has waited.
pub(super) async fn wait_for_room(engine: &Engine, agent_id: &AgentId, session: &AgentSession) -> bool {
    let mut held = engine.services.ctx.held();
    let Some(why) = held.borrow_and_update().clone() else { return false };
    engine.activity.show(agent_id, Activity::Queued);
    let _waiting = Waiting::begin(engine, agent_id, session, Wait::for_reason(why));
    // The sender is in the context, so the wait itself cannot fail.
    let _ = held.wait_for(Option::is_none).await;
    true
}

/// Waits for a slot of a provider, before a turn is opened.
pub(super) async fn wait_for_slot(
    engine: &Engine,
    agent_id: &AgentId,
    session: &AgentSession,
    entry: &Entry,
    class: Class,
) -> Slot {
    engine.activity.show(agent_id, Activity::Queued);
    let _wait = InQueue::begin(session);
    entry.pool.admit(class).await
}

/// Waits, before a turn is opened, while all models of the agent are down. If one may be asked, the turn gets its pass
/// and a slot of its provider: `slot`, if the agent has waited for one.
pub(super) async fn wait_for_model(
    engine: &Arc<Engine>,
    agent_id: &AgentId,
    session: &AgentSession,
    plan: &Arc<Plan>,
    (models, class): (&[(String, String)], Class),
    slot: &mut Option<Slot>,
) -> Result<Opening, Refusal> {
    let mut waiting: Option<Waiting<'_>> = None;
    loop {
        let plan_changed = registered(engine.plan_changed.notified());
        if !Arc::ptr_eq(plan, &engine.services.plan()) {
            return Ok(Opening::Waited);
        }
        let providers = engine.providers();
        let entries: Vec<(Arc<Entry>, &str)> =
            models.iter().filter_map(|(provider, model)| Some((providers.get(provider)?, model.as_str()))).collect();
        if entries.len() < models.len() || entries.is_empty() {
            // If a provider does not exist, the turn itself reports it.
            return Ok(Opening::Now(None));
        }
        let retry_now = registered(session.retry_now.notified());
        let notifications: Vec<_> = entries.iter().map(|(entry, _)| registered(entry.breaker.changed())).collect();
        let mut until = None;
        for (entry, model) in &entries {
            match entry.breaker.admit(model) {
                // After a wait the pass is given back. It is requested again after the next inbox
                // read.
                Admitted::Pass(_) if waiting.is_some() => return Ok(Opening::Waited),
                Admitted::Pass(pass) => {
                    let slot = match slot.take().filter(|slot| slot.is_of(&entry.pool)) {
                        Some(slot) => Some(slot),
                        None => poll_immediate(pin!(entry.pool.admit(class))).await,
                    };
                    return Ok(match slot {
                        Some(slot) => Opening::Now(Some(Admission { pass, slot })),
                        // Others may probe the model during the wait, so the pass is given back.
                        None => Opening::Queue(Arc::clone(entry)),
                    });
                }
                Admitted::Wait(at) => until = earlier(until, at),
            }
        }
        *slot = None;
        let why = why_down(entries.iter().map(|(entry, model)| (&**entry, *model)));
        if waiting.as_ref().is_none_or(|waiting| waiting.repair != why.repair) {
            engine.activity.show(agent_id, Activity::Queued);
            waiting = Some(Waiting::for_models(engine, agent_id, session, why).await?);
        }
        match change(engine, notifications, until, retry_now, plan_changed).await {
            Change::Availability => {}
            Change::RetryRequested => entries.iter().for_each(|(entry, model)| entry.breaker.probe_now(model)),
            Change::PlanChanged => return Ok(Opening::Waited),
        }
    }
}

/// The result of waiting at the gate.
pub(super) enum Gate {
    /// This model may be asked; with the slot of its provider, if the turn has one already.
    Open(usize, Pass, Option<Slot>),
    /// The other models of this round are down. The first ones may answer in the next round.
    RoundOver,
    /// All models have refused this conversation permanently.
    Refused,
    /// While the turn waited, another plan became current: the turn must be opened again.
    Reopen,
}

/// Registers the notification at once, so that later notifications are not missed.
pub(super) fn registered(notification: Notified<'_>) -> Notification<'_> {
    let mut notification = Box::pin(notification);
    notification.as_mut().enable();
    notification
}

/// Why none of these models can be asked: what is wrong with the first. A person must help if waiting helps none.
fn why_down<'a>(models: impl Iterator<Item = (&'a Entry, &'a str)>) -> Wait {
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

impl Runner {
    /// Waits until one of `choices` may be asked and returns the first such choice from index
    /// `from` on. It skips models that have refused this conversation or do not fit a budget. The
    /// turn parks while no model may be asked.
    pub(super) async fn gate(
        &mut self,
        choices: &[Choice],
        from: usize,
        round: &mut Round,
        ticket: &mut Ticket,
    ) -> Result<Gate, Refusal> {
        if (0..choices.len()).all(|at| round.refused.contains(&at)) {
            return Ok(Gate::Refused);
        }
        let (engine, session, agent_id) = (Arc::clone(&self.engine), Arc::clone(&self.session), self.agent_id.clone());
        if engine.services.ctx.held().borrow().is_some() {
            ticket.pass_on();
            self.flush().await?;
            wait_for_room(&engine, &agent_id, &session).await;
        }
        if let Some(Admission { pass, slot }) = self.admission.take()
            && let Some(at) = choices.iter().position(|choice| pass.is_of(&choice.entry.breaker, &choice.model))
            && round.may_ask(at)
        {
            return Ok(Gate::Open(at, pass, Some(slot)));
        }
        let mut waiting: Option<Waiting<'_>> = None;
        loop {
            let retry_now = registered(session.retry_now.notified());
            let plan_changed = registered(engine.plan_changed.notified());
            let mut notifications: Vec<_> =
                choices.iter().map(|choice| registered(choice.entry.breaker.changed())).collect();
            notifications.push(registered(engine.queue.limits_changed.notified()));
            round.recheck_budgets(engine.queue.limit_changes());
            let mut until = None;
            for (at, choice) in choices.iter().enumerate().skip(from).filter(|(at, _)| round.may_ask(*at)) {
                match choice.entry.breaker.admit(&choice.model) {
                    Admitted::Pass(pass) => return Ok(Gate::Open(at, pass, None)),
                    Admitted::Wait(due) => until = earlier(until, due),
                }
            }
            if from > 0 {
                return Ok(Gate::RoundOver);
            }
            if !Arc::ptr_eq(&self.plan, &engine.services.plan()) {
                return Ok(Gate::Reopen);
            }
            let why = why_down(choices.iter().map(|choice| (&*choice.entry, &*choice.model)));
            if waiting.as_ref().is_none_or(|waiting| waiting.repair != why.repair) {
                let Some(first) = choices.first() else {
                    return Err(Refusal::new(ghost_domain::Code::Internal, "a turn has no model to ask"));
                };
                // Meanwhile, calls that wait only for budget continue.
                ticket.pass_on();
                self.flush().await?;
                self.park(first, &why.reason).await?;
                self.show(Activity::Queued);
                waiting = Some(Waiting::for_models(&engine, &agent_id, &session, why).await?);
                // The state may have changed during these writes, and a retry may have been requested.
                if retry_now.now_or_never().is_some() {
                    choices.iter().for_each(|choice| choice.entry.breaker.probe_now(&choice.model));
                }
                continue;
            }
            match change(&engine, notifications, until, retry_now, plan_changed).await {
                Change::Availability => {}
                Change::RetryRequested => {
                    choices.iter().for_each(|choice| choice.entry.breaker.probe_now(&choice.model))
                }
                Change::PlanChanged => return Ok(Gate::Reopen),
            }
        }
    }

    /// Records that the turn waits for a model.
    pub(super) async fn park(&mut self, choice: &Choice, reason: &str) -> Result<(), Refusal> {
        let (ctx, turn_id, alone) = (self.engine.services.ctx.clone(), self.turn.turn_id, self.alone);
        let model = (choice.entry.name.clone(), choice.model.clone());
        let reason = reason.to_owned();
        let parked = self.write_with_retry(move |w| turns::park_for_model(w, &ctx, turn_id, model, &reason, alone));
        self.turn.parked = parked.await?.parked;
        self.failures.clear();
        Ok(())
    }

    /// Waits before another attempt with a model that fails this turn but answers others.
    pub(super) async fn wait_before_retry(
        &mut self,
        choice: &Choice,
        reason: &str,
        pause: std::time::Duration,
    ) -> Result<(), Refusal> {
        let session = Arc::clone(&self.session);
        // Registered before the writes, so that a retry requested during them is not missed.
        let retry_now = registered(session.retry_now.notified());
        self.flush().await?;
        self.park(choice, reason).await?;
        self.show(Activity::Queued);
        let why = Wait::for_reason(reason);
        let _waiting = Waiting::begin(&self.engine, &self.agent_id, &self.session, why);
        tokio::select! {
            biased;
            () = retry_now => {}
            () = self.engine.services.ctx.ports.clock.sleep(pause) => {}
        }
        Ok(())
    }

    /// Waits until the limit of a spent budget is raised, a retry is requested or, for a day's
    /// budget, `next_day` begins. The caller registered the notifications and computed `next_day`
    /// before it read the budget. Returns true if another plan is current.
    pub(super) async fn wait_for_budget(
        &self,
        scope: &Scope,
        next_day: Timestamp,
        (limits_changed, retry_now, plan_changed): (Notification<'_>, Notification<'_>, Notification<'_>),
    ) -> bool {
        self.show(Activity::Queued);
        let why = Wait::for_reason(format!("budget {scope} is spent"));
        let _waiting = Waiting::begin(&self.engine, &self.agent_id, &self.session, why);
        let clock = &self.engine.services.ctx.ports.clock;
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
        tokio::select! {
            biased;
            () = plan_changed => true,
            () = retry_now => false,
            () = limits_changed => false,
            () = day => false,
        }
    }
}
