//! One database connection, as a reader's snapshot or as the writer's batch. The table traits are
//! implemented on it in `rows/`, once for both.
//!
//! This module must never write rows of accepted commands inside the savepoint of the running
//! command, or continue a batch after a failed write.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ghost_domain::Event;
use ghost_domain::ports::Signal;
use rusqlite::Connection;

use super::fault;
use super::file_check::FileCheck;
use super::flush::{FlushTarget, execute};
use super::row::{Args, SqlTexts, SqliteRow};
use super::table_cache::Owner;
use super::table_list::{CachedRow, table_set};
use super::write_buffer::WriteBuffer;
use crate::StoreError;
use crate::tables::{Reads, Result, Writes};

/// Rows that a command keeps in memory before they go to SQL. Few in tests, so that all of them spill.
const SPILL_ROWS: usize = if cfg!(test) { 8 } else { 1_024 };

/// How often damage must be found, and the time between.
const CHECKS: u32 = 3;
const CHECK_AGAIN: Duration = Duration::from_millis(50);

/// Steps of SQLite's machine between two looks at whether the caller of a query still waits: some tens of microseconds.
const STEPS: i32 = 4_096;

/// A connection with its transaction state.
pub(super) struct Session {
    conn: Connection,
    path: Arc<Path>,
    texts: SqlTexts,
    /// The check of the database's files. Only the writer has it.
    files: Option<FileCheck>,
    /// The write buffer. Only the writer has it.
    buffer: Option<Box<WriteBuffer>>,
    /// Whether a reader's statements share a snapshot. If not, each sees what is committed when it
    /// runs.
    snapshot: bool,
    /// Whether a transaction is open: a reader's snapshot or the writer's batch.
    in_transaction: bool,
    /// Whether the running command has a savepoint.
    in_savepoint: bool,
    /// Why the batch cannot be committed, or why the reader's connection cannot be reused.
    failed: Option<StoreError>,
}

impl Session {
    /// Creates a session for queries.
    pub(super) fn reader(conn: Connection, path: Arc<Path>) -> Self {
        Self {
            conn,
            path,
            texts: SqlTexts::default(),
            files: None,
            buffer: None,
            snapshot: true,
            in_transaction: false,
            in_savepoint: false,
            failed: None,
        }
    }

    /// Creates a session for the writer.
    pub(super) fn writer(conn: Connection, path: Arc<Path>, buffer: WriteBuffer) -> Result<Self> {
        let files = Some(FileCheck::open(&path)?);
        Ok(Self { files, buffer: Some(Box::new(buffer)), ..Self::reader(conn, path) })
    }

    /// The write buffer, if this is the writer's session.
    pub(super) fn buffer(&self) -> Option<&WriteBuffer> {
        self.buffer.as_deref()
    }

    /// The write buffer, to change it. An error in a reader's session.
    pub(super) fn buffer_mut(&mut self) -> Result<&mut WriteBuffer> {
        self.buffer
            .as_deref_mut()
            .ok_or_else(|| StoreError::ReadOnly("this is a query; only a command may write".into()))
    }

    /// Whether the running command has a savepoint. If so, SQL may contain rows that only this
    /// command wrote.
    pub(super) fn in_savepoint(&self) -> bool {
        self.in_savepoint
    }

    /// Whether the batch or the reader's connection has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Why the batch or the reader's connection has failed.
    pub(super) fn failure(&self) -> Option<&StoreError> {
        self.failed.as_ref()
    }

    /// Runs a query and returns its rows.
    pub(super) fn rows(&mut self, sql: impl AsRef<str>, args: Args) -> Result<Vec<SqliteRow>> {
        if self.buffer.is_none() && self.snapshot && !self.in_transaction {
            // A reader's snapshot begins with its first statement.
            self.begin("BEGIN")?;
        }
        read(&self.conn, sql.as_ref(), &args).map_err(|error| self.fail(&error))
    }

