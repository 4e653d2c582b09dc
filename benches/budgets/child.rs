//! Helper processes: this program with another task, or the daemon.
//!
//! No helper process may outlive the benchmark.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

use crate::measure::Outcome;

/// The first argument of a helper process. The name of its task follows.
pub const PART: &str = "--part";

/// Path of the daemon that cargo built for this run.
pub const GHOSTD: &str = env!("CARGO_BIN_EXE_ghostd");

/// A process that is killed when this value is dropped.
pub struct Child {
    process: std::process::Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts this program with the task `name`. [`line`](Self::line) reads its output.
    pub fn part(name: &str, arguments: &[&str]) -> Outcome<Self> {
        Self::start(&std::env::current_exe()?, &[&[PART, name], arguments].concat(), Stdio::piped())
    }

    /// Starts the daemon for a world, with its data in `data`.
    pub fn daemon(world: &Path, data: &Path) -> Outcome<Self> {
        let (world, data) = (world.display().to_string(), data.display().to_string());
        Self::start(Path::new(GHOSTD), &["up", &world, "--data", &data], Stdio::null())
    }

    // The ban on processes concerns programs that agents run. These processes are the servers of
    // the benchmark.
    #[allow(clippy::disallowed_methods)]
    fn start(program: &Path, arguments: &[&str], out: Stdio) -> Outcome<Self> {
        let mut process = Command::new(program)
            .args(arguments)
            .env("GHOST_LOG", "error")
            // The pointers of these worlds are not among those of the user's own.
            .env("GHOST_STATE_DIR", std::env::temp_dir().join("ghost-benches"))
            .stdin(Stdio::piped())
            .stdout(out)
            .spawn()?;
        let lines = process.stdout.take().map(BufReader::new);
        Ok(Self { process, lines })
    }

    /// The next line of the output of the process. Blocks.
    pub fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if let Some(lines) = &mut self.lines {
            lines.read_line(&mut line)?;
        }
        match line.trim() {
            "" => Err("a helper process ended without a word".into()),
            line => Ok(line.to_owned()),
        }
    }

    /// The peak memory of the process, in bytes.
    pub fn peak_rss(&self) -> Outcome<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the kernel shows no VmHWM")?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
        Ok(kilobytes * 1_024)
    }

    /// Sends SIGTERM and waits for the end of the process.
    pub fn terminate(mut self) -> Outcome<()> {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // An error means that it has already ended.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
