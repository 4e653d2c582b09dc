//! A terminal that a host opens for the agent.
//!
//! It must never outlive its run: a dropped terminal ends its command.

use async_trait::async_trait;

/// A command that the agent wants to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalCommand {
    /// The program, or a line for a shell: agents do both, and only `args` tells.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables for it.
    pub env: Vec<(String, String)>,
    /// Its directory, as the agent names it. It is not checked.
    pub cwd: Option<String>,
    /// How much output is kept, in bytes: at most [`ANSWER_MAX`](crate::ANSWER_MAX). The end counts.
    pub output_byte_limit: usize,
}

/// How a command ended. Both are missing if that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalExit {
    /// Its exit code.
    pub code: Option<u32>,
    /// The name of the signal that ended it.
    pub signal: Option<String>,
}

/// The output of a command so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalOutput {
    /// The end of its output.
    pub output: String,
    /// Whether the beginning is missing.
    pub truncated: bool,
    /// How it ended; `None` while it runs.
    pub exit: Option<TerminalExit>,
}

/// A command that runs. Several methods may be called at the same time, and any future may be dropped. Dropping the
/// terminal ends the command and everything that it started.
#[async_trait]
pub trait Terminal: Send + Sync {
    /// The output so far. It does not wait for the end of the command.
    async fn output(&self) -> TerminalOutput;

    /// Waits for the end of the command.
    async fn wait(&self) -> TerminalExit;

    /// Ends the command. Its output can still be read. Does nothing if it has ended.
    async fn kill(&self);

    /// Ends the command, if it runs, and frees everything. It is the last call. A run gives it at most
    /// [`Timeouts::grace`](crate::Timeouts::grace).
    async fn release(&self);
}
