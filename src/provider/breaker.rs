//! The circuits of one provider, one for each model, with notifications for waiting callers. Dropping a probe's [`Pass`] makes
//! the probe available again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ghost_domain::{AgentId, Clock, Timestamp};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::circuit::{Admit, Circuit, Outage};
use crate::error::ProviderError;

/// Maximum models remembered. Above it, models that work are removed.
const MODELS_MAX: usize = 1_024;

/// The circuits of one provider.
pub struct Breaker {
    circuits: Mutex<BTreeMap<String, Circuit>>,
    clock: Arc<dyn Clock>,
    /// Notifies waiting callers in their order of arrival, so that a simulation is repeatable.
    changes: Notify,
}

/// Permission to call a model that works, or to probe one that is down. If the pass of a probe is
/// dropped without a result, another caller may probe.
pub struct Pass {
    breaker: Arc<Breaker>,
    model: String,
    probe: bool,
}

/// The answer to a request to call a model.
pub enum Admitted {
    /// The call may be made.
    Pass(Pass),
    /// The model is down: ask again at this instant of [`Clock::steady`], or when [`Breaker::changed`]
    /// completes.
    Wait(Option<Timestamp>),
}

impl Breaker {
    /// Creates a breaker whose models all work.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { circuits: Mutex::default(), clock, changes: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Circuit>> {
        // No transition of a circuit can panic halfway, so a poisoned lock holds valid state.
        self.circuits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn circuit<T>(&self, model: &str, update: impl FnOnce(&mut Circuit) -> T) -> T {
        let mut circuits = self.lock();
        if let Some(circuit) = circuits.get_mut(model) {
            return update(circuit);
        }
        if circuits.len() >= MODELS_MAX {
            circuits.retain(|_, circuit| circuit.is_down());
        }
        update(circuits.entry(model.to_owned()).or_default())
    }

    fn notify(&self) {
        self.changes.notify_waiters();
    }

    fn change<T>(&self, model: &str, update: impl FnOnce(&mut Circuit) -> T) -> T {
        let result = self.circuit(model, update);
        self.notify();
        result
    }

    /// Requests permission to call a model.
    pub fn admit(self: &Arc<Self>, model: &str) -> Admitted {
        let mut circuits = self.lock();
        let now = self.clock.steady();
        let admit = circuits.get_mut(model).map_or(Admit::Go, |circuit| circuit.admit(now));
        let pass = |probe| Pass { breaker: Arc::clone(self), model: model.to_owned(), probe };
        match admit {
            Admit::Go => Admitted::Pass(pass(false)),
            Admit::Probe => Admitted::Pass(pass(true)),
            Admit::Wait(until) => Admitted::Wait(until),
        }
    }

    /// The number of answers of a model so far. A caller compares it with an earlier number to see
    /// whether the model answers other calls.
    #[must_use]
    pub fn answers(&self, model: &str) -> u64 {
        self.lock().get(model).map_or(0, Circuit::answers)
    }

    /// The outage of a model, if it is down.
    #[must_use]
    pub fn outage(&self, model: &str) -> Option<Outage> {
        let outage = self.lock().get(model).and_then(|circuit| circuit.outage().cloned());
        outage.map(|outage| self.shown(outage))
    }

    /// All models that are down, by name.
    #[must_use]
    pub fn outages(&self) -> Vec<(String, Outage)> {
        let circuits = self.lock();
        let down = circuits.iter().filter_map(|(model, circuit)| Some((model.clone(), circuit.outage()?.clone())));
        down.map(|(model, outage)| (model, self.shown(outage))).collect()
    }

    /// An outage with its times as the wall clock shows them.
    fn shown(&self, outage: Outage) -> Outage {
        Outage { since: self.clock.wall_of(outage.since), probe_at: self.clock.wall_of(outage.probe_at), ..outage }
    }