    /// Runs a query and returns its first row.
    pub(super) fn row(&mut self, sql: impl AsRef<str>, args: Args) -> Result<Option<SqliteRow>> {
        Ok(self.rows(sql, args)?.into_iter().next())
    }

    /// Runs a query whose text was built from constants at run time.
    pub(super) fn rows_dynamic(&mut self, sql: String, args: Args) -> Result<Vec<SqliteRow>> {
        self.rows(sql, args)
    }

    /// Flushes the table of `R`, then runs a query and decodes its rows.
    pub(super) fn list<R: CachedRow>(&mut self, sql: impl AsRef<str>, args: Args) -> Result<Vec<R>> {
        self.flush_before_read(R::SET)?;
        self.rows(sql, args)?.iter().map(R::read).collect()
    }

    /// Writes the rows of a running command that has many, such as a broadcast to a whole world, to SQL, and
    /// drops them from memory.
    pub(super) fn spill(&mut self) -> Result<()> {
        if self.buffer().is_none_or(|buffer| buffer.command_rows < SPILL_ROWS) {
            return Ok(());
        }
        self.open_savepoint()?;
        self.flush(table_set::ALL, Owner::Command)?;
        let buffer = self.buffer_mut()?;
        buffer.command_rows = 0;
        buffer.tables.spill();
        Ok(())
    }

    /// Reads one row by its key, in the lookup order of the [`table_cache`](super::table_cache).
    pub(super) fn get<R: CachedRow>(&mut self, key: &R::Key) -> Result<Option<R>> {
        self.spill()?;
        if let Some(found) = self.buffer().and_then(|buffer| R::table(&buffer.tables).get(key)) {
            return Ok(Some(found.clone()));
        }
        if self.buffer().is_some_and(|buffer| R::table(&buffer.tables).known_absent(key)) {
            return Ok(None);
        }
        let mut args = Args::default();
        R::bind_key(key, &mut args);
        let Some(row) = self.row(R::SELECT, args)? else {
            // Inside a savepoint the row may be missing only because this command deleted it, and a
            // refusal would bring it back.
            if !self.in_savepoint
                && let Some(buffer) = self.buffer.as_deref_mut()
            {
                R::table_mut(&mut buffer.tables).cache_absent(key);
            }
            return Ok(None);
        };
        let found = R::read(&row)?;
        let in_savepoint = self.in_savepoint;
        if let Some(buffer) = self.buffer.as_deref_mut() {
            R::table_mut(&mut buffer.tables).cache_row(found.clone(), in_savepoint);
        }
        Ok(Some(found))
    }

    /// Writes a row. It is flushed to SQL later.
    pub(super) fn put<R: CachedRow>(&mut self, row: R) -> Result<()> {
        let buffer = self.buffer_mut()?;
        buffer.command_rows += 1;
        R::table_mut(&mut buffer.tables).put(row);
        Ok(())
    }

    /// Runs a statement that changes rows in SQL at once, inside the command's savepoint. The
    /// command's pending rows of the tables in `touched` are flushed first. Returns the number of
    /// changed rows.
    pub(super) fn execute_now(&mut self, touched: u64, sql: &'static str, args: Args) -> Result<u64> {
        self.buffer_mut()?;
        self.open_savepoint()?;
        self.flush(touched, Owner::Command)?;
        execute(&self.conn, sql, &args).map(|changed| changed as u64).map_err(|error| self.fail(&error))
    }

    /// Flushes the pending rows of `tables`, so that a query sees them. Rows of the running command
    /// are flushed inside its savepoint.
    pub(super) fn flush_before_read(&mut self, tables: u64) -> Result<()> {
        let Some(buffer) = self.buffer() else { return Ok(()) };
        if buffer.has(tables, Owner::Command) {
            self.open_savepoint()?;
            self.flush(tables, Owner::Command)
        } else {
            self.flush(tables, Owner::Batch)
        }
    }

