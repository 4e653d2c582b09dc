//! The environment of one test: a temporary directory with worlds, their data and a home directory. The programs
//! run in it with almost no environment variables.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ghost_store::postgres::testing::Cluster;
use serde_json::Value;
use tempfile::TempDir;

use super::daemon::Daemon;
use super::database::Database;
use super::lines::Lines;
use super::programs;
use super::wait::Deadline;
use super::world_dir::WorldDir;

/// Maximum time of a program that runs to its end.
const RUN: Duration = Duration::from_secs(120);
/// The variable with the URL of the test's cluster.
const URL: &str = "GHOST_TEST_DATABASE";

/// Which database the worlds of a test use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The default.
    Sqlite,
    /// PostgreSQL, in a cluster of the test's own.
    Postgres,
}

/// The environment of one test.
pub struct TestEnvironment {
    keep: TempDir,
    ghostd: PathBuf,
    env: BTreeMap<String, String>,
    cluster: Option<Cluster>,
}

/// The result of a program that ran to its end.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
    /// Its command line, for failure messages.
    pub call: String,
}

impl TestEnvironment {
    /// Creates an environment whose daemon is the program `ghostd`.
    #[must_use]
    pub fn new(ghostd: impl Into<PathBuf>) -> Self {
        let keep = tempfile::Builder::new().prefix("ghost").tempdir().expect("a temporary directory");
        let test_env = Self { keep, ghostd: ghostd.into(), env: BTreeMap::new(), cluster: None };
        std::fs::create_dir_all(test_env.path().join("home")).expect("a home");
        test_env
    }

    /// Creates an environment whose worlds use this database if their files have [`storage`](Self::storage). Returns
    /// `None` if this machine has no PostgreSQL; then the test is skipped.
    #[must_use]
    pub fn on(backend: Backend, ghostd: impl Into<PathBuf>) -> Option<Self> {
        let mut test_env = Self::new(ghostd);
        if backend == Backend::Postgres {
            let cluster = Cluster::start_or_skip()?;
            test_env.set(URL, cluster.url());
            test_env.cluster = Some(cluster);
        }
        Some(test_env)
    }

    /// The lines of a world file that name the database.
    #[must_use]
    pub fn storage(&self) -> String {
        self.cluster.as_ref().map_or(String::new(), |_| format!("storage: {{ backend: postgres, url_env: {URL} }}\n"))
    }