    /// Marks a model as down, because all attempts of a call have failed. Returns the outage that
    /// begins.
    pub fn open(&self, model: &str, error: &ProviderError) -> Option<Outage> {
        let now = self.clock.steady();
        self.change(model, |circuit| circuit.open(now, error)).map(|outage| self.shown(outage))
    }

    /// Makes the next probe of a model due at once.
    pub fn probe_now(&self, model: &str) {
        let now = self.clock.steady();
        self.change(model, |circuit| circuit.probe_now(now));
    }

    /// Completes when a circuit changes after this was first polled or enabled.
    pub fn changed(&self) -> Notified<'_> {
        self.changes.notified()
    }
}

impl Pass {
    /// Whether the pass is for this model of this breaker.
    #[must_use]
    pub fn is_of(&self, breaker: &Arc<Breaker>, model: &str) -> bool {
        Arc::ptr_eq(&self.breaker, breaker) && self.model == model
    }

    /// Reports that the call was answered. Returns the outage that this ends.
    pub fn answered(mut self) -> Option<Outage> {
        self.probe = false;
        // Callers wait only for the end of an outage.
        let ended = self.breaker.circuit(&self.model, Circuit::answered);
        if ended.is_some() {
            self.breaker.notify();
        }
        ended.map(|outage| self.breaker.shown(outage))
    }

    /// Whether the model went down after this pass was granted.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        !self.probe && self.breaker.outage(&self.model).is_some()
    }

    /// Reports that the call failed for a transient cause. Returns the outage that begins.
    pub fn failed(mut self, error: &ProviderError, bounds: (u32, Duration)) -> Option<Outage> {
        let probe = std::mem::take(&mut self.probe);
        let now = self.breaker.clock.steady();
        let began = self.breaker.change(&self.model, |circuit| circuit.failed(now, probe, error, bounds));
        began.map(|outage| self.breaker.shown(outage))
    }

    /// Reports a refusal that looks permanent. Returns whether it is the model's and not the request's; then the caller
    /// reports it with [`Self::failed`]. See [`Circuit::refused`].
    pub fn refused(&self, agent_id: &AgentId, error: &ProviderError) -> bool {
        self.breaker.circuit(&self.model, |circuit| circuit.refused(agent_id, error))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.probe {
            self.breaker.change(&self.model, Circuit::end_probe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use futures_util::FutureExt;
    use ghost_domain::testing::ManualClock;

    const BOUNDS: (u32, Duration) = (1, Duration::from_secs(30));

    fn pass(breaker: &Arc<Breaker>) -> Option<Pass> {
        match breaker.admit("m") {
            Admitted::Pass(pass) => Some(pass),
            Admitted::Wait(_) => None,
        }
    }

    #[test]
    fn a_dropped_probe_goes_to_the_next_caller_and_notifies() {
        let clock = ManualClock::at(0);
        let breaker = Arc::new(Breaker::new(Arc::clone(&clock) as Arc<dyn Clock>));
        let error = ProviderError::new(ErrorKind::Network, "refused");
        let began = pass(&breaker).expect("it works").failed(&error, BOUNDS).expect("one failure is enough here");
        assert_eq!(began.probe_at, Timestamp(1_000));
        assert!(pass(&breaker).is_none());
        clock.advance(Duration::from_secs(1));
        let probe = pass(&breaker).expect("it is due");
        assert!(pass(&breaker).is_none());
        let mut changed = std::pin::pin!(breaker.changed());
        assert!(!changed.as_mut().enable());
        drop(probe);
        assert!(changed.now_or_never().is_some());
        let probe = pass(&breaker).expect("given back");
        assert_eq!(probe.answered().map(|outage| outage.since), Some(Timestamp(0)));
        assert!(breaker.outages().is_empty() && pass(&breaker).is_some());
    }

    #[test]
    fn answers_are_counted_by_model() {
        let breaker = Arc::new(Breaker::new(ManualClock::at(0)));
        assert_eq!(breaker.answers("m"), 0);
        pass(&breaker).unwrap().answered();
        assert_eq!((breaker.answers("m"), breaker.answers("other")), (1, 0));
    }
}
