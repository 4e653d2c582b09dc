//! A PostgreSQL cluster of a test's own.
//!
//! It must never run as root, listen to a network, or stay after the test.

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
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let cluster = Self { programs: programs()?, uid: user(dir.path())?, dir };
        let data = cluster.dir.path().join("data").display().to_string();
        let made = ["-D", &data, "-U", "ghost", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"];
        cluster.run("initdb", &made).unwrap();
        let options = format!("-c fsync=off -c listen_addresses= -k {}", cluster.dir.path().display());
        let log = cluster.dir.path().join("log").display().to_string();
        cluster.run("pg_ctl", &["-D", &data, "-l", &log, "-o", &options, "-w", "start"]).unwrap();
        Ok(cluster)
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

    /// Runs a program of PostgreSQL. Returns what it wrote to its output; the error is what it wrote as errors.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        #[allow(clippy::disallowed_methods, reason = "a test starts a database of its own")]
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).current_dir(self.dir.path());
        if let Some(uid) = self.uid {
            command.uid(uid).gid(uid);
        }
        // The server outlives `pg_ctl`, so it must not have a pipe that is read to its end.
        let (out, errors) = (self.dir.path().join("out"), self.dir.path().join("errors"));
        let file = |path: &Path| std::fs::File::create(path).unwrap();
        let status = command.stdout(file(&out)).stderr(file(&errors)).status().unwrap();
        let text = |path: &Path| std::fs::read_to_string(path).unwrap();
        if status.success() { Ok(text(&out)) } else { Err(format!("{program}: {}", text(&errors))) }
    }

    /// Runs statements in one session. Stops at the first that fails.
    ///
    /// # Panics
    /// If the script cannot be written.
    pub fn psql(&self, sql: &str) -> Result<String, String> {
        let (dir, script) = (self.dir.path().display().to_string(), self.dir.path().join("script.sql"));
        std::fs::write(&script, sql).unwrap();
        let script = script.display().to_string();
        self.run(
            "psql",
            &["-XqAt", "-v", "ON_ERROR_STOP=1", "-h", &dir, "-U", "ghost", "-d", "postgres", "-f", &script],
        )
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let data = self.dir.path().join("data").display().to_string();
        drop(self.run("pg_ctl", &["-D", &data, "-m", "immediate", "-w", "stop"]));
    }
}
