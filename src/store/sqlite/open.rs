//! Opens a database file: its options, the checks before anything is written, and the set-up of connections.
//!
//! An open must never write to a file that belongs to another program, is newer than this program, or is damaged. It must
//! never delete or replace a file.

use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::driver::{SqliteDriver, from_sqlite};
use super::file_check::{self, CHECKPOINT_FRAMES, Identity};
use super::log_file::{self, log_of};
use super::schema;
use crate::batch::Counters;
use crate::error::StoreError;
use crate::tx::Tx;

/// How long a statement waits while another program holds a lock on the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Options for opening a database.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// Maximum size of the file in pages of 4,096 bytes; `None` means SQLite's own limit. At the
    /// limit, writes fail as on a full disk.
    pub page_limit: Option<u32>,
    /// Number of connections for queries; at least 1. People's requests get half of them at most, and one at least.
    pub reader_connections: usize,
    /// Maximum number of commands in one batch; at least 1.
    pub batch_max: usize,
    /// Maximum number of queued commands; further callers wait for space. At least 1.
    pub queue: usize,
    /// How long a statement waits while another program holds a lock on the file.
    pub busy_timeout: Duration,
    /// If set, the database must exist already and hold data; otherwise opening is refused and no
    /// file is created. The text is the reason, for example `a world has run in its directory`.
    pub expected: Option<&'static str>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            page_limit: None,
            reader_connections: 4,
            batch_max: 512,
            queue: 1_024,
            busy_timeout: BUSY_TIMEOUT,
            expected: None,
        }
    }
}

/// Files up to this size (4 MiB) are checked completely when they are opened, which takes a few
/// milliseconds. A complete check of a larger file would slow the start, so its damage is detected
/// when the damaged page is read.
const CHECK_MAX: u64 = 4 << 20;

/// The first bytes of every SQLite database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Number of prepared statements that a connection caches.
const STATEMENTS: usize = 768;

/// Opens the writer's connection, and creates or migrates the file. Returns the connection and the last numbers.
pub(super) fn writer(path: &Path, options: &SqliteOptions) -> Result<(Connection, Counters), StoreError> {
    let size = prepare_file(path, options.expected)?;
    let mut conn = connect(path, options).map_err(|error| opening_error(path, &error))?;
    let counters = set_up(&mut conn, path, size, options)?;
    Ok((conn, counters))
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
    let number = |at: usize| i64::from(log_file::number(&head, at));
    matches!(read, Some(Ok(())))
        && head.starts_with(MAGIC)
        && number(60) == schema::VERSION
        && number(68) == schema::APPLICATION_ID
}

/// A session on a new database in memory. It is a copy of one that was migrated once, because tests open many.
#[allow(clippy::expect_used)] // see below
pub(crate) fn in_memory() -> Tx {
    static TEMPLATE: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let template = || -> rusqlite::Result<Vec<u8>> {
            let mut conn = Connection::open_in_memory()?;
            schema::migrate(&mut conn, 0)?;
            Ok(conn.serialize("main")?.to_vec())
        };
        // Without a file, nothing but memory can be missing.
        template().expect("a database in memory can be migrated")
    });
    let open = || -> rusqlite::Result<Tx> {
        let mut conn = Connection::open_in_memory()?;
        conn.deserialize_read_exact("main", TEMPLATE.as_slice(), TEMPLATE.len(), false)?;
        conn.execute_batch("PRAGMA journal_mode = MEMORY; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY;")?;
        configure(&conn)?;
        let counters = last_numbers(&conn)?;
        Ok(Tx::writer(Box::new(SqliteDriver::new(conn, Path::new("memory").into())), counters))
    };
    // As above.
    open().expect("a database in memory can be opened")
}

