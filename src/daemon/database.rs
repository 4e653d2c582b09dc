//! The database in the data directory: opened as early as it can be, and none left behind that could not be made whole.
//!
//! Must never: change a database before the configuration is known to be good, or take one that holds nothing for a new one where
//! it may have held something.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ghost_domain::{Clock, Code, Refusal};
use ghost_store::Store;
use ghost_store::sqlite::{SqliteOptions, is_current, open_store};

use crate::data_dir::DataDir;

/// The file in the data directory.
pub(crate) const FILE: &str = "ghost.db";
/// Its log beside it, there as long as it is open.
pub(crate) const LOG: &str = "ghost.db-wal";

/// Lies beside the file while that is being made. Nothing is kept in a database as long as it is there: one without tables is what
/// a start has left that was killed.
const MAKING: &str = "ghost.db-new";

/// Why there must be a database with something in it.
const HAS_RUN: &str = "a world has run in its directory";
/// Why one that is there must hold something: its log may have been left behind when it was copied after a crash.
const HAS_FILES: &str = "files of a world lie in the workspace beside it";

/// Locks the data directory and opens its database, if that is there and taken as it is. Any other waits until the
/// configuration is known to be good.
pub(crate) async fn open_early(
    path: &Path,
    sqlite: SqliteOptions,
    clock: &dyn Clock,
) -> Result<Option<(DataDir, Store)>, Refusal> {
    let file = path.join(FILE);
    if !is_current(&file) || is_there(&path.join(MAKING)) {
        return Ok(None);
    }
    let data_dir = DataDir::lock(path, clock).await?;
    let store = open_store(&file, sqlite).await.map_err(|error| located(error.into(), &data_dir))?;
    Ok(Some((data_dir, store)))
}

/// Opens a database that is not there yet, or is of an earlier version. One that could not be made whole does not stay.
/// Where a world has run already, none is made; nor in one without tables beside a workspace with files, unless a start that was
/// making it has left it.
pub(crate) async fn open(data_dir: &DataDir, sqlite: SqliteOptions) -> Result<Store, Refusal> {
    let file = data_dir.path().join(FILE);
    let named = |end: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let mark = data_dir.path().join(MAKING);
    // The mark is the last to go.
    let names = ["", "-wal", "-shm", "-journal"].map(named).into_iter().chain([mark.clone()]);
    let missing: Vec<PathBuf> = names.filter(|name| !is_there(name)).collect();
    let (new, marked) = (missing.contains(&file), !missing.contains(&mark));
    let expected = match () {
        () if data_dir.has_held_a_world() => Some(HAS_RUN),
        // Without a database somebody may have laid files out for a new world.
        () if !new && !marked && data_dir.has_files() => Some(HAS_FILES),
        () => None,
    };
    if new && expected.is_none() {
        put(&mark).map_err(|error| unmarked(&mark, "made", &error))?;
    }
    match open_store(&file, SqliteOptions { expected, ..sqlite }).await {
        Ok(store) => match std::fs::remove_file(&mark) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                store.close().await;
                Err(unmarked(&mark, "removed", &error))
            }
            _ => Ok(store),
        },
        Err(error) => {
            for made in missing.iter().filter(|_| new) {
                // Whatever is not there need not go; the refusal that follows says what is wrong.
                drop(std::fs::remove_file(made));
            }
            Err(located(error.into(), data_dir))
        }
    }
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Leaves the mark, for longer than a loss of power.
fn put(mark: &Path) -> std::io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(mark)?;
    let directory = mark.parent().map(std::fs::File::open).transpose()?;
    if let Some(Err(error)) = directory.map(|directory| directory.sync_all()) {
        // There are file systems that cannot; killed, without a loss of power, the next start finds it all the same.
        tracing::debug!(%error, path = %mark.display(), "the directory could not be brought to the disk");
    }
    Ok(())
}

/// The mark is not as it has to be.
fn unmarked(mark: &Path, how: &str, error: &std::io::Error) -> Refusal {
    let what = format!("{} could not be {how}, which says that the database beside it is new: {error}", mark.display());
    Refusal::new(Code::Unavailable, what)
        .hint("make the data directory and what lies in it writable, or give another with --data")
}

/// What a daemon ends with whose store can write nothing any more.
pub(crate) fn broken(why: &str) -> Refusal {
    let what = format!("the store has failed, {why}: this daemon ends, since nothing more can be kept");
    Refusal::new(Code::Internal, what).hint("what was acknowledged is in the database: start the daemon again")
}

