//! A background process: a daemon, or a client that follows the events. It is killed when its value is dropped.

use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::lines::Lines;
use super::wait::Deadline;

/// Maximum seconds until a daemon serves. A debug build on a busy machine takes a few.
const READY_SECONDS: u64 = 60;
/// Maximum seconds until a process has ended after it was asked to.
const END_SECONDS: u64 = 60;
/// Number of output lines that are shown if a test fails.
const SHOWN: usize = 60;

/// The background process.
pub struct Daemon {
    child: Child,
    /// Lines of its standard output.
    pub out: Lines,
    /// Lines of its standard error.
    pub err: Lines,
    ended: Option<ExitStatus>,
}

impl Daemon {
    pub(super) fn spawn(command: Command) -> Self {
        Self::spawn_into(command, Stdio::piped(), Stdio::piped())
    }

    /// Starts it with these outputs. The lines are only available for outputs that are pipes.
    pub(super) fn spawn_into(mut command: Command, out: Stdio, err: Stdio) -> Self {
        let mut child = command.stdout(out).stderr(err).spawn().expect("the program can be started");
        let out = child.stdout.take().map_or_else(|| Lines::of(std::io::empty()), Lines::of);
        let err = child.stderr.take().map_or_else(|| Lines::of(std::io::empty()), Lines::of);
        Self { child, out, err, ended: None }
    }

    /// Waits for the line that says that the world is up.
    ///
    /// # Panics
    /// If the line does not arrive; the message has the output.
    pub fn wait_until_ready(&self) {
        self.wait_for_line("a world that is up", Deadline::seconds(READY_SECONDS), |line| {
            line.contains(" is up. Data: ")
        });
    }

    /// Waits for a line of standard output.
    ///
    /// # Panics
    /// If the line does not arrive in time, or the process ends first.
    pub fn wait_for_line(&self, what: &str, deadline: Deadline, wanted: impl Fn(&str) -> bool) -> String {
        match self.out.find(0, deadline, wanted) {
            Some((_, line)) => line,
            None => panic!("no {what} in time\nstdout:\n{}stderr:\n{}", self.out.text(), self.err.text()),
        }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL.
    pub fn kill(mut self) {
        self.end();
    }

    /// Sends it SIGTERM.
    ///
    /// # Panics
    /// If it has already ended.
    pub fn terminate(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(pid, Signal::TERM).expect("the process runs");
    }

    /// Whether it has ended by itself. Does not wait.
    ///
    /// # Panics
    /// If the system call fails.
    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("the state of a child process");
        }
        self.ended.is_some()
    }

    /// Waits until it has ended by itself. Returns its exit code.
    ///
    /// # Panics
    /// If it does not end in time, or a signal ended it.
    pub fn wait(&mut self) -> i32 {
        let deadline = Deadline::seconds(END_SECONDS);
        let closed = self.out.wait_for_end(deadline) && self.err.wait_for_end(deadline);
        assert!(closed, "the process did not end\nstdout:\n{}stderr:\n{}", self.out.text(), self.err.text());
        // If the outputs are not pipes, they did not show the end.
        let status = deadline.until("the process to end", || {
            self.child.try_wait().expect("the state of a child process").ok_or_else(|| "it runs".to_owned())
        });
        self.ended = Some(status);
        status.code().unwrap_or_else(|| panic!("ended by a signal: {status}\n{}", self.err.text()))
    }

    /// Sends SIGTERM and waits until it has ended.
    ///
    /// # Panics
    /// If it does not end in time, or with an exit code other than 0.
    pub fn stop(mut self) {
        self.terminate();
        let code = self.wait();
        assert_eq!(code, 0, "an orderly stop\nstdout:\n{}stderr:\n{}", self.out.text(), self.err.text());
    }

    fn end(&mut self) {
        if self.ended.is_none() {
            // An error means that it has ended in the meantime.
            drop(self.child.kill());
            self.ended = self.child.wait().ok();
        }
    }
}

impl Drop for Daemon {
    // The output is part of the failure message of a test.
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        self.end();
        if std::thread::panicking() {
            let last = |lines: &Lines| {
                let all = lines.all();
                all[all.len().saturating_sub(SHOWN)..].join("\n")
            };
            eprintln!("--- stdout:\n{}\n--- stderr:\n{}", last(&self.out), last(&self.err));
        }
    }
}
