//! The gate before a model: no turn opens on a model that is known to fail, and a turn that needs one waits here, parked with
//! its journal, until a probe succeeds (DESIGN.md section 2, "Transient causes").
//!
//! Must never: consume mail, or hold a slot of a provider while it waits.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::future::select_all;
use ghost_config::plan::Plan;
use ghost_domain::{Activity, AgentId, Refusal, Scope, Timestamp};
use ghost_provider::{Admitted, Entry, Pass};
use ghost_rules::turns;
use tokio::sync::futures::Notified;

use super::round::{Choice, Round};
use super::runner::Runner;
use super::session::AgentSession;
use crate::budget_queue::Ticket;
use crate::engine::Engine;

/// How long a wait for the next day does not look at the clock.
const DAY_STEP: std::time::Duration = std::time::Duration::from_secs(60);

/// What a waiting agent shows, until it goes on: that a stop need not wait for it, and why its asks are not answered.
struct Waiting<'a> {
    engine: &'a Engine,
    agent_id: &'a AgentId,
    session: &'a AgentSession,
    wait: u64,
}

impl<'a> Waiting<'a> {
    fn begin(engine: &'a Engine, agent_id: &'a AgentId, session: &'a AgentSession, reason: &str) -> Self {
        engine.services.ctx.set_waiting(agent_id, Some(reason));
        Self { engine, agent_id, session, wait: session.parks() }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.session.goes_on(self.wait) {
            self.engine.services.ctx.set_waiting(self.agent_id, None);
        }
    }
}

/// A bell that is armed.
pub(super) type Bell<'a> = Pin<Box<Notified<'a>>>;

/// What may have changed for one who waits for a model.
enum Change {
    /// A circuit, the hour, or a budget.
    Heard,
    /// Somebody says that it is time.
    Asked,
    /// The files.
    Files,
}

