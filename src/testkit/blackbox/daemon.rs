//! A process in the background: a daemon, or a client that follows the feed. It dies with the value that holds it.

use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::lines::Lines;
use super::wait::Deadline;

/// Seconds until a daemon must serve. A debug build on a busy machine takes a few.
const READY_SECONDS: u64 = 60;
/// Seconds until a process that was told to end must have ended.
const END_SECONDS: u64 = 60;
/// Lines of its output that are shown when a test fails.
const SHOWN: usize = 60;

/// The process.
pub struct Daemon {
    child: Child,
    /// Its standard output.
    pub out: Lines,
    /// Its standard error.
    pub err: Lines,
    ended: Option<ExitStatus>,
}

impl Daemon {
    pub(super) fn spawn(command: Command) -> Self {
        Self::spawn_into(command, Stdio::piped(), Stdio::piped())
    }

    /// With standard output and standard error going there; of what is no pipe nothing is seen.
    pub(super) fn spawn_into(mut command: Command, out: Stdio, err: Stdio) -> Self {
        let mut child = command.stdout(out).stderr(err).spawn().expect("the program can be started");
        let out = child.stdout.take().map_or_else(|| Lines::of(std::io::empty()), Lines::of);
        let err = child.stderr.take().map_or_else(|| Lines::of(std::io::empty()), Lines::of);
        Self { child, out, err, ended: None }
    }

    /// Waits for the line that says that the world is up.
    ///
    /// # Panics
    /// When it does not come, with what was printed.
    pub fn wait_until_ready(&self) {
        self.wait_for_line("a world that is up", Deadline::seconds(READY_SECONDS), |line| {
            line.contains(" is up. Data: ")
        });
    }

    /// Waits for a line of standard output.
    ///
    /// # Panics
    /// When it does not come in time, or the process ends without it.
    pub fn wait_for_line(&self, what: &str, deadline: Deadline, wanted: impl Fn(&str) -> bool) -> String {
        match self.out.find(0, deadline, wanted) {
            Some((_, line)) => line,
            None => panic!("in vain waited for {what}\nstdout:\n{}stderr:\n{}", self.out.text(), self.err.text()),
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with -9, at once.
    pub fn kill(mut self) {
        self.end();
    }

    /// Sends it SIGTERM.
    ///
    /// # Panics
    /// When it is gone already.
    pub fn terminate(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::TERM).expect("the process runs");
    }

    /// Whether it has ended by itself. Does not wait.
    ///
    /// # Panics
    /// When the system does not say.
    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child can be looked at");
        }
        self.ended.is_some()
    }

    /// Waits until it has ended by itself, and gives its exit code.
    ///
    /// # Panics
    /// When it does not end in time, or a signal ended it.
    pub fn wait(&mut self) -> i32 {
        let deadline = Deadline::seconds(END_SECONDS);
        let closed = self.out.wait_for_end(deadline) && self.err.wait_for_end(deadline);
        assert!(closed, "the process did not end\nstdout:\n{}stderr:\n{}", self.out.text(), self.err.text());
        // Of one whose output is not seen, nothing tells the end.
        let status = deadline.until("the process to end", || {
            self.child.try_wait().expect("a child can be looked at").ok_or_else(|| "it runs".to_owned())
        });
        self.ended = Some(status);
        status.code().unwrap_or_else(|| panic!("ended by a signal: {status}\n{}", self.err.text()))
    }

    /// Tells it to stop in order, and waits until it has.
    ///
    /// # Panics
    /// When it does not, or not well.
    pub fn stop(mut self) {
        self.terminate();
        let code = self.wait();
        assert_eq!(code, 0, "an orderly stop\nstdout:\n{}stderr:\n{}", self.out.text(), self.err.text());
    }

    fn end(&mut self) {
        if self.ended.is_none() {
            // It may have ended meanwhile, which is what is wanted.
            drop(self.child.kill());
            self.ended = self.child.wait().ok();
        }
    }
}

impl Drop for Daemon {
    // Part of what the test says of its failure.
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            let last = |lines: &Lines| {
                let all = lines.all();
                all[all.len().saturating_sub(SHOWN)..].join("\n")
            };
            eprintln!("--- its output:\n{}\n--- its errors:\n{}", last(&self.out), last(&self.err));
        }
    }
}
