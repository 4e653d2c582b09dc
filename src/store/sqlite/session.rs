//! One connection and what is done over it: by a reader inside a snapshot, by the writer inside a batch. The table
//! traits are implemented on it, in `rows/`, once for both.
//!
//! Must never: let the rows of an accepted command into the savepoint of a running one, or go on after a failed write.

use std::path::Path;
use std::sync::Arc;

use ghost_domain::Event;
use ghost_domain::ports::Signal;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Connection as _, SqlSafeStr};

use super::file_identity::FileIdentity;
use super::flush::{Out, flush};
use super::row::{Args, Keyed, Texts};
use super::table_cache::Side;
use super::write_buffer::{CachedRow, WriteBuffer};
use super::{fault, table_set};
use crate::StoreError;
use crate::tables::{Reads, Result, Writes};

/// A connection in use.
pub(super) struct Session {
    conn: SqliteConnection,
    path: Arc<Path>,
    texts: Texts,
    /// Where the database lies; only the writer asks.
    identity: Option<FileIdentity>,
    /// What is not in SQL yet; only the writer has it.
    buffer: Option<Box<WriteBuffer>>,
    /// Whether a reader's statements share a snapshot; without it each sees what is committed when it runs.
    snapshot: bool,
    /// A transaction is open: a reader's snapshot or the writer's batch.
    begun: bool,
    /// The running command has a savepoint.
    saved: bool,
    /// Why the batch cannot be committed.
    failed: Option<StoreError>,
}

impl Session {
    /// A session for queries.
    pub(super) fn reader(conn: SqliteConnection, path: Arc<Path>) -> Self {
        Self {
            conn,
            path,
            texts: Texts::default(),
            identity: None,
            buffer: None,
            snapshot: true,
            begun: false,
            saved: false,
            failed: None,
        }
    }

    /// A session for the writer.
    pub(super) fn writer(conn: SqliteConnection, path: Arc<Path>, buffer: WriteBuffer) -> Self {
        let identity = Some(FileIdentity::of(&path));
        Self { identity, buffer: Some(Box::new(buffer)), ..Self::reader(conn, path) }
    }

    /// What is not in SQL yet, if this is the writer's session.
    pub(super) fn buffer(&self) -> Option<&WriteBuffer> {
        self.buffer.as_deref()
    }

    /// The same, to write. A reader's session refuses.
    pub(super) fn pending(&mut self) -> Result<&mut WriteBuffer> {
        self.buffer
            .as_deref_mut()
            .ok_or_else(|| StoreError::ReadOnly("this is a query; writes go through a command".into()))
    }

    /// Whether the running command has a savepoint, so that what SQL says may be its own.
    pub(super) fn saved(&self) -> bool {
        self.saved
    }

    /// Whether the batch is lost, or the reader's connection in doubt.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Runs a query.
    pub(super) async fn rows(&mut self, sql: impl SqlSafeStr + Send, args: Args) -> Result<Vec<SqliteRow>> {
        if self.buffer.is_none() && self.snapshot && !self.begun {
            // The snapshot of a reader begins with its first statement.
            self.begin("BEGIN").await?;
        }
        let result = sqlx::query_with(sql, args.finish()?).fetch_all(&mut self.conn).await;
        result.map_err(|error| self.fail(&error))
    }

    /// Runs a query for one row.
    pub(super) async fn row(&mut self, sql: impl SqlSafeStr + Send, args: Args) -> Result<Option<SqliteRow>> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// Runs a query whose text was put together from constants.
    pub(super) async fn rows_of(&mut self, sql: String, args: Args) -> Result<Vec<SqliteRow>> {
        self.rows(AssertSqlSafe(sql), args).await
    }

    /// Reads rows of one kind.
    pub(super) async fn list<R: Keyed>(&mut self, sql: impl SqlSafeStr + Send, args: Args) -> Result<Vec<R>> {
        self.scan(R::SET).await?;
        self.rows(sql, args).await?.iter().map(R::read).collect()
    }

    /// Reads one row by its key: from the layers, then from SQL.
    pub(super) async fn get<R: CachedRow>(&mut self, key: &R::Key) -> Result<Option<R>> {
        if let Some(found) = self.buffer().and_then(|buffer| R::table(buffer).get(key)) {
            return Ok(Some(found.clone()));
        }
        if self.buffer().is_some_and(|buffer| R::table(buffer).lacks(key)) {
            return Ok(None);
        }
        let mut args = Args::default();
        R::bind_key(key, &mut args);
        let Some(row) = self.row(R::SELECT, args).await? else {
            // Behind a savepoint SQL may lack what an undone command would bring back.
            if !self.saved
                && let Some(buffer) = self.buffer.as_deref_mut()
            {
                R::table_mut(buffer).learn_absent(key);
            }
            return Ok(None);
        };
        let found = R::read(&row)?;
        let saved = self.saved;
        if let Some(buffer) = self.buffer.as_deref_mut() {
            R::table_mut(buffer).learn(found.clone(), saved);
        }
        Ok(Some(found))
    }

    /// Changes rows in place, behind the command's savepoint; the tables in `touched` are flushed first. Gives how many.
    pub(super) async fn change(&mut self, touched: u32, sql: &'static str, args: Args) -> Result<u64> {
        self.pending()?;
        self.save().await?;
        self.flush(touched, Side::Own).await?;
        let result = sqlx::query_with(sql, args.finish()?).execute(&mut self.conn).await;
        result.map(|done| done.rows_affected()).map_err(|error| self.fail(&error))
    }

