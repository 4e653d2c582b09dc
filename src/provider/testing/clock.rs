//! A clock that advances only when a test moves it.
//!
//! This clock must never read the wall clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ghost_domain::time::BoxFuture;
use ghost_domain::{Clock, Timestamp};
use tokio::sync::{oneshot, watch};

/// A clock that a test moves. Sleepers are woken in order of their time.
pub struct ManualClock {
    state: Mutex<State>,
    sleepers: watch::Sender<usize>,
}

struct State {
    now: Timestamp,
    next: u64,
    waiting: BTreeMap<(Timestamp, u64), oneshot::Sender<()>>,
}

impl ManualClock {
    /// Creates a clock that shows `ms` milliseconds since the epoch.
    #[must_use]
    pub fn at(ms: i64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { now: Timestamp(ms), next: 0, waiting: BTreeMap::new() }),
            sleepers: watch::Sender::new(0),
        })
    }

    /// Moves the clock forward by `by` and wakes the sleepers whose time is reached.
    pub fn advance(&self, by: Duration) {
        let due = {
            let mut state = self.lock();
            state.now = state.now.plus(by);
            let first_later = (Timestamp(state.now.0.saturating_add(1)), 0);
            let later = state.waiting.split_off(&first_later);
            std::mem::replace(&mut state.waiting, later)
        };
        for sleeper in due.into_values() {
            // A sleeper that was dropped needs no waking.
            let _ = sleeper.send(());
        }
    }

    /// Completes once `count` sleeps have been started since the clock was created, including
    /// sleeps that have ended.
    pub async fn slept(&self, count: usize) {
        let mut seen = self.sleepers.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = seen.wait_for(|started| *started >= count).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    fn sleep_until(&self, until: Timestamp) -> BoxFuture<'static, ()> {
        let receiver = {
            let mut state = self.lock();
            if until <= state.now {
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
                // The clock was dropped, so this sleep never ends.
                std::future::pending::<()>().await;
            }
        })
    }
}
