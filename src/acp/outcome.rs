//! How a run ended, and what is known of its work.

use std::time::Duration;

use crate::task::SessionId;
use crate::usage::Usage;
use crate::why::{CannotResume, StartError, Why};
use ghost_coding::{Doubts, Manifest};

/// The result of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// What is known of its work. All of it is there, whatever the end.
    pub work: Work,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The agent answered the prompt.
    Finished {
        /// Why it stopped. Only [`StopReason::EndTurn`] means that it considers its task done.
        stop_reason: StopReason,
    },
    /// The agent refuses to go on. It forgets this prompt.
    Refused,
    /// The run was cancelled.
    Cancelled {
        /// Whether the agent stopped.
        stop: Stop,
    },
    /// The run reached its total time.
    TimedOut {
        /// Whether the agent stopped.
        stop: Stop,
    },
    /// The agent is gone, or answered with an error.
    Died {
        /// Why.
        why: Why,
    },
    /// There was no session, so the prompt was not sent.
    StartFailed {
        /// Why.
        why: StartError,
    },
    /// The session cannot be continued, so the prompt was not sent. What the agent did before is uncertain.
    CannotResume {
        /// Why.
        why: CannotResume,
    },
}

/// Why the agent stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// It has said all that it wants to say.
    EndTurn,
    /// It reached its number of tokens.
    MaxTokens,
    /// It reached its number of requests to the model.
    MaxTurnRequests,
    /// A reason that is not known: one line of at most 60 characters.
    Other(String),
}

/// Whether the agent stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It stopped by itself: nobody had asked for it.
    Itself,
    /// It confirmed that it stopped.
    Confirmed,
    /// It had answered otherwise before it saw that it must stop. What it did may be complete.
    TooLate,
    /// There was no prompt to stop.
    NothingRan,
    /// It did not answer in time. It may still act: end its process.
    Unconfirmed,
}

/// What is known of the agent's work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// The agent's last message, at most [`TEXT_MAX`](crate::TEXT_MAX) bytes.
    pub text: String,
    /// What it did, as it says, and what it did through the host.
    pub manifest: Manifest,
    /// What speaks against its task being done, whatever it says: calls that were not allowed.
    pub doubts: Doubts,
    /// The usage that it reported; `None` if it reported nothing.
    pub usage: Option<Usage>,
    /// The session, to go on with.
    pub session_id: Option<SessionId>,
    /// Whether the agent may have done something: the prompt is in its pipe, or it already asked for something or
    /// reported something. If not, the task can be given again.
    pub may_have_acted: bool,
    /// How long the run took.
    pub duration: Duration,
}
