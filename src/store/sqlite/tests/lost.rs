//! Files that were emptied, removed or replaced: no new database is created in their place, and
//! nothing is acknowledged into them.

use std::fs;
use std::path::Path;

use ghost_domain::event::EventFilter;

use super::tools::{alter, depth, fresh, open, place, refused, send, send_each};
use crate::error::StoreError;
use crate::sqlite::{SqliteOptions, file_check, open_store};

const HAS_RUN: Option<&str> = Some("a world has run in its directory");

/// Why a file is refused as damaged.
async fn damage(path: &Path, expected: Option<&'static str>) -> String {
    let error = refused(path, SqliteOptions { expected, ..SqliteOptions::default() }).await;
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    error.to_string()
}

#[tokio::test]
async fn an_expected_database_is_never_created() {
    let (_dir, path) = place();
    assert!(damage(&path, HAS_RUN).await.contains(HAS_RUN.unwrap()));
    assert!(!path.exists());
    fs::write(&path, "").unwrap();
    assert!(damage(&path, HAS_RUN).await.contains(HAS_RUN.unwrap()));
    assert_eq!(fs::read(&path).unwrap(), b"");
    // An SQLite file without tables, as it is left if the log was lost before its first checkpoint.
    alter(&path, "PRAGMA journal_mode = WAL; VACUUM");
    let before = fs::read(&path).unwrap();
    assert!(!before.is_empty());
    assert!(damage(&path, HAS_RUN).await.contains(HAS_RUN.unwrap()));
    assert_eq!(fs::read(&path).unwrap(), before);
    // Without `expected`, each of them is a new database.
    open(&path).await.close().await;
    open_store(&path, SqliteOptions { expected: HAS_RUN, ..SqliteOptions::default() }).await.unwrap().close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_without_its_database_is_kept() {
    let (dir, store) = fresh(SqliteOptions::default()).await;
    send(&store, 1, "a").await.unwrap();
    let (copy, path) = place();
    let log = copy.path().join("ghost.db-wal");
    fs::copy(dir.path().join("ghost.db-wal"), &log).unwrap();
    let before = fs::read(&log).unwrap();
    assert!(damage(&path, None).await.contains("ghost.db-wal"));
    fs::write(&path, "").unwrap();
    assert!(damage(&path, None).await.contains("ghost.db-wal"));
    assert_eq!(fs::read(&log).unwrap(), before);
    fs::copy(dir.path().join("ghost.db"), &path).unwrap();
    assert_eq!(depth(&open(&path).await, "a").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_acknowledged_into_deleted_files() {
    for (name, replaced) in
        ["ghost.db", "ghost.db-wal", "ghost.db-shm"].into_iter().flat_map(|name| [(name, false), (name, true)])
    {
        let (dir, path) = place();
        let store = open(&path).await;
        send(&store, 1, "a").await.unwrap();
        // Its reader has opened the files that are then moved.
        assert_eq!(depth(&store, "a").await, 1);
        let file = dir.path().join(name);
        fs::rename(&file, dir.path().join("aside")).unwrap();
        if replaced {
            fs::write(&file, "another").unwrap();
        }
        let refused = send(&store, 2, "a").await;
        assert!(matches!(&refused, Err(StoreError::Gone { path }) if *path == file), "{refused:?}");
        let cause = store.broken().await;
        assert!(matches!(&cause, StoreError::Gone { path } if *path == file), "{cause:?}");
        assert!(matches!(send(&store, 3, "a").await, Err(StoreError::Closed)));
        store.close().await;
        if name == "ghost.db" {
            fs::rename(dir.path().join("aside"), &file).unwrap();
        }
        assert_eq!(depth(&open(&path).await, "a").await, 1, "{name}");
    }
}

/// A connection removes the log of its database when it is the last one that closes. The log by that name is not the log
/// of a file that has taken the place of ours.
#[tokio::test]
async fn a_reader_opens_no_file_that_has_taken_the_place_of_ours() {
    let (dir, path) = place();
    let store = open(&path).await;
    send(&store, 1, "a").await.unwrap();
    let ours = file_check::identity(&path).unwrap();
    fs::rename(&path, dir.path().join("aside")).unwrap();
    fs::write(&path, "").unwrap();
    let opened = crate::sqlite::open::reader(&path, ours, &SqliteOptions::default());
    assert!(matches!(&opened, Err(StoreError::Gone { path: gone }) if *gone == path), "{opened:?}");
    assert!(fs::metadata(dir.path().join("ghost.db-wal")).unwrap().len() > 0);
    assert!(dir.path().join("ghost.db-shm").is_file());
    fs::rename(dir.path().join("aside"), &path).unwrap();
    store.close().await;
    assert_eq!(depth(&open(&path).await, "a").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_files_were_moved_leaves_its_successor_alone() {
    let (dir, path) = place();
    let store = open(&path).await;
    send(&store, 1, "a").await.unwrap();
    for end in ["", "-wal", "-shm"] {
        let at = |name: &str| dir.path().join(format!("{name}{end}"));
        fs::rename(at("ghost.db"), at("aside")).unwrap();
    }
    let other = open(&path).await;
    send(&other, 1, "b").await.unwrap();
    store.close().await;
    send(&other, 2, "b").await.unwrap();
    other.close().await;
    assert_eq!(depth(&open(&path).await, "b").await, 2);
    assert_eq!(depth(&open(&dir.path().join("aside")).await, "a").await, 1);
}

#[tokio::test]
async fn a_damaged_event_is_reported_by_sequence_after_earlier_events() {
    let (_dir, path) = place();
    let store = open(&path).await;
    send_each(&store, 0..6).await;
    store.close().await;
    alter(&path, "UPDATE events SET payload = '{bad' WHERE seq = 3");
    let store = open(&path).await;
    let read = async |after: i64| {
        let list = store.read(move |r| r.event_list(after, &EventFilter::default(), 100));
        list.await.map(|(events, looked)| (events.iter().map(|event| event.seq).collect::<Vec<_>>(), looked))
    };
    assert_eq!(read(0).await.unwrap(), (vec![1, 2], 2));
    let error = read(2).await.unwrap_err();
    assert!(matches!(&error, StoreError::Row { table: "events", key, .. } if key == "3"), "{error}");
    assert_eq!(read(3).await.unwrap(), (vec![4, 5, 6], 6));
}
