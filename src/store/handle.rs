//! The handle [`Store`], which every caller uses, and the trait [`Backend`], which each database
//! implements.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use async_trait::async_trait;
use ghost_domain::Event;
use ghost_domain::ports::{Signal, Wake};
use tokio::sync::{broadcast, oneshot};

use crate::error::StoreError;
use crate::tx::Tx;

tokio::task_local! {
    /// Set while a command of [`Store::write`] runs.
    static COMMAND: ();
    /// Set in the requests of people and their programs.
    static PEOPLE: ();
}

/// Runs the work of a request of a person or a program outside. Its queries share a part of the readers, so that no number
/// of them holds up turns. Tasks that the work spawns are not part of it.
pub async fn for_people<F: Future>(work: F) -> F::Output {
    PEOPLE.scope((), work).await
}

/// Whether the calling task runs inside [`for_people`].
pub(crate) fn is_for_people() -> bool {
    PEOPLE.try_with(|()| ()).is_ok()
}

/// Whether the calling task runs inside a command. All other commits wait while a command reads.
#[must_use]
pub fn in_command() -> bool {
    COMMAND.try_with(|()| ()).is_ok()
}

/// Batches of events that the live feed buffers for a slow reader. A reader that falls further
/// behind must resume from storage.
const FEED_BATCHES: usize = 4_096;

/// Called once with the result of the commit.
pub type Ack = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Called once when the command refused and its writes have been undone.
pub type Nack = Box<dyn FnOnce() + Send>;

/// A command as a backend runs it: inside a transaction. `Ok` keeps its writes, `Err` undoes them.
pub type Work = Box<dyn FnOnce(&mut Tx) -> Result<Ack, Nack> + Send>;

/// A query as a backend runs it.
pub type ReadWork = Box<dyn FnOnce(&mut Tx) + Send>;

/// Which state the reads of one query see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All reads see the same commit.
    Snapshot,
    /// Each read sees the newest commit at the time it runs, so a later read may see a later
    /// commit.
    Latest,
}

/// A database. All backends behave the same for their callers; the contract suite in `contract`
/// checks this.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Queues a command; waits while the queue is full. The command's [`Ack`] or [`Nack`] is called
    /// exactly once, or dropped if the backend closes first.
    async fn submit(&self, work: Work) -> Result<(), StoreError>;

    /// Runs a query and returns when it has ended.
    async fn query(&self, view: View, work: ReadWork) -> Result<(), StoreError>;

    /// Runs the queued commands, then closes the database.
    async fn close(&self);

    /// Returns the cause when the backend can write no more although it was not closed. Otherwise
    /// never returns.
    async fn broken(&self) -> StoreError;
}

/// The hook that a backend calls after each commit, in commit order. It publishes events and sends
/// signals.
#[derive(Clone)]
pub struct Committed {
    shared: Arc<Shared>,
}

struct Shared {
    feed: broadcast::Sender<Arc<[Event]>>,
    last_seq: AtomicI64,
    wake: OnceLock<Arc<dyn Wake>>,
    failing: Failing,
}

impl Committed {
    pub(crate) fn new() -> Self {
        let (feed, _) = broadcast::channel(FEED_BATCHES);
        Self {
            shared: Arc::new(Shared {
                feed,
                last_seq: AtomicI64::new(0),
                wake: OnceLock::new(),
                failing: Failing::default(),
            }),
        }
    }

    /// Sets the sequence of the last stored event. A backend calls this when it has opened.
    pub fn opened(&self, last_seq: i64) {
        self.shared.last_seq.store(last_seq, Ordering::Release);
    }

    /// Records a batch that could not be committed. Returns the number of batches that failed with
    /// this text, if that number is 1 or another power of ten; only then should the caller log it.
    pub fn failed(&self, text: &str) -> Option<u64> {
        self.shared.failing.failed(text)
    }

