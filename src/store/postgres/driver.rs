//! The driver of PostgreSQL.
//!
//! A lost connection undoes its transaction, so a batch that was not committed fails as a whole, and the next one connects
//! again. A COMMIT whose answer was lost is settled before anything else happens: the batch's mark in `counters` says
//! whether it is stored. The driver must never guess that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use rusqlite::types::{Value, ValueRef};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgConnection, PgRow, PgTypeInfo, Postgres};
use sqlx::{
    Arguments as _, AssertSqlSafe, Encode, Executor as _, Row as _, SqlSafeStr, Type, TypeInfo as _, ValueRef as _,
};

use super::connect::{Link, broken_rule, from_postgres, interrupted};
use super::schema;
use crate::driver::{Driver, Failure, NextRow, Order};
use crate::engine::Doubt;
use crate::error::{Result, StoreError};
use crate::row::{Args, Columns, ReadRow};
use crate::sql::{Sql, Statement};

/// How often a query looks whether its caller has left.
const LOOK: Duration = Duration::from_millis(50);

/// The time between two tries to find out whether a COMMIT whose answer was lost has happened.
const SETTLE_AGAIN: Duration = Duration::from_millis(500);

/// What a connection is for.
enum Role {
    /// It writes. It has the lock of the schema.
    Writer {
        /// The mark of the last batch that is known to be stored.
        mark: i64,
        /// Whether the open batch has written something.
        wrote: bool,
        doubt: Doubt,
        /// Why no further batch can run.
        ended: Option<StoreError>,
    },
    /// It reads.
    Reader {
        /// Set when the caller of the query has left.
        has_left: Arc<AtomicBool>,
        /// Whether the query has run a statement, so that it cannot begin again on another connection.
        begun: bool,
    },
}

/// A connection to a schema.
pub(super) struct PostgresDriver {
    link: Link,
    role: Role,
}

impl PostgresDriver {
    /// For the writer, on a link that has the lock of the schema. `mark`: that of the last batch.
    pub(super) fn writer(link: Link, mark: i64, doubt: Doubt) -> Self {
        Self { link, role: Role::Writer { mark, wrote: false, doubt, ended: None } }
    }

    /// For queries.
    pub(super) fn reader(link: Link) -> Self {
        Self { link, role: Role::Reader { has_left: Arc::default(), begun: false } }
    }

    /// Connects, if the connection was lost.
    fn connect(&mut self) -> Result<()> {
        if self.link.is_connected() {
            return Ok(());
        }
        match &mut self.role {
            Role::Reader { .. } => self.link.connect().map_err(for_the_moment),
            Role::Writer { ended: Some(error), .. } => Err(error.clone()),
            Role::Writer { mark, ended, .. } => {
                // While the lock was free, another daemon may have written.
                if schema::connect_to(&mut self.link).map_err(for_the_moment)? == Some(*mark) {
                    return Ok(());
                }
                self.link.disconnect();
                let error = StoreError::Broken("because another ghostd has written to its schema".to_owned());
                Err(ended.insert(error).clone())
            }
        }
    }

    /// Begins a transaction.
    fn begin(&mut self, sql: &'static str) -> Result<()> {
        match &mut self.role {
            Role::Writer { wrote, .. } => *wrote = false,
            Role::Reader { begun, .. } => *begun = true,
        }
        let was_connected = self.link.is_connected();
        self.connect()?;
        match self.link.script(sql) {
            // The server may have ended an idle connection since the last transaction.
            Err(_) if was_connected && !self.link.is_connected() => {
                self.connect()?;
                self.link.script(sql)
            }
            begun => begun,
        }
    }

    /// Commits the open batch.
    fn commit(&mut self) -> Result<()> {
        let Role::Writer { mark, wrote: true, doubt, .. } = &self.role else { return self.link.script("COMMIT") };
        // Not a number that another writer could write, too.
        let (last, new, doubt) = (*mark, uuid::Uuid::new_v4().as_u64_pair().0.cast_signed(), doubt.clone());
        // One message: the mark is stored if and only if the batch is.
        let commit = format!("UPDATE counters SET value = {new} WHERE name = 'batches'; COMMIT");
        let committed = match self.link.built(commit) {
            // A server that answers with an error has undone the batch.
            Err(error) if self.link.is_connected() => return Err(error),
            Err(error) => self.settle((last, new), &doubt, error)?,
            Ok(()) => true,
        };
        if !committed {
            return Err(StoreError::Busy(format!("the connection to {} was lost", self.name())));
        }
        if let Role::Writer { mark, .. } = &mut self.role {
            *mark = new;
        }
        Ok(())
    }

