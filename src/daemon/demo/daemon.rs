//! A daemon as a child process. It is observed through its output, and killed or stopped.
//!
//! The process must never outlive this value.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use ghost_domain::{Code, Refusal};
use rustix::process::{Pid, Signal, kill_process};

use crate::data_dir::SOCKET;
use crate::terminal::{RESULT, SERVING};
use crate::workspace_dir::WORKSPACE;

/// Maximum time without output before the demonstration fails.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// Time without output after which the world is treated as finished. If it still has work, it is
/// started again.
const QUIET: Duration = Duration::from_secs(1);

/// Capacity of the channel of output lines. A full channel blocks the daemon's output.
const LINES_MAX: usize = 1_024;

/// How long to watch a daemon.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// Until it has printed this many actions of agents, or the job is done.
    Actions(usize),
    /// Until the job is done.
    Done,
    /// Until it is silent for [`QUIET`].
    Quiet,
}

/// A running `ghostd up`.
pub(super) struct Daemon {
    child: Child,
    lines: Receiver<String>,
    serving: bool,
    seen: usize,
    last: String,
}

impl Daemon {
    /// Starts a daemon. Its files and its socket are in `data`, whatever the world file says.
    ///
    /// # Errors
    /// If the program cannot be run.
    // The ban on processes is for programs that agents run. This is the daemon itself.
    #[allow(clippy::disallowed_methods)]
    pub(super) fn start(program: &Path, world_dir: &Path, data: &Path, input: &Path) -> Result<Self, Refusal> {
        let mut socket = OsString::from("unix:");
        socket.push(data.join(SOCKET));
        let mut child = Command::new(program)
            .arg("up")
            .arg(world_dir)
            .arg("--data")
            .arg(data)
            .arg("--workspace")
            .arg(data.join(WORKSPACE))
            .arg("--listen")
            .arg(socket)
            .args(["--http", "off"])
            // Its pointer, too, is beside the data.
            .env("GHOST_STATE_DIR", data.parent().unwrap_or(data))
            .arg("--input")
            .arg(input)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Refusal::new(Code::Unavailable, format!("cannot run {}: {error}", program.display())))?;
        let (sender, lines) = sync_channel(LINES_MAX);
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                // It ends with the process, or when the receiver is dropped.
                BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
            });
        }
        Ok(Self { child, lines, serving: false, seen: 0, last: String::new() })
    }

    /// Process id of the daemon.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Number of agents' actions that it has printed.
    pub(super) fn seen(&self) -> usize {
        self.seen
    }

    /// Reads its output. Returns whether the job is done.
    ///
    /// # Errors
    /// If it ends by itself, or prints nothing for two minutes while it starts or works.
    pub(super) fn watch(&mut self, until: Until, show: &mut dyn FnMut(&str)) -> Result<bool, Refusal> {
        loop {
            let quiet = matches!(until, Until::Quiet) && self.serving;
            let line = match self.lines.recv_timeout(if quiet { QUIET } else { SILENCE_MAX }) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) if quiet => return Ok(false),
                Err(RecvTimeoutError::Timeout) => {
                    let (silence, last) = (SILENCE_MAX.as_secs(), self.last.trim());
                    let what = format!("the daemon has printed nothing for {silence} s after `{last}`");
                    return Err(Refusal::new(Code::Timeout, what).hint("`--verbose` shows what it printed before"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let how = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
                    return Err(Refusal::new(Code::Unavailable, format!("the daemon ended by itself ({how})")));
                }
            };
            show(&line);
            self.last.clone_from(&line);
            if line.starts_with(RESULT) && !quiet {
                return Ok(true);
            }
            // The lines before the line `serving` are not actions.
            self.seen += usize::from(self.serving);
            self.serving |= line.starts_with(SERVING);
            if matches!(until, Until::Actions(limit) if self.seen >= limit) {
                return Ok(false);
            }
        }
    }

    /// Kills it with SIGKILL.
    pub(super) fn kill(mut self) -> Result<(), Refusal> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(|error| unended(&error))
    }

    /// Stops it with SIGTERM and waits for its end.
    pub(super) fn stop(mut self) -> Result<(), Refusal> {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            kill_process(id, Signal::TERM).map_err(|error| unended(&error.into()))?;
        }
        self.child.wait().map(drop).map_err(|error| unended(&error))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn unended(error: &std::io::Error) -> Refusal {
    Refusal::new(Code::Unavailable, format!("the daemon could not be ended: {error}"))
}
