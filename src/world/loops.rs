//! Supervision of the loops that run until the world stops. A loop that panics or returns an error
//! starts again after a pause, which grows with each failure, and each failure is an event. Until a
//! loop has completed a round, the control plane reports it as down.
//!
//! The supervision must never end a loop permanently before the world ends. It must never delay a
//! restart because the store does not answer.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use ghost_domain::Timestamp;
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::restart::Backoff;
use ghost_domain::text::panic_text;
use ghost_domain::time::BoxFuture;
use ghost_operations::OperationContext;
use ghost_store::Store;
use serde_json::json;

/// Passes on signals after commits.
pub const SIGNAL_ROUTER: &str = "signal_router";
/// Puts agents to sleep, expires asks, prunes old rows and sweeps for missed mail.
pub const MAINTENANCE: &str = "maintenance";
/// Fires timers, cron jobs and heartbeats.
pub const SCHEDULES: &str = "schedules";
/// Compares watched files with their last snapshots.
pub const WATCHES: &str = "watches";
/// Writes the file of artifacts.
pub const MANIFEST: &str = "manifest";
/// Watches the wall clock for jumps.
pub const CLOCK: &str = "clock";
/// Delivers messages to the outside.
pub const DELIVERIES: &str = "deliveries";

/// The pause before a failed loop starts again.
const PAUSES: Backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(60) };

/// Maximum length of a stored error, in characters.
const ERROR_CHARS: usize = 1_000;

/// The future of a running loop. It returns `Ok` only when the world ends, and an error if it cannot go on.
pub type Running = BoxFuture<'static, Result<(), String>>;

/// A loop that is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopDown {
    /// Name of the loop.
    pub name: &'static str,
    /// Why it failed, redacted.
    pub error: String,
    /// Time of the first failure since its last complete round.
    pub since: Timestamp,
    /// Number of failures since its last complete round.
    pub failures: u32,
}

/// The state of a world's loops.
#[derive(Default)]
pub struct Loops {
    down: Mutex<BTreeMap<&'static str, LoopDown>>,
    #[cfg(any(test, feature = "testing"))]
    faults: Mutex<BTreeMap<&'static str, u32>>,
}

impl Loops {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, LoopDown>> {
        // Every change is one insertion or removal, so a poisoned lock still guards complete
        // entries.
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loops that are down, by name.
    pub fn down(&self) -> Vec<LoopDown> {
        self.lock().values().cloned().collect()
    }

    /// Records that a loop has completed a round, so it is no longer down.
    pub fn round(&self, name: &'static str) {
        self.may_fail(name);
        self.lock().remove(name);
    }

    /// Records a failure. Returns the number of failures since the last complete round.
    fn failed(&self, name: &'static str, error: &str, now: Timestamp) -> u32 {
        let mut down = self.lock();
        let since = down.get(name).map_or(now, |before| before.since);
        let failures = down.get(name).map_or(0, |before| before.failures).saturating_add(1);
        down.insert(name, LoopDown { name, error: error.to_owned(), since, failures });
        failures
    }

    /// Panics if a test asked for it with [`fail_next`](Self::fail_next).
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn may_fail(&self, name: &'static str) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let left = faults.get_mut(name).filter(|left| **left > 0);
        if let Some(left) = left {
            *left -= 1;
            drop(faults);
            panic!("the loop failed, as a test asked");
        }
    }

    #[cfg(not(any(test, feature = "testing")))]
    #[allow(clippy::unused_self)]
    pub(crate) fn may_fail(&self, _: &'static str) {}

    /// Makes the next rounds of a loop panic. For tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn fail_next(&self, name: &'static str, rounds: u32) {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).insert(name, rounds);
    }
}

/// Runs a loop until it ends by itself, and starts it again after each failure. Dropping this future ends the loop.
pub(crate) async fn supervise(
    ctx: OperationContext,
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
            Err(panic) => format!("panic: {}", panic_text(&*panic)),
        };
        // A panic's text may contain secrets that the loop handled.
        let error: String = ctx.redactor.redact(&error).chars().take(ERROR_CHARS).collect();
        let failures = loops.failed(name, &error, ctx.now());
        let pause = PAUSES.delay(failures.saturating_sub(1), 0);
        tracing::error!(name, error, failures, ?pause, "a loop of the daemon failed; it starts again after a pause");
        let payload = json!({
            "loop": name, "error": error, "failures": failures,
            "again_in_ms": u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
        });
        // In a task of its own, so that a store that does not answer cannot delay the restart.
        let (own, store) = (ctx.clone(), store.clone());
        tokio::spawn(async move {
            let written = own.write(&store, move |w| w.emit(NewEvent::new(EventKind::LoopFailed, payload))).await;
            if let Err(refusal) = written {
                tracing::error!(name, %refusal, "the failure of a loop could not be recorded");
            }
        });
        ctx.ports.clock.sleep(pause).await;
    }
}
