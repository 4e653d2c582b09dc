//! A writer that fails reports it, and reports a result for a command only if it knows the result.

use std::sync::Arc;

use futures_util::FutureExt as _;
use ghost_domain::ports::{Signal, Wake};

use super::tools::{counts, deliver, depth, fresh, hold, id_of, keep, open, place, send};
use crate::sqlite::{SqliteDriver, SqliteOptions, driver, file_check, open as opening};
use crate::{StoreError, Tx};

/// A receiver of signals that panics.
struct PanickingReceiver;

impl Wake for PanickingReceiver {
    fn signal(&self, _: &[Signal]) {
        std::panic::resume_unwind(Box::new("no wake-up today"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panicking_writer_is_reported_and_its_commits_are_acknowledged() {
    let (_dir, path) = place();
    let store = open(&path).await;
    send(&store, 1, "a").await.unwrap();
    store.answers().await.unwrap();
    assert!(store.broken().now_or_never().is_none(), "the writer works");
    store.on_signal(Arc::new(PanickingReceiver));
    keep!(&store, |w| {
        deliver(w, 2, "a", "hello")?;
        w.signal(Signal::Wake(id_of("a")));
    });
    assert!(store.broken().await.to_string().contains("no wake-up today"));
    // Writes are refused at once; no caller waits forever. Reads still work.
    assert!(matches!(store.answers().await, Err(StoreError::Closed)));
    assert!(matches!(send(&store, 3, "a").await, Err(StoreError::Closed)));
    assert_eq!(depth(&store, "a").await, 2);
    store.close().await;
    let store = open(&path).await;
    assert_eq!(counts(&store).await, (2, 2));
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
    let (_dir, store) = fresh(SqliteOptions::default()).await;
    let (go, held) = hold(&store).await;
    // The caller is dropped, so the writer drops the returned value.
    let gone = store.write::<PanicsOnDrop, StoreError, _>(|w| {
        deliver(w, 1, "a", "hello")?;
        Ok(PanicsOnDrop)
    });
    assert!(Box::pin(gone).now_or_never().is_none());
    go.send(()).unwrap();
    held.await.unwrap().unwrap();
    send(&store, 2, "a").await.unwrap();
    assert_eq!(depth(&store, "a").await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_with_a_failed_connection_fails_alone() {
    let (_dir, path) = place();
    open(&path).await.close().await;
    let conn = opening::reader(&path, file_check::identity(&path).unwrap(), &SqliteOptions::default()).unwrap();
    let mut session = Tx::reader(Box::new(SqliteDriver::new(conn, path.clone().into())));
    let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
    let error = session.fail(driver::from_sqlite(&path, &rusqlite::Error::SqliteFailure(failure, None)));
    assert!(matches!(&error, StoreError::Busy(_)), "{error}");
    assert!(session.has_failed(), "its connection is not used again");
}
