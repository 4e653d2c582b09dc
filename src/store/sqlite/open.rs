//! Opening a database file: what is checked before anything is written, and how connections are set up.
//!
//! Must never: write to a file that is not ours, is newer than this program, or is damaged; delete or replace one.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use futures_util::TryStreamExt as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

use ghost_domain::MessageId;
use uuid::Uuid;

use super::file_identity::log_of;
use super::options::SqliteOptions;
use super::row::unreadable;
use super::write_buffer::{Counters, WriteBuffer};
use super::{fault, schema};
use crate::StoreError;

/// Files up to this size are checked as a whole when they are opened: a few milliseconds. A start must not take longer the more
/// there is, and what is damaged in a larger file is seen when it is read.
const CHECK_MAX: u64 = 4 << 20;

/// The first bytes of every SQLite database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Statements that a connection keeps prepared: every size of every multi-row statement, and the queries.
const STATEMENTS: usize = 768;

/// Opens the writer's connection, creating or migrating the file. Gives what the writer
/// knows to begin with.
pub(super) async fn writer(
    path: &Path,
    options: &SqliteOptions,
) -> Result<(SqliteConnection, WriteBuffer), StoreError> {
    let size = prepare_file(path, options.expected)?;
    let mut conn = connect(path, options).await.map_err(|error| opening(path, &error))?;
    match set_up(&mut conn, path, size, options).await {
        Ok(buffer) => Ok((conn, buffer)),
        Err(error) => {
            // Closed here and not by the drop, so that the file is let go of when the error is seen.
            if let Err(close) = conn.close().await {
                tracing::debug!(%close, "the connection to a database that cannot be used did not close well");
            }
            Err(error)
        }
    }
}

/// Whether there is a database of ours at `path` that this program's schema fits as it is, so that opening it changes
/// nothing. Looks at the header only (<https://www.sqlite.org/fileformat.html#the_database_header>); in doubt it is not.
pub(super) fn is_current(path: &Path) -> bool {
    let mut head = [0_u8; 100];
    // A pipe would make the start wait for whoever writes to it.
    let is_file = std::fs::metadata(path).is_ok_and(|meta| meta.is_file());
    let read = is_file.then(|| std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut head)));
    let number =
        |at: usize| head.get(at..at + 4).map(|bytes| bytes.iter().fold(0, |sum, byte| sum << 8 | i64::from(*byte)));
    matches!(read, Some(Ok(())))
        && head.starts_with(MAGIC)
        && number(60) == Some(schema::VERSION)
        && number(68) == Some(schema::APPLICATION_ID)
}

/// Opens a connection for queries.
pub(super) async fn reader(path: &Path, options: &SqliteOptions) -> Result<SqliteConnection, StoreError> {
    let mut conn = connect(path, options).await.map_err(|error| opening(path, &error))?;
    // The query has it read the schema, so that the first that someone waits for need not.
    const SET_UP: &str = "PRAGMA query_only = ON; PRAGMA cache_size = -2048; SELECT count(*) FROM sqlite_schema;";
    let set = sqlx::raw_sql(SET_UP).execute(&mut conn).await;
    set.map_err(|error| fault::of(path, &error))?;
    Ok(conn)
}

async fn connect(path: &Path, options: &SqliteOptions) -> Result<SqliteConnection, sqlx::Error> {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .busy_timeout(options.busy_timeout)
        .statement_cache_capacity(STATEMENTS)
        .foreign_keys(false)
        .disable_statement_logging()
        .connect()
        .await
}

/// Looks at the file, or creates it for its owner alone. Gives its size. With `expected` it must hold something.
fn prepare_file(path: &Path, expected: Option<&str>) -> Result<u64, StoreError> {
    let refused = |what: String| StoreError::Open { path: path.to_owned(), what };
    let damaged = |what: String| StoreError::Damaged { path: path.to_owned(), what };
    let found = std::fs::metadata(path);
    if found.as_ref().is_ok_and(|meta| !meta.is_file()) {
        return Err(refused("it is not a file".into()));
    }
    let log = log_of(path);
    // SQLite takes an empty file for a new database, and throws the log of the old one away.
    let why = if std::fs::metadata(&log).is_ok_and(|meta| meta.len() > 0) {
        Some(format!("{} is there and holds what was written to it", log.display()))
    } else {
        expected.map(str::to_owned)
    };
    match (&found, why) {
        (Ok(meta), Some(why)) if meta.len() == 0 => return Err(damaged(format!("it is empty, but {why}"))),
        (Err(error), Some(why)) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(damaged(format!("it is missing, but {why}")));
        }
        _ => {}
    }
    let mut open = std::fs::OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    let mut file = open.open(path).map_err(|error| {
        refused(format!("{error}: check that its directory exists and that this user may write there"))
    })?;
    let meta = file.metadata().map_err(|error| refused(error.to_string()))?;
    if !meta.is_file() {
        return Err(refused("it is not a file".into()));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // The journal holds raw text: a copy that came back from a backup is closed to others again.
        if meta.permissions().mode() & 0o077 != 0 {
            file.set_permissions(std::fs::Permissions::from_mode(0o600))
                .map_err(|error| refused(format!("{error}: it must be readable by its owner alone (mode 0600)")))?;
        }
    }
    if meta.len() > 0 {
        let mut head = [0_u8; 16];
        let whole = file.read_exact(&mut head).is_ok();
        if !whole || head != *MAGIC {
            return Err(damaged("it is not an SQLite database".into()));
        }
    }
    Ok(meta.len())
}

