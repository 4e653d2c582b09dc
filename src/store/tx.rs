//! A transaction: one database connection, as a reader's snapshot or as the writer's batch. The folder `tables` has its
//! functions, once for both.
//!
//! This module must never continue a batch after a statement has failed for another reason than the rule of a table.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ghost_domain::Event;
use ghost_domain::ports::Signal;

use crate::batch::{Batch, Counters};
use crate::driver::{Driver, Failure, NextRow, Order};
use crate::error::{Result, StoreError};
use crate::row::{Args, FromColumn, Keyed, ReadRow, Row, get};
use crate::sql::{Sql, Statement};

/// How a command is undone that has written something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Undo {
    /// The transaction is rolled back, and what the accepted commands of the batch wrote is written again. Few commands
    /// refuse after a write, and a savepoint would cost every command two statements and a copy of each page that it
    /// changes: a seventh of the writer's time.
    Rewrite,
    /// Its savepoint is rolled back. So is each command that comes in its batch after one that was undone, or a flood of
    /// refusals would write the batch again and again; and after [`WRITTEN_MAX`], because what was written is not
    /// remembered then.
    Savepoint,
}

/// How many bytes of written values an open batch remembers at most (promise 7). A broadcast to all agents writes its text
/// once for each.
const WRITTEN_MAX: usize = 4 * 1024 * 1024;

/// A transaction of the store: what a command writes and reads, or what a query reads.
pub struct Tx {
    driver: Box<dyn Driver>,
    /// The open batch. Only the writer has it.
    batch: Option<Batch>,
    /// Whether a reader's statements share a snapshot. If not, each sees what is committed when it
    /// runs.
    snapshot: bool,
    /// Whether a transaction is open: a reader's snapshot or the writer's batch.
    in_transaction: bool,
    /// How the running command is undone; `None` if it has written nothing.
    undo: Option<Undo>,
    /// The statements of the open batch that changed rows, in order; see [`Undo::Rewrite`].
    written: Vec<(Sql, Args)>,
    /// How many of them belong to accepted commands.
    accepted: usize,
    /// Bytes of the values that the open batch has written; see [`WRITTEN_MAX`].
    written_bytes: usize,
    /// Whether the next commands of the open batch have savepoints.
    needs_savepoints: bool,
    /// The rule of a table that the running command broke. It must refuse: PostgreSQL runs no further statement of it.
    broke: Option<StoreError>,
    /// Why the batch cannot be committed, or why the reader's connection cannot be reused.
    failed: Option<StoreError>,
}

impl Tx {
    /// Creates a session for queries.
    pub(crate) fn reader(driver: Box<dyn Driver>) -> Self {
        Self {
            driver,
            batch: None,
            snapshot: true,
            in_transaction: false,
            undo: None,
            written: Vec::new(),
            accepted: 0,
            written_bytes: 0,
            needs_savepoints: false,
            broke: None,
            failed: None,
        }
    }

    /// Creates a session for commands.
    pub(crate) fn writer(driver: Box<dyn Driver>, counters: Counters) -> Self {
        Self { batch: Some(Batch::new(counters)), ..Self::reader(driver) }
    }

    /// Whether deleted rows make [`Tx::store_bytes`] smaller.
    #[must_use]
    pub fn frees_space(&self) -> bool {
        self.driver.frees_space()
    }

    /// The sequence of the last event.
    pub(crate) fn last_seq(&self) -> i64 {
        self.batch.as_ref().map_or(0, |batch| batch.counters.events)
    }

    /// Whether the running command has written something.
    pub(crate) fn has_written(&self) -> bool {
        self.undo.is_some()
    }

    /// The open batch. An error in a reader's session.
    pub(crate) fn batch(&mut self) -> Result<&mut Batch> {
        self.batch.as_mut().ok_or_else(|| StoreError::ReadOnly("this is a query; only a command may write".into()))
    }

    /// The next number of a sequence of the world. It is taken back if the command is undone.
    pub(crate) fn next(&mut self, sequence: fn(&mut Counters) -> &mut i64) -> Result<i64> {
        Ok(self.batch()?.counters.next(sequence))
    }

    /// Whether the batch or the reader's connection has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Why the batch or the reader's connection has failed.
    pub(crate) fn failure(&self) -> Option<&StoreError> {
        self.failed.as_ref()
    }

