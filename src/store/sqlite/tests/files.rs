//! Unusable files are refused with a reason, and stay unchanged.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;

use super::tools::{depth, events, open, send};
use crate::error::StoreError;
use crate::sqlite::{SqliteOptions, open_store, schema};

fn file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("ghost.db")
}

async fn refused(path: &Path) -> StoreError {
    let options = SqliteOptions { busy_timeout: Duration::ZERO, ..SqliteOptions::default() };
    match open_store(path, options).await {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    }
}

fn raw(path: &Path, sql: &str) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(sql).unwrap();
    conn
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let text = "dear diary, ".repeat(2_000);
    std::fs::write(file(&dir), &text).unwrap();
    let error = refused(&file(&dir)).await;
    assert!(matches!(&error, StoreError::Damaged { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(file(&dir)).unwrap(), text);
}

#[tokio::test]
async fn the_database_of_another_program_is_refused_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    raw(&file(&dir), "CREATE TABLE albums (title TEXT)").close().unwrap();
    let before = std::fs::read(file(&dir)).unwrap();
    let error = refused(&file(&dir)).await;
    assert!(matches!(&error, StoreError::Damaged { .. }), "{error}");
    assert_eq!(std::fs::read(file(&dir)).unwrap(), before);
}

#[tokio::test]
async fn a_newer_database_is_refused_and_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    open(&file(&dir)).await.close().await;
    raw(&file(&dir), "PRAGMA user_version = 99").close().unwrap();
    let before = std::fs::read(file(&dir)).unwrap();
    let error = refused(&file(&dir)).await;
    assert!(matches!(error, StoreError::Newer { found: 99, known: schema::VERSION, .. }), "{error}");
    assert_eq!(std::fs::read(file(&dir)).unwrap(), before);
}

// covers: STORE-01
#[tokio::test]
async fn a_damaged_database_is_refused_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&file(&dir)).await;
    for n in 0..200 {
        send(&store, n, "a").await.unwrap();
    }
    store.close().await;
    let mut bytes = std::fs::read(file(&dir)).unwrap();
    let whole = bytes.len();
    assert!(whole > 8 * 4_096);
    // The header stays valid; later pages contain noise.
    for (at, byte) in bytes.iter_mut().enumerate().skip(4 * 4_096) {
        *byte = u8::try_from(at * 31 % 251).unwrap();
    }
    std::fs::write(file(&dir), &bytes).unwrap();
    let error = refused(&file(&dir)).await;
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert_eq!(std::fs::read(file(&dir)).unwrap(), bytes, "nothing was repaired silently");

    std::fs::write(file(&dir), &bytes[..whole / 2]).unwrap();
    let error = refused(&file(&dir)).await;
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn unusable_paths_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("missing/ghost.db")] {
        let error = refused(&path).await;
        assert!(matches!(error, StoreError::Open { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_locked_database_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    open(&file(&dir)).await.close().await;
    let holder = raw(&file(&dir), "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
    let error = refused(&file(&dir)).await;
    assert!(matches!(error, StoreError::Busy(_)), "{error}");
    holder.close().unwrap();
    let store = open(&file(&dir)).await;
    send(&store, 1, "a").await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn the_file_is_private_to_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let mode = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
    let store = open(&file(&dir)).await;
    send(&store, 1, "a").await.unwrap();
    assert_eq!((mode("ghost.db"), mode("ghost.db-wal")), (0o600, 0o600));
    store.close().await;
    std::fs::set_permissions(file(&dir), std::fs::Permissions::from_mode(0o644)).unwrap();
    open(&file(&dir)).await.close().await;
    assert_eq!(mode("ghost.db"), 0o600);
}

#[cfg(unix)]
#[tokio::test]
async fn a_read_only_file_is_reported() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    open(&file(&dir)).await.close().await;
    std::fs::set_permissions(file(&dir), std::fs::Permissions::from_mode(0o400)).unwrap();
    if std::fs::OpenOptions::new().write(true).open(file(&dir)).is_ok() {
        // The superuser may write to any file, so there is nothing to test.
        return;
    }
    let error = refused(&file(&dir)).await;
    assert!(matches!(error, StoreError::Open { .. }), "{error}");
}

/// Reads the pragmas of the writer's own connection.
#[test]
fn commits_wait_for_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (conn, _) = crate::sqlite::open::writer(&file(&dir), &SqliteOptions::default()).unwrap();
    for (pragma, wanted) in [("journal_mode", "wal"), ("synchronous", "2"), ("application_id", "1198027636")] {
        let sql = format!("SELECT CAST({pragma} AS TEXT) FROM pragma_{pragma}");
        let value: String = conn.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(value, wanted, "{pragma}");
    }
}

/// A store that was dropped without a close, as in a crash, holds exactly the acknowledged changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_changes_survive_a_drop() {
    let dir = tempfile::tempdir().unwrap();
    let mut sent = 0;
    for round in 0..5 {
        let store = open(&file(&dir)).await;
        assert_eq!((depth(&store, "a").await, events(&store).await.len()), (sent, usize::try_from(sent).unwrap()));
        for n in 0..10 {
            send(&store, 100 * round + n, "a").await.unwrap();
            sent += 1;
        }
        drop(store);
    }
    let store = open(&file(&dir)).await;
    let seqs: Vec<i64> = events(&store).await.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, (1..=i64::from(sent)).collect::<Vec<_>>());
    assert_eq!(store.last_seq(), i64::from(sent));
}

/// A copy of the files, as `kill -9` would leave them, with data still in the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_files_holds_all_acknowledged_changes() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(&file(&dir)).await;
    for n in 0..50 {
        send(&store, n, "a").await.unwrap();
    }
    for name in ["ghost.db", "ghost.db-wal"] {
        std::fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
    }
    let found = open(&file(&copy)).await;
    assert_eq!((depth(&found, "a").await, events(&found).await.len()), (50, 50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_leaves_only_the_database_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ghost.db");
    for round in 0..40 {
        let store = open_store(&path, SqliteOptions::default()).await.unwrap();
        // Closes while connections are opened, used, cancelled and returned.
        let (at_work, mut inside) = tokio::sync::mpsc::channel(8);
        let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
        let released = Arc::new(Mutex::new(released));
        let queries: Vec<_> = (0..round % 6)
            .map(|number| {
                let (store, at_work, released) = (store.clone(), at_work.clone(), Arc::clone(&released));
                tokio::spawn(async move {
                    let query = store.read(move |r| {
                        let agents = r.agent_list(true);
                        at_work.try_send(number).unwrap();
                        if number % 2 == 0 {
                            // Ends when the sender is dropped.
                            let _ = released.lock().unwrap().recv();
                        }
                        agents
                    });
                    query.await
                })
            })
            .collect();
        if round % 6 > 0 {
            inside.recv().await.unwrap();
        }
        queries.iter().step_by(2).for_each(tokio::task::JoinHandle::abort);
        drop(release);
        store.close().await;
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["ghost.db"], "round {round}");
    }
}