    /// The cluster of PostgreSQL.
    ///
    /// # Panics
    /// If the test uses SQLite.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        self.cluster.as_ref().expect("a test with PostgreSQL")
    }

    /// The database of a world in its default data directory. No daemon may use it.
    #[must_use]
    pub fn database(&self, world_id: &str) -> Database<'_> {
        match &self.cluster {
            Some(cluster) => Database::of_schema(cluster, &format!("ghost_{world_id}")),
            None => Database::open(&self.data(world_id)),
        }
    }

    /// Starts this program as the daemon from now on, for example a script that starts it with less.
    pub fn use_daemon(&mut self, ghostd: impl Into<PathBuf>) {
        self.ghostd = ghostd.into();
    }

    /// The temporary directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.keep.path()
    }

    /// A path in the temporary directory.
    #[must_use]
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path().join(path)
    }

    /// Copies a directory into the environment under this name, so that a test can change its files.
    ///
    /// # Panics
    /// If it cannot be copied.
    #[must_use]
    pub fn copy_of(&self, from: &Path, name: impl AsRef<Path>) -> PathBuf {
        let to = self.join(name);
        std::fs::create_dir(&to).expect("a folder");
        for entry in std::fs::read_dir(from).expect("a folder") {
            let entry = entry.expect("an entry");
            let (path, name) = (entry.path(), to.join(entry.file_name()));
            if path.is_dir() {
                let _ = self.copy_of(&path, &name);
            } else {
                std::fs::copy(&path, &name).expect("a file");
            }
        }
        to
    }

    /// The default data directory of a world.
    #[must_use]
    pub fn data(&self, world_id: &str) -> PathBuf {
        self.path().join("state").join(world_id)
    }

    /// Sets an environment variable for all programs that start later.
    pub fn set(&mut self, name: &str, value: impl AsRef<OsStr>) -> &mut Self {
        self.env.insert(name.to_owned(), value.as_ref().to_string_lossy().into_owned());
        self
    }

    /// Removes an environment variable for all programs that start later.
    pub fn unset(&mut self, name: &str) -> &mut Self {
        self.env.remove(name);
        self
    }

    /// An empty world directory with this name.
    #[must_use]
    pub fn world(&self, name: &str) -> WorldDir {
        WorldDir::new(self.path().join("worlds").join(name))
    }

    /// A command that runs `program` in this environment.
    // Only this test support starts processes.
    #[allow(clippy::disallowed_methods)]
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.path()).stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path().join("home")).env("GHOST_STATE_DIR", self.path().join("state"));
        command.envs(&self.env);
        command
    }

    /// Starts `ghostd up` and waits until it serves.
    ///
    /// # Panics
    /// If it does not serve in time; the message has its output.
    #[must_use]
    pub fn up(&self, world_dir: &Path, args: &[&str]) -> Daemon {
        let daemon = self.start(world_dir, args);
        daemon.wait_until_ready();
        daemon
    }

    /// Starts `ghostd up` without waiting.
    #[must_use]
    pub fn start(&self, world_dir: &Path, args: &[&str]) -> Daemon {
        let mut command = self.command(&self.ghostd);
        command.arg("up").arg(world_dir).args(args);
        Daemon::spawn(command)
    }

    /// Starts `ghostd up` with these outputs, without waiting.
    #[must_use]
    pub fn start_into(&self, world_dir: &Path, out: impl Into<Stdio>, err: impl Into<Stdio>) -> Daemon {
        let mut command = self.command(&self.ghostd);
        command.arg("up").arg(world_dir);
        Daemon::spawn_into(command, out.into(), err.into())
    }

    /// Runs `ghostd` to its end.
    pub fn ghostd<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        let mut command = self.command(&self.ghostd);
        command.args(args);
        run(command)
    }

    /// Runs a script with `sh`, which ends at the first command that fails. It finds the programs under test in its `PATH`.
    /// What it starts in the background goes on after its end, so its outputs must go elsewhere.
    ///
    /// # Panics
    /// If a directory of the programs has a colon in its name.
    pub fn sh(&self, script: &str) -> Ran {
        let ghostctl = programs::ghostctl();
        let mut dirs = vec![parent(&self.ghostd), parent(&ghostctl)];
        dirs.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
        let mut command = self.command(Path::new("sh"));
        command.env("PATH", std::env::join_paths(dirs).expect("directories without colons"));
        command.args(["-e", "-u", "-c", script]);
        run(command)
    }

    /// Runs `ghostctl` to its end.
    pub fn ctl<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        run(self.ctl_command(args))
    }

    /// Runs `ghostctl --json`, expects success and returns its output.
    pub fn json<S: AsRef<OsStr>>(&self, args: &[S]) -> Value {
        let mut command = self.command(&programs::ghostctl());
        command.arg("--json").args(args);
        run(command).json()
    }

    /// Whether commands run in the world that is up. If not, a test skips its rest, and the reason is on standard
    /// error.
    ///
    /// # Panics
    /// If they do not, and `GHOST_SANDBOX` says that a sandbox is required.
    #[must_use]
    pub fn has_sandbox(&self) -> bool {
        let status = self.json(&["status"]);
        let Some(why) = status["sandbox"]["absent"].as_str() else { return true };
        assert!(std::env::var("GHOST_SANDBOX").is_err(), "GHOST_SANDBOX=required: {why}");
        #[allow(clippy::print_stderr, reason = "a skipped test says so")]
        {
            eprintln!("skipped: {why}");
        }
        false
    }

    /// Starts `ghostctl` in the background, for example `events --follow`.
    #[must_use]
    pub fn ctl_in_background<S: AsRef<OsStr>>(&self, args: &[S]) -> Daemon {
        Daemon::spawn(self.ctl_command(args))
    }

    /// Runs `ghostctl` with this standard input. Returns its exit code, standard output and standard error.
    ///
    /// # Panics
    /// If it cannot be started, is ended by a signal, or prints invalid UTF-8.
    pub fn ctl_piped(&self, args: &[&str], input: &[u8]) -> (i32, String, String) {
        let mut command = self.ctl_command(args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The write fails if the program does not read everything. Its output shows why.
        drop(child.stdin.take().unwrap().write_all(input));
        let ended = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (ended.status.code().unwrap(), text(ended.stdout), text(ended.stderr))
    }

    /// The command that `ctl` runs, for tests that set its pipes themselves.
    #[must_use]
    pub fn ctl_command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = self.command(&programs::ghostctl());
        command.args(args);
        command
    }

    /// Calls `status` until no turn is open and no message waits.
    ///
    /// # Panics
    /// If the deadline passes first.
    pub fn wait_until_quiet(&self, deadline: Deadline) {
        deadline.until("a quiet world", || {
            let status = self.json(&["status"]);
            let quiet = status["open_turns"] == 0 && status["inbox_total"] == 0;
            if quiet { Ok(()) } else { Err(format!("{} turns, {} mail", status["open_turns"], status["inbox_total"])) }
        });
    }
}

