//! Opens a database file: checks it before anything is written, and sets up connections.
//!
//! An open must never write to a file that belongs to another program, is newer than this program,
//! or is damaged. It must never delete or replace a file.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use futures_util::TryStreamExt as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

use ghost_domain::MessageId;
use uuid::Uuid;

use super::file_check::CHECKPOINT_FRAMES;
use super::log_file::{self, log_of};
use super::options::SqliteOptions;
use super::row::unreadable;
use super::write_buffer::{Counters, WriteBuffer};
use super::{fault, schema};
use crate::StoreError;

/// Files up to this size (4 MiB) are checked completely when they are opened, which takes a few
/// milliseconds. A complete check of a larger file would slow the start, so its damage is detected
/// when the damaged page is read.
const CHECK_MAX: u64 = 4 << 20;

/// The first bytes of every SQLite database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Number of prepared statements that a connection caches.
const STATEMENTS: usize = 768;

/// Opens the writer's connection, and creates or migrates the file. Returns the connection and a
/// new write buffer.
pub(super) async fn writer(
    path: &Path,
    options: &SqliteOptions,
) -> Result<(SqliteConnection, WriteBuffer), StoreError> {
    let size = prepare_file(path, options.expected)?;
    let mut conn = connect(path, options).await.map_err(|error| opening_error(path, &error))?;
    match set_up(&mut conn, path, size, options).await {
        Ok(buffer) => Ok((conn, buffer)),
        Err(error) => {
            // Closed explicitly, because after a drop the file may still be in use when the caller
            // sees the error.
            if let Err(close) = conn.close().await {
                tracing::debug!(%close, "closing the connection to an unusable database failed");
            }
            Err(error)
        }
    }
}

