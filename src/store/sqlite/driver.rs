//! The driver of SQLite: a connection, and for the writer the check of the database's files.
//!
//! Only this module knows SQLite's result codes. It must never ignore a failure or name a cause that the code does not
//! prove.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ffi};

use super::file_check::FileCheck;
use crate::driver::{Driver, Failure, NextRow, Order};
use crate::error::{Result, StoreError};
use crate::row::{Args, Columns};
use crate::sql::{Dialect, Sql, Statement};

/// How often damage must be found, and the time between.
const CHECKS: u32 = 3;
const CHECK_AGAIN: Duration = Duration::from_millis(50);

/// Steps of SQLite's machine between two looks at whether the caller of a query still waits: some tens of microseconds.
const STEPS: i32 = 4_096;

/// A connection to a database file, or to one in memory.
pub(crate) struct SqliteDriver {
    // Closed before the handles of the check; see there.
    conn: Connection,
    path: Arc<Path>,
    /// The check of the database's files. Only the writer has it.
    files: Option<FileCheck>,
}

impl SqliteDriver {
    /// For queries, or for a database in memory.
    pub(crate) fn new(conn: Connection, path: Arc<Path>) -> Self {
        Self { conn, path, files: None }
    }

    /// For the writer.
    pub(super) fn writer(conn: Connection, path: Arc<Path>) -> Result<Self> {
        let files = Some(FileCheck::open(&path)?);
        Ok(Self { conn, path, files })
    }

    /// Runs a check of the files, if this is the writer's connection. Damage must be found several times, because another
    /// program that uses SQLite may be in the middle of a checkpoint.
    fn check_files(&mut self, check: impl Fn(&mut FileCheck) -> Result<()>) -> Result<()> {
        let Some(files) = &mut self.files else { return Ok(()) };
        let mut result = check(files);
        for _ in 1..CHECKS {
            if !matches!(result, Err(StoreError::Damaged { .. })) {
                break;
            }
            // The thread of the writer waits, and with it all commands. The simulation has no files.
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(CHECK_AGAIN);
            result = check(files);
        }
        result
    }

    fn run(&self, sql: &str, args: &Args) -> rusqlite::Result<usize> {
        let mut statement = self.conn.prepare_cached(sql)?;
        bind(&mut statement, args)?;
        statement.raw_execute()
    }

    fn run_order(&self, sql: &str) -> Result<()> {
        self.run(sql, &Args::default()).map(drop).map_err(|error| from_sqlite(&self.path, &error))
    }

    fn rows(&self, sql: &str, args: &Args, next: &mut NextRow<'_>) -> rusqlite::Result<Result<()>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        bind(&mut statement, args)?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            match next(row) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(()))
    }
}

/// Binds the values. A value that the statement does not have is an error.
fn bind(statement: &mut rusqlite::Statement<'_>, args: &Args) -> rusqlite::Result<()> {
    debug_assert_eq!(statement.parameter_count(), args.values().len(), "{:?}", statement.expanded_sql());
    for (value, index) in args.values().iter().zip(1..) {
        statement.raw_bind_parameter(index, value)?;
    }
    Ok(())
}

impl Columns for rusqlite::Row<'_> {
    fn value(&self, column: usize) -> Result<ValueRef<'_>, String> {
        self.get_ref(column).map_err(|error| error.to_string())
    }
}

impl Driver for SqliteDriver {
    fn read(&mut self, sql: &Statement, args: &Args, next: &mut NextRow<'_>) -> Result<Result<()>> {
        self.rows(&sql.text(Dialect::Sqlite), args, next).map_err(|error| from_sqlite(&self.path, &error))
    }

    fn execute(&mut self, sql: Sql, args: &Args) -> Result<u64, Failure> {
        match self.run(sql.sqlite(), args) {
            Ok(changed) => Ok(changed as u64),
            Err(error) if is_constraint(&error) => Err(Failure::Rule(error.to_string())),
            Err(error) => Err(Failure::Store(from_sqlite(&self.path, &error))),
        }
    }

