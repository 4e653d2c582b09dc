//! What a run gets: the task, its times, and the streams of the agent; and the bounds that it keeps.
//!
//! No bound is lifted for an agent that asks for more: the run ends, or the agent gets an error.

use std::fmt;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};

/// The id of an agent's session. It is opaque: it is given back as it came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(pub String);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The pipes of the agent's process. They are closed when the run ends.
pub struct Streams {
    /// The agent's standard output.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// The agent's standard input.
    pub input: Box<dyn AsyncWrite + Send + Unpin>,
}

/// One task for the agent.
#[derive(Clone, Debug)]
pub struct Task {
    /// The directory of the session as the agent sees it: an absolute path.
    pub cwd: String,
    /// What to do. At most [`PROMPT_MAX`](crate::PROMPT_MAX) bytes.
    pub prompt: String,
    /// The session to go on with. Without it, the agent makes a new one.
    pub resume: Option<SessionId>,
    /// How long things may take.
    pub timeouts: Timeouts,
}

/// How long a run may take. Every wait of a run ends with one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the session is there. It includes [`Host::session`](crate::Host::session).
    pub start: Duration,
    /// Until the prompt is answered, from the beginning of the run.
    pub total: Duration,
    /// How long the agent may take to answer `session/cancel`, and terminals to end.
    pub grace: Duration,
}

impl Default for Timeouts {
    /// A minute, half an hour, and ten seconds.
    fn default() -> Self {
        Self { start: Duration::from_secs(60), total: Duration::from_secs(1800), grace: Duration::from_secs(10) }
    }
}

/// The longest line that the agent may send, in bytes. A longer one ends the run.
pub const LINE_MAX: usize = 8 * 1024 * 1024;

/// Requests of the agent without a written answer. While there are so many, no more of its output is read.
pub const OPEN_MAX: usize = 64;

/// Requests that wait for a person or for the end of a command. More get an error at once: the rest of [`OPEN_MAX`]
/// stays free for what ends them.
pub const WAITING_MAX: usize = 32;

/// Bytes of files that are written at the same time. More get an error.
pub const WRITING_MAX: usize = 16 * 1024 * 1024;

/// The longest text in an answer to the agent, in bytes: a file or the output of a command.
pub const ANSWER_MAX: usize = 1024 * 1024;

/// The longest prompt, in bytes.
pub const PROMPT_MAX: usize = 1024 * 1024;

/// The longest id of a session, in bytes.
pub const SESSION_MAX: usize = 1024;

/// Lines that are not messages of the protocol. They are skipped, and one more ends the run.
pub const GARBAGE_MAX: usize = 1000;

/// Terminals that are open at the same time.
pub const TERMINALS_MAX: usize = 16;

/// Bytes of a terminal's command with its arguments, variables and directory.
pub(crate) const COMMAND_MAX: usize = 256 * 1024;

/// The longest path in a request, in bytes.
pub(crate) const PATH_MAX: usize = 4096;

/// How much of a message of the agent is kept, in bytes.
pub const TEXT_MAX: usize = 32 * 1024;

/// How much of a call's input a permission question shows, in bytes.
pub const RAW_INPUT_MAX: usize = 16 * 1024;

/// The longest note on progress, in characters.
pub const NOTE_CHARS: usize = 120;

/// Notes on progress per second. The rest is only counted.
pub const NOTES_PER_SECOND: u32 = 32;

/// Locations of a call, and options of a permission question, that are read.
pub(crate) const ITEMS_MAX: usize = 32;