/// Ends when anything may have changed for one who waits for these models.
async fn change(
    engine: &Engine,
    bells: Vec<Bell<'_>>,
    until: Option<Timestamp>,
    again: Bell<'_>,
    in_force: Bell<'_>,
) -> Change {
    let clock = &engine.services.ctx.ports.clock;
    let due = async {
        match until {
            Some(until) => clock.sleep_until(until).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = in_force => Change::Files,
        () = again => Change::Asked,
        _ = select_all(bells) => Change::Heard,
        () = due => Change::Heard,
    }
}

/// The earlier of two times.
fn sooner(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Waits before a turn is opened, while all the models are down that its agent may ask. Whoever is let through with the right to
/// try one keeps it for the turn. `None` if it has waited: what was looked at before may be another then.
pub(super) async fn door(
    engine: &Arc<Engine>,
    agent_id: &AgentId,
    session: &AgentSession,
    plan: &Arc<Plan>,
    models: &[(String, String)],
) -> Option<Option<Pass>> {
    let mut waiting = None;
    loop {
        let in_force = armed(engine.in_force.notified());
        if !Arc::ptr_eq(plan, &engine.services.plan()) {
            return None;
        }
        let providers = engine.providers();
        let entries: Vec<(Arc<Entry>, &str)> =
            models.iter().filter_map(|(provider, model)| Some((providers.get(provider)?, model.as_str()))).collect();
        if entries.len() < models.len() || entries.is_empty() {
            // That a provider is not there is for the turn to say.
            return Some(None);
        }
        let again = armed(session.again.notified());
        let bells: Vec<_> = entries.iter().map(|(entry, _)| armed(entry.breaker.changed())).collect();
        let mut until = None;
        for (entry, model) in &entries {
            match entry.breaker.admit(model) {
                // The right to try a model is won again after the next look, or by another.
                Admitted::Pass(_) if waiting.is_some() => return None,
                Admitted::Pass(pass) => return Some(Some(pass)),
                Admitted::Wait(at) => until = sooner(until, at),
            }
        }
        if waiting.is_none() {
            let down = entries.first().and_then(|(entry, model)| reason(entry, model)).unwrap_or_default();
            engine.activity.show(agent_id, Activity::Queued);
            waiting = Some(Waiting::begin(engine, agent_id, session, &down));
        }
        match change(engine, bells, until, again, in_force).await {
            Change::Heard => {}
            Change::Asked => entries.iter().for_each(|(entry, model)| entry.breaker.hurry(model)),
            Change::Files => return None,
        }
    }
}

/// What the gate says.
pub(super) enum Gate {
    /// This one may be asked.
    Open(usize, Pass),
    /// None is left in this round: those before may answer in the next.
    RoundOver,
    /// All have refused this conversation for good.
    Refused,
    /// Other files are in force than the turn was opened with, and it waits: it is opened again.
    Anew,
}

/// A bell that is heard from here on.
pub(super) fn armed(bell: Notified<'_>) -> Bell<'_> {
    let mut bell = Box::pin(bell);
    bell.as_mut().enable();
    bell
}

/// Why a model cannot be had.
fn reason(entry: &Entry, model: &str) -> Option<String> {
    let outage = entry.breaker.outage(model)?;
    Some(format!("{model} at {} is down: {}", entry.name, outage.reason))
}

impl Runner {
    /// Waits until one of `choices` may be asked, the first that can from `from` on, leaving out those that have refused this
    /// conversation or cannot be paid for. The turn is parked while none can.
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
        if let Some(pass) = self.pass.take()
            && let Some(at) = choices.iter().position(|choice| pass.is_of(&choice.entry.breaker, &choice.model))
            && round.may_ask(at)
        {
            return Ok(Gate::Open(at, pass));
        }
        let mut waiting = None;
        loop {
            let again = armed(session.again.notified());
            let in_force = armed(engine.in_force.notified());
            let mut bells: Vec<_> = choices.iter().map(|choice| armed(choice.entry.breaker.changed())).collect();
            bells.push(armed(engine.queue.raised.notified()));
            round.limits_are(engine.queue.raises());
            let mut until = None;
            for (at, choice) in choices.iter().enumerate().skip(from).filter(|(at, _)| round.may_ask(*at)) {
                match choice.entry.breaker.admit(&choice.model) {
                    Admitted::Pass(pass) => return Ok(Gate::Open(at, pass)),
                    Admitted::Wait(due) => until = sooner(until, due),
                }
            }
            if from > 0 {
                return Ok(Gate::RoundOver);
            }
            if !Arc::ptr_eq(&self.plan, &engine.services.plan()) {
                return Ok(Gate::Anew);
            }
            if waiting.is_none() {
                let Some(first) = choices.first() else {
                    return Err(Refusal::new(ghost_domain::Code::Internal, "a turn has no model to ask"));
                };
                let down = reason(&first.entry, &first.model).unwrap_or_else(|| format!("{} is down", first.model));
                // Who waits for budget alone goes on meanwhile.
                ticket.pass_on();
                self.flush().await?;
                self.park(first, &down).await?;
                self.show(Activity::Queued);
                waiting = Some(Waiting::begin(&engine, &agent_id, &session, &down));
                // Something may have changed while that was written.
                continue;
            }
            match change(&engine, bells, until, again, in_force).await {
                Change::Heard => {}
                Change::Asked => choices.iter().for_each(|choice| choice.entry.breaker.hurry(&choice.model)),
                Change::Files => return Ok(Gate::Anew),
            }
        }
    }

    /// Records that the turn waits.
    pub(super) async fn park(&mut self, choice: &Choice, reason: &str) -> Result<(), Refusal> {
        let (ctx, turn_id, alone) = (self.engine.services.ctx.clone(), self.turn.turn_id, self.alone);
        let model = (choice.entry.name.clone(), choice.model.clone());
        let reason = reason.to_owned();
        let parked = self.keep(move |w| {
            Box::pin(async move { turns::park_for_model(w, &ctx, turn_id, model, &reason, alone).await })
        });
        self.turn.parked = parked.await?.parked;
        self.failures.clear();
        Ok(())
    }

    /// Waits as long as the model answers others but not this turn, before it is asked again.
    pub(super) async fn rest(
        &mut self,
        choice: &Choice,
        reason: &str,
        pause: std::time::Duration,
    ) -> Result<(), Refusal> {
        self.flush().await?;
        self.park(choice, reason).await?;
        self.show(Activity::Queued);
        let again = armed(self.session.again.notified());
        let _waiting = Waiting::begin(&self.engine, &self.agent_id, &self.session, reason);
        tokio::select! {
            biased;
            () = again => {}
            () = self.engine.services.ctx.ports.clock.sleep(pause) => {}
        }
        Ok(())
    }

    /// Waits until the limit of a spent budget is raised, somebody says that it is time, or, for a day's budget, `next_day`.
    /// The bells and `next_day` were taken before the budget was read. Whether the files have changed.
    pub(super) async fn wait_for_budget(
        &self,
        scope: &Scope,
        next_day: Timestamp,
        (raised, again, in_force): (Bell<'_>, Bell<'_>, Bell<'_>),
    ) -> bool {
        self.show(Activity::Queued);
        let _waiting = Waiting::begin(&self.engine, &self.agent_id, &self.session, &format!("budget {scope} is spent"));
        let clock = &self.engine.services.ctx.ports.clock;
        let day = async {
            match scope {
                // In short steps, so that a clock that is set, or a machine that slept, is noticed.
                Scope::Day(_) => {
                    while clock.now() < next_day {
                        clock.sleep_until(next_day.min(clock.now().plus(DAY_STEP))).await;
                    }
                }
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = in_force => true,
            () = again => false,
            () = raised => false,
            () = day => false,
        }
    }
}