    fn order(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Begin => {
                self.check()?;
                self.run_order("BEGIN IMMEDIATE")
            }
            Order::BeginSnapshot => self.run_order("BEGIN"),
            Order::Savepoint => self.run_order("SAVEPOINT command"),
            Order::Release => self.run_order("RELEASE command"),
            Order::UndoCommand => {
                self.run_order("ROLLBACK TO command")?;
                self.run_order("RELEASE command")
            }
            Order::Commit => {
                // SQLite would commit successfully into a deleted file, and the data would be lost.
                self.check_files(|files| files.present())?;
                self.run_order("COMMIT")?;
                self.check_files(FileCheck::written)
            }
            Order::Rollback => {
                // SQLite has rolled back already if, for example, the disk is full.
                let undone = if self.conn.is_autocommit() { Ok(()) } else { self.run_order("ROLLBACK") };
                // What was undone may have been written to the log already.
                undone.and(self.check_files(FileCheck::written))
            }
        }
    }

    fn check(&mut self) -> Result<()> {
        self.check_files(|files| files.untouched())
    }

    fn interrupt_when(&mut self, has_left: Arc<AtomicBool>) {
        if let Err(error) = self.conn.progress_handler(STEPS, Some(move || has_left.load(Ordering::Acquire))) {
            tracing::debug!(%error, "a query cannot be interrupted");
        }
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        if let Err(error @ StoreError::Damaged { .. }) = self.check() {
            self.leave_open();
            return Err(error);
        }
        if self.files.as_ref().is_some_and(FileCheck::is_gone) {
            self.leave_open();
            return Ok(());
        }
        // The check's handles are closed after SQLite's.
        let Self { conn, path, files: _files } = *self;
        conn.close().map_err(|(_, error)| from_sqlite(&path, &error))
    }

    /// The last connection that is closed copies the log into the database and removes it by name. A damaged log must not
    /// be copied, and by that name there may be the log of another database.
    fn leave_open(self: Box<Self>) {
        std::mem::forget(self);
    }
}

/// Messages of SQLite for a missing table or column. It has no result code of its own for this.
const MISSING: [&str; 3] = ["no such table", "no such column", "has no column named"];

/// Whether a row broke a rule of its table, such as a unique name. Then the statement has changed nothing.
fn is_constraint(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

/// Maps an error of the database at `path`.
pub(crate) fn from_sqlite(path: &Path, error: &rusqlite::Error) -> StoreError {
    let code = match error {
        rusqlite::Error::SqliteFailure(error, _) => error.extended_code,
        rusqlite::Error::SqlInputError { error, .. } => error.extended_code,
        _ => ffi::SQLITE_OK,
    };
    let (text, place) = (error.to_string(), path.display());
    // All statements are constants of this program and match the schema version in the header. So if a table or column is
    // missing, the database is damaged.
    let is_missing = MISSING.iter().any(|words| text.contains(words));
    match (code, code & 0xff) {
        (ffi::SQLITE_IOERR_WRITE, _) => StoreError::ReadOnly(format!(
            "the system refused a write to {place}: check free space, quotas and file-size limits ({text})"
        )),
        (ffi::SQLITE_IOERR_SHORT_READ, _) | (_, ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB) => {
            StoreError::Damaged { path: path.to_owned(), what: text }
        }
        (_, ffi::SQLITE_ERROR) if is_missing => StoreError::Damaged { path: path.to_owned(), what: text },
        (_, ffi::SQLITE_FULL) => StoreError::Full,
        (_, ffi::SQLITE_READONLY) => {
            StoreError::ReadOnly(format!("{place}: check the rights of the file and its directory ({text})"))
        }
        (_, ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED) => {
            StoreError::Busy(format!("{place} is locked by another program: close what else has it open ({text})"))
        }
        (_, ffi::SQLITE_IOERR) => {
            StoreError::Busy(format!("input or output on {place} failed: check the disk ({text})"))
        }
        _ => StoreError::Database(format!("{text} ({place})")),
    }
}