async fn set_up(
    conn: &mut SqliteConnection,
    path: &Path,
    size: u64,
    options: &SqliteOptions,
) -> Result<WriteBuffer, StoreError> {
    let said = |error: sqlx::Error| fault::of(path, &error);
    let version = schema_version(conn, path, size <= CHECK_MAX, options.expected).await?;
    let pages = options.page_limit.map_or(String::new(), |pages| format!("PRAGMA max_page_count = {pages};"));
    // WAL lets readers go on beside the writer; FULL makes COMMIT wait for the disk.
    let pragmas = format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864; \
         PRAGMA wal_autocheckpoint = 4000; PRAGMA cache_size = -16384; {pages}"
    );
    sqlx::raw_sql(AssertSqlSafe(pragmas)).execute(&mut *conn).await.map_err(said)?;
    schema::migrate(conn, version).await.map_err(said)?;
    let (counters, newest) = standing(conn).await.map_err(said)?;
    let newest = newest
        .map(|bytes| {
            Uuid::from_slice(&bytes).map(MessageId).map_err(|error| unreadable("messages", "the largest id", error))
        })
        .transpose()?;
    Ok(WriteBuffer::new(counters, newest))
}

/// Makes sure that the database is ours, is not newer than this program, and, with `whole`, is undamaged. Gives its version.
/// With `expected` it must hold something.
async fn schema_version(
    conn: &mut SqliteConnection,
    path: &Path,
    whole: bool,
    expected: Option<&str>,
) -> Result<i64, StoreError> {
    // One script, because every start waits for it. Where temporary tables are kept is said first: SQLite forgets the
    // schema that it has read when that changes.
    const IDENTITY: &str = "PRAGMA temp_store = MEMORY; PRAGMA user_version; PRAGMA application_id; \
        SELECT count(*) FROM sqlite_schema;";
    const WHOLE: &str = "PRAGMA temp_store = MEMORY; PRAGMA user_version; PRAGMA application_id; \
        SELECT count(*) FROM sqlite_schema; PRAGMA quick_check(1);";
    let said = |error: sqlx::Error| fault::of(path, &error);
    let damaged = |what: String| StoreError::Damaged { path: path.to_owned(), what };
    let mut rows = sqlx::raw_sql(if whole { WHOLE } else { IDENTITY }).fetch(conn);
    let mut numbers = [0_i64; 3];
    for number in &mut numbers {
        let row = rows.try_next().await.map_err(said)?;
        *number = row.map(|row| row.try_get::<Option<i64>, _>(0)).transpose().map_err(said)?.flatten().unwrap_or(0);
    }
    let [version, application, tables] = numbers;
    let empty = application == 0 && version == 0 && tables == 0;
    if !empty && application != schema::APPLICATION_ID {
        return Err(damaged("it is an SQLite database of another program".to_owned()));
    }
    if let Some(why) = expected.filter(|_| empty) {
        return Err(damaged(format!("it has no tables, but {why}")));
    }
    if version > schema::VERSION {
        return Err(StoreError::Newer { path: path.to_owned(), found: version, known: schema::VERSION });
    }
    if whole {
        let row = rows.try_next().await.map_err(said)?;
        let verdict = row.map(|row| row.try_get::<String, _>(0)).transpose().map_err(said)?;
        match verdict.as_deref() {
            Some("ok") => {}
            said => return Err(damaged(said.unwrap_or("its check said nothing").to_owned())),
        }
    }
    Ok(version)
}

/// The last number given out of each sequence (the largest that is stored, or where it stood when it was last pruned), and
/// the largest id of mail. One statement: every start waits for it.
async fn standing(conn: &mut SqliteConnection) -> Result<(Counters, Option<Vec<u8>>), sqlx::Error> {
    const SQL: &str = "SELECT (SELECT max(seq) FROM messages), (SELECT max(seq) FROM journal), (SELECT max(seq) FROM usage), \
        (SELECT max(seq) FROM task_events), (SELECT max(seq) FROM events), (SELECT max(message_id) FROM messages), \
        (SELECT value FROM counters WHERE name = 'messages'), (SELECT value FROM counters WHERE name = 'journal'), \
        (SELECT value FROM counters WHERE name = 'usage'), (SELECT value FROM counters WHERE name = 'task_events'), \
        (SELECT value FROM counters WHERE name = 'events')";
    let row = sqlx::query(SQL).fetch_one(conn).await?;
    let number = |stored: usize, kept: usize| -> Result<i64, sqlx::Error> {
        let (stored, kept): (Option<i64>, Option<i64>) = (row.try_get(stored)?, row.try_get(kept)?);
        Ok(stored.unwrap_or(0).max(kept.unwrap_or(0)))
    };
    let counters = Counters {
        messages: number(0, 6)?,
        journal: number(1, 7)?,
        usage: number(2, 8)?,
        task_events: number(3, 9)?,
        events: number(4, 10)?,
    };
    Ok((counters, row.try_get(5)?))
}

fn opening(path: &Path, error: &sqlx::Error) -> StoreError {
    match fault::of(path, error) {
        StoreError::Database(_) => StoreError::Open { path: PathBuf::from(path), what: error.to_string() },
        StoreError::Busy(what) => StoreError::Open { path: PathBuf::from(path), what },
        other => other,
    }
}
