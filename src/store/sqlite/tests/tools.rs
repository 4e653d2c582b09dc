//! Helpers of these tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use ghost_domain::event::{EventFilter, NewEvent};
use ghost_domain::{Envelope, Event, EventId, EventKind, Timestamp};
use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::contract::rows;
pub(super) use crate::contract::rows::id_of;
pub(super) use crate::contract::tools::{keep, reading, refuse, shows};
use crate::sqlite::{SqliteOptions, open_store};
use crate::{Store, StoreError, Tx};

pub(super) async fn open(path: &Path) -> Store {
    open_store(path, SqliteOptions::default()).await.unwrap()
}

/// A new store, and its directory.
pub(super) async fn fresh(options: SqliteOptions) -> (TempDir, Store) {
    let (dir, path) = place();
    let store = open_store(&path, options).await.unwrap();
    (dir, store)
}

/// Why a file cannot be opened.
pub(super) async fn refused(path: &Path, options: SqliteOptions) -> StoreError {
    open_store(path, options).await.err().expect("it is refused")
}

/// Changes a database as another program does.
pub(super) fn alter(path: &Path, sql: &str) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(sql).unwrap();
    conn.close().unwrap();
}

pub(super) fn mail(n: u64, to: &str, body: &str) -> Envelope {
    Envelope { body: body.to_owned(), hop: 1, ..rows::mail(n + 1, to) }
}

/// The send of these tests: a message and its event.
pub(super) fn deliver(w: &mut Tx, n: u64, to: &str, body: &str) -> Result<(), StoreError> {
    w.message_append(&mail(n, to, body))?;
    let event = NewEvent::new(EventKind::MessageDelivered, json!({ "n": n })).agent(&id_of(to));
    w.event_append(EventId(Uuid::from_u128(u128::from(n))), Timestamp(1), event)
}

pub(super) async fn send(store: &Store, n: u64, to: &'static str) -> Result<(), StoreError> {
    send_text(store, n, to, String::from("good morning")).await
}

pub(super) async fn send_text(store: &Store, n: u64, to: &'static str, body: String) -> Result<(), StoreError> {
    store.write(move |w| deliver(w, n, to, &body)).await
}

/// Sends mail to agent `a`, one after the other.
pub(super) async fn send_each(store: &Store, numbers: std::ops::Range<u64>) {
    for n in numbers {
        send(store, n, "a").await.unwrap();
    }
}

pub(super) async fn depth(store: &Store, of: &'static str) -> u32 {
    reading!(store, |r| { r.inbox_depth(&id_of(of))? })
}

pub(super) async fn events(store: &Store) -> Vec<Event> {
    reading!(store, |r| { r.event_list(0, &EventFilter::default(), 1_000_000)?.0 })
}

/// The sequences of all events.
pub(super) async fn seqs(store: &Store) -> Vec<i64> {
    events(store).await.iter().map(|event| event.seq).collect()
}

/// The waiting mail of agent `a`, and the events.
pub(super) async fn counts(store: &Store) -> (u32, usize) {
    (depth(store, "a").await, events(store).await.len())
}

/// The path of a database that does not exist yet, in a new directory.
pub(super) fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ghost.db");
    (dir, path)
}

/// Holds the writer inside a command until something is sent.
pub(super) async fn hold(store: &Store) -> (SyncSender<()>, tokio::task::JoinHandle<Result<(), StoreError>>) {
    let inside = Arc::new(Notify::new());
    let (go, leave) = sync_channel(1);
    let (store, entered) = (store.clone(), inside.clone());
    let held = tokio::spawn(async move {
        let command = store.write(move |_| {
            entered.notify_one();
            leave.recv().unwrap();
            Ok(())
        });
        command.await
    });
    inside.notified().await;
    (go, held)
}

/// Queues all commands behind a held command, so that they run in one batch.
pub(super) async fn together<T>(store: &Store, commands: Vec<impl Future<Output = T>>) -> Vec<T> {
    let (go, held) = hold(store).await;
    let mut all = Box::pin(join_all(commands));
    assert!((&mut all).now_or_never().is_none());
    go.send(()).unwrap();
    // The held command is in the same batch and has the same result.
    drop(held.await.unwrap());
    all.await
}
