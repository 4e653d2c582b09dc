//! A writer that fails reports it, and reports a result for a command only if it knows the result.

use std::sync::Arc;

use futures_util::FutureExt as _;
use ghost_domain::ports::{Signal, Wake};

use super::tools::{deliver, depth, dir, events, hold, id_of, open, send};
use crate::handle::Store;
use crate::sqlite::{SqliteDriver, SqliteOptions, fault, file_check, open as opening};
use crate::{StoreError, Tx};

/// A receiver of signals that panics.
struct PanickingReceiver;

impl Wake for PanickingReceiver {
    fn signal(&self, _: &[Signal]) {
        std::panic::resume_unwind(Box::new("no wake-up today"));
    }
}

async fn wake(store: &Store, n: u64) -> Result<(), StoreError> {
    let command = store.write(move |w| {
        deliver(w, n, "a", "hello")?;
        w.signal(Signal::Wake(id_of("a")));
        Ok(())
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
        deliver(w, 1, "a", "hello")?;
        Ok(PanicsOnDrop)
    });
    assert!(Box::pin(gone).now_or_never().is_none());
    go.notify_one();
    held.await.unwrap().unwrap();
    send(&store, 2, "a").await.unwrap();
    assert_eq!(depth(&store, "a").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_with_a_failed_connection_fails_alone() {
    let dir = dir();
    let path = dir.path().join("ghost.db");
    open(&path).await.close().await;
    let conn = opening::reader(&path, file_check::identity(&path).unwrap(), &SqliteOptions::default()).unwrap();
    let mut session = Tx::reader(Box::new(SqliteDriver::new(conn, path.clone().into())));
    let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
    let error = session.fail(fault::from_sqlite(&path, &rusqlite::Error::SqliteFailure(failure, None)));
    assert!(matches!(&error, StoreError::Busy(_)), "{error}");
    assert!(session.has_failed(), "its connection is not used again");
}