    /// Publishes the events and sends the signals of one committed batch.
    pub fn publish(&self, events: Vec<Event>, signals: &[Signal]) {
        if let Some(last) = events.last() {
            // Only a batch with events proves that the store can write: a command that writes
            // nothing succeeds on a full disk too.
            self.shared.failing.committed();
            self.shared.last_seq.store(last.seq, Ordering::Release);
            // Without a subscriber `send` fails. That is no error: the events are in the store.
            let _ = self.shared.feed.send(events.into());
        }
        if !signals.is_empty()
            && let Some(wake) = self.shared.wake.get()
        {
            wake.signal(signals);
        }
    }
}

/// A handle of the store. Cheap to clone; all clones use the same backend.
#[derive(Clone)]
pub struct Store {
    backend: Arc<dyn Backend>,
    committed: Committed,
}

impl Store {
    /// Opens a store. `open` builds the backend and gives it the hook to call after each commit.
    pub async fn open<F, B, Fut>(open: F) -> Result<Self, StoreError>
    where
        F: FnOnce(Committed) -> Fut,
        Fut: Future<Output = Result<B, StoreError>>,
        B: Backend + 'static,
    {
        let committed = Committed::new();
        let backend = Arc::new(open(committed.clone()).await?);
        Ok(Self { backend, committed })
    }

    /// Sets the receiver of signals. Only the first call has an effect. Earlier signals are
    /// dropped. No work is lost, because the boot reads every inbox.
    pub fn on_signal(&self, wake: Arc<dyn Wake>) {
        let _ = self.committed.shared.wake.set(wake);
    }

    /// Runs `work` as one transaction and returns after a durable COMMIT. If `work` refuses, all
    /// its writes are undone and no others. If `work` panics, its writes are undone and the panic
    /// continues in the caller. A write inside `work` is refused at once with
    /// [`StoreError::Nested`], on every backend.
    pub async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        // A nested command would wait for the writer, and the writer waits for the outer command.
        if in_command() {
            return Err(StoreError::Nested.into());
        }
        let (answer, answered) = oneshot::channel::<Result<Result<T, E>, Box<dyn Any + Send>>>();
        let boxed: Work = Box::new(move |writes| {
            let command = AssertUnwindSafe(|| COMMAND.sync_scope((), || work(writes)));
            match catch_unwind(command) {
                // If the caller no longer waits (a cancelled turn), `send` fails. That does not change the commit.
                Ok(Ok(value)) => Ok(Box::new(move |result: Result<(), StoreError>| {
                    let _ = answer.send(Ok(result.map(|()| value).map_err(E::from)));
                }) as Ack),
                Ok(Err(refusal)) => Err(Box::new(move || {
                    let _ = answer.send(Ok(Err(refusal)));
                }) as Nack),
                Err(panic) => Err(Box::new(move || {
                    let _ = answer.send(Err(panic));
                }) as Nack),
            }
        });
        self.backend.submit(boxed).await?;
        match answered.await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Closed.into()),
        }
    }

    /// Runs a query on one consistent snapshot of the committed state.
    pub async fn read<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        self.query(View::Snapshot, work).await
    }

    /// Runs a query without a snapshot: each read sees the newest commit when it runs. Use it where
    /// reads need not agree with each other: opening and closing a snapshot costs as much as two
    /// reads.
    pub async fn read_latest<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        self.query(View::Latest, work).await
    }

    async fn query<T, E, F>(&self, view: View, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Tx) -> Result<T, E> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel::<Result<Result<T, E>, Box<dyn Any + Send>>>();
        let boxed: ReadWork = Box::new(move |reads| {
            // If the caller no longer waits, `send` fails. Then nobody needs the answer.
            let _ = answer.send(catch_unwind(AssertUnwindSafe(|| work(reads))));
        });
        self.backend.query(view, boxed).await?;
        match answered.await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Closed.into()),
        }
    }

    /// Subscribes to the live feed: batches of committed events, in order. A reader that falls
    /// behind gets `Lagged` and resumes from storage.
    #[must_use]
    pub fn feed(&self) -> broadcast::Receiver<Arc<[Event]>> {
        self.committed.shared.feed.subscribe()
    }

    /// Whether the live feed has a subscriber. Without one, callers need not create ephemeral
    /// events.
    #[must_use]
    pub fn has_listeners(&self) -> bool {
        self.committed.shared.feed.receiver_count() > 0
    }

    /// Sequence of the last published event; 0 if there is none.
    #[must_use]
    pub fn last_seq(&self) -> i64 {
        self.committed.shared.last_seq.load(Ordering::Acquire)
    }

    /// Publishes one ephemeral event. It is streamed to subscribers and never stored. Its `seq` is
    /// the sequence of the stored event that it follows.
    pub fn publish_ephemeral(&self, event: Event) {
        // Without a subscriber `send` fails. That is no error.
        let _ = self.committed.shared.feed.send(Arc::from([event]));
    }

    /// Text of the last failed commit, if the store has not recovered since.
    #[must_use]
    pub fn failing(&self) -> Option<String> {
        self.committed.shared.failing.reason()
    }

    /// Returns when the writer has answered, so it checks that the writer works and that its files are undamaged. The
    /// command writes nothing: it costs no commit, and a full disk does not refuse it. The connections of readers are
    /// not checked.
    pub async fn answers(&self) -> Result<(), StoreError> {
        self.write(|_| Ok(())).await
    }

    /// Returns the cause when the store can write no more although it was not closed; opening it
    /// again may help. Otherwise never returns.
    pub async fn broken(&self) -> StoreError {
        self.backend.broken().await
    }

    /// Runs the queued commands, then closes the store.
    pub async fn close(&self) {
        self.backend.close().await;
    }
}

