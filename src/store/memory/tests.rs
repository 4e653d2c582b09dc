//! The contract suite on the store in memory, and tests of this backend alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ghost_domain::event::{EventFilter, NewEvent};
use ghost_domain::ports::{Signal, Wake};
use ghost_domain::time::BoxFuture;
use ghost_domain::{EventId, EventKind, Timestamp};
use serde_json::json;
use uuid::Uuid;

use super::{MemoryDisk, MemoryStore};
use crate::contract::{Medium, as_tests, for_each_check};
use crate::{Store, StoreError};

impl Medium for MemoryDisk {
    fn open(&self) -> BoxFuture<'_, Result<Store, StoreError>> {
        Box::pin(async { Ok(Self::open(self)) })
    }
}

for_each_check!(as_tests, MemoryDisk::new());

async fn set(store: &Store, value: &'static str) -> Result<(), StoreError> {
    store
        .write(move |w| {
            w.meta_put("key", value)?;
            let event = NewEvent::new(EventKind::WorldWarning, json!(value));
            w.event_append(EventId(Uuid::nil()), Timestamp(1), event)
        })
        .await
}

/// The stored value, and the number of events.
async fn get(store: &Store) -> Result<(Option<String>, i64), StoreError> {
    store.read(|r| Ok((r.meta_get("key")?, r.event_bounds()?.1))).await
}

fn stored(value: &str, events: i64) -> (Option<String>, i64) {
    (Some(value.to_owned()), events)
}

#[tokio::test]
async fn data_survives_a_store_and_the_old_store_is_fenced() {
    let disk = MemoryDisk::new();
    let old = disk.open();
    set(&old, "one").await.unwrap();
    let new = disk.open();
    assert_eq!(new.last_seq(), 1);
    assert!(matches!(set(&old, "two").await, Err(StoreError::Closed)));
    assert!(matches!(get(&old).await, Err(StoreError::Closed)));
    old.close().await;
    assert_eq!(get(&new).await.unwrap(), stored("one", 1));
    disk.crash();
    assert!(matches!(set(&new, "three").await, Err(StoreError::Closed)));
    assert_eq!(get(&disk.open()).await.unwrap(), stored("one", 1));
}

#[tokio::test]
async fn a_failed_commit_keeps_nothing() {
    let disk = MemoryDisk::new();
    let store = disk.open();
    let mut feed = store.feed();
    set(&store, "one").await.unwrap();
    disk.fail_next_commits(2, || StoreError::Full);
    disk.fail_next_commits(1, || StoreError::ReadOnly("mounted so".to_owned()));
    assert!(matches!(set(&store, "two").await, Err(StoreError::Full)));
    // A command that writes nothing commits nothing.
    store.write::<_, StoreError, _>(|w| w.meta_get("key")).await.unwrap();
    assert!(matches!(set(&store, "three").await, Err(StoreError::Full)));
    assert!(matches!(set(&store, "four").await, Err(StoreError::ReadOnly(_))));
    assert_eq!(get(&store).await.unwrap(), stored("one", 1));
    set(&store, "five").await.unwrap();
    assert_eq!(get(&store).await.unwrap(), stored("five", 2));
    let seqs: Vec<i64> =
        [feed.try_recv(), feed.try_recv()].iter().map(|batch| batch.as_ref().unwrap()[0].seq).collect();
    assert_eq!(seqs, [1, 2]);
    assert!(feed.try_recv().is_err());
}

#[tokio::test]
async fn a_crash_after_a_commit_keeps_it_unacknowledged() {
    let disk = MemoryDisk::new();
    let store = disk.open();
    let mut feed = store.feed();
    disk.crash_after_commits(2);
    set(&store, "one").await.unwrap();
    assert!(matches!(set(&store, "two").await, Err(StoreError::Closed)));
    assert!(matches!(set(&store, "three").await, Err(StoreError::Closed)));
    assert_eq!(feed.try_recv().unwrap().len(), 1);
    assert!(feed.try_recv().is_err());
    let store = disk.open();
    assert_eq!(get(&store).await.unwrap(), stored("two", 2));
    set(&store, "four").await.unwrap();
    let (events, _) = store.read::<_, StoreError, _>(|r| r.event_list(0, &EventFilter::default(), 9)).await.unwrap();
    assert_eq!(events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3]);
}

/// A receiver that panics at the first signal and counts all of them.
#[derive(Default)]
struct PanicsOnce(AtomicUsize);

impl Wake for PanicsOnce {
    fn signal(&self, _: &[Signal]) {
        if self.0.fetch_add(1, Ordering::SeqCst) == 0 {
            std::panic::resume_unwind(Box::new("brittle"));
        }
    }
}

#[tokio::test]
async fn a_panicking_signal_receiver_affects_no_other() {
    let store = MemoryStore::open();
    let wake = Arc::new(PanicsOnce::default());
    store.on_signal(wake.clone());
    let signal = async |store: Store| {
        store
            .write::<_, StoreError, _>(|w| {
                w.meta_put("key", "x")?;
                w.signal(Signal::Wake("a".parse().unwrap()));
                Ok(())
            })
            .await
    };
    assert!(tokio::spawn(signal(store.clone())).await.is_err());
    signal(store).await.unwrap();
    assert_eq!(wake.0.load(Ordering::SeqCst), 2);
}
