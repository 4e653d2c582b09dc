//! What the checks share: short ways to write, refuse and read.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use ghost_domain::event::Event;
use ghost_domain::ports::{Signal, Wake};
use ghost_domain::time::BoxFuture;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::TryRecvError;

use super::Medium;
use crate::tables::{Reads, Writes};
use crate::{Store, StoreError};

/// Why a command of a check did not end well.
#[derive(Debug)]
pub(super) enum Stop {
    /// It was told to refuse.
    Refused,
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

pub(super) type Outcome<T> = Result<T, Stop>;

/// A command whose refusal is a [`Stop`]; the bound lets a closure's lifetimes be inferred.
pub(super) async fn write<T, F>(store: &Store, work: F) -> Outcome<T>
where
    T: Send + 'static,
    F: for<'t> FnOnce(&'t mut dyn Writes) -> BoxFuture<'t, Outcome<T>> + Send + 'static,
{
    store.write(work).await
}

/// A query whose refusal is a [`Stop`].
pub(super) async fn read<T, F>(store: &Store, work: F) -> Outcome<T>
where
    T: Send + 'static,
    F: for<'t> FnOnce(&'t mut dyn Reads) -> BoxFuture<'t, Outcome<T>> + Send + 'static,
{
    store.read(work).await
}

/// A command that must be kept; gives the value of its block.
macro_rules! keep {
    ($store:expr, |$w:ident| $body:block) => {
        $crate::contract::tools::write($store, move |$w| {
            Box::pin(async move {
                let value = $body;
                Ok(value)
            })
        })
        .await
        .expect("a command that nothing refuses is kept")
    };
}

/// A command that writes and then refuses.
macro_rules! refuse {
    ($store:expr, |$w:ident| $body:block) => {{
        let outcome: $crate::contract::tools::Outcome<()> = $crate::contract::tools::write($store, move |$w| {
            Box::pin(async move {
                $body;
                Err($crate::contract::tools::Stop::Refused)
            })
        })
        .await;
        assert!(matches!(outcome, Err($crate::contract::tools::Stop::Refused)), "{outcome:?}");
    }};
}

/// A query; gives the value of its block.
macro_rules! reading {
    ($store:expr, |$r:ident| $body:block) => {
        $crate::contract::tools::read($store, move |$r| {
            Box::pin(async move {
                let value = $body;
                Ok(value)
            })
        })
        .await
        .expect("a query that nothing refuses is answered")
    };
}

pub(super) use {keep, reading, refuse};

pub(super) async fn open(medium: &Arc<dyn Medium>) -> Store {
    medium.open().await.expect("the store opens")
}

/// Runs a command that panics, and gives what its caller caught.
pub(super) async fn caught<T>(command: impl Future<Output = Outcome<T>>) -> Box<dyn std::any::Any + Send> {
    match std::panic::AssertUnwindSafe(command).catch_unwind().await {
        Ok(_) => panic!("the panic of the command did not reach its caller"),
        Err(payload) => payload,
    }
}

/// Panics as a defect would, without the noise on the terminal.
pub(super) fn blow_up() -> ! {
    std::panic::resume_unwind(Box::new(String::from("blown up")))
}

/// What the feed has published so far.
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

/// Remembers the signals of a store.
#[derive(Default)]
pub(super) struct Heard(Mutex<Vec<Signal>>);

impl Heard {
    pub(super) fn on(store: &Store) -> Arc<Self> {
        let heard = Arc::new(Self::default());
        store.on_signal(heard.clone());
        heard
    }

    pub(super) fn signals(&self) -> Vec<Signal> {
        self.0.lock().unwrap().clone()
    }
}

impl Wake for Heard {
    fn signal(&self, signals: &[Signal]) {
        self.0.lock().unwrap().extend_from_slice(signals);
    }
}

/// One field of every row, for short comparisons.
pub(super) fn each<T, U>(rows: &[T], field: impl Fn(&T) -> U) -> Vec<U> {
    rows.iter().map(field).collect()
}