/// After this many committed batches in a row, the next failure is logged as new, even if its text
/// is the same.
const NEW_AFTER: u64 = 100;
/// After this many committed batches in a row, the store is reported as able to write. One is not
/// enough: on a full disk a small batch may succeed where others fail.
const RECOVERED_AFTER: u64 = 3;

/// Outcome of the last batches.
#[derive(Debug, Default)]
pub(crate) struct Failing {
    /// Whether `last` holds a failure. Every commit reads this flag, so it must not need the lock.
    any: AtomicBool,
    last: Mutex<LastFailure>,
}

#[derive(Debug, Default)]
struct LastFailure {
    /// Text of the last failure.
    text: String,
    /// Number of failures with this text.
    failures: u64,
    /// Batches committed since the last failure.
    committed: u64,
}

impl Failing {
    fn last(&self) -> MutexGuard<'_, LastFailure> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a failure. Returns the number of failures with this text, if that number is 1 or
    /// another power of ten: only these are logged.
    pub(crate) fn failed(&self, text: &str) -> Option<u64> {
        self.any.store(true, Ordering::Release);
        let mut last = self.last();
        if last.text != text {
            *last = LastFailure { text: text.to_owned(), ..LastFailure::default() };
        }
        last.failures = last.failures.saturating_add(1);
        last.committed = 0;
        let count = last.failures;
        (10_u64.pow(count.ilog10()) == count).then_some(count)
    }

    /// Records a committed batch.
    pub(crate) fn committed(&self) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut last = self.last();
        last.committed = last.committed.saturating_add(1);
        if last.committed >= NEW_AFTER {
            *last = LastFailure::default();
            self.any.store(false, Ordering::Release);
        }
    }

    /// Text of the last failure, if fewer than [`RECOVERED_AFTER`] batches were committed since.
    pub(crate) fn reason(&self) -> Option<String> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let last = self.last();
        (last.committed < RECOVERED_AFTER).then(|| last.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_failure_is_reported_at_powers_of_ten() {
        let failing = Failing::default();
        assert_eq!(failing.reason(), None);
        let reported: Vec<u64> = (0..1_000).filter_map(|_| failing.failed("full")).collect();
        assert_eq!(reported, [1, 10, 100, 1_000]);
        assert_eq!(failing.reason().as_deref(), Some("full"));
        assert_eq!(failing.failed("locked"), Some(1), "another reason");
        (0..RECOVERED_AFTER).for_each(|_| failing.committed());
        assert_eq!(failing.reason(), None, "it can write again");
        assert_eq!(failing.failed("locked"), None, "a few committed batches do not make the failure new");
        (0..NEW_AFTER).for_each(|_| failing.committed());
        assert_eq!(failing.failed("locked"), Some(1));
    }
}