/// Whether the file at `path` is a Ghost database with the current schema version, so that opening
/// it migrates nothing. Reads only the header
/// (<https://www.sqlite.org/fileformat.html#the_database_header>); returns false if it cannot be
/// read.
pub(super) fn is_current(path: &Path) -> bool {
    let mut head = [0_u8; 100];
    // Opening a pipe would block until another process writes to it.
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
    let mut conn = connect(path, options).await.map_err(|error| opening_error(path, &error))?;
    // The SELECT makes SQLite read the schema now, so that the first real query need not.
    const SET_UP: &str = "PRAGMA query_only = ON; PRAGMA cache_size = -2048; SELECT count(*) FROM sqlite_schema;";
    let set = sqlx::raw_sql(SET_UP).execute(&mut conn).await;
    set.map_err(|error| fault::from_sqlx(path, &error))?;
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

/// Checks the file, or creates it with mode 0600. Returns its size in bytes. If `expected` is
/// given, a missing or empty file is an error.
fn prepare_file(path: &Path, expected: Option<&str>) -> Result<u64, StoreError> {
    let open_error = |what: String| StoreError::Open { path: path.to_owned(), what };
    let damaged = |what: String| StoreError::Damaged { path: path.to_owned(), what };
    let found = std::fs::metadata(path);
    if found.as_ref().is_ok_and(|meta| !meta.is_file()) {
        return Err(open_error("it is not a file".into()));
    }
    let log = log_of(path);
    // SQLite treats an empty file as a new database and discards the log of the old one.
    let evidence = if std::fs::metadata(&log).is_ok_and(|meta| meta.len() > 0) {
        Some(format!("{} exists and holds data", log.display()))
    } else {
        expected.map(str::to_owned)
    };
    match (&found, evidence) {
        (Ok(meta), Some(evidence)) if meta.len() == 0 => return Err(damaged(format!("it is empty, but {evidence}"))),
        (Err(error), Some(evidence)) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(damaged(format!("it is missing, but {evidence}")));
        }
        _ => {}
    }
    check_log(path)?;
    let mut open = std::fs::OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    let mut file = open.open(path).map_err(|error| {
        open_error(format!("{error}: check that its directory exists and that this user may write there"))
    })?;
    let meta = file.metadata().map_err(|error| open_error(error.to_string()))?;
    if !meta.is_file() {
        return Err(open_error("it is not a file".into()));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // The database contains private text. A copy restored from a backup may be readable by
        // others, so the mode is corrected.
        if meta.permissions().mode() & 0o077 != 0 {
            file.set_permissions(std::fs::Permissions::from_mode(0o600))
                .map_err(|error| open_error(format!("{error}: it must be readable by its owner alone (mode 0600)")))?;
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

/// Refuses a database whose log has lost commits: SQLite would drop them without an error.
fn check_log(path: &Path) -> Result<(), StoreError> {
    let unread = |error: std::io::Error| StoreError::Open { path: log_of(path), what: error.to_string() };
    let log = match std::fs::File::open(log_of(path)) {
        Ok(log) => log,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unread(error)),
    };
    match log_file::damage(&log).map_err(unread)? {
        Some(what) => Err(StoreError::Damaged { path: path.to_owned(), what }),
        None => Ok(()),
    }
}

/// Checks a database at rest completely: its log, its identity and schema version, every page, every index and that no
/// table is missing. Returns its schema version and number of pages. Changes neither the database nor its log.
///
/// Errors: as [`super::open`].
pub async fn verify(path: &Path, expected: Option<&str>) -> Result<(i64, i64), StoreError> {
    let real = std::fs::canonicalize(path).ok();
    let path = real.as_deref().unwrap_or(path);
    let damaged = |what: String| StoreError::Damaged { path: path.to_owned(), what };
    let sql_error = |error: sqlx::Error| fault::from_sqlx(path, &error);
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() > 0 => {}
        Ok(meta) if meta.is_file() => return Err(damaged("it is empty".into())),
        Ok(_) => return Err(StoreError::Open { path: path.to_owned(), what: "it is not a file".into() }),
        Err(error) => match expected {
            Some(evidence) => return Err(damaged(format!("it is missing, but {evidence}"))),
            None => return Err(StoreError::Open { path: path.to_owned(), what: error.to_string() }),
        },
    }
    check_log(path)?;
    let options = SqliteConnectOptions::new().filename(path).read_only(true).disable_statement_logging();
    let mut conn = options.connect().await.map_err(sql_error)?;
    let version = schema_version(&mut conn, path, false, Some(expected.unwrap_or("it is there"))).await?;
    let found: Vec<String> =
        sqlx::query_scalar("PRAGMA integrity_check(10)").fetch_all(&mut conn).await.map_err(sql_error)?;
    if found != ["ok"] {
        return Err(damaged(found.join("; ")));
    }
    if version == schema::VERSION {
        const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
        let tables: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut conn).await.map_err(sql_error)?;
        let mut fresh = SqliteConnectOptions::new().in_memory(true).connect().await.map_err(sql_error)?;
        schema::migrate(&mut fresh, 0).await.map_err(sql_error)?;
        let wanted: Vec<String> = sqlx::query_scalar(TABLES).fetch_all(&mut fresh).await.map_err(sql_error)?;
        if let Some(missing) = wanted.iter().find(|table| !tables.contains(table)) {
            return Err(damaged(format!("the table {missing} is missing")));
        }
    }
    let pages = sqlx::query_scalar("PRAGMA page_count").fetch_one(&mut conn).await.map_err(sql_error)?;
    conn.close().await.map_err(sql_error)?;
    Ok((version, pages))
}

