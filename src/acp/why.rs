//! Why a run did not finish.
//!
//! Texts of the agent in these errors are one line without control characters and at most 200 characters.

use std::time::Duration;

use thiserror::Error;

/// Why the agent is gone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Why {
    /// It closed its output, as a process does that ends.
    #[error("the agent closed its output; look at its exit code and error output")]
    Ended,
    /// It sent a line that is too long.
    #[error("the agent sent a line of more than {max} bytes; no message of the protocol may be longer")]
    LineTooLong {
        /// The bound, in bytes.
        max: usize,
    },
    /// It does not speak the protocol.
    #[error("the agent sent {lines} lines that are not ACP messages; start it in its ACP mode")]
    NotTheProtocol {
        /// How many such lines came.
        lines: usize,
    },
    /// Its output cannot be read.
    #[error("the agent's output cannot be read: {0}")]
    Read(String),
    /// Its input cannot be written.
    #[error("the agent closed its input and did not answer: {0}")]
    Write(String),
    /// It answered the prompt with an error.
    #[error("the agent answered the prompt with error {code}: {message}")]
    Failed {
        /// The code of the error.
        code: i32,
        /// The agent's message.
        message: String,
    },
    /// It answered with something that is no answer.
    #[error("the agent's answer to `{method}` cannot be understood: {message}")]
    BadAnswer {
        /// The method.
        method: &'static str,
        /// What is wrong with it.
        message: String,
    },
    /// The run itself failed. This is a defect here or in the host.
    #[error("the run failed inside Ghost: {0}")]
    Internal(String),
}

/// Why there is no session.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StartError {
    /// The task is not valid.
    #[error("the task cannot be given to an agent: {0}")]
    BadTask(String),
    /// The agent wants a login first.
    #[error("the agent is not logged in; log in with its own command{}", offered(.methods))]
    AuthNeeded {
        /// The names of the logins that it offers, at most 8.
        methods: Vec<String>,
    },
    /// The agent speaks another version of the protocol.
    #[error("the agent speaks ACP version {offered}, and only version 1 is known; install another version of it")]
    WrongVersion {
        /// The version that it wants.
        offered: u64,
    },
    /// The agent answered with an error.
    #[error("the agent answered `{method}` with error {code}: {message}")]
    Refused {
        /// The method.
        method: &'static str,
        /// The code of the error.
        code: i32,
        /// The agent's message.
        message: String,
    },
    /// The agent took too long.
    #[error("the agent had no session after {:.1} s; look at its error output", .after.as_secs_f64())]
    TimedOut {
        /// The time that it had.
        after: Duration,
    },
    /// The agent is gone.
    #[error("the agent did not start: {0}")]
    Gone(#[from] Why),
}

/// Why a session cannot be continued. Whether its task was done is uncertain.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CannotResume {
    /// The agent has no way to continue a session.
    #[error("the agent declares neither `session/resume` nor `session/load`")]
    NotDeclared,
    /// The agent has a way, and refused.
    #[error("the agent answered `{method}` with error {code}: {message}")]
    Refused {
        /// The method.
        method: &'static str,
        /// The code of the error.
        code: i32,
        /// The agent's message.
        message: String,
    },
}

fn offered(methods: &[String]) -> String {
    if methods.is_empty() { String::new() } else { format!(" (it offers: {})", methods.join(", ")) }
}
