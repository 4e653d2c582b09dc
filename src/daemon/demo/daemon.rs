//! A daemon as a child process that is watched by what it prints, and killed or stopped.
//!
//! Must never: leave the process behind.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use ghost_domain::{Code, Refusal};
use rustix::process::{Pid, Signal, kill_process};

use crate::terminal::{RESULT, SERVING};

/// How long a daemon may print nothing before the demonstration gives up.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// For how long a world is silent in which everything is done. One that only seems so is started again.
const QUIET: Duration = Duration::from_secs(1);

/// Lines that wait to be read. A daemon with more waits until they are.
const LINES_MAX: usize = 1_024;

/// How long a daemon is watched.
#[derive(Clone, Copy)]
pub(super) enum Until {
    /// Until its agents have done so many things, or the job is done.
    Things(usize),
    /// Until the job is done.
    Done,
    /// Until its agents seem to have nothing more to do.
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
    /// Starts one.
    ///
    /// # Errors
    /// When the program cannot be run.
    // The sandbox room is for what agents run; this is the daemon itself.
    #[allow(clippy::disallowed_methods)]
    pub(super) fn start(program: &Path, world_dir: &Path, data: &Path, input: &Path) -> Result<Self, Refusal> {
        let args = [OsStr::new("up"), world_dir.as_os_str(), OsStr::new("--data"), data.as_os_str()];
        let mut child = Command::new(program)
            .args(args)
            .arg("--input")
            .arg(input)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| Refusal::new(Code::Unavailable, format!("cannot run {}: {error}", program.display())))?;
        let (tell, lines) = sync_channel(LINES_MAX);
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                // It ends with the process, or when nobody listens any more.
                BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
            });
        }
        Ok(Self { child, lines, serving: false, seen: 0, last: String::new() })
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How many things it has said that agents did.
    pub(super) fn seen(&self) -> usize {
        self.seen
    }

    /// Watches what it prints. Whether it saw the end of the job.
    ///
    /// # Errors
    /// When it ends by itself, or prints nothing for two minutes while there is work.
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
            // The lines before say where it listens.
            self.seen += usize::from(self.serving);
            self.serving |= line.starts_with(SERVING);
            if matches!(until, Until::Things(most) if self.seen >= most) {
                return Ok(false);
            }
        }
    }

    /// Kills it with SIGKILL.
    pub(super) fn kill(mut self) -> Result<(), Refusal> {
        self.child.kill().and_then(|()| self.child.wait()).map(drop).map_err(|error| unended(&error))
    }

    /// Stops it in order.
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
        // One that has ended is not there to be killed.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

fn unended(error: &std::io::Error) -> Refusal {
    Refusal::new(Code::Unavailable, format!("the daemon could not be ended: {error}"))
}
