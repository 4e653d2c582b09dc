//! Waiting for an answer of the agent.

use std::time::Duration;

use agent_client_protocol::{Error, is_connection_terminated, is_incoming_transport_closed};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::why::Why;
use crate::wire::Wire;

/// How long an answer may still come from an agent that closed its input.
const LINGER: Duration = Duration::from_secs(2);

pub(crate) struct Wait<'a> {
    pub(crate) wire: &'a Wire,
    pub(crate) cancel: &'a CancellationToken,
}

/// Why there is no answer.
pub(crate) enum Halt {
    /// The run was cancelled.
    Cancelled,
    /// It is too late.
    Deadline,
    /// The agent is gone.
    Gone(Why),
    /// The answer is an error.
    Answered(Error),
}

impl Wait<'_> {
    /// Waits for `answer` until the deadline, the end of the agent, or the end of the run.
    pub(crate) async fn answer<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
        until: Instant,
    ) -> Result<T, Halt> {
        let gone = || Halt::Gone(self.wire.why().unwrap_or(Why::Ended));
        let broken = async {
            self.wire.broken().await;
            crate::time::pause(LINGER).await;
        };
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|error| if is_closed(&error) { gone() } else { Halt::Answered(error) }),
            () = self.cancel.cancelled() => Err(Halt::Cancelled),
            () = tokio::time::sleep_until(until) => Err(Halt::Deadline),
            () = broken => Err(gone()),
        }
    }
}

/// Whether the library made this error because the connection ended.
pub(crate) fn is_closed(error: &Error) -> bool {
    is_incoming_transport_closed(error) || is_connection_terminated(error)
}