    /// Brings `tables` in SQL up to date, so that a query sees what the command and those before it wrote.
    pub(super) async fn scan(&mut self, tables: u32) -> Result<()> {
        let Some(buffer) = self.buffer() else { return Ok(()) };
        if buffer.has(tables, Side::Own) {
            self.save().await?;
            self.flush(tables, Side::Own).await
        } else {
            self.flush(tables, Side::Batch).await
        }
    }

    /// Opens the command's savepoint. Everything of the commands before it goes to SQL first: behind the savepoint, a
    /// refusal would take it along.
    async fn save(&mut self) -> Result<()> {
        if self.saved {
            return Ok(());
        }
        self.flush(table_set::ALL, Side::Batch).await?;
        if !self.begun {
            self.begin("BEGIN IMMEDIATE").await?;
        }
        self.saved = true;
        self.run("SAVEPOINT command").await
    }

    async fn begin(&mut self, sql: &'static str) -> Result<()> {
        self.begun = true;
        self.run(sql).await
    }

    async fn run(&mut self, sql: &'static str) -> Result<()> {
        let result = sqlx::query(sql).execute(&mut self.conn).await;
        result.map(|_| ()).map_err(|error| self.fail(&error))
    }

    async fn flush(&mut self, tables: u32, side: Side) -> Result<()> {
        if !self.buffer().is_some_and(|buffer| buffer.has(tables, side)) {
            return Ok(());
        }
        if !self.begun {
            self.begin("BEGIN IMMEDIATE").await?;
        }
        let Some(buffer) = self.buffer.as_deref_mut() else { return Ok(()) };
        // Stands if this future is dropped half-way: then nobody knows which rows are in SQL.
        self.failed.get_or_insert(StoreError::Database("a command was abandoned while its rows were written".into()));
        let mut out = Out { conn: &mut self.conn, texts: &mut self.texts };
        match flush(&mut out, buffer, tables, side).await {
            Ok(()) => {
                self.failed = None;
                Ok(())
            }
            Err(error) => {
                let error = error.into_store(&self.path);
                self.failed = Some(fault::again(&error));
                Err(error)
            }
        }
    }

    /// Has the batch fail, for tests of what cannot be brought about.
    #[cfg(test)]
    pub(super) fn fail_with(&mut self, error: StoreError) {
        self.failed = Some(error);
    }

    pub(super) fn fail(&mut self, error: &sqlx::Error) -> StoreError {
        let error = match fault::of(&self.path, error) {
            // A query's connection is opened again; only what the writer has lost ends the store.
            StoreError::Broken(what) if self.buffer.is_none() => StoreError::Busy(format!("{what}: ask again")),
            error => error,
        };
        // The first failure is the cause; those after it only follow.
        self.failed.get_or_insert(fault::again(&error));
        error
    }

    /// Keeps what the command wrote.
    pub(super) async fn accept(&mut self) -> Result<()> {
        if std::mem::take(&mut self.saved) {
            self.run("RELEASE command").await?;
        }
        self.pending()?.accept();
        Ok(())
    }

    /// Undoes what the command wrote. Does nothing after a failure, which undoes more.
    pub(super) async fn reject(&mut self) -> Result<()> {
        if self.has_failed() {
            return Ok(());
        }
        if std::mem::take(&mut self.saved) {
            self.run("ROLLBACK TO command; RELEASE command").await?;
        }
        self.pending()?.reject();
        Ok(())
    }

    /// Commits the batch: gives what is to be published. On failure nothing of it stands.
    pub(super) async fn commit(&mut self) -> Result<(Vec<Event>, Vec<Signal>)> {
        match self.try_commit().await {
            Ok(()) => Ok(self.pending()?.committed()),
            Err(error) => {
                self.abandon().await?;
                Err(error)
            }
        }
    }

    async fn try_commit(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(fault::again(error));
        }
        self.flush(table_set::ALL, Side::Batch).await?;
        if self.begun {
            // A commit into a file that was taken away succeeds, and nobody would ever find it.
            self.identity.as_ref().map_or(Ok(()), FileIdentity::check)?;
            self.run("COMMIT").await?;
            self.begun = false;
        }
        Ok(())
    }

    /// Gives the batch up: nothing of it stands, and nothing is remembered.
    async fn abandon(&mut self) -> Result<()> {
        if std::mem::take(&mut self.begun) {
            // It fails where SQLite has rolled back by itself, as it does when the disk is full. A transaction that was
            // open all the same would fail the next BEGIN, and end here.
            if let Err(error) = sqlx::query("ROLLBACK").execute(&mut self.conn).await {
                tracing::debug!(%error, "the failed transaction was gone already");
            }
        }
        self.saved = false;
        self.failed = None;
        self.pending()?.abandoned();
        Ok(())
    }

    /// Says whether the statements of a reader's next query share a snapshot.
    pub(super) fn share_snapshot(&mut self, shared: bool) {
        self.snapshot = shared;
    }

    /// Ends a reader's snapshot.
    pub(super) async fn end_snapshot(&mut self) -> Result<()> {
        if std::mem::take(&mut self.begun) {
            self.run("COMMIT").await?;
        }
        Ok(())
    }

    /// Closes the connection.
    pub(super) async fn close(self) -> Result<()> {
        let path = self.path;
        if self.identity.is_some_and(|identity| identity.is_gone()) {
            // The last connection removes the log by its name, which may be that of another's by now. This one ends with
            // the process, as if it had been killed.
            std::mem::forget(self.conn);
            return Ok(());
        }
        self.conn.close().await.map_err(|error| fault::of(&path, &error))
    }
}

impl Reads for Session {}

impl Writes for Session {
    fn signal(&mut self, signal: Signal) {
        if let Some(buffer) = self.buffer.as_deref_mut() {
            buffer.own_signals.push(signal);
        }
    }
}
