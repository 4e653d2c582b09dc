//! Records what a writer tells its server, and repeats it through bare `sqlx`: the floor of a measurement.
//!
//! It must never be part of a release build.

use std::borrow::Cow;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::types::Value;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, SqlSafeStr as _};

use super::driver::bind;
use crate::driver::{Driver, Failure, NextRow, Order};
use crate::error::Result;
use crate::row::Args;
use crate::sql::{Dialect, Sql, Statement};

/// One message to the server.
#[derive(Clone, Debug)]
pub struct Told {
    sql: Cow<'static, str>,
    values: Vec<Value>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Order,
    Read,
    Write,
}

/// What a writer has told its server so far. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Recording(Arc<Mutex<Vec<Told>>>);

impl Recording {
    /// What was told since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<Told> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, sql: Cow<'static, str>, args: &Args, kind: Kind) {
        let told = Told { sql, values: args.values().to_vec(), kind };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }
}

/// A driver whose statements are recorded.
pub(super) struct Recorder {
    pub(super) inner: Box<dyn Driver>,
    pub(super) recording: Recording,
}

impl Driver for Recorder {
    fn read(&mut self, sql: &Statement, args: &Args, next: &mut NextRow<'_>) -> Result<Result<()>> {
        self.recording.add(sql.text(Dialect::Postgres), args, Kind::Read);
        self.inner.read(sql, args, next)
    }

    fn execute(&mut self, sql: Sql, args: &Args) -> Result<u64, Failure> {
        self.recording.add(sql.postgres().into(), args, Kind::Write);
        self.inner.execute(sql, args)
    }

    fn order(&mut self, order: Order) -> Result<()> {
        let sql = match order {
            Order::Begin | Order::BeginSnapshot => "BEGIN",
            Order::Savepoint => "SAVEPOINT command",
            Order::Release => "RELEASE command",
            Order::UndoCommand => "ROLLBACK TO command; RELEASE command",
            Order::Commit => "COMMIT",
            Order::Rollback => "ROLLBACK",
        };
        self.recording.add(sql.into(), &Args::default(), Kind::Order);
        self.inner.order(order)
    }

    fn check(&mut self) -> Result<()> {
        self.inner.check()
    }

    fn interrupt_when(&mut self, has_left: Arc<AtomicBool>) {
        self.inner.interrupt_when(has_left);
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.inner.close()
    }

    fn leave_open(self: Box<Self>) {
        self.inner.leave_open();
    }
}

/// A connection of `sqlx`, and nothing else.
pub struct Bare(PgConnection);

impl Bare {
    /// Connects to a schema, with the settings of a writer that matter for its time.
    ///
    /// # Errors
    /// Those of `sqlx`.
    pub async fn connect(url: &str, schema: &str) -> sqlx::Result<Self> {
        let options: PgConnectOptions = url.parse()?;
        let options = options.statement_cache_capacity(768).disable_statement_logging();
        let mut conn = PgConnection::connect_with(&options).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("SET search_path = {schema}"))).execute(&mut conn).await?;
        Ok(Self(conn))
    }

    /// Tells the server the same. Returns the time that it took.
    ///
    /// # Errors
    /// Those of `sqlx`.
    // The time is what is measured.
    #[allow(clippy::disallowed_methods)]
    pub async fn repeat(&mut self, told: Vec<Told>) -> sqlx::Result<Duration> {
        let began = Instant::now();
        for Told { sql, values, kind } in told {
            let sql = match sql {
                // As in a program that is written by hand.
                Cow::Borrowed(constant) => constant.into_sql_str(),
                Cow::Owned(built) => AssertSqlSafe(built).into_sql_str(),
            };
            match kind {
                Kind::Order => sqlx::raw_sql(sql).execute(&mut self.0).await.map(drop)?,
                Kind::Read => self.0.fetch_all(sqlx::query_with(sql, bind(&values)?)).await.map(drop)?,
                Kind::Write => self.0.execute(sqlx::query_with(sql, bind(&values)?)).await.map(drop)?,
            }
        }
        Ok(began.elapsed())
    }
}
