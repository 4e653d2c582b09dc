//! A PostgreSQL cluster of a test's own.
//!
//! It must never run as root, listen to a network, or stay after the test.

// This is part of tests. It is also compiled for those of other crates, with the feature `testing`.
#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::Seek as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A cluster in a directory of its own. It ends with the test.
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
