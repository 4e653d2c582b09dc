//! A daemon as a child process. It is observed through its output, and killed or stopped.
//!
//! The process must never outlive this value.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
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

/// Lines of a daemon's log that a failure shows.
const KEPT: usize = 10;

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
    /// The last lines of its standard error, if they are not shown.
    kept: Arc<Mutex<VecDeque<String>>>,
}

impl Daemon {
    /// Starts a daemon. Its files and its socket are in `data`, whatever the world file says. Its log is shown if the
    /// output is `verbose`. Otherwise its last lines are kept for the failure: a warning about this machine, repeated by
    /// each start, would look like a failure of the demonstration.
    ///
    /// # Errors
    /// If the program cannot be run.
    // The ban on processes is for programs that agents run. This is the daemon itself.
    #[allow(clippy::disallowed_methods)]
    pub(super) fn start(
        program: &Path,
        world_dir: &Path,
        data: &Path,
        input: &Path,
        verbose: bool,
    ) -> Result<Self, Refusal> {
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
            // Whatever database the world has: the demonstration must not touch it.
            .args(["--store", "sqlite"])
            // Its pointer, too, is beside the data.
            .env("GHOST_STATE_DIR", data.parent().unwrap_or(data))
            .arg("--input")
            .arg(input)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(if verbose { Stdio::inherit() } else { Stdio::piped() })
            .spawn()
            .map_err(|error| Refusal::new(Code::Unavailable, format!("cannot run {}: {error}", program.display())))?;
        let (sender, lines) = sync_channel(LINES_MAX);
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                // It ends with the process, or when the receiver is dropped.
                BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
            });
        }
        let kept = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(log) = child.stderr.take() {
            let kept = Arc::clone(&kept);
            std::thread::spawn(move || keep(BufReader::new(log), &kept));
        }
        Ok(Self { child, lines, serving: false, seen: 0, last: String::new(), kept })
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
                    let refusal = Refusal::new(Code::Unavailable, format!("the daemon ended by itself ({how})"));
                    return Err(match self.printed() {
                        printed if printed.is_empty() => refusal.hint("`--verbose` shows what it printed"),
                        printed => refusal.hint(format!("it printed:\n{printed}")),
                    });
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

    /// The last lines of its log.
    fn printed(&self) -> String {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().map(|line| format!("    {line}\n")).collect::<String>().trim_end().to_owned()
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

/// Keeps the last lines of a log until it ends.
fn keep(log: impl BufRead, kept: &Mutex<VecDeque<String>>) {
    for line in log.lines().map_while(Result::ok) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(line);
    }
}

fn unended(error: &std::io::Error) -> Refusal {
    Refusal::new(Code::Unavailable, format!("the daemon could not be ended: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_log_are_kept() {
        let (log, kept) = ((0..50).map(|n| format!("line {n}\n")).collect::<String>(), Mutex::new(VecDeque::new()));
        keep(log.as_bytes(), &kept);
        let kept = kept.into_inner().unwrap();
        assert_eq!((kept.len(), kept.back().map(String::as_str)), (KEPT, Some("line 49")));
    }
}