/// A refusal of the start, with the file if it is about one of its records.
pub(crate) fn located(mut refusal: Refusal, data_dir: &DataDir) -> Refusal {
    if refusal.details.as_ref().is_some_and(|details| details.get("table").is_some()) {
        let file = data_dir.path().join(FILE);
        refusal.message = format!("a record of the database {} is damaged: {}", file.display(), refusal.message);
    }
    refusal
}

#[cfg(test)]
mod tests {
    use ghost_provider::testing::ManualClock;

    use super::*;

    const NAMES: [&str; 4] = [FILE, LOG, "ghost.db-shm", MAKING];

    /// A data directory with files in its workspace, and what a daemon that was killed left of a database.
    async fn left(database: &[(&str, &[u8])]) -> (tempfile::TempDir, DataDir) {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("workspace/shared")).unwrap();
        for (name, bytes) in database {
            std::fs::write(home.path().join(name), bytes).unwrap();
        }
        let dir = DataDir::lock(home.path(), &*ManualClock::at(0)).await.unwrap();
        (home, dir)
    }

    fn lying(dir: &DataDir) -> Vec<(&'static str, Vec<u8>)> {
        NAMES.into_iter().filter_map(|name| Some((name, std::fs::read(dir.path().join(name)).ok()?))).collect()
    }

    async fn refused(dir: &DataDir) -> Refusal {
        match open(dir, SqliteOptions::default()).await {
            Ok(_) => panic!("it was opened"),
            Err(refusal) => refusal,
        }
    }

    /// What lies there of a database that is open and has its tables in its log alone.
    async fn young() -> (Vec<u8>, Vec<u8>) {
        let (_home, dir) = left(&[]).await;
        let store = open(&dir, SqliteOptions::default()).await.unwrap();
        let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
        let young = (read(FILE), read(LOG));
        store.close().await;
        young
    }

    #[tokio::test]
    async fn a_database_that_a_killed_start_was_making_is_made_by_the_next_beside_files() {
        let (head, log) = young().await;
        assert!(!head.is_empty() && log.len() > 8_192);
        let states: [&[(&str, &[u8])]; 6] = [
            &[],
            &[(MAKING, b"")],
            &[(MAKING, b""), (FILE, b"")],
            &[(MAKING, b""), (FILE, &head)],
            // Before the end of the transaction, and after it.
            &[(MAKING, b""), (FILE, &head), (LOG, &log[..log.len() / 2])],
            &[(MAKING, b""), (FILE, &head), (LOG, &log)],
        ];
        for state in states {
            let (_home, dir) = left(state).await;
            assert!(open_early(dir.path(), SqliteOptions::default(), &*ManualClock::at(0)).await.unwrap().is_none());
            open(&dir, SqliteOptions::default()).await.unwrap().close().await;
            let names: Vec<&str> = lying(&dir).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, [FILE], "what is whole is no longer called new");
            assert!(is_current(&dir.path().join(FILE)));
        }
    }

    #[tokio::test]
    async fn a_database_without_tables_that_nobody_was_making_begins_nothing_beside_files() {
        let (head, _) = young().await;
        for (bytes, words) in
            [(&b""[..], "it is empty, but files of a world"), (&head, "it has no tables, but files of a")]
        {
            let (_home, dir) = left(&[(FILE, bytes)]).await;
            let refusal = refused(&dir).await;
            assert!(refusal.message.contains(words), "{refusal}");
            assert_eq!(lying(&dir), [(FILE, bytes.to_vec())]);
        }
        // A world that has run says more than the mark.
        let (_home, dir) = left(&[(MAKING, b""), (FILE, b"")]).await;
        dir.keep("home", Path::new("/home"));
        let refusal = refused(&dir).await;
        assert!(refusal.message.contains("it is empty, but a world has run"), "{refusal}");
    }

    #[tokio::test]
    async fn a_database_that_cannot_be_made_leaves_neither_itself_nor_its_mark() {
        let (_home, dir) = left(&[]).await;
        let small = SqliteOptions { page_limit: Some(4), ..SqliteOptions::default() };
        assert!(open(&dir, small).await.is_err());
        assert_eq!(lying(&dir), []);
        // A mark that cannot go keeps the start from anything.
        std::fs::create_dir(dir.path().join(MAKING)).unwrap();
        std::fs::write(dir.path().join(FILE), "").unwrap();
        let refusal = refused(&dir).await;
        assert!(refusal.message.contains("ghost.db-new could not be removed") && refusal.hint.is_some(), "{refusal}");
        std::fs::remove_dir(dir.path().join(MAKING)).unwrap();
        open(&dir, SqliteOptions::default()).await.unwrap().close().await;
    }
}
