//! The memory store with the delays of a real one. Every command and query waits on the virtual
//! clock before it commits and before its caller gets the result. So crashes and other agents' work
//! can happen between any two of them.
//!
//! This store must never change a commit or the order in which commits are published.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ghost_domain::ports::{Signal, Wake};
use ghost_domain::{Clock, Event};
use ghost_store::memory::MemoryDisk;
use ghost_store::{Ack, Backend, Committed, Nack, ReadWork, Store, StoreError, View, Work};

use tokio::sync::broadcast;

use super::chance::Dice;
use super::clock::SimClock;

/// Opens `disk` as a store with random delays.
///
/// # Errors
/// If the disk cannot be read.
pub(crate) async fn open(disk: &MemoryDisk, clock: SimClock, dice: Dice) -> Result<Store, StoreError> {
    let inner = disk.open();
    Store::open(|committed| async move {
        committed.opened(inner.last_seq());
        let bridge = Bridge { feed: Mutex::new(inner.feed()), committed };
        let bridge = Arc::new(bridge);
        inner.on_signal(Arc::clone(&bridge) as Arc<dyn Wake>);
        Ok(SlowStore { inner, bridge, clock, dice: Mutex::new(dice) })
    })
    .await
}

/// Publishes the commits of the inner store.
struct Bridge {
    feed: Mutex<broadcast::Receiver<Arc<[Event]>>>,
    committed: Committed,
}

impl Bridge {
    fn publish(&self, signals: &[Signal]) {
        let mut events = Vec::new();
        {
            let mut feed = self.feed.lock().unwrap_or_else(PoisonError::into_inner);
            // It is emptied after every commit, so it never lags.
            while let Ok(batch) = feed.try_recv() {
                events.extend(batch.iter().cloned());
            }
        }
        self.committed.publish(events, signals);
    }
}

impl Wake for Bridge {
    fn signal(&self, signals: &[Signal]) {
        self.publish(signals);
    }
}

/// Why a command of the inner store was rolled back.
enum Undone {
    /// The command refused.
    Refused(Nack),
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for Undone {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

struct SlowStore {
    inner: Store,
    bridge: Arc<Bridge>,
    clock: SimClock,
    dice: Mutex<Dice>,
}

impl SlowStore {
    /// Waits a random time: mostly none, sometimes long. It always lets other tasks run first.
    async fn wait(&self) {
        let millis = {
            let mut dice = self.dice.lock().unwrap_or_else(PoisonError::into_inner);
            match dice.below(100) {
                0..70 => 0,
                70..97 => dice.between(1, 6),
                _ => dice.between(50, 400),
            }
        };
        match millis {
            0 => tokio::task::yield_now().await,
            _ => self.clock.sleep(Duration::from_millis(millis)).await,
        }
    }
}

#[async_trait]
impl Backend for SlowStore {
    async fn submit(&self, work: Work) -> Result<(), StoreError> {
        self.wait().await;
        let done: Result<Ack, Undone> = self.inner.write(move |w| work(w).map_err(Undone::Refused)).await;
        // Commits without a signal are published, too.
        self.bridge.publish(&[]);
        match done {
            Ok(ack) => {
                self.wait().await;
                ack(Ok(()));
                Ok(())
            }
            Err(Undone::Refused(nack)) => {
                nack();
                Ok(())
            }
            Err(Undone::Store(error)) => Err(error),
        }
    }

    async fn query(&self, _: View, work: ReadWork) -> Result<(), StoreError> {
        self.wait().await;
        self.inner
            .read(move |r| {
                work(r);
                Ok(())
            })
            .await
    }

    async fn close(&self) {
        self.inner.close().await;
    }

    async fn broken(&self) -> StoreError {
        self.inner.broken().await
    }
}
