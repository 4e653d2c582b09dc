//! Opens the database of a world, SQLite in the data directory, as early as possible, or PostgreSQL, and watches that its
//! files stay those that this daemon opened. A database is not changed before the configuration is known to be good; a file
//! that could not be created completely is removed; an empty database is not taken for a new one where data may have been lost.

use crate::storage::{self, Database, FILE};

use std::fs::{Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ghost_domain::{Clock, Code, Refusal};
use ghost_store::postgres::{self, PostgresOptions};
use ghost_store::sqlite::{SqliteOptions, is_current, open_store, verify};
use ghost_store::{Store, StoreError};

use crate::data_dir::{DataDir, LOCK, WORLD};
use crate::ports::SystemClock;
use crate::workspace_dir::WorkspaceDir;

/// A marker that exists while the database is being created. Until it is removed, the database has no data. So a
/// database without tables beside it was left by a start that was killed.
const MAKING: &str = "ghost.db-new";

/// The entry of a schema with the id of its data directory.
const OWNER: &str = "data_dir";

/// Why the database must have content: its directory says that a world has run.
const HAS_RUN: &str = "a world has run in its directory";
/// Why an existing database must have content: a copy made after a crash may lack the write-ahead log.
const HAS_FILES: &str = "files of a world are in its workspace";

/// Locks the data directory and opens SQLite's file in it, if that exists and has the current version. Otherwise returns
/// `None`: the database must wait until the configuration is known to be good.
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

/// Opens a database that was not opened early.
pub(crate) async fn open(data_dir: &DataDir, workspace: &WorkspaceDir, database: Database) -> Result<Store, Refusal> {
    match database {
        Database::Sqlite(options) => open_file(data_dir, workspace, options).await,
        Database::Postgres(options) => open_schema(data_dir, options).await,
    }
}

/// Opens a schema of PostgreSQL, and remembers it. An empty one is refused where a world has run already.
async fn open_schema(data_dir: &DataDir, options: PostgresOptions) -> Result<Store, Refusal> {
    let expected = data_dir.has_held_a_world().then_some(HAS_RUN);
    let schema = options.schema.clone();
    let opened = postgres::open_store(PostgresOptions { expected, ..options }).await;
    let store = opened.map_err(not_opened)?;
    // From now on the schema may hold what was acknowledged.
    if let Err(refusal) = bind(&store, data_dir.path(), &schema).await {
        store.close().await;
        return Err(refusal);
    }
    tracing::info!(schema, "the records of the world are in PostgreSQL");
    Ok(store)
}

/// Lets the schema and the data directory know each other. The id of a world is no secret and no proof: without this, the
/// same world file elsewhere would go on with the records of a world that is stopped, on other files.
async fn bind(store: &Store, data_dir: &Path, schema: &str) -> Result<(), Refusal> {
    let owner = store.read_latest(|r| r.meta_get(OWNER)).await?;
    let own = storage::kept_in(data_dir)?.and_then(|kept| kept.directory);
    if let Some(owner) = &owner
        && own.as_ref() != Some(owner)
    {
        return Err(storage::of_another(data_dir, schema, owner));
    }
    let directory = storage::remember(data_dir, schema)?;
    if owner.is_none() {
        store.write(move |w| w.meta_put(OWNER, &directory)).await?;
    }
    Ok(())
}

/// The refusal for a schema that could not be opened. The causes are others than those of a file.
fn not_opened(error: StoreError) -> Refusal {
    let what = error.to_string();
    match error {
        StoreError::Open { .. } => Refusal::new(Code::Unavailable, what)
            .hint("nothing was changed: put right what is named here, then start again"),
        StoreError::Damaged { .. } => Refusal::new(Code::Internal, what)
            .hint("give the URL of the database that holds the schema, or restore the schema from a backup"),
        other => other.into(),
    }
}

/// Opens a file that does not exist yet or has an earlier version. If it cannot be created completely, it is
/// removed. It is not created where a world has run already. A database without tables beside a workspace with
/// files is refused, unless the marker shows that a killed start was creating it.
async fn open_file(data_dir: &DataDir, workspace: &WorkspaceDir, sqlite: SqliteOptions) -> Result<Store, Refusal> {
    let file = data_dir.path().join(FILE);
    let named = |end: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let mark = data_dir.path().join(MAKING);
    // The marker is removed last.
    let names = ["", "-wal", "-shm", "-journal"].map(named).into_iter().chain([mark.clone()]);
    let missing: Vec<PathBuf> = names.filter(|name| !is_there(name)).collect();
    let (new, marked) = (missing.contains(&file), !missing.contains(&mark));
    let expected = match () {
        () if data_dir.has_held_a_world() => Some(HAS_RUN),
        // If there is no database, the files may have been prepared for a new world.
        () if !new && !marked && workspace.has_files() => Some(HAS_FILES),
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
                // An error is ignored: the file may not exist, and the refusal below names the cause.
                drop(std::fs::remove_file(made));
            }
            Err(located(error.into(), data_dir))
        }
    }
}

