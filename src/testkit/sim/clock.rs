//! Virtual time. It does not move while a task can run, and jumps to the next sleeper when no task
//! can run. The manual clock of the other tests moves only when a test moves it; a simulation has no
//! one to move it, and must notice when no task can continue.
//!
//! This clock must never use the machine's clock, or wake a second sleeper before the first one's
//! work is done. The order of wake-ups follows only from deadlines and from the order in which the
//! sleepers began to wait.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ghost_domain::time::BoxFuture;
use ghost_domain::{Clock, Timestamp};
use tokio::runtime::{Builder, Runtime};

/// Maximum number of reads of the clock at one instant. More mean an endless loop; a busy instant has hundreds.
const READS_MAX: u64 = 200_000;

/// The limits above which a simulation is reported as stuck.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Maximum virtual time.
    pub time: Duration,
    /// Maximum number of wake-ups.
    pub steps: u64,
}

type Key = (i64, u64);

struct State {
    now: i64,
    /// Milliseconds that the wall clock is off.
    off: i64,
    until: i64,
    order: u64,
    sleepers: BTreeMap<Key, Waker>,
    steps_left: u64,
    looks: u64,
    stuck: Option<String>,
    alarm: Option<Waker>,
}

/// The virtual clock. Clones share their time.
#[derive(Clone)]
pub struct SimClock {
    state: Arc<Mutex<State>>,
}

impl SimClock {
    /// A clock that starts at `start`.
    #[must_use]
    pub fn new(start: Timestamp, bounds: Bounds) -> Self {
        let state = State {
            now: start.0,
            off: 0,
            until: start.plus(bounds.time).0,
            order: 0,
            sleepers: BTreeMap::new(),
            steps_left: bounds.steps,
            looks: 0,
            stuck: None,
            alarm: None,
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code under this lock can panic, and no waker is woken or dropped under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A runtime with one thread. Time moves when the thread has nothing to do. The runtime has no timer: code that
    /// waits for real time instead of the Clock port panics.
    ///
    /// # Errors
    /// If the system cannot create a runtime.
    pub fn runtime(&self) -> std::io::Result<Runtime> {
        let clock = self.clone();
        Builder::new_current_thread().on_thread_park(move || clock.advance()).build()
    }

    /// Jumps to the earliest sleeper and wakes it. Raises the alarm if there is none or a limit is reached.
    fn advance(&self) {
        let woken = {
            let mut state = self.lock();
            state.looks = 0;
            match state.sleepers.pop_first() {
                _ if state.stuck.is_some() => state.alarm.take(),
                None => state.stop("no task runs and none sleeps".to_owned()),
                Some(((at, _), waker)) => {
                    state.now = state.now.max(at);
                    state.steps_left = state.steps_left.saturating_sub(1);
                    if state.steps_left == 0 {
                        state.stop("the limit of steps is reached: a task wakes without end".to_owned())
                    } else if state.now > state.until {
                        state.stop("the limit of virtual time is reached: a task waits without end".to_owned())
                    } else {
                        Some(waker)
                    }
                }
            }
        };
        if let Some(waker) = woken {
            waker.wake();
        }
    }

    /// Moves the wall clock alone by some milliseconds.
    pub fn jump(&self, by_ms: i64) {
        let mut state = self.lock();
        state.off = state.off.saturating_add(by_ms);
    }

    /// Milliseconds that the wall clock is off.
    #[must_use]
    pub fn off(&self) -> i64 {
        self.lock().off
    }

    /// Completes with the reason when the simulation is stuck.
    pub fn alarm(&self) -> impl Future<Output = String> + Send + use<> {
        let clock = self.clone();
        std::future::poll_fn(move |ctx| {
            let mut state = clock.lock();
            match &state.stuck {
                Some(why) => Poll::Ready(why.clone()),
                None => {
                    let old = state.alarm.replace(ctx.waker().clone());
                    drop(state);
                    drop(old);
                    Poll::Pending
                }
            }
        })
    }

    /// Removes all sleepers, because their process has died.
    pub fn forget_sleepers(&self) {
        let (sleepers, alarm) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.sleepers), state.alarm.take())
        };
        drop((sleepers, alarm));
    }
}

impl State {
    fn stop(&mut self, why: String) -> Option<Waker> {
        self.stuck.get_or_insert(why);
        self.alarm.take()
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let (now, alarm) = {
            let mut state = self.lock();
            state.looks += 1;
            let alarm = if state.looks == READS_MAX {
                state.stop("a task loops while virtual time does not move".to_owned())
            } else {
                None
            };
            (Timestamp(state.now.saturating_add(state.off)), alarm)
        };
        if let Some(waker) = alarm {
            waker.wake();
        }
        now
    }

    fn steady(&self) -> Timestamp {
        Timestamp(self.lock().now)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(Sleep { clock: self.clone(), until: self.steady().plus(duration).0, key: None })
    }
}

struct Sleep {
    clock: SimClock,
    until: i64,
    key: Option<Key>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut state = clock.lock();
        if state.now >= self.until {
            let old = self.key.take().and_then(|key| state.sleepers.remove(&key));
            drop(state);
            drop(old);
            return Poll::Ready(());
        }
        let key = match self.key {
            Some(key) => key,
            None => {
                state.order += 1;
                (self.until, state.order)
            }
        };
        self.key = Some(key);
        let old = state.sleepers.insert(key, ctx.waker().clone());
        drop(state);
        drop(old);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let old = self.clock.lock().sleepers.remove(&key);
            drop(old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(steps: u64) -> SimClock {
        SimClock::new(Timestamp(0), Bounds { time: Duration::from_secs(100), steps })
    }

    #[test]
    fn sleepers_wake_by_deadline_then_by_order() {
        let clock = clock(100);
        let woken = Arc::new(Mutex::new(Vec::new()));
        clock.runtime().unwrap().block_on(async {
            let tasks: Vec<_> = [(3, 'a'), (1, 'b'), (3, 'c'), (2, 'd'), (0, 'e')]
                .into_iter()
                .map(|(seconds, name)| {
                    let (clock, woken) = (clock.clone(), Arc::clone(&woken));
                    tokio::spawn(async move {
                        clock.sleep(Duration::from_secs(seconds)).await;
                        woken.lock().unwrap().push((clock.now().0, name));
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(*woken.lock().unwrap(), [(0, 'e'), (1_000, 'b'), (2_000, 'd'), (3_000, 'a'), (3_000, 'c')]);
    }

    #[test]
    fn a_stuck_simulation_raises_the_alarm() {
        let idle = clock(100);
        let why = idle.runtime().unwrap().block_on(idle.alarm());
        assert!(why.contains("none sleeps"), "{why}");
        let busy = clock(5);
        let why = busy.runtime().unwrap().block_on(async {
            let ticking = busy.clone();
            tokio::spawn(async move {
                loop {
                    ticking.sleep(Duration::from_millis(1)).await;
                }
            });
            busy.alarm().await
        });
        assert!(why.contains("steps"), "{why}");
    }
}