/// Opens a connection for queries of the file with this identity. A connection to another file by that name would remove the
/// log at its end, which is not its own.
pub(super) fn reader(path: &Path, identity: Identity, options: &SqliteOptions) -> Result<Connection, StoreError> {
    let conn = connect(path, options).map_err(|error| opening_error(path, &error))?;
    // SQLite has opened the file, and not its log.
    if !file_check::identity(path).is_ok_and(|found| found == identity) {
        return Err(StoreError::Gone { path: path.to_owned() });
    }
    // The SELECT makes SQLite read the schema now, so that the first real query need not.
    const SET_UP: &str = "PRAGMA query_only = ON; PRAGMA cache_size = -2048; SELECT count(*) FROM sqlite_schema;";
    conn.execute_batch(SET_UP).map_err(|error| from_sqlite(path, &error))?;
    Ok(conn)
}

fn connect(path: &Path, options: &SqliteOptions) -> rusqlite::Result<Connection> {
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    conn.busy_timeout(options.busy_timeout)?;
    configure(&conn)?;
    Ok(conn)
}

fn configure(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    // The SQLite that is compiled in turns them on, and no table has any.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false).map(drop)
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
    open.read(true).write(true).create(true).truncate(false).mode(0o600);
    let mut file = open.open(path).map_err(|error| {
        open_error(format!("{error}: check that its directory exists and that this user may write there"))
    })?;
    let meta = file.metadata().map_err(|error| open_error(error.to_string()))?;
    if !meta.is_file() {
        return Err(open_error("it is not a file".into()));
    }
    // The database contains private text. A copy restored from a backup may be readable by
    // others, so the mode is corrected.
    if meta.permissions().mode() & 0o077 != 0 {
        file.set_permissions(std::fs::Permissions::from_mode(0o600))
            .map_err(|error| open_error(format!("{error}: it must be readable by its owner alone (mode 0600)")))?;
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

/// The check of [`super::verify`].
pub(super) fn verify(path: &Path, expected: Option<&str>) -> Result<(i64, i64), StoreError> {
    let real = std::fs::canonicalize(path).ok();
    let path = real.as_deref().unwrap_or(path);
    let damaged = |what: String| StoreError::Damaged { path: path.to_owned(), what };
    let sql_error = |error: rusqlite::Error| from_sqlite(path, &error);
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
    let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(sql_error)?;
    let version = schema_version(&conn, path, false, Some(expected.unwrap_or("it is there")))?;
    let found = texts(&conn, "PRAGMA integrity_check(10)").map_err(sql_error)?;
    if found != ["ok"] {
        return Err(damaged(found.join("; ")));
    }
    if version == schema::VERSION {
        const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
        let tables = texts(&conn, TABLES).map_err(sql_error)?;
        let mut fresh = Connection::open_in_memory().map_err(sql_error)?;
        schema::migrate(&mut fresh, 0).map_err(sql_error)?;
        let wanted = texts(&fresh, TABLES).map_err(sql_error)?;
        if let Some(missing) = wanted.iter().find(|table| !tables.contains(table)) {
            return Err(damaged(format!("the table {missing} is missing")));
        }
    }
    let pages = conn.query_row("PRAGMA page_count", [], |row| row.get(0)).map_err(sql_error)?;
    conn.close().map_err(|(_, error)| sql_error(error))?;
    Ok((version, pages))
}

/// The first column of a query's rows.
fn texts(conn: &Connection, sql: &str) -> rusqlite::Result<Vec<String>> {
    conn.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}

fn set_up(conn: &mut Connection, path: &Path, size: u64, options: &SqliteOptions) -> Result<Counters, StoreError> {
    let sql_error = |error: rusqlite::Error| from_sqlite(path, &error);
    let version = schema_version(conn, path, size <= CHECK_MAX, options.expected)?;
    let pages = options.page_limit.map_or(String::new(), |pages| format!("PRAGMA max_page_count = {pages};"));
    // With WAL, readers continue while the writer writes. With FULL, COMMIT waits for the disk.
    let pragmas = format!(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864; \
         PRAGMA wal_autocheckpoint = {CHECKPOINT_FRAMES}; PRAGMA cache_size = -16384; {pages}"
    );
    conn.execute_batch(&pragmas).map_err(sql_error)?;
    if version > 0 {
        check_room(conn, path, version, options.page_limit)?;
    }
    schema::migrate(conn, version).map_err(sql_error)?;
    last_numbers(conn).map_err(sql_error)
}

/// Refuses to migrate a database whose file system has too little space for it. A full disk would undo the migration, but
/// only after it has taken all space from every other program.
fn check_room(conn: &Connection, path: &Path, version: i64, limit: Option<u32>) -> Result<(), StoreError> {
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, u32>(0));
    let sql_error = |error: rusqlite::Error| from_sqlite(path, &error);
    let (pages, page) =
        (number("PRAGMA page_count").map_err(sql_error)?, number("PRAGMA page_size").map_err(sql_error)?);
    let bytes = |pages: u32| u64::from(pages) * u64::from(page);
    let needed = schema::room_needed(version, bytes(pages));
    let found = rustix::fs::statvfs(path)
        .map_err(|error| StoreError::Open { path: path.to_owned(), what: format!("its file system: {error}") })?;
    let free =
        (found.f_bavail * found.f_frsize).min(limit.map_or(u64::MAX, |limit| bytes(limit.saturating_sub(pages))));
    if free < needed { Err(StoreError::NoRoom { path: path.to_owned(), needed, free }) } else { Ok(()) }
}

/// Checks that the database belongs to Ghost and is not newer than this program, and with `whole`
/// that it is undamaged. Returns its schema version. If `expected` is given, a database without
/// tables is an error.
fn schema_version(conn: &Connection, path: &Path, whole: bool, expected: Option<&str>) -> Result<i64, StoreError> {
    let sql_error = |error: rusqlite::Error| from_sqlite(path, &error);
    let damaged = |what: String| StoreError::Damaged { path: path.to_owned(), what };
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(sql_error);
    // This comes first: a change of it makes SQLite discard the schema that it has read.
    conn.execute_batch("PRAGMA temp_store = MEMORY").map_err(sql_error)?;
    let version = number("PRAGMA user_version")?;
    let application = number("PRAGMA application_id")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
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
        let verdict = texts(conn, "PRAGMA quick_check(1)").map_err(sql_error)?;
        match verdict.first().map(String::as_str) {
            Some("ok") => {}
            text => return Err(damaged(text.unwrap_or("its check returned no result").to_owned())),
        }
    }
    Ok(version)
}

