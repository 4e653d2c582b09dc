//! A connection to PostgreSQL, spoken to from a thread that may wait.
//!
//! A link must never give a connection back in an unknown state: one that failed, was interrupted or took too long is
//! dropped. The server undoes what it had open (`sqlx` issue 4393 is about pools, and there is none).

use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::runtime::Runtime;

use crate::error::{Result, StoreError};

/// How long a connection may take to open.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a statement may take, on a server that answers.
const STATEMENT_MS: u32 = 60_000;

/// How long an answer may take before the server counts as gone.
const ANSWER: Duration = Duration::from_secs(75);

/// Number of prepared statements that a connection caches.
const STATEMENTS: usize = 768;

/// Settings of each session. The server notices a client that is gone in half a minute, and ends its statement in a second.
/// Otherwise it would keep the lock of the schema for hours.
const SESSION: &str = "SET client_min_messages = warning; SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; \
    SET tcp_keepalives_count = 3; SET tcp_user_timeout = 30000; SET client_connection_check_interval = 1000; \
    SET synchronous_commit = on;";

/// A schema of a database.
pub(super) struct Target {
    options: PgConnectOptions,
    /// The schema's name. It needs no quotes.
    pub(super) schema: String,
    /// How messages name the database: without its password.
    pub(super) name: Arc<Path>,
}

impl Target {
    /// Reads a URL.
    ///
    /// Errors: [`StoreError::Open`]. The text does not contain the URL.
    pub(super) fn parse(url: &str, schema: &str) -> Result<Self> {
        let refused = |what: String| StoreError::Open { path: "PostgreSQL".into(), what };
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if !schema.starts_with(|c: char| c.is_ascii_lowercase()) || schema.len() > 63 || !schema.chars().all(word) {
            return Err(refused(format!("`{schema}` is not the name of a schema")));
        }
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(refused("its URL must begin with `postgres://`".to_owned()));
        }
        let options = PgConnectOptions::from_str(url)
            .map_err(|_| refused("its URL cannot be read: write postgres://user:password@host:port/database".into()))?;
        let host =
            options.get_socket().map_or_else(|| options.get_host().to_owned(), |path| path.display().to_string());
        let database = options.get_database().unwrap_or(options.get_username());
        let name = format!("{database} on {host}:{}, schema {schema}", options.get_port());
        let options =
            options.application_name("ghostd").statement_cache_capacity(STATEMENTS).disable_statement_logging();
        Ok(Self { options, schema: schema.to_owned(), name: PathBuf::from(name).into() })
    }
}

/// A connection, which is opened when it is needed.
pub(super) struct Link {
    // Dropped before its runtime.
    conn: Option<PgConnection>,
    runtime: Runtime,
    target: Arc<Target>,
}

impl Link {
    /// A link that is not connected.
    pub(super) fn new(target: Arc<Target>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| StoreError::Busy(format!("the system gives the store no runtime: {error}")))?;
        Ok(Self { conn: None, runtime, target })
    }

    /// What it is connected to.
    pub(super) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Whether it is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.conn.is_some()
    }

    /// Drops the connection.
    pub(super) fn disconnect(&mut self) {
        // Its socket is registered with the runtime.
        let _guard = self.runtime.enter();
        self.conn = None;
    }

    /// Connects, if it is not connected. Each session has the schema as its only path.
    ///
    /// Errors: [`StoreError::Open`].
    pub(super) fn connect(&mut self) -> Result<()> {
        if self.conn.is_some() {
            return Ok(());
        }
        let options = &self.target.options;
        let setup =
            format!("{SESSION} SET statement_timeout = {STATEMENT_MS}; SET search_path = \"{}\";", self.target.schema);
        let connected = self.runtime.block_on(async {
            let opening = async {
                let mut conn = PgConnection::connect_with(options).await?;
                // The name is a word; see `Target::parse`.
                sqlx::raw_sql(sqlx::AssertSqlSafe(setup)).execute(&mut conn).await?;
                Ok(conn)
            };
            // The connection is dropped with the wait, and has no transaction. The simulation has no PostgreSQL.
            #[allow(clippy::disallowed_methods)]
            let opened = tokio::time::timeout(CONNECT, opening).await;
            opened.unwrap_or_else(|_| Err(no_answer()))
        });
        match connected {
            Ok(conn) => self.conn = Some(conn),
            Err(error) => return Err(opening(&self.target.name, &error)),
        }
        Ok(())
    }

    /// Uses the connection. If it is lost, or does not answer in time, it is dropped.
    pub(super) fn with<T>(&mut self, work: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>) -> sqlx::Result<T> {
        let Some(conn) = &mut self.conn else { return Err(not_connected()) };
        let done = self.runtime.block_on(async {
            // If the time is up, the connection is dropped, not used again: no transaction outlives this.
            #[allow(clippy::disallowed_methods)]
            let done = tokio::time::timeout(ANSWER, work(conn)).await;
            done.unwrap_or_else(|_| Err(no_answer()))
        });
        if done.as_ref().is_err_and(is_lost) {
            self.disconnect();
        }
        done
    }

    /// As [`with`](Self::with), with an error of the store.
    pub(super) fn run<T>(&mut self, work: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>) -> Result<T> {
        let done = self.with(work);
        done.map_err(|error| from_postgres(&self.target.name, &error))
    }

    /// Runs statements without values, in one message.
    pub(super) fn script(&mut self, sql: &'static str) -> Result<()> {
        self.run(async |conn| sqlx::raw_sql(sql).execute(conn).await.map(drop))
    }

    /// As [`script`](Self::script), for a text that was built of words and numbers of this program.
    pub(super) fn built(&mut self, sql: String) -> Result<()> {
        self.run(async |conn| sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(conn).await.map(drop))
    }

    /// The number that a query without values returns.
    pub(super) fn number(&mut self, sql: &'static str) -> Result<Option<i64>> {
        self.run(async |conn| sqlx::query(sql).fetch_optional(conn).await?.map_or(Ok(None), |row| row.try_get(0)))
    }

    /// Closes the connection in order.
    pub(super) fn close(mut self) -> Result<()> {
        let Some(conn) = self.conn.take() else { return Ok(()) };
        let closed = self.runtime.block_on(conn.close());
        closed.map_err(|error| from_postgres(&self.target.name, &error))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// The server sent no answer in time.
pub(super) fn no_answer() -> sqlx::Error {
    sqlx::Error::Io(IoError::new(ErrorKind::TimedOut, "the server does not answer"))
}

/// There is no connection.
pub(super) fn not_connected() -> sqlx::Error {
    sqlx::Error::Io(IoError::new(ErrorKind::NotConnected, "the connection to the server is lost"))
}

/// The query's caller has left.
pub(super) fn interrupted() -> sqlx::Error {
    sqlx::Error::Io(IoError::new(ErrorKind::Interrupted, "the caller of the query has left"))
}

fn code(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned())
}