    /// Finds out which mark is stored: that of the batch before, or the new one. Waits for the server, and with it all
    /// commands that have been accepted: as long as nobody knows, nothing may be answered.
    fn settle(&mut self, (last, new): (i64, i64), doubt: &Doubt, lost: StoreError) -> Result<bool> {
        doubt.begin(&lost);
        let mut settled = None;
        while !doubt.must_end() {
            match schema::connect_to(&mut self.link) {
                Ok(Some(found)) if [last, new].contains(&found) => {
                    settled = Some(found == new);
                    break;
                }
                Ok(_) => break,
                Err(error) => tracing::debug!(%error, "the server does not say it yet"),
            }
            // The thread of the writer waits. The simulation has no PostgreSQL.
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(SETTLE_AGAIN);
        }
        doubt.end();
        settled.ok_or_else(|| {
            self.link.disconnect();
            let error = StoreError::Broken(format!("because the answer to a COMMIT was lost ({lost})"));
            if let Role::Writer { ended, .. } = &mut self.role {
                *ended = Some(error.clone());
            }
            error
        })
    }

    fn name(&self) -> String {
        self.link.target().name.display().to_string()
    }
}

fn left(flag: &Option<Arc<AtomicBool>>) -> bool {
    flag.as_ref().is_some_and(|flag| flag.load(Ordering::Acquire))
}

/// A database that is away now may be back for the next batch.
fn for_the_moment(error: StoreError) -> StoreError {
    match error {
        StoreError::Open { .. } | StoreError::InUse { .. } => StoreError::Busy(error.to_string()),
        other => other,
    }
}

/// A value to bind. The server finds its type: integers, texts and bytes are the only ones that the statements have, which
/// a test shows.
struct Bound<'v>(&'v Value);

impl Type<Postgres> for Bound<'_> {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(0))
    }
}

impl Encode<'_, Postgres> for Bound<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        match self.0 {
            Value::Null => return Ok(IsNull::Yes),
            Value::Integer(number) => buffer.extend_from_slice(&number.to_be_bytes()),
            Value::Text(text) => match nul::escape(text) {
                Some(escaped) => buffer.extend_from_slice(escaped.as_bytes()),
                None => buffer.extend_from_slice(text.as_bytes()),
            },
            Value::Blob(bytes) => buffer.extend_from_slice(bytes),
            Value::Real(_) => return Err("no column is a real number".into()),
        }
        Ok(IsNull::No)
    }
}

/// The values of a statement, as `sqlx` takes them.
pub(super) fn bind(values: &[Value]) -> Result<PgArguments, sqlx::Error> {
    let mut bound = PgArguments::default();
    for value in values {
        bound.add(Bound(value)).map_err(sqlx::Error::Encode)?;
    }
    Ok(bound)
}

/// U+0000 in texts. SQLite stores it, PostgreSQL does not; so it is written as two characters. Ghost's own texts have
/// neither, so nothing that is compared or sorted changes.
mod nul {
    /// Begins an escape: U+FDD0, which Unicode leaves to programs for themselves.
    const ESCAPE: char = '\u{FDD0}';

    /// The text to store, if it is another one.
    pub(super) fn escape(text: &str) -> Option<String> {
        text.contains(['\0', ESCAPE]).then(|| text.replace(ESCAPE, "\u{FDD0}1").replace('\0', "\u{FDD0}0"))
    }

    /// The text that was stored, if it is another one.
    pub(super) fn unescape(text: &str) -> Option<String> {
        text.contains(ESCAPE).then(|| text.replace("\u{FDD0}0", "\0").replace("\u{FDD0}1", "\u{FDD0}"))
    }
}

/// A row of a query.
struct Read {
    row: PgRow,
    /// The texts that were stored as others, by column.
    unescaped: Vec<(usize, String)>,
}

impl Read {
    fn new(row: PgRow) -> Self {
        let stored = (0..row.len()).filter_map(|column| match value(&row, column) {
            Ok(ValueRef::Text(text)) => Some((column, nul::unescape(std::str::from_utf8(text).ok()?)?)),
            _ => None,
        });
        let unescaped = stored.collect();
        Self { row, unescaped }
    }
}

impl Columns for Read {
    fn value(&self, column: usize) -> Result<ValueRef<'_>, String> {
        match self.unescaped.iter().find(|(of, _)| *of == column) {
            Some((_, text)) => Ok(ValueRef::Text(text.as_bytes())),
            None => value(&self.row, column),
        }
    }
}

