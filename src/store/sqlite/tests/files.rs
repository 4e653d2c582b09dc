//! Unusable files are refused with a reason, and stay unchanged.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;

use super::tools::{alter, counts, fresh, open, place, refused, send, send_each, seqs};
use crate::error::StoreError;
use crate::sqlite::{SqliteOptions, schema};

/// Options that wait for no lock.
fn at_once() -> SqliteOptions {
    SqliteOptions { busy_timeout: Duration::ZERO, ..SqliteOptions::default() }
}

/// A text, the database of another program, and one of a later version.
#[tokio::test]
async fn a_file_that_is_not_ours_is_refused_and_unchanged() {
    for what in ["text", "another", "newer"] {
        let (_dir, path) = place();
        match what {
            "text" => fs::write(&path, "dear diary, ".repeat(2_000)).unwrap(),
            "another" => alter(&path, "CREATE TABLE albums (title TEXT)"),
            _ => {
                open(&path).await.close().await;
                alter(&path, "PRAGMA user_version = 99");
            }
        }
        let before = fs::read(&path).unwrap();
        match refused(&path, at_once()).await {
            StoreError::Newer { found: 99, known: schema::VERSION, .. } => assert_eq!(what, "newer"),
            StoreError::Damaged { .. } => assert_ne!(what, "newer"),
            error => panic!("{what}: {error}"),
        }
        assert_eq!(fs::read(&path).unwrap(), before, "{what}");
    }
}

// covers: STORE-01
#[tokio::test]
async fn a_damaged_database_is_refused_and_kept() {
    let (_dir, path) = place();
    let store = open(&path).await;
    send_each(&store, 0..200).await;
    store.close().await;
    let mut bytes = fs::read(&path).unwrap();
    let whole = bytes.len();
    assert!(whole > 8 * 4_096);
    // The header stays valid; later pages contain noise.
    for (at, byte) in bytes.iter_mut().enumerate().skip(4 * 4_096) {
        *byte = u8::try_from(at * 31 % 251).unwrap();
    }
    for damaged in [&bytes[..], &bytes[..whole / 2]] {
        fs::write(&path, damaged).unwrap();
        let error = refused(&path, at_once()).await;
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(fs::read(&path).unwrap() == damaged, "nothing was repaired silently");
    }
}

#[tokio::test]
async fn unusable_paths_are_reported() {
    let (dir, _) = place();
    for path in [dir.path().to_owned(), dir.path().join("missing/ghost.db")] {
        let error = refused(&path, at_once()).await;
        assert!(matches!(error, StoreError::Open { .. }), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

#[tokio::test]
async fn a_locked_database_is_reported() {
    let (_dir, path) = place();
    open(&path).await.close().await;
    let holder = Connection::open(&path).unwrap();
    holder.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let error = refused(&path, at_once()).await;
    assert!(matches!(error, StoreError::Busy(_)), "{error}");
    holder.close().unwrap();
    send(&open(&path).await, 1, "a").await.unwrap();
}

#[tokio::test]
async fn the_file_is_private_to_its_owner() {
    let (dir, path) = place();
    let mode = |name: &str| fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
    let store = open(&path).await;
    send(&store, 1, "a").await.unwrap();
    assert_eq!((mode("ghost.db"), mode("ghost.db-wal")), (0o600, 0o600));
    store.close().await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    open(&path).await.close().await;
    assert_eq!(mode("ghost.db"), 0o600);
}

#[tokio::test]
async fn a_read_only_file_is_reported() {
    let (_dir, path) = place();
    open(&path).await.close().await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    if fs::OpenOptions::new().write(true).open(&path).is_ok() {
        // The superuser may write to any file, so there is nothing to test.
        return;
    }
    let error = refused(&path, at_once()).await;
    assert!(matches!(error, StoreError::Open { .. }), "{error}");
}

/// Reads the pragmas of the writer's own connection.
#[test]
fn commits_wait_for_the_disk() {
    let (_dir, path) = place();
    let (conn, _) = crate::sqlite::open::writer(&path, &SqliteOptions::default()).unwrap();
    for (pragma, wanted) in [("journal_mode", "wal"), ("synchronous", "2"), ("application_id", "1198027636")] {
        let sql = format!("SELECT CAST({pragma} AS TEXT) FROM pragma_{pragma}");
        let value: String = conn.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(value, wanted, "{pragma}");
    }
}

/// A store that was dropped without a close, as in a crash, holds exactly the acknowledged changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_changes_survive_a_drop() {
    let (_dir, path) = place();
    let mut sent = 0;
    for round in 0..5 {
        let store = open(&path).await;
        assert_eq!(counts(&store).await, (sent, usize::try_from(sent).unwrap()));
        send_each(&store, 100 * round..100 * round + 10).await;
        sent += 10;
        drop(store);
    }
    let store = open(&path).await;
    assert_eq!(seqs(&store).await, (1..=i64::from(sent)).collect::<Vec<_>>());
    assert_eq!(store.last_seq(), i64::from(sent));
}

/// A copy of the files, as `kill -9` would leave them, with data still in the log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_files_holds_all_acknowledged_changes() {
    let (dir, store) = fresh(SqliteOptions::default()).await;
    let (copy, path) = place();
    send_each(&store, 0..50).await;
    for name in ["ghost.db", "ghost.db-wal"] {
        fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
    }
    assert_eq!(counts(&open(&path).await).await, (50, 50));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn close_leaves_only_the_database_file() {
    let (dir, path) = place();
    for round in 0..40 {
        let store = open(&path).await;
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
        let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["ghost.db"], "round {round}");
    }
}
