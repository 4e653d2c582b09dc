//! The handle that everyone holds, and what a backend must offer it.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures_util::FutureExt;
use ghost_domain::Event;
use ghost_domain::ports::{Signal, Wake};
use ghost_domain::time::BoxFuture;
use tokio::sync::{broadcast, oneshot};

use crate::error::StoreError;
use crate::failing::Failing;
use crate::tables::{Reads, Writes};

tokio::task_local! {
    /// Set while a command of [`Store::write`] runs.
    static COMMAND: ();
}

/// Whether a command runs now: what it reads, everyone's commits wait for.
#[must_use]
pub fn in_command() -> bool {
    COMMAND.try_with(|()| ()).is_ok()
}

/// Batches of events that the live feed holds for a slow reader before it must resume from storage.
const FEED_BATCHES: usize = 4_096;

/// Called once when the fate of the command's transaction is known.
pub type Ack = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Called once when the command itself refused; its writes have been undone.
pub type Nack = Box<dyn FnOnce() + Send>;

/// A command as a backend sees it: runs inside a transaction, then says whether to keep what it wrote.
pub type Work = Box<dyn for<'t> FnOnce(&'t mut dyn Writes) -> BoxFuture<'t, Result<Ack, Nack>> + Send>;

/// A query as a backend sees it.
pub type ReadWork = Box<dyn for<'t> FnOnce(&'t mut dyn Reads) -> BoxFuture<'t, ()> + Send>;

/// What the reads of one query see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// All of them the same commit.
    Snapshot,
    /// Each what is committed when it runs, or later than that what another has seen.
    Latest,
}

/// A database. Everything above it is the same for all of them, and one contract suite holds them to it.
#[async_trait]
pub trait Backend: Send + Sync {
    /// Queues a command; waits while the queue is full. The command's [`Ack`] or [`Nack`] is called exactly once, or
    /// dropped if the backend closes first.
    async fn submit(&self, work: Work) -> Result<(), StoreError>;

    /// Runs a query.
    async fn query(&self, view: View, work: ReadWork) -> Result<(), StoreError>;

    /// Finishes what is queued, and lets go of the database.
    async fn close(&self);

    /// Returns when nothing can be written any more though nobody closed it, and says why. Never returns otherwise.
    async fn broken(&self) -> String;
}

/// What a backend calls after each commit, in commit order: publishes the events and passes on the signals.
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

    /// Says where the feed stands when the backend has opened.
    pub fn opened(&self, last_seq: i64) {
        self.shared.last_seq.store(last_seq, Ordering::Release);
    }

    /// Takes note of a batch that could not be committed. Gives how many there were for that reason, if that is worth a line
    /// in the log: the first, the tenth, the hundredth.
    pub fn failed(&self, why: &str) -> Option<u64> {
        self.shared.failing.failed(why)
    }

    /// Publishes one committed batch.
    pub fn publish(&self, events: Vec<Event>, signals: &[Signal]) {
        if let Some(last) = events.last() {
            // A command that writes nothing succeeds on a full disk, too.
            self.shared.failing.committed();
            self.shared.last_seq.store(last.seq, Ordering::Release);
            // No subscriber is not an error: the events are in the store.
            let _ = self.shared.feed.send(events.into());
        }
        if !signals.is_empty()
            && let Some(wake) = self.shared.wake.get()
        {
            wake.signal(signals);
        }
    }
}

/// The store. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    backend: Arc<dyn Backend>,
    committed: Committed,
}

impl Store {
    /// Opens a store: `open` builds the backend around the hook that it must call after each commit.
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

    /// Says who is told of signals. Once; later calls change nothing. Until then signals are dropped, which loses
    /// nothing: boot looks at every inbox.
    pub fn on_signal(&self, wake: Arc<dyn Wake>) {
        let _ = self.committed.shared.wake.set(wake);
    }

