//! Damage to the files of an open database: the next commit is refused and the writer ends with the cause. What is not
//! damage, refuses nothing.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rusqlite::Connection;

use super::tools::{alter, deliver, depth, id_of, open, place, refuse, send, send_each, send_text};
use crate::sqlite::{open_store, verify};
use crate::{Store, StoreError};

/// Overwrites `count` bytes at `at` with noise.
fn overwrite(file: &Path, at: u64, count: usize) {
    let noise: Vec<u8> = (0..count).map(|byte| u8::try_from(byte * 31 % 251).unwrap() | 1).collect();
    OpenOptions::new().write(true).open(file).unwrap().write_all_at(&noise, at).unwrap();
}

fn cut(file: &Path, size: u64) {
    OpenOptions::new().write(true).open(file).unwrap().set_len(size).unwrap();
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).unwrap().len()
}

/// A store that was closed and opened again, so that its database and its log both hold commits.
async fn filled(path: &Path) -> Store {
    let store = open(path).await;
    send_each(&store, 0..40).await;
    store.close().await;
    let store = open(path).await;
    send_each(&store, 40..60).await;
    store
}

/// Each sort of damage: the file by the end of its name, whether a batch may have begun, and what is done to it.
type Damage = (&'static str, &'static str, bool, fn(&Path));
const DAMAGE: [Damage; 11] = [
    ("log emptied", "-wal", true, |file| cut(file, 0)),
    ("log cut in the middle", "-wal", true, |file| cut(file, size(file) / 2)),
    ("log cut by a byte", "-wal", false, |file| cut(file, size(file) - 1)),
    ("log's header", "-wal", true, |file| overwrite(file, 0, 32)),
    ("log's newest frame", "-wal", false, |file| overwrite(file, size(file) - 4_120, 24)),
    ("log's middle", "-wal", false, |file| overwrite(file, size(file) / 2, 4_096)),
    ("database emptied", "", false, |file| cut(file, 0)),
    ("database cut", "", true, |file| cut(file, size(file) / 2)),
    ("database's header", "", false, |file| overwrite(file, 0, 100)),
    ("database's middle", "", true, |file| overwrite(file, size(file) / 2, 4_096)),
    ("index overwritten", "-shm", false, |file| overwrite(file, 0, 4_096)),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_file_acknowledges_nothing_and_ends_the_writer() {
    for (what, end, _, damage) in DAMAGE {
        let (dir, path) = place();
        let store = filled(&path).await;
        let file = dir.path().join(format!("ghost.db{end}"));
        damage(&file);
        let refused = send(&store, 99, "a").await;
        assert!(matches!(&refused, Err(StoreError::Damaged { path, .. }) if *path == file), "{what}: {refused:?}");
        let cause = store.broken().await;
        assert!(matches!(&cause, StoreError::Damaged { path, .. } if *path == file), "{what}: {cause:?}");
        assert!(matches!(send(&store, 100, "a").await, Err(StoreError::Closed)), "{what}");
        let before = fs::read(&path).unwrap();
        store.close().await;
        assert_eq!(fs::read(&path).unwrap(), before, "{what}: no damaged log was copied into the database");
    }
}

/// The damage is done after the batch has begun, and before its commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_during_which_a_file_is_damaged_is_not_acknowledged() {
    for (what, end, _, damage) in DAMAGE.into_iter().filter(|(_, _, within, _)| *within) {
        let (dir, path) = place();
        let store = filled(&path).await;
        let file = dir.path().join(format!("ghost.db{end}"));
        let command = store.write(move |w| {
            deliver(w, 99, "a", "hello")?;
            // A query that must see the row begins the transaction.
            w.inbox_pending(&id_of("a"), 1_000)?;
            damage(&file);
            Ok(())
        });
        let refused = command.await;
        assert!(matches!(&refused, Err(StoreError::Damaged { .. })), "{what}: {refused:?}");
        assert!(matches!(store.broken().await, StoreError::Damaged { .. }), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_writes_nothing_notices_damage_too() {
    for asked in [true, false] {
        let (dir, path) = place();
        let store = filled(&path).await;
        cut(&dir.path().join("ghost.db-wal"), 0);
        if asked {
            assert!(matches!(store.answers().await, Err(StoreError::Damaged { .. })));
        } else {
            // An orderly end reports it.
            store.close().await;
        }
        assert!(matches!(store.broken().await, StoreError::Damaged { .. }), "asked: {asked}");
    }
}

/// The damage was there before the open, so only a query can find it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_that_a_query_finds_ends_the_writer() {
    let (_dir, path) = place();
    let store = open(&path).await;
    for n in 0..400 {
        send_text(&store, n, "a", "x".repeat(12_000)).await.unwrap();
    }
    store.close().await;
    assert!(size(&path) > 4 << 20, "too large to be checked at the start");
    verify(&path, None).await.unwrap();
    let conn = Connection::open(&path).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'agents'";
    let page: i64 = conn.query_row(sql, [], |row| row.get(0)).unwrap();
    conn.close().unwrap();
    overwrite(&path, (u64::try_from(page).unwrap() - 1) * 4_096, 64);
    assert!(matches!(verify(&path, None).await, Err(StoreError::Damaged { .. })));
    let store = open(&path).await;
    send(&store, 1_000, "a").await.unwrap();
    let found = store.read(|r| r.agent_list(true)).await;
    assert!(matches!(found, Err(StoreError::Damaged { .. })), "{found:?}");
    assert!(send(&store, 1_001, "a").await.is_err());
    assert!(matches!(store.broken().await, StoreError::Damaged { .. }));
}

/// The log begins again after each checkpoint, another program copies the database and runs a checkpoint, a large batch
/// is undone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_sqlite_does_itself_is_no_damage() {
    let (_dir, path) = place();
    let store = open(&path).await;
    let mut sent = 0;
    for round in 0..3 {
        for _ in 0..70 {
            sent += 1;
            send_text(&store, sent, "a", "x".repeat(300_000)).await.unwrap();
        }
        refuse!(&store, |w| {
            deliver(w, 9_000 + round, "b", &"y".repeat(40_000_000))?;
            w.inbox_pending(&id_of("b"), 10)?;
        });
        for mode in ["PASSIVE", "RESTART", "TRUNCATE"] {
            // It waits for the locks of the store's own connections.
            alter(&path, &format!("PRAGMA wal_checkpoint({mode})"));
            sent += 1;
            send(&store, sent, "a").await.unwrap();
        }
    }
    assert_eq!(u64::from(depth(&store, "a").await), sent);
    store.close().await;
    verify(&path, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_with_damage_before_later_commits_is_refused_and_kept() {
    let ((dir, original), (copy, path)) = (place(), place());
    let _store = filled(&original).await;
    let log = copy.path().join("ghost.db-wal");
    let take = || {
        drop(fs::remove_file(copy.path().join("ghost.db-shm")));
        for name in ["ghost.db", "ghost.db-wal"] {
            fs::copy(dir.path().join(name), copy.path().join(name)).unwrap();
        }
    };
    take();
    let both = || [&path, &log].map(|file| fs::read(file).unwrap());
    let [before, before_log] = both();
    verify(&path, None).await.unwrap();
    assert_eq!(both(), [before.clone(), before_log], "nothing has changed");
    for at in [0, size(&log) / 2] {
        take();
        overwrite(&log, at, 32);
        let damaged = fs::read(&log).unwrap();
        let (checked, opened) = (verify(&path, None).await, open_store(&path, Default::default()).await.map(|_| ()));
        for refused in [checked.map(|_| ()), opened] {
            assert!(matches!(&refused, Err(StoreError::Damaged { .. })), "{refused:?}");
        }
        assert_eq!(both(), [before.clone(), damaged]);
    }
    // A transaction that a power loss tore was never acknowledged.
    take();
    overwrite(&log, size(&log) - 100, 50);
    assert_eq!(depth(&open(&path).await, "a").await, 59);
}

#[tokio::test]
async fn a_check_at_rest_finds_a_missing_table_and_another_program() {
    let (_dir, path) = place();
    assert!(matches!(verify(&path, None).await, Err(StoreError::Open { .. })));
    assert!(matches!(verify(&path, Some("it was there")).await, Err(StoreError::Damaged { .. })));
    open(&path).await.close().await;
    verify(&path, None).await.unwrap();
    alter(&path, "DROP TABLE usage");
    assert!(matches!(verify(&path, None).await, Err(StoreError::Damaged { what, .. }) if what.contains("usage")));
    alter(&path, "PRAGMA application_id = 1");
    assert!(matches!(verify(&path, None).await, Err(StoreError::Damaged { .. })));
}
