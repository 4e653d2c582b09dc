//! A writer that fails reports it, and reports a result for a command only if it knows the result.

use std::sync::Arc;

use futures_util::FutureExt as _;
use ghost_domain::ports::{Signal, Wake};
use tokio::sync::{mpsc, oneshot, watch};

use super::tools::{deliver, depth, dir, events, hold, id_of, open, send};
use crate::handle::{Committed, Store, Work};
use crate::sqlite::writer::{self, WriterState};
use crate::sqlite::{SqliteOptions, fault, open as opening, session};
use crate::{StoreError, Writes};

/// A receiver of signals that panics.
struct PanickingReceiver;

impl Wake for PanickingReceiver {
    fn signal(&self, _: &[Signal]) {
        std::panic::resume_unwind(Box::new("no wake-up today"));
    }
}

async fn wake(store: &Store, n: u64) -> Result<(), StoreError> {
    let command = store.write(move |w| {
        Box::pin(async move {
            deliver(w, n, "a", "hello").await?;
            w.signal(Signal::Wake(id_of("a")));
            Ok(())
        })
    });
    command.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panicking_writer_is_reported_and_its_commits_are_acknowledged() {
    let dir = dir();
    let path = dir.path().join("ghost.db");
    let store = open(&path).await;
    send(&store, 1, "a").await.unwrap();
    store.answers().await.unwrap();
    assert!(store.broken().now_or_never().is_none(), "the writer works");
    store.on_signal(Arc::new(PanickingReceiver));
    wake(&store, 2).await.unwrap();
    assert!(store.broken().await.to_string().contains("no wake-up today"));
    // Writes are refused at once; no caller waits forever. Reads still work.
    assert!(matches!(store.answers().await, Err(StoreError::Closed)));
    assert!(matches!(send(&store, 3, "a").await, Err(StoreError::Closed)));
    assert_eq!(depth(&store, "a").await, 2);
    store.close().await;
    let store = open(&path).await;
    assert_eq!((depth(&store, "a").await, events(&store).await.len()), (2, 2));
    store.close().await;
    assert!(store.broken().now_or_never().is_none(), "it was closed");
}

/// A value that panics when it is dropped.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("brittle"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_a_result_callback_affects_no_other() {
    let dir = dir();
    let store = open(&dir.path().join("ghost.db")).await;
    let (go, held) = hold(&store).await;
    // The caller is dropped, so the writer drops the returned value.
    let gone = store.write::<PanicsOnDrop, StoreError, _>(|w| {
        Box::pin(async move {
            deliver(w, 1, "a", "hello").await?;
            Ok(PanicsOnDrop)
        })
    });
    assert!(Box::pin(gone).now_or_never().is_none());
    go.notify_one();
    held.await.unwrap().unwrap();
    send(&store, 2, "a").await.unwrap();
    assert_eq!(depth(&store, "a").await, 2);
}

/// The failure is set by hand: the thread of a connection never ends by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_ends_the_writer() {
    let dir = dir();
    let path = dir.path().join("ghost.db");
    let (conn, buffer) = opening::writer(&path, &SqliteOptions::default()).await.unwrap();
    let mut session = session::Session::writer(conn, path.clone().into(), buffer).unwrap();
    session.fail_with(fault::from_sqlx(&path, &sqlx::Error::WorkerCrashed));
    let (queue, queued) = mpsc::channel(4);
    let alarm = writer::Alarm::default();
    let (state_sender, state) = watch::channel(WriterState::Running);
    let (sender, result) = oneshot::channel();
    let work: Work = Box::new(move |_: &mut dyn Writes| {
        Box::pin(async move {
            Ok(Box::new(move |result: Result<(), StoreError>| sender.send(result).unwrap()) as crate::Ack)
        })
    });
    queue.try_send(work).unwrap_or_else(|_| panic!("there is room"));
    alarm.close();
    writer::run(session, queued, alarm.orders(), Committed::new(), 8, state_sender).await;
    let result = result.await.unwrap().unwrap_err();
    assert!(matches!(result, StoreError::Broken(_)), "{result}");
    assert!(matches!(*state.borrow(), WriterState::Broken(_)));
    assert!(queue.is_closed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_with_a_lost_connection_fails_alone() {
    let dir = dir();
    let path = dir.path().join("ghost.db");
    open(&path).await.close().await;
    let conn = opening::reader(&path, &SqliteOptions::default()).await.unwrap();
    let mut session = session::Session::reader(conn, path.into());
    let error = session.fail(&sqlx::Error::WorkerCrashed);
    assert!(matches!(&error, StoreError::Busy(_)), "{error}");
    assert!(session.has_failed(), "its connection is not used again");
}
