//! PostgreSQL for tests and measurements: a cluster of their own, and a record of what a writer tells its server, which is
//! repeated through bare `sqlx` as the floor of a measurement.
//!
//! It must never be part of a release build.

// This is part of tests. It is also compiled for those of other crates, with the feature `testing`.
#![allow(clippy::unwrap_used)]

use std::borrow::Cow;
use std::fs::File;
use std::io::Seek as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::types::Value;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, SqlSafeStr as _};
use tempfile::TempDir;

use super::driver::bind;
use crate::driver::{Driver, Failure, NextRow, Order};
use crate::error::Result;
use crate::row::Args;
use crate::sql::{Dialect, Sql, Statement};

/// A cluster in a directory of its own. It ends with the test, never runs as root and listens to no network.
pub struct Cluster {
    programs: PathBuf,
    /// Who runs it, if not the user of the test.
    uid: Option<u32>,
    dir: TempDir,
    options: &'static str,
}

/// Debian keeps the programs of each version apart, and not in PATH.
fn programs() -> Result<PathBuf, String> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").map_err(|error| format!("/usr/lib/postgresql: {error}"))?;
    let mut found: Vec<PathBuf> = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).collect();
    found.retain(|dir| ["initdb", "pg_ctl", "psql"].iter().all(|program| dir.join(program).is_file()));
    found.sort();
    found.pop().ok_or_else(|| "PostgreSQL is not installed".to_owned())
}

/// The user of the cluster: that of the test, or the one that `GHOST_TEST_UID` names if the test runs as root.
fn user(dir: &Path) -> Result<Option<u32>, String> {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let own = std::fs::metadata(dir).map_err(|error| error.to_string())?.uid();
    if own != 0 {
        return Ok(None);
    }
    let uid = std::env::var("GHOST_TEST_UID").ok().and_then(|uid| uid.parse().ok());
    let uid: u32 = uid.ok_or("PostgreSQL refuses to run as root; name another user in GHOST_TEST_UID")?;
    chown(dir, Some(uid), Some(uid)).map_err(|error| error.to_string())?;
    Ok(Some(uid))
}

impl Cluster {
    /// Starts one. The error says what this machine lacks.
    ///
    /// # Panics
    /// If its programs fail.
    pub fn start() -> Result<Self, String> {
        Self::start_with("-c fsync=off")
    }

    /// Starts one that waits for its disk, as one in use does.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn start_durable() -> Result<Self, String> {
        Self::start_with("")
    }

    fn start_with(options: &'static str) -> Result<Self, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let cluster = Self { programs: programs()?, uid: user(dir.path())?, dir, options };
        let made =
            ["-D", &cluster.path("data"), "-U", "ghost", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"];
        cluster.run("initdb", &made).unwrap();
        cluster.resume();
        Ok(cluster)
    }

    /// Starts the server again after [`stop`](Self::stop).
    ///
    /// # Panics
    /// If it does not start.
    pub fn resume(&self) {
        let options = format!("{} -c listen_addresses= -k {}", self.options, self.dir.path().display());
        let (data, log) = (self.path("data"), self.path("log"));
        self.run("pg_ctl", &["-D", &data, "-l", &log, "-o", &options, "-w", "start"]).unwrap();
    }

    /// Stops the server at once, as a crash of its machine does.
    ///
    /// # Panics
    /// If it does not run.
    pub fn stop(&self) {
        self.run("pg_ctl", &["-D", &self.path("data"), "-m", "immediate", "-w", "stop"]).unwrap();
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The directory of its socket.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.dir.path()
    }

    /// Starts one, or says that the calling test is skipped and returns `None`.
    ///
    /// # Panics
    /// If `GHOST_POSTGRES` is set and there is none.
    #[must_use]
    pub fn start_or_skip() -> Option<Self> {
        match Self::start() {
            Ok(cluster) => Some(cluster),
            Err(why) => {
                assert!(std::env::var("GHOST_POSTGRES").is_err(), "GHOST_POSTGRES=required: {why}");
                #[allow(clippy::print_stderr, reason = "a skipped test says so")]
                {
                    eprintln!("skipped: {why}");
                }
                None
            }
        }
    }

    /// The URL of its database `postgres`. It is reached through a socket in its directory.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://ghost@localhost/postgres?host={}", self.dir.path().display())
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        run(&self.programs.join(program), arguments, self.uid)
    }

    /// Runs statements in one session; see [`psql`].
    pub fn psql(&self, sql: &str) -> Result<String, String> {
        psql(&self.url(), sql)
    }
}

/// Runs a program. Returns what it wrote to its output; the error is what it wrote as errors.
fn run(program: &Path, arguments: &[&str], uid: Option<u32>) -> Result<String, String> {
    #[allow(clippy::disallowed_methods, reason = "a test starts a database of its own")]
    let mut command = Command::new(program);
    // The directory of the test may be one that the other user cannot enter.
    command.args(arguments).current_dir("/");
    if let Some(uid) = uid {
        command.uid(uid).gid(uid);
    }
    // The server outlives `pg_ctl`, so it must not have a pipe that is read to its end.
    let (mut out, mut errors) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let status = command.stdout(out.try_clone().unwrap()).stderr(errors.try_clone().unwrap()).status().unwrap();
    let text = |file: &mut File| {
        file.rewind().unwrap();
        std::io::read_to_string(file).unwrap()
    };
    if status.success() { Ok(text(&mut out)) } else { Err(format!("{}: {}", program.display(), text(&mut errors))) }
}

/// Runs statements in one session, at a URL. Stops at the first that fails. Returns the rows, a line each.
///
/// # Panics
/// If psql is not there.
pub fn psql(url: &str, sql: &str) -> Result<String, String> {
    let psql = programs().unwrap().join("psql");
    run(&psql, &["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql], None)
}

/// Makes a schema at a URL as if it were new, if it is there. To make another one would take ten times as long.
///
/// # Panics
/// If a statement fails.
pub fn empty(url: &str, schema: &str) {
    let there = format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}' AND tablename = 'counters'");
    if psql(url, &there).unwrap().trim() != "1" {
        return;
    }
    let kept = format!(
        "CREATE TEMP TABLE kept AS SELECT * FROM {schema}.counters WHERE name IN ('batches', 'schema_version')"
    );
    let empty = format!(
        "DO $$ DECLARE t TEXT; BEGIN FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' LOOP \
         EXECUTE format('DELETE FROM {schema}.%I', t); END LOOP; END $$"
    );
    psql(url, &format!("{kept}; {empty}; INSERT INTO {schema}.counters SELECT * FROM kept")).unwrap();
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A test may have stopped it.
        drop(self.run("pg_ctl", &["-D", &self.path("data"), "-m", "immediate", "-w", "stop"]));
    }
}

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