fn is_there(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Creates the marker and syncs its directory, so that it survives a power loss.
fn put(mark: &Path) -> std::io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(mark)?;
    let directory = mark.parent().map(std::fs::File::open).transpose()?;
    if let Some(Err(error)) = directory.map(|directory| directory.sync_all()) {
        // Some file systems cannot sync a directory. Then the marker survives a kill, but perhaps not a power loss.
        tracing::debug!(%error, path = %mark.display(), "the directory could not be synced");
    }
    Ok(())
}

/// The refusal for a marker that could not be created or removed.
fn unmarked(mark: &Path, how: &str, error: &std::io::Error) -> Refusal {
    let what = format!("{} could not be {how}, which says that the database beside it is new: {error}", mark.display());
    Refusal::new(Code::Unavailable, what)
        .hint("make the data directory and its content writable, or give another with --data")
}

/// The error with which a daemon ends if its store can no longer write.
pub(crate) fn broken(why: &StoreError) -> Refusal {
    let what = format!("the store has failed: {why}: the daemon ends, because it can store nothing more");
    let hint = match why {
        StoreError::Damaged { .. } => {
            "run `ghostd check --data DIR`: it says whether the database is damaged at rest, too"
        }
        StoreError::Gone { path } if path.ends_with(FILE) => {
            "the acknowledged data is where that file is now: restore it, then start the daemon again"
        }
        _ => "acknowledged changes are in the database: start the daemon again",
    };
    Refusal::new(Code::Internal, what).hint(hint)
}

/// Checks the database in the data directory `dir` completely, and changes nothing. Returns what to print about it.
///
/// # Errors
/// `NotFound` if there is no data, `Conflict` if a daemon uses it; else what is wrong with the database.
pub async fn check_data(dir: &Path) -> Result<String, Refusal> {
    if let Some(schema) = storage::schema_of(dir)? {
        let what = format!("the records of {} are in PostgreSQL, which checks its pages itself", dir.display());
        return Err(Refusal::new(Code::InvalidArguments, what)
            .hint(format!("`pg_amcheck --schema={schema} --heapallindexed` checks them; a start checks the version")));
    }
    if !is_there(&dir.join(FILE)) && !is_there(&dir.join(WORLD)) {
        return Err(Refusal::new(Code::NotFound, format!("there is no database of a world in {}", dir.display()))
            .hint("give the data directory of a world with --data"));
    }
    let data_dir = DataDir::lock(dir, &SystemClock).await?;
    let file = data_dir.path().join(FILE);
    let expected = data_dir.has_held_a_world().then_some(HAS_RUN);
    let (version, pages) = verify(&file, expected).await?;
    Ok(format!("{} is sound: schema version {version}, {pages} pages.\n", file.display()))
}

/// Adds the database to a refusal about a damaged record.
pub(crate) fn located(mut refusal: Refusal, data_dir: &DataDir) -> Refusal {
    if refusal.details.as_ref().is_some_and(|details| details.get("table").is_some()) {
        let database = storage::shown(data_dir.path());
        refusal.message = format!("a record of {database} is damaged: {}", refusal.message);
    }
    refusal
}

/// Time between two checks of the files.
const FILES_EVERY: Duration = Duration::from_secs(2);

/// Device and inode of a file.
type Identity = (u64, u64);

fn identity(of: &Metadata) -> Identity {
    (of.dev(), of.ino())
}

/// The files that a daemon depends on, as it opened them.
pub(crate) struct OpenFiles {
    files: Vec<(PathBuf, Identity)>,
}

impl OpenFiles {
    /// The lock file and the open database, if that is a file.
    pub(crate) fn new(data_dir: &DataDir) -> Self {
        let mut files = Vec::new();
        files.extend(data_dir.locked().map(|(path, meta)| (path, identity(&meta))));
        let path = data_dir.path().join(FILE);
        files.extend(std::fs::metadata(&path).ok().map(|meta| (path, identity(&meta))));
        Self { files }
    }

    /// Whether the database file is still the same. PostgreSQL has none here that could be gone.
    fn has_its_database(&self) -> bool {
        self.files.iter().all(|(path, taken)| !path.ends_with(FILE) || !is_gone(path, *taken))
    }