    /// Opens the savepoint of the running command. All pending rows of earlier commands are flushed
    /// before it: after it, a refusal of this command would undo them too.
    fn open_savepoint(&mut self) -> Result<()> {
        if self.in_savepoint {
            return Ok(());
        }
        self.flush(table_set::ALL, Owner::Batch)?;
        if !self.in_transaction {
            self.begin("BEGIN IMMEDIATE")?;
        }
        self.in_savepoint = true;
        self.run("SAVEPOINT command")
    }

    fn begin(&mut self, sql: &'static str) -> Result<()> {
        self.check_files(|files| files.untouched())?;
        self.in_transaction = true;
        self.run(sql)
    }

    /// Runs a check of the files, if this is the writer's session. Damage must be found several times, because another
    /// program that uses SQLite may be in the middle of a checkpoint.
    fn check_files(&mut self, check: impl Fn(&mut FileCheck) -> Result<()>) -> Result<()> {
        let Some(files) = &mut self.files else { return Ok(()) };
        let mut result = check(files);
        for _ in 1..CHECKS {
            if !matches!(result, Err(StoreError::Damaged { .. })) {
                break;
            }
            // The thread of the writer waits, and with it all commands. The simulation has its own backend.
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(CHECK_AGAIN);
            result = check(files);
        }
        result.inspect_err(|error| {
            self.failed.get_or_insert(fault::copy(error));
        })
    }

    fn run(&mut self, sql: &'static str) -> Result<()> {
        execute(&self.conn, sql, &Args::default()).map(drop).map_err(|error| self.fail(&error))
    }

    fn flush(&mut self, tables: u64, owner: Owner) -> Result<()> {
        if !self.buffer().is_some_and(|buffer| buffer.has(tables, owner)) {
            return Ok(());
        }
        if !self.in_transaction {
            self.begin("BEGIN IMMEDIATE")?;
        }
        let Some(buffer) = self.buffer.as_deref_mut() else { return Ok(()) };
        // This error stays if the command panics half-way: then it is unknown which rows are in SQL.
        self.failed.get_or_insert(StoreError::Database("a command was abandoned while its rows were written".into()));
        let mut out = FlushTarget { conn: &self.conn, texts: &mut self.texts };
        match buffer.flush(&mut out, tables, owner) {
            Ok(()) => {
                self.failed = None;
                Ok(())
            }
            Err(error) => {
                let error = error.into_store(&self.path);
                self.failed = Some(fault::copy(&error));
                Err(error)
            }
        }
    }

    /// Makes the batch fail, for tests of errors that cannot be provoked.
    #[cfg(test)]
    pub(super) fn fail_with(&mut self, error: StoreError) {
        self.failed = Some(error);
    }

    pub(super) fn fail(&mut self, error: &rusqlite::Error) -> StoreError {
        let error = fault::from_sqlite(&self.path, error);
        // The first failure is the cause; later ones are its consequences.
        self.failed.get_or_insert(fault::copy(&error));
        error
    }

    /// Accepts the running command: its writes become part of the batch.
    pub(super) fn accept(&mut self) -> Result<()> {
        if std::mem::take(&mut self.in_savepoint) {
            self.run("RELEASE command")?;
        }
        self.buffer_mut()?.accept();
        Ok(())
    }

    /// Undoes the writes of the running command. After a failure it does nothing, because the whole
    /// batch will be undone.
    pub(super) fn reject(&mut self) -> Result<()> {
        if self.has_failed() {
            return Ok(());
        }
        if std::mem::take(&mut self.in_savepoint) {
            self.run("ROLLBACK TO command")?;
            self.run("RELEASE command")?;
        }
        self.buffer_mut()?.reject();
        Ok(())
    }

    /// Commits the batch. Returns the events and signals to publish. On failure the whole batch is
    /// undone.
    pub(super) fn commit(&mut self) -> Result<(Vec<Event>, Vec<Signal>)> {
        match self.try_commit() {
            Ok(()) => Ok(self.buffer_mut()?.committed()),
            Err(error) => {
                self.abandon()?;
                Err(error)
            }
        }
    }

