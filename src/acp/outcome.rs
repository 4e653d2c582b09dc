//! How a run ended, why, what is known of its work, and the summary of it.
//!
//! Texts of the agent in errors are one line without control characters and at most 200 characters.

use std::time::Duration;

use ghost_coding::text::one_line;
use ghost_coding::{Doubts, Manifest, Summary, summarize};
use thiserror::Error;

use crate::host::{SessionId, Usage};

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

impl Outcome {
    /// The summary for a model in at most `max_bytes`. `agent` is the agent's name, and `stderr_tail` the end of its
    /// error output, which is shown if the run did not end well.
    #[must_use]
    pub fn compact(&self, agent: &str, stderr_tail: &str, max_bytes: usize) -> String {
        summarize(&self.summary(agent, stderr_tail), max_bytes)
    }

    /// What the summary is made of.
    #[must_use]
    pub fn summary(&self, agent: &str, stderr_tail: &str) -> Summary {
        let (verdict, reason, ended, error) = self.words();
        let went_well = verdict == "done";
        let errors = [error.as_deref().unwrap_or_default(), stderr_tail.trim()];
        let errors = errors.into_iter().filter(|text| !went_well && !text.is_empty()).collect::<Vec<_>>().join("\n");
        let tokens = self.work.usage.as_ref().and_then(|usage| usage.tokens);
        Summary {
            agent: one_line(agent, 60),
            verdict,
            reason,
            duration_ms: Some(u64::try_from(self.work.duration.as_millis()).unwrap_or(u64::MAX)),
            output_tokens: tokens.map(|tokens| tokens.output),
            ended,
            manifest: self.work.manifest.clone(),
            warnings: self.work.doubts.warnings(),
            errors,
            is_result: matches!(self.end, End::Finished { .. } | End::Refused),
            text: self.work.text.clone(),
        }
    }

    /// Whether the run did not end well: only an agent that considers its task done has not failed. What an operator
    /// denied is in the summary, and is no failure of the run.
    #[must_use]
    pub fn failed(&self) -> bool {
        !matches!(self.words().0, "done" | "incomplete") || self.work.doubts.was_stopped()
    }

    fn words(&self) -> Words {
        let (verdict, reason, ended, error) = words(&self.end);
        let doubt = self.work.doubts.reason();
        let verdict = if verdict == "done" && doubt.is_some() { "incomplete" } else { verdict };
        let reasons: Vec<String> = [reason, doubt].into_iter().flatten().collect();
        (verdict, (!reasons.is_empty()).then(|| reasons.join("; ")), ended, error)
    }
}

/// The verdict, its reason, how the run ended as seen from outside, and the error.
type Words = (&'static str, Option<String>, Option<String>, Option<String>);

fn words(end: &End) -> Words {
    let some = |text: &str| Some(text.to_owned());
    match end {
        End::Finished { stop_reason: StopReason::EndTurn } => ("done", None, None, None),
        End::Finished { stop_reason: StopReason::MaxTokens } => ("failed", some("max_tokens"), None, None),
        End::Finished { stop_reason: StopReason::MaxTurnRequests } => ("failed", some("max_turn_requests"), None, None),
        End::Finished { stop_reason: StopReason::Other(reason) } => ("failed", Some(reason.clone()), None, None),
        End::Refused => ("failed", some("refused"), None, None),
        End::Cancelled { stop } => ("no result", None, Some(format!("cancelled{}", still(*stop))), None),
        End::TimedOut { stop } => ("no result", None, Some(format!("stopped at its time limit{}", still(*stop))), None),
        End::Died { why } => ("no result", None, None, Some(why.to_string())),
        End::StartFailed { why } => ("failed", some("it did not start"), None, Some(why.to_string())),
        End::CannotResume { why } => ("failed", some("its session cannot be continued"), None, Some(why.to_string())),
    }
}

fn still(stop: Stop) -> &'static str {
    match stop {
        Stop::Itself | Stop::Confirmed | Stop::NothingRan => "",
        Stop::TooLate => " after it had answered",
        Stop::Unconfirmed => " without an answer",
    }
}