fn parent(program: &Path) -> PathBuf {
    program.parent().expect("a program lies in a directory").to_owned()
}

/// Runs a command to its end.
///
/// # Panics
/// If it cannot be started or does not end in time.
fn run(mut command: Command) -> Ran {
    let call = format!("{command:?}");
    let call = call.rsplit_once("GHOST_STATE_DIR").map_or(call.clone(), |(_, rest)| rest.to_owned());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program can be started");
    let out = Lines::of(child.stdout.take().expect("piped"));
    let err = Lines::of(child.stderr.take().expect("piped"));
    let deadline = Deadline::after(RUN);
    if !(out.wait_for_end(deadline) && err.wait_for_end(deadline)) {
        // The pipes are open, so it still runs.
        drop(child.kill());
        drop(child.wait());
        panic!("{call} did not end within {} s\n{}{}", RUN.as_secs(), out.text(), err.text());
    }
    let code = child.wait().expect("a child can be waited for").code();
    Ran { code, out: out.text(), err: err.text(), call }
}

impl Ran {
    /// Asserts success.
    ///
    /// # Panics
    /// If it failed; the message has its output.
    pub fn ok(&self) -> &Self {
        self.exits(0)
    }

    /// Asserts this exit code.
    ///
    /// # Panics
    /// If it has another one; the message has its output.
    pub fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{}\nstdout: {}\nstderr: {}", self.call, self.out, self.err);
        self
    }

    /// Asserts success and parses standard output as one JSON value.
    ///
    /// # Panics
    /// If it failed or the output is no JSON.
    pub fn json(&self) -> Value {
        self.ok();
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{}: {error}\n{}", self.call, self.out))
    }

    /// Asserts success and parses each line of standard output as JSON.
    ///
    /// # Panics
    /// If it failed or a line is no JSON.
    pub fn json_lines(&self) -> Vec<Value> {
        self.ok();
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.out.lines().map(parse).collect()
    }

    /// Asserts failure and parses standard error as one JSON value.
    ///
    /// # Panics
    /// If it succeeded or standard error is no JSON.
    pub fn error(&self) -> Value {
        assert_ne!(self.code, Some(0), "{}\n{}", self.call, self.out);
        serde_json::from_str(&self.err).unwrap_or_else(|error| panic!("{}: {error}\n{}", self.call, self.err))
    }

    /// Asserts that standard error contains all of these texts.
    ///
    /// # Panics
    /// If one is missing.
    pub fn says(&self, words: &[&str]) -> &Self {
        for word in words {
            assert!(self.err.contains(word), "{} does not say `{word}`:\n{}", self.call, self.err);
        }
        self
    }
}