    /// Returns when one of the files is removed or replaced, with the error with which the daemon
    /// ends.
    pub(crate) async fn gone(&self, clock: &dyn Clock) -> Refusal {
        loop {
            if let Some((path, _)) = self.files.iter().find(|(path, taken)| is_gone(path, *taken)) {
                let what = format!("{} was removed or replaced while this daemon used it", path.display());
                let hint = if path.ends_with(LOCK) && self.has_its_database() {
                    "the database is still in its place: start the daemon again"
                } else {
                    "the acknowledged data is where that file is now: restore it, then start the daemon again"
                };
                return Refusal::new(
                    Code::Internal,
                    format!("{what}: the daemon ends, because it can store nothing more"),
                )
                .hint(hint);
            }
            clock.sleep(FILES_EVERY).await;
        }
    }
}

/// Whether the path no longer has the same file. If the path cannot be checked, the file is treated
/// as unchanged.
fn is_gone(path: &Path, taken: Identity) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => identity(&found) != taken,
        Err(error) => {
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::StaleNetworkFileHandle)
        }
    }
}

#[cfg(test)]
mod tests {
    use ghost_domain::testing::ManualClock;

    use super::*;

    const LOG: &str = "ghost.db-wal";
    const NAMES: [&str; 4] = [FILE, LOG, "ghost.db-shm", MAKING];

    /// A data directory with workspace files, and with the database files that a killed daemon
    /// left.
    async fn left(database: &[(&str, &[u8])]) -> (tempfile::TempDir, DataDir) {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(home.path().join("workspace/shared")).unwrap();
        for (name, bytes) in database {
            std::fs::write(home.path().join(name), bytes).unwrap();
        }
        let dir = DataDir::lock(home.path(), &*ManualClock::at(0)).await.unwrap();
        (home, dir)
    }

    fn present(dir: &DataDir) -> Vec<(&'static str, Vec<u8>)> {
        NAMES.into_iter().filter_map(|name| Some((name, std::fs::read(dir.path().join(name)).ok()?))).collect()
    }

    async fn refused(dir: &DataDir) -> Refusal {
        match open_file(dir, &WorkspaceDir::within(dir), SqliteOptions::default()).await {
            Ok(_) => panic!("it was opened"),
            Err(refusal) => refusal,
        }
    }

    /// The files of an open database whose tables exist only in its write-ahead log.
    async fn young() -> (Vec<u8>, Vec<u8>) {
        let (_home, dir) = left(&[]).await;
        let store = open_file(&dir, &WorkspaceDir::within(&dir), SqliteOptions::default()).await.unwrap();
        let read = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
        let young = (read(FILE), read(LOG));
        store.close().await;
        young
    }

    #[tokio::test]
    async fn a_start_completes_a_database_that_a_killed_start_was_creating() {
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
            open_file(&dir, &WorkspaceDir::within(&dir), SqliteOptions::default()).await.unwrap().close().await;
            let names: Vec<&str> = present(&dir).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, [FILE], "the marker is gone");
            assert!(is_current(&dir.path().join(FILE)));
        }
    }

    #[tokio::test]
    async fn a_database_without_tables_beside_files_is_refused() {
        let (head, _) = young().await;
        for bytes in [&b""[..], &head] {
            let (_home, dir) = left(&[(FILE, bytes)]).await;
            let refusal = refused(&dir).await;
            assert!(refusal.message.contains(FILE), "{refusal}");
            assert_eq!(present(&dir), [(FILE, bytes.to_vec())]);
        }
        // A record that a world has run takes precedence over the marker.
        let (_home, dir) = left(&[(MAKING, b""), (FILE, b"")]).await;
        dir.keep("home", Path::new("/home"));
        let refusal = refused(&dir).await;
        assert!(refusal.message.contains(FILE), "{refusal}");
    }

    #[tokio::test]
    async fn a_database_that_cannot_be_created_is_removed_with_its_marker() {
        let (_home, dir) = left(&[]).await;
        let small = SqliteOptions { page_limit: Some(4), ..SqliteOptions::default() };
        assert!(open_file(&dir, &WorkspaceDir::within(&dir), small).await.is_err());
        assert_eq!(present(&dir), []);
        // A marker that cannot be removed stops the start.
        std::fs::create_dir(dir.path().join(MAKING)).unwrap();
        std::fs::write(dir.path().join(FILE), "").unwrap();
        let refusal = refused(&dir).await;
        assert!(refusal.message.contains(MAKING) && refusal.hint.is_some(), "{refusal}");
        std::fs::remove_dir(dir.path().join(MAKING)).unwrap();
        open_file(&dir, &WorkspaceDir::within(&dir), SqliteOptions::default()).await.unwrap().close().await;
    }
}
