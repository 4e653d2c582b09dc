//! The readers: a few threads, each with a connection of its own. Each query runs on one of them, inside one snapshot
//! unless it needs none.
//!
//! A query whose caller has left must never go on: its statement is interrupted. A connection that has failed must never
//! be used again.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::queue::Queue;
use crate::error::StoreError;
use crate::handle::{ReadWork, View, is_for_people};
use crate::tx::Tx;

/// How long `close` waits for running queries. Queries take milliseconds. One that hangs must not block the shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens a session for queries.
pub(crate) type Opener = Box<dyn Fn() -> Result<Tx, StoreError> + Send + Sync>;

/// The pool of readers of one database. Their threads start when they are needed.
pub(super) struct Readers {
    opener: Opener,
    /// The largest number of threads.
    max: usize,
    /// Told of damage that a query finds.
    alarm: Arc<Queue>,
    state: Mutex<State>,
    /// Notified with every query, and when the pool closes.
    changed: Condvar,
    /// Number of threads.
    threads: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    /// Queries of turns and of the daemon itself.
    waiting: VecDeque<Query>,
    /// Queries of people.
    of_people: VecDeque<Query>,
    /// How many of those run.
    people_served: usize,
    /// Number of threads that wait for a query.
    idle: usize,
    threads: usize,
    closed: bool,
}

impl State {
    /// The next query for a thread that is free. One query of people goes first, so that they are always served; at most
    /// `people_max` of them run at once.
    fn take(&mut self, people_max: usize) -> Option<Query> {
        let people_first = self.people_served == 0 && !self.of_people.is_empty();
        if !people_first && let Some(query) = self.waiting.pop_front() {
            return Some(query);
        }
        let query = (self.people_served < people_max).then(|| self.of_people.pop_front()).flatten()?;
        self.people_served += 1;
        Some(query)
    }
}

/// A query that waits or runs.
struct Query {
    for_people: bool,
    view: View,
    work: ReadWork,
    /// Set when its caller waits no longer.
    has_left: Arc<AtomicBool>,
    answer: oneshot::Sender<Result<(), StoreError>>,
}