    /// Runs a query and decodes its rows. It ends with the first row that cannot be decoded.
    pub(crate) fn rows<T>(
        &mut self,
        sql: impl Into<Statement>,
        args: Args,
        mut decode: impl FnMut(&ReadRow<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        self.read(&sql.into(), &args, &mut |row| {
            found.push(decode(row)?);
            Ok(true)
        })?;
        Ok(found)
    }

    /// Runs a query and decodes its first row.
    pub(crate) fn row<T>(
        &mut self,
        sql: impl Into<Statement>,
        args: Args,
        mut decode: impl FnMut(&ReadRow<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut found = None;
        self.read(&sql.into(), &args, &mut |row| {
            found = Some(decode(row)?);
            Ok(false)
        })?;
        Ok(found)
    }

    /// Runs a query and shows its rows to `next`, until that returns `false` or an error.
    fn read(&mut self, sql: &Statement, args: &Args, next: &mut NextRow<'_>) -> Result<()> {
        self.begin_if_needed()?;
        match self.driver.read(sql, args, next) {
            Ok(decoded) => decoded,
            Err(error) => Err(self.fail(error)),
        }
    }

    /// The number that a query returns; 0 if it returns none.
    pub(crate) fn count<N: for<'r> FromColumn<'r> + Default>(
        &mut self,
        table: &'static str,
        sql: impl Into<Statement>,
        args: Args,
    ) -> Result<N> {
        Ok(self.row(sql, args, |row| get(table, row, 0))?.unwrap_or_default())
    }

    /// Runs a query and decodes its rows.
    pub(crate) fn list<R: Keyed>(&mut self, sql: impl Into<Statement>, args: Args) -> Result<Vec<R>> {
        self.rows(sql, args, R::read)
    }

    /// Reads one row by its key.
    pub(crate) fn get<R: Keyed>(&mut self, key: &R::Key) -> Result<Option<R>> {
        let mut args = Args::default();
        R::bind_key(key, &mut args);
        self.row(R::SELECT, args, R::read)
    }

    /// Writes a row.
    ///
    /// Errors: [`StoreError::Row`] if it breaks a rule of its table, such as a unique name. Then the command must refuse:
    /// whatever else it does fails with the same error.
    pub(crate) fn put<R: Row>(&mut self, row: &R) -> Result<()> {
        let mut args = Args::default();
        row.bind(&mut args)?;
        self.change(R::TABLE, R::WRITE, args).map(drop)
    }

    /// Runs a statement that changes rows. Returns the number of changed rows.
    pub(crate) fn execute(&mut self, sql: Sql, args: Args) -> Result<u64> {
        self.change("of this statement", sql, args)
    }

    fn change(&mut self, table: &'static str, sql: Sql, args: Args) -> Result<u64> {
        self.batch()?;
        self.begin_command()?;
        match self.driver.execute(sql, &args) {
            Ok(changed) => {
                if self.undo == Some(Undo::Rewrite) {
                    self.remember(sql, args);
                }
                Ok(changed)
            }
            Err(Failure::Rule(what)) => {
                let error = StoreError::Row { table, key: "a new row".to_owned(), what };
                self.broke = Some(error.clone());
                Err(error)
            }
            Err(Failure::Store(error)) => Err(self.fail(error)),
        }
    }

    /// Remembers a statement of the running command, for the case that it is accepted and a later one is undone.
    fn remember(&mut self, sql: Sql, args: Args) {
        self.written_bytes = self.written_bytes.saturating_add(args.bytes());
        if self.written_bytes <= WRITTEN_MAX {
            self.written.push((sql, args));
        } else {
            // To undo the running command, only those of the others are needed.
            self.written.truncate(self.accepted);
        }
    }

    /// Begins the batch, or the snapshot of a query that shares one.
    fn begin_if_needed(&mut self) -> Result<()> {
        if let Some(error) = &self.broke {
            return Err(error.clone());
        }
        match (self.in_transaction, &self.batch) {
            (true, _) => Ok(()),
            (false, Some(_)) => self.begin(Order::Begin),
            (false, None) if self.snapshot => self.begin(Order::BeginSnapshot),
            (false, None) => Ok(()),
        }
    }

    /// Makes sure that the running command can be undone.
    fn begin_command(&mut self) -> Result<()> {
        self.begin_if_needed()?;
        if self.undo.is_some() {
            return Ok(());
        }
        if !self.needs_savepoints {
            self.undo = Some(Undo::Rewrite);
            return Ok(());
        }
        self.undo = Some(Undo::Savepoint);
        self.order(Order::Savepoint)
    }

    fn begin(&mut self, order: Order) -> Result<()> {
        self.in_transaction = true;
        self.order(order)
    }

    fn order(&mut self, order: Order) -> Result<()> {
        self.driver.order(order).map_err(|error| self.fail(error))
    }

    /// Makes the batch fail. The first failure is the cause; later ones are its consequences.
    pub(crate) fn fail(&mut self, error: StoreError) -> StoreError {
        self.failed.get_or_insert(error.clone());
        error
    }

    /// Keeps what the running command has written. If it went on after it broke a rule of a table, it is undone instead,
    /// and this is the error. After any other failure the batch will fail.
    pub(crate) fn keep_command(&mut self) -> Result<()> {
        if let Some(error) = self.broke.clone() {
            self.undo_command();
            return Err(error);
        }
        if let Err(error) = self.accept() {
            tracing::debug!(%error, "accepting a command failed, and with it its batch");
        }
        Ok(())
    }

    /// Undoes what the running command has written.
    pub(crate) fn undo_command(&mut self) {
        if let Err(error) = self.reject() {
            tracing::debug!(%error, "undoing a command failed, and with it its batch");
        }
    }

    /// Accepts the running command: its writes become part of the batch.
    fn accept(&mut self) -> Result<()> {
        if self.undo.take() == Some(Undo::Savepoint) {
            self.order(Order::Release)?;
        }
        if self.written_bytes > WRITTEN_MAX {
            // Not all that it wrote is remembered.
            self.needs_savepoints = true;
            self.written.clear();
        }
        self.accepted = self.written.len();
        self.batch()?.accept();
        Ok(())
    }

    /// Undoes the writes of the running command. After a failure it does nothing, because the whole
    /// batch will be undone.
    fn reject(&mut self) -> Result<()> {
        self.broke = None;
        if self.has_failed() {
            return Ok(());
        }
        match self.undo.take() {
            Some(Undo::Savepoint) => self.order(Order::UndoCommand)?,
            Some(Undo::Rewrite) => self.rewrite()?,
            None => {}
        }
        self.batch()?.reject();
        Ok(())
    }

    /// Rolls the transaction back and writes again what the accepted commands wrote. The rows are as they were, so each
    /// statement does what it did before.
    fn rewrite(&mut self) -> Result<()> {
        self.order(Order::Rollback)?;
        self.in_transaction = false;
        let mut written = std::mem::take(&mut self.written);
        written.truncate(std::mem::take(&mut self.accepted));
        self.needs_savepoints = true;
        if !written.is_empty() {
            self.begin_if_needed()?;
        }
        for (sql, args) in &written {
            let again = self.driver.execute(*sql, args);
            again.map_err(|failure| match failure {
                Failure::Store(error) => self.fail(error),
                Failure::Rule(what) => self.fail(StoreError::Database(format!("a batch cannot be repeated: {what}"))),
            })?;
        }
        Ok(())
    }

    /// Forgets what the batch has written, at its end.
    fn forget(&mut self) {
        (self.undo, self.broke) = (None, None);
        (self.accepted, self.written_bytes, self.needs_savepoints) = (0, 0, false);
        self.written.clear();
    }

    /// Commits the batch. Returns the events and signals to publish. On failure the whole batch is
    /// undone.
    pub(crate) fn commit(&mut self) -> Result<(Vec<Event>, Vec<Signal>)> {
        match self.try_commit() {
            Ok(()) => {
                self.forget();
                Ok(self.batch()?.committed())
            }
            Err(error) => {
                self.abandon()?;
                Err(error)
            }
        }
    }

    fn try_commit(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if !self.in_transaction {
            return self.driver.check();
        }
        self.driver.order(Order::Commit)?;
        self.in_transaction = false;
        Ok(())
    }

    /// Undoes the whole batch.
    fn abandon(&mut self) -> Result<()> {
        self.in_transaction = false;
        self.forget();
        self.failed = None;
        self.batch()?.abandoned();
        self.driver.order(Order::Rollback)
    }

    /// Begins a reader's query: whether its statements share a snapshot, and the flag that interrupts them.
    pub(crate) fn begin_query(&mut self, shared: bool, has_left: Arc<AtomicBool>) {
        self.snapshot = shared;
        self.driver.interrupt_when(has_left);
    }

    /// Ends a reader's snapshot.
    pub(crate) fn end_snapshot(&mut self) -> Result<()> {
        if std::mem::take(&mut self.in_transaction) {
            self.order(Order::Commit)?;
        }
        Ok(())
    }

    /// Closes the connection. If the files are damaged or the database is gone, it stays open instead.
    pub(crate) fn close(self) -> Result<()> {
        self.driver.close()
    }

    /// Leaks the connection until the process ends, as in a kill.
    pub(crate) fn leave_open(self) {
        self.driver.leave_open();
    }
}

impl Tx {
    /// Sends a signal to the running world after the commit. If the command is undone, the signal
    /// is dropped.
    pub fn signal(&mut self, signal: Signal) {
        if let Some(batch) = &mut self.batch {
            batch.signals.push(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::Ordering;

    use rusqlite::Connection;

    use super::*;
    use crate::row::{args, get};
    use crate::sql::text;
    use crate::sqlite::SqliteDriver;

    fn in_memory(tables: &str) -> Tx {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(tables).unwrap();
        Tx::writer(Box::new(SqliteDriver::new(conn, Path::new("memory").into())), Counters::default())
    }

    /// The first command that is undone after a write makes the batch write again what others wrote; the next ones have
    /// savepoints. Either way only their own rows go.
    #[test]
    fn commands_that_are_undone_take_only_their_own_rows() {
        let mut tx = in_memory("CREATE TABLE t (name TEXT PRIMARY KEY, n INTEGER)");
        let add = |tx: &mut Tx, name: &str| {
            let sql = text!("INSERT INTO t VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET n = t.n + 1");
            tx.execute(sql, args![name]).unwrap();
        };
        let names = |tx: &mut Tx| -> Vec<(String, i64)> {
            let sql = text!("SELECT name, n FROM t ORDER BY name");
            tx.rows(sql, Args::default(), |row| Ok((get("t", row, 0)?, get("t", row, 1)?))).unwrap()
        };
        for (name, kept) in [("a", true), ("b", false), ("a", true), ("c", false), ("d", false), ("a", true)] {
            add(&mut tx, name);
            add(&mut tx, &format!("{name}{name}"));
            assert!(names(&mut tx).iter().any(|(found, _)| found == name));
            if kept { tx.accept() } else { tx.reject() }.unwrap();
        }
        assert_eq!(names(&mut tx), [("a".to_owned(), 3), ("aa".to_owned(), 3)]);
        tx.commit().unwrap();
        add(&mut tx, "z");
        tx.reject().unwrap();
        assert_eq!(names(&mut tx), [("a".to_owned(), 3), ("aa".to_owned(), 3)]);
    }

    /// Neither a large command nor many small ones make a batch remember more than its bound, whichever way they end.
    #[test]
    fn what_a_batch_remembers_is_bounded() {
        for (size, count) in [(WRITTEN_MAX + 1, 1), (WRITTEN_MAX / 4, 9), (WRITTEN_MAX / 3, 2)] {
            let mut tx = in_memory("CREATE TABLE t (name TEXT, n INTEGER)");
            let add = |tx: &mut Tx, text: &str| {
                tx.execute(text!("INSERT INTO t VALUES ($1, 1)"), args![text]).unwrap();
                let remembered: usize = tx.written.iter().map(|(_, args)| args.bytes()).sum();
                assert!(remembered <= WRITTEN_MAX, "{remembered}");
            };
            let rows = |tx: &mut Tx| tx.count::<usize>("t", text!("SELECT count(*) FROM t"), Args::default()).unwrap();
            add(&mut tx, "small");
            tx.accept().unwrap();
            let large = "x".repeat(size);
            (0..count).for_each(|_| add(&mut tx, &large));
            tx.accept().unwrap();
            add(&mut tx, "undone");
            tx.reject().unwrap();
            assert_eq!(rows(&mut tx), 1 + count);
            tx.commit().unwrap();
            // The large command is the one that is undone.
            add(&mut tx, "small");
            tx.accept().unwrap();
            (0..count).for_each(|_| add(&mut tx, &large));
            tx.reject().unwrap();
            assert_eq!(rows(&mut tx), 2 + count);
        }
    }

    #[test]
    fn a_query_whose_caller_has_left_is_interrupted() {
        const ENDLESS: Sql =
            text!("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n");
        let conn = Connection::open_in_memory().unwrap();
        let mut session = Tx::reader(Box::new(SqliteDriver::new(conn, Path::new("memory").into())));
        let has_left = Arc::<AtomicBool>::default();
        session.begin_query(false, Arc::clone(&has_left));
        let query = std::thread::spawn(move || {
            (session.count::<u64>("n", ENDLESS, Args::default()).is_err(), session.has_failed())
        });
        has_left.store(true, Ordering::Release);
        assert_eq!(query.join().unwrap(), (true, true));
    }
}
