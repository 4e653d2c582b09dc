//! What a run gets: the task, its times, and the streams of the agent.

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