/// Tells the query that its caller waits no longer.
struct Leave(Arc<AtomicBool>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Readers {
    /// A pool without threads, which will have `max` at most.
    pub(super) fn new(opener: Opener, max: usize, alarm: Arc<Queue>) -> Arc<Self> {
        Arc::new(Self {
            opener,
            max: max.max(1),
            alarm,
            state: Mutex::default(),
            changed: Condvar::new(),
            threads: watch::Sender::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No call panics between two changes of the state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a query; waits while all readers are at work.
    pub(super) async fn query(self: &Arc<Self>, view: View, work: ReadWork) -> Result<(), StoreError> {
        let has_left = Arc::<AtomicBool>::default();
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.lock();
            if state.closed {
                return Err(StoreError::Closed);
            }
            // A caller that has left leaves its query behind. So no more of them wait than callers do (promise 7).
            let for_people = is_for_people();
            let queue = if for_people { &mut state.of_people } else { &mut state.waiting };
            queue.retain(|query| !query.has_left.load(Ordering::Acquire));
            queue.push_back(Query { for_people, view, work, has_left: Arc::clone(&has_left), answer });
            if state.waiting.len() + state.of_people.len() > state.idle {
                self.start_thread(&mut state)?;
            }
            self.changed.notify_one();
        }
        let _leave = Leave(has_left);
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Starts the first thread before it is needed, because the first query is part of the daemon's start.
    pub(super) fn open_ahead(self: &Arc<Self>) {
        if let Err(error) = self.start_thread(&mut self.lock()) {
            tracing::debug!(%error, "the first query will try again");
        }
    }

    /// Starts another thread, unless the limit is reached. An error only if there is none at all.
    fn start_thread(self: &Arc<Self>, state: &mut State) -> Result<(), StoreError> {
        if state.threads >= self.max {
            return Ok(());
        }
        let readers = Arc::clone(self);
        let thread = std::thread::Builder::new().name("store-reader".to_owned()).spawn(move || readers.run());
        match thread {
            Ok(_) => {
                state.threads += 1;
                self.threads.send_replace(state.threads);
                Ok(())
            }
            Err(_) if state.threads > 0 => Ok(()),
            Err(error) => {
                state.waiting.clear();
                state.of_people.clear();
                Err(StoreError::Busy(format!("the system gives the store no thread: {error}")))
            }
        }
    }

    /// The work of one thread.
    fn run(&self) {
        let mut session = self.open().ok();
        let mut served_people = false;
        while let Some(query) = self.next(served_people) {
            let Query { for_people, view, work, has_left, answer } = query;
            served_people = for_people;
            if has_left.load(Ordering::Acquire) {
                continue;
            }
            let mut open = match session.take().map_or_else(|| self.open(), Ok) {
                Ok(open) => open,
                Err(error) => {
                    // An error means that the caller has left.
                    let _ = answer.send(Err(error));
                    continue;
                }
            };
            session = self.run_query(&mut open, view, work, has_left).then_some(open);
            let _ = answer.send(Ok(()));
        }
        drop(session);
        let mut state = self.lock();
        state.threads = state.threads.saturating_sub(1);
        self.threads.send_replace(state.threads);
    }

    /// Runs a query. Returns whether its connection can run another one.
    fn run_query(&self, session: &mut Tx, view: View, work: ReadWork, has_left: Arc<AtomicBool>) -> bool {
        session.begin_query(view == View::Snapshot, has_left);
        let reads: &mut Tx = session;
        // The handle catches panics of its queries. This catches panics of other users of the backend.
        let ran = catch_unwind(AssertUnwindSafe(|| work(reads)));
        if ran.is_err() {
            tracing::error!("a query panicked");
            return false;
        }
        if let Some(error) = session.failure() {
            self.alarm.raise(error);
            return false;
        }
        if let Err(error) = session.end_snapshot() {
            self.alarm.raise(&error);
            tracing::warn!(%error, "ending a query's snapshot failed; its connection is closed");
            return false;
        }
        true
    }

    fn open(&self) -> Result<Tx, StoreError> {
        (self.opener)().inspect_err(|error| self.alarm.raise(error))
    }

    /// The next query; waits for one. `None` when the pool closes. `served_people`: whether the thread's last query was of
    /// people.
    fn next(&self, served_people: bool) -> Option<Query> {
        let people_max = (self.max / 2).max(1);
        let mut state = self.lock();
        state.people_served -= usize::from(served_people);
        loop {
            if state.closed {
                return None;
            }
            if let Some(query) = state.take(people_max) {
                return Some(query);
            }
            state.idle += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle = state.idle.saturating_sub(1);
        }
    }

    /// Refuses further queries and those that wait, and ends each thread after its query.
    pub(super) fn stop(&self) {
        let waiting = {
            let mut state = self.lock();
            state.closed = true;
            let of_people = std::mem::take(&mut state.of_people);
            (std::mem::take(&mut state.waiting), of_people)
        };
        self.changed.notify_all();
        // Dropped without the lock, because it wakes their callers.
        drop(waiting);
    }

    /// As [`stop`](Self::stop), and waits until the threads have closed their connections.
    pub(super) async fn close(&self) {
        self.stop();
        let mut threads = self.threads.subscribe();
        // This uses the runtime's clock, not the Clock port: no result depends on this wait, and the simulation has its
        // own backend. The sender belongs to `self`, so the wait itself cannot fail.
        #[allow(clippy::disallowed_methods)]
        let ended = tokio::time::timeout(DRAIN_TIMEOUT, threads.wait_for(|threads| *threads == 0)).await.is_ok();
        if !ended {
            tracing::warn!("a query is still under way while the store closes");
        }
    }
}