    /// Runs `work` as one transaction and returns after COMMIT at full durability. A refusal undoes all that `work`
    /// wrote, and nothing else. A panic inside `work` undoes it too and goes on in the caller. A write inside `work` is refused
    /// at once with [`StoreError::Nested`], on every backend.
    pub async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: for<'t> FnOnce(&'t mut dyn Writes) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    {
        // It would wait for the writer, which waits for the command that asks.
        if in_command() {
            return Err(StoreError::Nested.into());
        }
        let (answer, answered) = oneshot::channel::<Result<Result<T, E>, Box<dyn Any + Send>>>();
        let erased: Work = Box::new(move |writes| {
            Box::pin(async move {
                let command = async { AssertUnwindSafe(work(writes)).catch_unwind().await };
                match COMMAND.scope((), command).await {
                    // A caller that is gone (a cancelled turn) does not change what was committed.
                    Ok(Ok(value)) => Ok(Box::new(move |fate: Result<(), StoreError>| {
                        let _ = answer.send(Ok(fate.map(|()| value).map_err(E::from)));
                    }) as Ack),
                    Ok(Err(refusal)) => Err(Box::new(move || {
                        let _ = answer.send(Ok(Err(refusal)));
                    }) as Nack),
                    Err(panic) => Err(Box::new(move || {
                        let _ = answer.send(Err(panic));
                    }) as Nack),
                }
            })
        });
        self.backend.submit(erased).await?;
        match answered.await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => Err(StoreError::Closed.into()),
        }
    }

    /// Runs a query over a consistent snapshot of what is committed.
    pub async fn read<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: for<'t> FnOnce(&'t mut dyn Reads) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    {
        self.query(View::Snapshot, work).await
    }

    /// Runs a query whose reads each see what is committed when they run. For a caller that needs no more than that:
    /// opening and closing a snapshot costs as much as two reads.
    pub async fn read_latest<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: for<'t> FnOnce(&'t mut dyn Reads) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    {
        self.query(View::Latest, work).await
    }

    async fn query<T, E, F>(&self, view: View, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: for<'t> FnOnce(&'t mut dyn Reads) -> BoxFuture<'t, Result<T, E>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let erased: ReadWork = Box::new(move |reads| {
            Box::pin(async move {
                let _ = answer.send(work(reads).await);
            })
        });
        self.backend.query(view, erased).await?;
        answered.await.unwrap_or_else(|_| Err(StoreError::Closed.into()))
    }

    /// The live feed: batches of committed events, in order. A reader that falls behind gets `Lagged` and resumes from
    /// storage.
    #[must_use]
    pub fn feed(&self) -> broadcast::Receiver<Arc<[Event]>> {
        self.committed.shared.feed.subscribe()
    }

    /// Whether anyone reads the live feed: ephemeral events need not be made for nobody.
    #[must_use]
    pub fn has_listeners(&self) -> bool {
        self.committed.shared.feed.receiver_count() > 0
    }

    /// The sequence of the last published event; 0 if there is none.
    #[must_use]
    pub fn last_seq(&self) -> i64 {
        self.committed.shared.last_seq.load(Ordering::Acquire)
    }

    /// Publishes ephemeral events: streamed with the sequence that they follow, never stored.
    pub fn publish_ephemeral(&self, event: Event) {
        // No subscriber is not an error.
        let _ = self.committed.shared.feed.send(Arc::from([event]));
    }

    /// Why not everything can be written at the moment: what the last batches failed with.
    #[must_use]
    pub fn failing(&self) -> Option<String> {
        self.committed.shared.failing.why()
    }

    /// Returns when whatever writes has answered: a command that writes nothing, so that it costs no commit and a full disk
    /// does not refuse it. Says nothing of readers.
    pub async fn answers(&self) -> Result<(), StoreError> {
        self.write(|_| Box::pin(async { Ok(()) })).await
    }

    /// Returns when the store can write nothing any more though nobody closed it, and says why; a new opening may be good.
    /// Never returns otherwise.
    pub async fn broken(&self) -> String {
        self.backend.broken().await
    }

    /// Finishes what is queued, and closes.
    pub async fn close(&self) {
        self.backend.close().await;
    }
}
