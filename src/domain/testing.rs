//! Ports for tests of all crates: a clock that a test moves, counted ids, fixed random numbers, and
//! a log of signals.
//!
//! This module must never read the wall clock, or be part of a release build.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use crate::ports::{Ids, Ports, Rng, Signal, Wake};
use crate::time::{BoxFuture, Clock, Timestamp};

/// The time at which the clock of most tests starts: `2026-11-21T22:08:00.000Z`.
pub const START_MS: i64 = 1_795_298_880_000;

/// A clock that stands still until a test moves it. Sleepers are woken in order of their time.
pub struct ManualClock {
    state: Mutex<State>,
    sleepers: watch::Sender<usize>,
}

struct State {
    now: Timestamp,
    steady: Timestamp,
    next: u64,
    waiting: BTreeMap<(Timestamp, u64), oneshot::Sender<()>>,
}

impl ManualClock {
    /// Creates a clock that shows `ms` milliseconds since the epoch.
    pub fn at(ms: i64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { now: Timestamp(ms), steady: Timestamp(ms), next: 0, waiting: BTreeMap::new() }),
            sleepers: watch::Sender::new(0),
        })
    }

    /// The ports of a world with this clock and new counted ids.
    pub fn ports(self: &Arc<Self>) -> Ports {
        let counting = Arc::new(Counting::default());
        Ports { clock: self.clone(), ids: counting.clone(), rng: counting }
    }

    /// Moves the clock forward by `by` and wakes the sleepers whose time has come.
    pub fn advance(&self, by: Duration) {
        let due = {
            let mut state = self.lock();
            state.now = state.now.plus(by);
            state.steady = state.steady.plus(by);
            let first_later = (Timestamp(state.steady.0.saturating_add(1)), 0);
            let later = state.waiting.split_off(&first_later);
            std::mem::replace(&mut state.waiting, later)
        };
        for sleeper in due.into_values() {
            // A sleeper that was dropped needs no waking.
            let _ = sleeper.send(());
        }
    }

    /// Moves the wall clock alone by some milliseconds. No sleeper wakes.
    pub fn jump(&self, by_ms: i64) {
        let mut state = self.lock();
        state.now = Timestamp(state.now.0.saturating_add(by_ms));
    }

    /// Sets the wall clock back by `by`.
    pub fn set_back(&self, by: Duration) {
        self.jump(i64::try_from(by.as_millis()).map_or(i64::MIN, |ms| -ms));
    }

    /// Advances the clock in steps until `done` completes. Between two steps the other tasks run.
    ///
    /// # Panics
    /// If `done` does not complete within 20,000 steps.
    pub async fn advance_until<T>(&self, step: Duration, done: impl Future<Output = T>) -> T {
        let passing = async {
            for _ in 0..20_000 {
                for _ in 0..60 {
                    tokio::task::yield_now().await;
                }
                self.advance(step);
            }
        };
        tokio::select! {
            biased;
            done = done => done,
            () = passing => panic!("it did not complete within 20,000 steps of the clock"),
        }
    }

    /// Completes once `count` sleeps have been started since the clock was created; sleeps that are
    /// over count too.
    pub async fn slept(&self, count: usize) {
        let mut seen = self.sleepers.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = seen.wait_for(|started| *started >= count).await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    fn steady(&self) -> Timestamp {
        self.lock().steady
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let receiver = {
            let mut state = self.lock();
            let until = state.steady.plus(duration);
            if until <= state.steady {
                return Box::pin(std::future::ready(()));
            }
            let (sender, receiver) = oneshot::channel();
            let number = state.next;
            state.next += 1;
            state.waiting.insert((until, number), sender);
            receiver
        };
        self.sleepers.send_modify(|started| *started += 1);
        Box::pin(async move {
            if receiver.await.is_err() {
                // The clock is gone, so this sleep never ends.
                std::future::pending::<()>().await;
            }
        })
    }
}

/// Ids 1, 2, 3, …, and a random number generator that always returns 0.
#[derive(Debug, Default)]
pub struct Counting(AtomicU64);

impl Ids for Counting {
    fn next(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.0.fetch_add(1, Ordering::SeqCst)) + 1)
    }
}

impl Rng for Counting {
    fn below(&self, _: u64) -> u64 {
        0
    }
}

/// Records the signals of a store.
#[derive(Debug, Default)]
pub struct SignalLog(Mutex<Vec<Signal>>);

impl SignalLog {
    /// The signals since the last call.
    pub fn take(&self) -> Vec<Signal> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Wake for SignalLog {
    fn signal(&self, signals: &[Signal]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(signals);
    }
}