/// Reads the last number of each sequence (the largest stored one, or the one recorded when rows
/// were pruned). One statement, because every start waits for it.
fn last_numbers(conn: &Connection) -> rusqlite::Result<Counters> {
    const SQL: &str = "SELECT (SELECT max(seq) FROM messages), (SELECT max(seq) FROM journal), (SELECT max(seq) FROM usage), \
        (SELECT max(seq) FROM task_events), (SELECT max(seq) FROM events), \
        (SELECT value FROM counters WHERE name = 'messages'), (SELECT value FROM counters WHERE name = 'journal'), \
        (SELECT value FROM counters WHERE name = 'usage'), (SELECT value FROM counters WHERE name = 'task_events'), \
        (SELECT value FROM counters WHERE name = 'events'), (SELECT sum(pending) FROM inboxes)";
    conn.query_row(SQL, [], |row| {
        let number = |stored: usize, kept: usize| -> rusqlite::Result<i64> {
            let (stored, kept): (Option<i64>, Option<i64>) = (row.get(stored)?, row.get(kept)?);
            Ok(stored.unwrap_or(0).max(kept.unwrap_or(0)))
        };
        Ok(Counters {
            messages: number(0, 5)?,
            journal: number(1, 6)?,
            usage: number(2, 7)?,
            task_events: number(3, 8)?,
            events: number(4, 9)?,
            pending: row.get::<_, Option<i64>>(10)?.unwrap_or(0),
        })
    })
}

fn opening_error(path: &Path, error: &rusqlite::Error) -> StoreError {
    match from_sqlite(path, error) {
        StoreError::Database(_) => StoreError::Open { path: PathBuf::from(path), what: error.to_string() },
        StoreError::Busy(what) => StoreError::Open { path: PathBuf::from(path), what },
        other => other,
    }
}
