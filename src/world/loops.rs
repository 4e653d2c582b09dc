//! The loops that run for as long as the world does, supervised: one that panics, or says that it cannot go on, is begun
//! again after a pause that grows, with an event each time. Until it has done a whole round it counts as down, and the
//! control plane names it.
//!
//! Must never: end a loop for good before the world ends, or wait for the store with a loop that could run.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use ghost_agent::panics;
use ghost_domain::Timestamp;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::restart::Backoff;
use ghost_domain::time::BoxFuture;
use ghost_rules::RuleContext;
use ghost_store::Store;
use serde_json::json;

/// Passes signals on after commits.
pub const SIGNAL_ROUTER: &str = "switchboard";
/// Puts agents to sleep, expires asks, prunes and sweeps.
pub const MAINTENANCE: &str = "keeper";
/// Sets timers, cron jobs and heartbeats off.
pub const SCHEDULES: &str = "schedules";
/// Looks at what is watched.
pub const WATCHES: &str = "watches";
/// Hands over to the outside.
pub const DELIVERIES: &str = "deliveries";

/// Between a loop's end and its next beginning.
const PAUSES: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(60) };

/// Characters of an error that are kept.
const ERROR_CHARS: usize = 1_000;

/// What a loop runs as: it ends by itself only when the world does. An error is why it cannot go on.
pub type Running = BoxFuture<'static, Result<(), String>>;

/// A loop that is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDown {
    /// Its name.
    pub name: &'static str,
    /// Why, without secrets.
    pub error: String,
    /// Since when.
    pub since: Timestamp,
    /// How often it has failed since it last did a whole round.
    pub failures: u32,
}

/// How the loops of a world stand.
#[derive(Default)]
pub struct Loops {
    down: Mutex<BTreeMap<&'static str, LoopDown>>,
    #[cfg(any(test, feature = "testing"))]
    faults: Mutex<BTreeMap<&'static str, u32>>,
}

impl Loops {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, LoopDown>> {
        // Every change is one insertion or removal, so a poisoned lock still guards whole entries.
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loops that are down, by name.
    #[must_use]
    pub fn down(&self) -> Vec<LoopDown> {
        self.lock().values().cloned().collect()
    }

    /// A loop says that it has done a whole round, so it is not down any more.
    pub fn round(&self, name: &'static str) {
        self.may_fail(name);
        self.lock().remove(name);
    }

    /// Notes a failure, and gives how many there have been since the last whole round.
    fn failed(&self, name: &'static str, error: &str, now: Timestamp) -> u32 {
        let mut down = self.lock();
        let since = down.get(name).map_or(now, |before| before.since);
        let failures = down.get(name).map_or(0, |before| before.failures).saturating_add(1);
        down.insert(name, LoopDown { name, error: error.to_owned(), since, failures });
        failures
    }

    /// Panics if a test asked for it.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn may_fail(&self, name: &'static str) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let left = faults.get_mut(name).filter(|left| **left > 0);
        if let Some(left) = left {
            *left -= 1;
            drop(faults);
            panic!("the loop fell over, as it was told to");
        }
    }

    #[cfg(not(any(test, feature = "testing")))]
    #[allow(clippy::unused_self)]
    pub(crate) fn may_fail(&self, _: &'static str) {}

    /// Has the next rounds of a loop panic. For tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn fail_next(&self, name: &'static str, rounds: u32) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).insert(name, rounds);
    }
}

/// Keeps a loop running until it ends by itself. Dropped, it ends the loop.
pub(crate) async fn keep(
    ctx: RuleContext,
    store: Store,
    loops: Arc<Loops>,
    name: &'static str,
    mut make: impl FnMut() -> Running + Send + 'static,
) {
    loop {
        let run = AssertUnwindSafe(async { make().await }).catch_unwind().await;
        let error = match run {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(panic) => format!("panic: {}", panics::text(&*panic)),
        };
        // Its words can hold what it worked on, and others read them.
        let error: String = ctx.redactor.redact(&error).chars().take(ERROR_CHARS).collect();
        let failures = loops.failed(name, &error, ctx.now());
        let pause = PAUSES.delay(failures.saturating_sub(1), 0);
        tracing::error!(name, error, failures, ?pause, "a loop of the daemon failed; it is begun again");
        let payload = json!({
            "loop": name, "error": error, "failures": failures,
            "again_in_ms": u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
        });
        // Beside it: a store that does not answer must not keep the loop from beginning again.
        tokio::spawn(tell(ctx.clone(), store.clone(), name, NewEvent::new(EventKind::LoopFailed, payload)));
        ctx.ports.clock.sleep(pause).await;
    }
}

async fn tell(ctx: RuleContext, store: Store, name: &'static str, event: NewEvent) {
    let told = store.write(move |w| Box::pin(async move { ctx.emit(w, event).await })).await;
    if let Err(refusal) = told {
        tracing::error!(name, %refusal, "that a loop failed could not be recorded");
    }
}
