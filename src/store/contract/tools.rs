//! What the checks use: rows, and short ways to write, refuse and read.

use std::sync::Mutex;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;

use super::Medium;
pub(super) use super::prelude::*;
pub(super) use super::rows::*;
pub(super) use super::rows_shared::*;

/// Why a command of a check failed.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It refused, as the check wanted.
    Refused,
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(crate) type Outcome<T> = Result<T, Stop>;

/// Runs a command with the error type [`Stop`]. The bound lets the compiler infer the closure's
/// lifetimes.
pub(crate) async fn write<T, F>(store: &Store, work: F) -> Outcome<T>
where
    T: Send + 'static,
    F: FnOnce(&mut Tx) -> Outcome<T> + Send + 'static,
{
    store.write(work).await
}

/// Runs a query with the error type [`Stop`].
pub(crate) async fn read<T, F>(store: &Store, work: F) -> Outcome<T>
where
    T: Send + 'static,
    F: FnOnce(&mut Tx) -> Outcome<T> + Send + 'static,
{
    store.read(work).await
}

/// Runs a command that must succeed. Returns the value of its block.
macro_rules! keep {
    ($store:expr, |$w:ident| $body:block) => {
        $crate::contract::tools::write($store, move |$w| Ok($body)).await.expect("the command succeeds")
    };
}

/// Runs a command that writes and then refuses.
macro_rules! refuse {
    ($store:expr, |$w:ident| $body:block) => {{
        let outcome: $crate::contract::tools::Outcome<()> = $crate::contract::tools::write($store, move |$w| {
            $body;
            Err($crate::contract::tools::Stop::Refused)
        })
        .await;
        assert!(matches!(outcome, Err($crate::contract::tools::Stop::Refused)), "{outcome:?}");
    }};
}

/// Runs a query that must succeed. Returns the value of its block.
macro_rules! reading {
    ($store:expr, |$r:ident| $body:block) => {
        $crate::contract::tools::read($store, move |$r| Ok($body)).await.expect("the query succeeds")
    };
}

/// Checks what a query reads, fact by fact: `shows!(&store, |r| { r.ask_count_open()? => 3; });`.
macro_rules! shows {
    ($store:expr, |$r:ident| { $($found:expr => $wanted:expr $(, $message:expr)?;)+ }) => {
        $crate::contract::tools::reading!($store, |$r| { $(assert_eq!($found, $wanted $(, $message)?);)+ })
    };
}

/// Writes rows in one command, by the functions that write them:
/// `put!(&store, { turn_put: turn(1, "a", TurnStatus::Open); message_append: mail(1, "a"), mail(2, "a"); });`.
macro_rules! put {
    ($store:expr, { $($put:ident: $($row:expr),+;)+ }) => {
        $crate::contract::tools::keep!($store, |w| { $($(w.$put(&$row)?;)+)+ })
    };
}

/// Prunes a family step by step, and checks after each how many rows went and what a query shows then. A step
/// says which rows are old and how many may go: `prunes!(&store, Family::Asks, |r| { .. }, { (5, 1) => 1, []; });`.
macro_rules! prunes {
    ($store:expr, $family:expr, |$r:ident| $left:block,
     { $(($before:expr, $limit:expr) => $gone:expr, $wanted:expr;)+ }) => {
        $(
            let step = format!("{:?} before {}, at most {}", $family, $before, $limit);
            let gone = $crate::contract::tools::keep!($store, |w| { w.prune($family, at($before), $limit)? });
            assert_eq!(gone, $gone, "{step}");
            assert_eq!($crate::contract::tools::reading!($store, |$r| $left), $wanted, "{step}");
        )+
    };
}

/// Those of some numbers or names for which a query finds a row.
macro_rules! found {
    ($store:expr, $all:expr, |$r:ident, $one:ident| $get:expr) => {
        $crate::contract::tools::reading!($store, |$r| {
            let mut found = Vec::new();
            for $one in $all {
                if $get.is_some() {
                    found.push($one);
                }
            }
            found
        })
    };
}

pub(super) use {found, prunes, put};
pub(crate) use {keep, reading, refuse, shows};

/// The store under check, and where its data is.
pub(crate) struct Bench {
    medium: Arc<dyn Medium>,
    store: Store,
}

impl Bench {
    /// Opens the store.
    pub(super) async fn on(medium: Arc<dyn Medium>) -> Self {
        Self { store: medium.open().await.expect("the store opens"), medium }
    }

    /// Closes the store and opens it again.
    pub(super) async fn reopen(&mut self) {
        self.store.close().await;
        self.store = self.medium.open().await.expect("the store opens");
    }
}

impl std::ops::Deref for Bench {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

/// Runs a command that panics. Returns the payload that its caller caught.
pub(super) async fn catch_panic<T>(command: impl Future<Output = Outcome<T>>) -> Box<dyn std::any::Any + Send> {
    match std::panic::AssertUnwindSafe(command).catch_unwind().await {
        Ok(_) => panic!("the panic of the command did not reach its caller"),
        Err(payload) => payload,
    }
}

/// Panics without printing a message.
pub(super) fn raise_panic() -> ! {
    std::panic::resume_unwind(Box::new(String::from("blown up")))
}

/// The events that the feed has published so far.
pub(super) fn published(feed: &mut broadcast::Receiver<Arc<[Event]>>) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        match feed.try_recv() {
            Ok(batch) => events.extend(batch.iter().cloned()),
            Err(TryRecvError::Empty | TryRecvError::Closed) => return events,
            Err(TryRecvError::Lagged(by)) => panic!("the feed lost {by} batches"),
        }
    }
}

/// Records the signals of a store.
#[derive(Default)]
pub(super) struct SignalLog(Mutex<Vec<Signal>>);

impl SignalLog {
    pub(super) fn on(store: &Store) -> Arc<Self> {
        let log = Arc::new(Self::default());
        store.on_signal(log.clone());
        log
    }

    pub(super) fn signals(&self) -> Vec<Signal> {
        self.0.lock().unwrap().clone()
    }
}

impl Wake for SignalLog {
    fn signal(&self, signals: &[Signal]) {
        self.0.lock().unwrap().extend_from_slice(signals);
    }
}

/// One field of each row, for short comparisons.
pub(super) fn map_rows<T, U>(rows: &[T], field: impl Fn(&T) -> U) -> Vec<U> {
    rows.iter().map(field).collect()
}