/// The value of a column, as the server has sent it: in the binary format of its type.
fn value(row: &PgRow, column: usize) -> Result<ValueRef<'_>, String> {
    let sent = row.try_get_raw(column).map_err(|error| error.to_string())?;
    if sent.is_null() {
        return Ok(ValueRef::Null);
    }
    let bytes = sent.as_bytes().map_err(|error| error.to_string())?;
    let found = sent.type_info();
    let number = |whole: Option<i64>| whole.map(ValueRef::Integer).ok_or_else(|| "an integer is cut".to_owned());
    match found.name() {
        "INT8" => number(bytes.try_into().ok().map(i64::from_be_bytes)),
        "INT4" => number(bytes.try_into().ok().map(|bytes| i32::from_be_bytes(bytes).into())),
        "TEXT" | "VARCHAR" | "NAME" | "UNKNOWN" => Ok(ValueRef::Text(bytes)),
        "BYTEA" => Ok(ValueRef::Blob(bytes)),
        other => Err(format!("its type {other} is not expected")),
    }
}

/// Runs a query, and shows its rows until `next` has enough or the caller has left.
async fn rows(
    conn: &mut PgConnection,
    sql: impl SqlSafeStr,
    (args, persistent): (PgArguments, bool),
    has_left: Option<&AtomicBool>,
    next: &mut NextRow<'_>,
) -> sqlx::Result<Result<()>> {
    let mut found = conn.fetch(sqlx::query_with(sql, args).persistent(persistent));
    loop {
        let row = match has_left {
            None => found.next().await,
            Some(has_left) => loop {
                // The connection of a query that is left is dropped. The simulation has no PostgreSQL.
                #[allow(clippy::disallowed_methods)]
                match tokio::time::timeout(LOOK, found.next()).await {
                    Ok(row) => break row,
                    Err(_) if has_left.load(Ordering::Acquire) => return Err(interrupted()),
                    Err(_) => {}
                }
            },
        };
        let Some(row) = row.transpose()? else { return Ok(Ok(())) };
        match next(&Read::new(row)) {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
    }
}

impl Driver for PostgresDriver {
    fn read(&mut self, sql: &Statement, args: &Args, next: &mut NextRow<'_>) -> Result<Result<()>> {
        let mut again = match &mut self.role {
            Role::Writer { .. } => false,
            // The server may have ended an idle connection since the last query.
            Role::Reader { begun, .. } => !std::mem::replace(begun, true) && self.link.is_connected(),
        };
        loop {
            if let Role::Reader { .. } = self.role {
                self.connect()?;
            }
            let has_left = match &self.role {
                Role::Writer { .. } => None,
                Role::Reader { has_left, .. } => Some(Arc::clone(has_left)),
            };
            let mut shown = false;
            let done = self.link.with(async |conn| {
                let args = bind(args.values())?;
                let mut next = |row: &ReadRow<'_>| {
                    shown = true;
                    next(row)
                };
                match sql {
                    Statement::Fixed(sql) => {
                        rows(conn, sql.postgres(), (args, true), has_left.as_deref(), &mut next).await
                    }
                    Statement::Built(_) => {
                        let text = sql.text(crate::sql::Dialect::Postgres).into_owned();
                        rows(conn, AssertSqlSafe(text), (args, false), has_left.as_deref(), &mut next).await
                    }
                }
            });
            match done {
                Err(_) if std::mem::take(&mut again) && !shown && !self.link.is_connected() && !left(&has_left) => {}
                done => return done.map_err(|error| from_postgres(&self.link.target().name, &error)),
            }
        }
    }

    fn execute(&mut self, sql: Sql, args: &Args) -> Result<u64, Failure> {
        if let Role::Writer { wrote, .. } = &mut self.role {
            *wrote = true;
        }
        let done = self.link.with(async |conn| {
            let statement = sqlx::query_with(sql.postgres(), bind(args.values())?);
            conn.execute(statement).await.map(|done| done.rows_affected())
        });
        done.map_err(|error| match broken_rule(&error) {
            Some(rule) => Failure::Rule(rule),
            None => Failure::Store(from_postgres(&self.link.target().name, &error)),
        })
    }

    fn order(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Begin => self.begin("BEGIN"),
            Order::BeginSnapshot => self.begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"),
            Order::Savepoint => self.link.script("SAVEPOINT command"),
            Order::Release => self.link.script("RELEASE command"),
            Order::UndoCommand => self.link.script("ROLLBACK TO command; RELEASE command"),
            Order::Commit => self.commit(),
            // With a connection, its transaction is lost.
            Order::Rollback if !self.link.is_connected() => Ok(()),
            Order::Rollback => self.link.script("ROLLBACK"),
        }
    }

    fn frees_space(&self) -> bool {
        false
    }

    fn check(&mut self) -> Result<()> {
        self.connect()?;
        match self.link.number("SELECT 1::BIGINT") {
            Err(_) if !self.link.is_connected() => self.connect(),
            answer => answer.map(drop),
        }
    }

    fn interrupt_when(&mut self, flag: Arc<AtomicBool>) {
        if let Role::Reader { has_left, begun } = &mut self.role {
            (*has_left, *begun) = (flag, false);
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.link.close()
    }

    fn leave_open(self: Box<Self>) {
        std::mem::forget(self);
    }
}