    fn try_commit(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(fault::copy(error));
        }
        self.flush(table_set::ALL, Owner::Batch)?;
        if self.in_transaction {
            // SQLite would commit successfully into a deleted file, and the data would be lost.
            self.check_files(|files| files.present())?;
            self.run("COMMIT")?;
            self.in_transaction = false;
            self.check_files(FileCheck::written)
        } else {
            self.check_files(|files| files.untouched())
        }
    }

    /// Undoes the whole batch and clears the write buffer.
    fn abandon(&mut self) -> Result<()> {
        if std::mem::take(&mut self.in_transaction) {
            // ROLLBACK fails if SQLite has rolled back already, for example because the disk is
            // full. If a transaction is still open after all, the next BEGIN fails and the batch is
            // abandoned again.
            if let Err(error) = execute(&self.conn, "ROLLBACK", &Args::default()) {
                tracing::debug!(%error, "the failed transaction was already rolled back");
            }
        }
        self.in_savepoint = false;
        self.failed = None;
        self.buffer_mut()?.abandoned();
        // What was undone may have been written to the log already.
        self.check_files(FileCheck::written)
    }

    /// Begins a reader's query: whether its statements share a snapshot, and the flag that interrupts them.
    pub(super) fn begin_query(&mut self, shared: bool, interrupted: Arc<AtomicBool>) {
        self.snapshot = shared;
        if let Err(error) = self.conn.progress_handler(STEPS, Some(move || interrupted.load(Ordering::Acquire))) {
            tracing::debug!(%error, "a query cannot be interrupted");
        }
    }

    /// Ends a reader's snapshot.
    pub(super) fn end_snapshot(&mut self) -> Result<()> {
        if std::mem::take(&mut self.in_transaction) {
            self.run("COMMIT")?;
        }
        Ok(())
    }

    /// Closes the connection. If the files are damaged or the database is gone, it stays open instead.
    pub(super) fn close(mut self) -> Result<()> {
        if let Err(error @ StoreError::Damaged { .. }) = self.check_files(|files| files.untouched()) {
            self.leave_open();
            return Err(error);
        }
        if self.files.as_ref().is_some_and(FileCheck::is_gone) {
            self.leave_open();
            return Ok(());
        }
        // The check's handles are closed after SQLite's.
        let Self { conn, path, files: _files, .. } = self;
        conn.close().map_err(|(_, error)| fault::from_sqlite(&path, &error))
    }

    /// Leaks the connection until the process ends, as in a kill. The last connection that is closed copies the log
    /// into the database and removes it by name. A damaged log must not be copied, and by that name there may be the
    /// log of another database.
    pub(super) fn leave_open(self) {
        std::mem::forget(self);
    }
}

impl Reads for Session {}

impl Writes for Session {
    fn signal(&mut self, signal: Signal) {
        if let Some(buffer) = self.buffer.as_deref_mut() {
            buffer.command_signals.push(signal);
        }
    }
}

/// Runs a query and copies its rows.
fn read(conn: &Connection, sql: &str, args: &Args) -> rusqlite::Result<Vec<SqliteRow>> {
    let mut statement = conn.prepare_cached(sql)?;
    let columns = statement.column_count();
    args.bind(&mut statement)?;
    let mut rows = statement.raw_query();
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(SqliteRow::copy(row, columns)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_whose_caller_has_left_is_interrupted() {
        const ENDLESS: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
        let mut session = Session::reader(Connection::open_in_memory().unwrap(), Path::new("memory").into());
        let has_left = Arc::<AtomicBool>::default();
        session.begin_query(false, Arc::clone(&has_left));
        let query = std::thread::spawn(move || (session.rows(ENDLESS, Args::default()).is_err(), session.has_failed()));
        has_left.store(true, Ordering::Release);
        assert_eq!(query.join().unwrap(), (true, true));
    }
}