/// Whether the connection can no longer be used. It is unknown whether the server has followed its last order.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(_) => {
            code(error).is_some_and(|code| code.starts_with("08") || code.starts_with("57P") || code == "25P03")
        }
        sqlx::Error::RowNotFound | sqlx::Error::ColumnIndexOutOfBounds { .. } | sqlx::Error::Encode(_) => false,
        _ => true,
    }
}

/// What the error says. `sqlx` adds the line in the server's own source, which no user looks for.
fn text(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

/// The rule of a table that a row broke, if that is the error. Then the statement has changed nothing.
pub(super) fn broken_rule(error: &sqlx::Error) -> Option<String> {
    code(error).filter(|code| code.starts_with("23")).map(|_| text(error))
}

/// Maps an error of a statement.
pub(super) fn from_postgres(name: &Path, error: &sqlx::Error) -> StoreError {
    let (name, says) = (name.display(), text(error));
    if is_lost(error) {
        return StoreError::Busy(format!("{name}: {says}: the store connects again by itself"));
    }
    let Some(code) = code(error) else { return StoreError::Database(format!("{says} ({name})")) };
    match code.as_str() {
        "53100" => StoreError::Full,
        "25006" => {
            StoreError::ReadOnly(format!("{name} is a standby or read-only: give the URL of the primary ({says})"))
        }
        "42501" => StoreError::ReadOnly(format!("{name}: check the rights of the role ({says})")),
        // All statements are constants of this program and match the schema version. So if a table or column is missing,
        // the schema is damaged.
        "42P01" | "42703" | "3F000" | "XX001" | "XX002" => {
            StoreError::Damaged { path: name.to_string().into(), what: says }
        }
        // Memory, connections, locks, a deadlock, a statement that took too long.
        _ if ["53", "40", "55", "57"].iter().any(|class| code.starts_with(class)) => {
            StoreError::Busy(format!("{name}: {says}"))
        }
        _ => StoreError::Database(format!("{says} ({name}, SQLSTATE {code})")),
    }
}

/// Maps an error of a connection that does not open, or of a schema that cannot be made.
pub(super) fn opening(name: &Path, error: &sqlx::Error) -> StoreError {
    let hint = match (code(error).as_deref(), error) {
        (Some("28P01" | "28000"), _) => "check the user and the password in its URL, and pg_hba.conf",
        (Some("3D000"), _) => "create the database, or correct its name in the URL",
        (Some("42501"), _) => "grant the role CONNECT and CREATE on the database, or make it the owner of the schema",
        (Some("53300"), _) => "the server has no connection left: raise max_connections, or close others",
        (Some("57P03"), _) => "the server is starting or stopping: wait",
        (_, sqlx::Error::Tls(_)) => "check `sslmode` in its URL, and the server's certificate",
        (None, _) => "check that the server runs and that host and port of its URL are right",
        _ => "see the log of the server",
    };
    StoreError::Open { path: name.to_owned(), what: format!("{}: {hint}", text(error)) }
}