async fn set_up(
    conn: &mut SqliteConnection,
    path: &Path,
    size: u64,
    options: &SqliteOptions,
) -> Result<WriteBuffer, StoreError> {
    let sql_error = |error: sqlx::Error| fault::from_sqlx(path, &error);
    let version = schema_version(conn, path, size <= CHECK_MAX, options.expected).await?;
    let pages = options.page_limit.map_or(String::new(), |pages| format!("PRAGMA max_page_count = {pages};"));
    // With WAL, readers continue while the writer writes. With FULL, COMMIT waits for the disk.
    let pragmas = format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864; \
         PRAGMA wal_autocheckpoint = {CHECKPOINT_FRAMES}; PRAGMA cache_size = -16384; {pages}"
    );
    sqlx::raw_sql(AssertSqlSafe(pragmas)).execute(&mut *conn).await.map_err(sql_error)?;
    schema::migrate(conn, version).await.map_err(sql_error)?;
    let (counters, newest) = last_numbers(conn).await.map_err(sql_error)?;
    let newest = newest
        .map(|bytes| {
            Uuid::from_slice(&bytes).map(MessageId).map_err(|error| unreadable("messages", "the largest id", error))
        })
        .transpose()?;
    Ok(WriteBuffer::new(counters, newest))
}

/// Checks that the database belongs to Ghost and is not newer than this program, and with `whole`
/// that it is undamaged. Returns its schema version. If `expected` is given, a database without
/// tables is an error.
async fn schema_version(
    conn: &mut SqliteConnection,
    path: &Path,
    whole: bool,
    expected: Option<&str>,
) -> Result<i64, StoreError> {
    // One script, because every start waits for it. `temp_store` comes first: changing it makes
    // SQLite discard the schema that it has read.
    const IDENTITY: &str = "PRAGMA temp_store = MEMORY; PRAGMA user_version; PRAGMA application_id; \
        SELECT count(*) FROM sqlite_schema;";
    const WHOLE: &str = "PRAGMA temp_store = MEMORY; PRAGMA user_version; PRAGMA application_id; \
        SELECT count(*) FROM sqlite_schema; PRAGMA quick_check(1);";
    let sql_error = |error: sqlx::Error| fault::from_sqlx(path, &error);
    let damaged = |what: String| StoreError::Damaged { path: path.to_owned(), what };
    let mut rows = sqlx::raw_sql(if whole { WHOLE } else { IDENTITY }).fetch(conn);
    let mut numbers = [0_i64; 3];
    for number in &mut numbers {
        let row = rows.try_next().await.map_err(sql_error)?;
        *number =
            row.map(|row| row.try_get::<Option<i64>, _>(0)).transpose().map_err(sql_error)?.flatten().unwrap_or(0);
    }
    let [version, application, tables] = numbers;
    let empty = application == 0 && version == 0 && tables == 0;
    if !empty && application != schema::APPLICATION_ID {
        return Err(damaged("it is an SQLite database of another program".to_owned()));
    }
    if let Some(evidence) = expected.filter(|_| empty) {
        return Err(damaged(format!("it has no tables, but {evidence}")));
    }
    if version > schema::VERSION {
        return Err(StoreError::Newer { path: path.to_owned(), found: version, known: schema::VERSION });
    }
    if whole {
        let row = rows.try_next().await.map_err(sql_error)?;
        let verdict = row.map(|row| row.try_get::<String, _>(0)).transpose().map_err(sql_error)?;
        match verdict.as_deref() {
            Some("ok") => {}
            text => return Err(damaged(text.unwrap_or("its check returned no result").to_owned())),
        }
    }
    Ok(version)
}

/// Reads the last number of each sequence (the largest stored one, or the one recorded when rows
/// were pruned) and the largest mail id. One statement, because every start waits for it.
async fn last_numbers(conn: &mut SqliteConnection) -> Result<(Counters, Option<Vec<u8>>), sqlx::Error> {
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

fn opening_error(path: &Path, error: &sqlx::Error) -> StoreError {
    match fault::from_sqlx(path, error) {
        StoreError::Database(_) => StoreError::Open { path: PathBuf::from(path), what: error.to_string() },
        StoreError::Busy(what) => StoreError::Open { path: PathBuf::from(path), what },
        other => other,
    }
}
