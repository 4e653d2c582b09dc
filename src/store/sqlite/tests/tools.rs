//! Helpers of these tests.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use ghost_domain::event::{EventFilter, NewEvent};
use ghost_domain::{
    AgentId, Envelope, Event, EventId, EventKind, Kind, MailState, MessageId, Party, Refusal, RootId, Timestamp,
};
use serde_json::json;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::sqlite::{SqliteOptions, open_store};
use crate::{Store, StoreError, Writes};

/// Why a command of a test failed.
#[derive(Debug)]
pub(super) enum Stop {
    Refused,
    Store(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Refusal> for Stop {
    fn from(_: Refusal) -> Self {
        Self::Refused
    }
}

pub(super) async fn open(path: &Path) -> Store {
    open_store(path, SqliteOptions::default()).await.unwrap()
}

pub(super) fn id_of(name: &str) -> AgentId {
    name.parse().unwrap()
}

pub(super) fn mail(n: u64, to: &str, body: &str) -> Envelope {
    Envelope {
        message_id: MessageId(Uuid::from_u128(u128::from(n) + 1)),
        seq: 0,
        to: id_of(to),
        from: Party::System,
        kind: Kind::Message,
        subject: None,
        body: body.to_owned(),
        attachments: vec![],
        ask_id: None,
        conversation_id: None,
        root_id: RootId(Uuid::from_u128(7)),
        hop: 1,
        wake: true,
        created_at: Timestamp(1),
        read_at: None,
        state: MailState::Pending,
        turn_id: None,
        crashes: 0,
    }
}

/// The send of these tests: a message and its event.
pub(super) async fn deliver(w: &mut dyn Writes, n: u64, to: &str, body: &str) -> Result<(), StoreError> {
    w.message_append(&mail(n, to, body)).await?;
    let event = NewEvent::new(EventKind::MessageDelivered, json!({ "n": n })).agent(&id_of(to));
    w.event_append(EventId(Uuid::from_u128(u128::from(n))), Timestamp(1), event).await
}

pub(super) async fn send(store: &Store, n: u64, to: &'static str) -> Result<(), StoreError> {
    send_text(store, n, to, String::from("good morning")).await
}

pub(super) async fn send_text(store: &Store, n: u64, to: &'static str, body: String) -> Result<(), StoreError> {
    store.write(move |w| Box::pin(async move { deliver(w, n, to, &body).await })).await
}

pub(super) async fn depth(store: &Store, of: &'static str) -> u32 {
    store.read::<_, StoreError, _>(move |r| Box::pin(async move { r.inbox_depth(&id_of(of)).await })).await.unwrap()
}

pub(super) async fn events(store: &Store) -> Vec<Event> {
    store
        .read::<_, StoreError, _>(|r| {
            Box::pin(async move { Ok(r.event_list(0, &EventFilter::default(), 1_000_000).await?.0) })
        })
        .await
        .unwrap()
}

pub(super) fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub(super) async fn store_with(path: &Path, options: SqliteOptions) -> Store {
    open_store(&path.join("ghost.db"), options).await.unwrap()
}

/// Holds the writer inside a command until the returned `Notify` is notified.
pub(super) async fn hold(store: &Store) -> (Arc<Notify>, tokio::task::JoinHandle<Result<(), StoreError>>) {
    let (inside, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (store, entered, leave) = (store.clone(), inside.clone(), go.clone());
    let held = tokio::spawn(async move {
        store
            .write::<(), StoreError, _>(move |_| {
                Box::pin(async move {
                    entered.notify_one();
                    leave.notified().await;
                    Ok(())
                })
            })
            .await
    });
    inside.notified().await;
    (go, held)
}

/// Queues all commands behind a held command, so that they run in one batch.
pub(super) async fn together<T>(store: &Store, commands: Vec<impl Future<Output = T>>) -> Vec<T> {
    let (go, held) = hold(store).await;
    let mut all = Box::pin(join_all(commands));
    assert!((&mut all).now_or_never().is_none());
    go.notify_one();
    // The held command is in the same batch and has the same result.
    drop(held.await.unwrap());
    all.await
}
