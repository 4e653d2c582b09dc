//! One request and its answer. A dropped request is cancelled at the server, and the cancelling never waits for the
//! caller.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientNotification, ClientRequest, ProgressToken, RequestId,
    ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle};
use rmcp::{Peer, RoleClient, ServiceError};
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::asker::Asker;
use crate::closing::{ClosedReason, Closing};
use crate::error::CallError;
use crate::gate::Gate;
use crate::incoming::UNREADABLE;
use crate::progress::{Monotone, Progress, ProgressSink};
use crate::text::shown;
use crate::time::{after, until, within};
use crate::transport_error::{Failure, failure};

/// How long a request may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// When it ends.
    deadline: Instant,
    /// The time to that from the start.
    total: Duration,
    /// Time without progress.
    idle: Option<Duration>,
}

impl Timing {
    /// A request that starts now.
    pub(crate) fn new(total: Duration, idle: Option<Duration>) -> Self {
        Self { deadline: after(total), total, idle }
    }

    /// When it ends.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The error of a request that takes too long.
    pub(crate) fn error(&self) -> CallError {
        CallError::Timeout { what: "answer", after: self.total }
    }
}

/// Sends the requests of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) closing: Closing,
    pub(crate) asker: Option<Asker>,
    pub(crate) cancel_timeout: Duration,
    pub(crate) progress_events: usize,
    /// Where cancellations run, also if a request is dropped elsewhere.
    pub(crate) runtime: Handle,
}

/// A request that waits for its answer. Dropping it cancels it at the server.
struct Flight {
    exchange: Exchange,
    id: RequestId,
    token: ProgressToken,
    is_over: bool,
}

impl Exchange {
    /// Sends `request`, and gives the raw result. Progress is handed on in the order of the server, only as far as it
    /// grows, and never after the end.
    ///
    /// # Errors
    /// Any [`CallError`] but `NeedsInput`.
    pub(crate) async fn send(
        &self,
        mut request: ClientRequest,
        timing: &Timing,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Value, CallError> {
        let (sink, mut events) = ProgressSink::new(self.progress_events);
        if let ClientRequest::CallToolRequest(call) = &mut request {
            call.extensions.insert(sink);
        }
        let sending = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        let sent = tokio::select! {
            biased;
            reason = self.closing.wait() => return Err(CallError::Closed { reason, sent: false }),
            sent = sending => sent,
        };
        let handle = sent.map_err(|error| self.error(error, false))?;
        let RequestHandle { mut rx, id, progress_token, .. } = handle;
        let mut flight = Flight { exchange: self.clone(), id, token: progress_token, is_over: false };
        let mut monotone = Monotone::default();
        let mut idle = timing.idle.map(|idle| (idle, Box::pin(until(after(idle)))));
        let total = until(timing.deadline);
        tokio::pin!(total);
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut rx => break answer,
                Some(event) = events.recv() => {
                    if let Some((time, timer)) = &mut idle {
                        timer.as_mut().reset(after(*time));
                    }
                    hand_on(event, &mut monotone, progress);
                }
                reason = self.closing.wait() => {
                    flight.is_over = true;
                    return Err(CallError::Closed { reason, sent: true });
                }
                () = &mut total => return Err(timing.error()),
                () = expired(&mut idle) => {
                    let Some((time, timer)) = &mut idle else { continue };
                    if !self.asker.as_ref().is_some_and(Asker::is_asking) {
                        return Err(CallError::Timeout { what: "progress", after: *time });
                    }
                    // The server waits for its user, so it makes no progress.
                    timer.as_mut().reset(after(*time));
                }
            }
        };
        flight.is_over = true;
        drain(&mut events, &mut monotone, progress);
        match answer {
            Ok(Ok(ServerResult::CustomResult(raw))) => Ok(raw.0),
            Ok(Ok(result)) => serde_json::to_value(result).map_err(|error| CallError::malformed(error.to_string())),
            Ok(Err(error)) => Err(self.error(error, true)),
            Err(_) => Err(self.error(ServiceError::TransportClosed, true)),
        }
    }

    fn error(&self, error: ServiceError, sent: bool) -> CallError {
        let closed = |reason| CallError::Closed { reason, sent };
        match error {
            ServiceError::McpError(error) if error.code.0 == UNREADABLE => CallError::malformed(shown(&error.message)),
            ServiceError::McpError(error) => CallError::Refused { code: error.code.0, message: shown(&error.message) },
            ServiceError::TransportSend(error) => match failure(&error) {
                Failure::SessionExpired => {
                    self.closing.set(ClosedReason::SessionExpired);
                    CallError::Closed { reason: ClosedReason::SessionExpired, sent: false }
                }
                Failure::Unauthorized { detail } => CallError::Unauthorized { detail },
                Failure::TooLarge { limit } => CallError::TooLarge { limit },
                Failure::Stream => closed(self.closing.get().unwrap_or(ClosedReason::Ended)),
                Failure::Other { detail, may_have_arrived } => CallError::Transport { detail, may_have_arrived },
            },
            ServiceError::TransportClosed => closed(self.closing.get().unwrap_or(ClosedReason::Ended)),
            ServiceError::Cancelled { .. } => CallError::Cancelled,
            other => CallError::malformed(shown(&other.to_string())),
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.exchange.gate.forget(&self.token);
        if self.is_over {
            return;
        }
        let params = CancelledNotificationParam::new(Some(self.id.clone()), Some("no longer needed".to_owned()));
        let notification = ClientNotification::CancelledNotification(CancelledNotification::new(params));
        let (peer, limit) = (self.exchange.peer.clone(), self.exchange.cancel_timeout);
        drop(self.exchange.runtime.spawn(async move {
            // If it cannot be told, the connection is on its way to be closed.
            drop(within(limit, peer.send_notification(notification)).await);
        }));
    }
}

/// Completes when the idle time is over; never without one.
async fn expired(idle: &mut Option<(Duration, std::pin::Pin<Box<tokio::time::Sleep>>)>) {
    match idle {
        Some((_, timer)) => timer.as_mut().await,
        None => std::future::pending().await,
    }
}

fn hand_on(event: Progress, monotone: &mut Monotone, progress: &mut (dyn FnMut(Progress) + Send)) {
    if monotone.takes(event.done) {
        progress(event);
    }
}

/// Hands on what came before the answer.
fn drain(events: &mut mpsc::Receiver<Progress>, monotone: &mut Monotone, progress: &mut (dyn FnMut(Progress) + Send)) {
    while let Ok(event) = events.try_recv() {
        hand_on(event, monotone, progress);
    }
}
