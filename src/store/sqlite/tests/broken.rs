//! A writer that cannot go on says so, and says of no command what it does not know.

use std::sync::Arc;

use futures_util::FutureExt as _;
use ghost_domain::ports::{Signal, Wake};
use tokio::sync::{mpsc, oneshot, watch};

use super::tools::{deliver, depth, dir, events, hold, open, send, who};
use crate::handle::{Committed, Store, Work};
use crate::sqlite::writer::{self, Standing};
use crate::sqlite::{SqliteOptions, fault, open as opening, session};
use crate::{StoreError, Writes};

/// Panics in whoever publishes.
struct Deaf;

impl Wake for Deaf {
    fn signal(&self, _: &[Signal]) {
        std::panic::resume_unwind(Box::new("no wake-up today"));
    }
}

async fn wake(store: &Store, n: u64) -> Result<(), StoreError> {
    let command = store.write(move |w| {
        Box::pin(async move {
            deliver(w, n, "a", "hello").await?;
            w.signal(Signal::Wake(who("a")));
            Ok(())
        })
    });
    command.await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_panics_is_told_and_what_it_had_committed_is_acknowledged() {
    let dir = dir();
    let path = dir.path().join("ghost.db");
    let store = open(&path).await;
    send(&store, 1, "a").await.unwrap();
    store.answers().await.unwrap();
    assert!(store.broken().now_or_never().is_none(), "it is well");
    store.on_signal(Arc::new(Deaf));
    wake(&store, 2).await.unwrap();
    assert_eq!(store.broken().await, "its writer panicked: no wake-up today");
    // Nothing is taken in any more, and nobody is left waiting; what only reads goes on.
    assert!(matches!(store.answers().await, Err(StoreError::Closed)));
    assert!(matches!(send(&store, 3, "a").await, Err(StoreError::Closed)));
    assert_eq!(depth(&store, "a").await, 2);
    store.close().await;
    let store = open(&path).await;
    assert_eq!((depth(&store, "a").await, events(&store).await.len()), (2, 2));
    store.close().await;
    assert!(store.broken().now_or_never().is_none(), "it was closed");
}

/// A value that panics in whoever drops it.
struct Brittle;

impl Drop for Brittle {
    fn drop(&mut self) {
        std::panic::resume_unwind(Box::new("brittle"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_became_of_a_command_may_panic_and_stops_nobody() {
    let dir = dir();
    let store = open(&dir.path().join("ghost.db")).await;
    let (go, held) = hold(&store).await;
    // Its caller goes away, so what it gave is dropped by the writer.
    let gone = store.write::<Brittle, StoreError, _>(|w| {
        Box::pin(async move {
            deliver(w, 1, "a", "hello").await?;
            Ok(Brittle)
        })
    });
    assert!(Box::pin(gone).now_or_never().is_none());
    go.notify_one();
    held.await.unwrap().unwrap();
    send(&store, 2, "a").await.unwrap();
    assert_eq!(depth(&store, "a").await, 2);
}

/// What a command does to the batch cannot be brought about from outside: the thread of the connection never ends by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_gone_ends_the_writer() {
    let dir = dir();
    let path = dir.path().join("ghost.db");
    let (conn, buffer) = opening::writer(&path, &SqliteOptions::default()).await.unwrap();
    let mut session = session::Session::writer(conn, path.clone().into(), buffer);
    session.fail_with(fault::of(&path, &sqlx::Error::WorkerCrashed));
    let (queue, queued) = mpsc::channel(4);
    let (_stop, stopped) = watch::channel(false);
    let (ending, standing) = watch::channel(Standing::Runs);
    let (told, fate) = oneshot::channel();
    let work: Work = Box::new(move |_: &mut dyn Writes| {
        Box::pin(
            async move { Ok(Box::new(move |fate: Result<(), StoreError>| told.send(fate).unwrap()) as crate::Ack) },
        )
    });
    queue.try_send(work).unwrap_or_else(|_| panic!("there is room"));
    writer::run(session, queued, stopped, Committed::new(), 8, ending).await;
    let fate = fate.await.unwrap().unwrap_err();
    assert!(matches!(fate, StoreError::Broken(_)), "{fate}");
    assert_eq!(*standing.borrow(), Standing::Broken("the thread of its connection is gone".into()));
    assert!(queue.is_closed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_whose_connection_is_gone_ends_nothing_but_itself() {
    let dir = dir();
    let path = dir.path().join("ghost.db");
    open(&path).await.close().await;
    let conn = opening::reader(&path, &SqliteOptions::default()).await.unwrap();
    let mut session = session::Session::reader(conn, path.into());
    let error = session.fail(&sqlx::Error::WorkerCrashed);
    assert!(matches!(&error, StoreError::Busy(words) if words.contains("ask again")), "{error}");
    assert!(session.has_failed(), "its connection is used by nobody again");
}
