//! One request and its answer, also if the server asks questions first (protocol 2026-07-28). A dropped request is
//! cancelled at the server, and the cancelling never waits for the caller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CancelledNotification, CancelledNotificationParam, ClientNotification, ClientRequest, ProgressToken, RequestId,
    ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle};
use rmcp::{Peer, RoleClient, ServiceError};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::elicitation::{Asker, Calls};
use crate::error::{CallError, ClosedReason, Failure, failure};
use crate::gate::{Gate, Progress, ProgressSink};
use crate::incoming::UNREADABLE;
use crate::limits::{after, now, shown, until, within};

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

    /// The error of a request that takes too long.
    fn error(&self) -> CallError {
        CallError::Timeout { what: "answer", after: self.total }
    }
}

/// Sends the requests of one connection.
#[derive(Clone)]
pub(crate) struct Exchange {
    pub(crate) peer: Peer<RoleClient>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) asker: Option<Asker>,
    pub(crate) calls: Calls,
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
        let (sink, events) = ProgressSink::new(self.gate.limits.progress_events);
        if let ClientRequest::CallToolRequest(call) = &mut request {
            call.extensions.insert(sink);
        }
        let sending = self.peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        let sent = tokio::select! {
            biased;
            reason = self.gate.closing.wait() => return Err(CallError::Closed { reason, sent: false }),
            sent = sending => sent,
        };
        let handle = sent.map_err(|error| self.error(error, false))?;
        let RequestHandle { mut rx, id, progress_token, .. } = handle;
        let mut flight = Flight { exchange: self.clone(), id, token: progress_token, is_over: false };
        let mut feed = Feed { events, last: None, progress };
        let restarted = || timing.idle.map(|idle| (idle, after(idle)));
        let mut idle = restarted();
        let answer = loop {
            tokio::select! {
                biased;
                answer = &mut rx => break answer,
                Some(event) = feed.events.recv() => {
                    idle = restarted();
                    feed.hand_on(event);
                }
                reason = self.gate.closing.wait() => {
                    flight.is_over = true;
                    return Err(CallError::Closed { reason, sent: true });
                }
                () = until(timing.deadline) => return Err(timing.error()),
                time = expired(idle) => {
                    if !self.asker.as_ref().is_some_and(Asker::is_asking) {
                        return Err(CallError::Timeout { what: "progress", after: time });
                    }
                    // The server waits for its user, so it makes no progress.
                    idle = restarted();
                }
            }
        };
        flight.is_over = true;
        // What came before the answer.
        while let Ok(event) = feed.events.try_recv() {
            feed.hand_on(event);
        }
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
                    self.gate.closing.set(ClosedReason::SessionExpired);
                    CallError::Closed { reason: ClosedReason::SessionExpired, sent: false }
                }
                Failure::Unauthorized { detail } => CallError::Unauthorized { detail },
                Failure::TooLarge { limit } => CallError::TooLarge { limit },
                Failure::Stream => closed(self.gate.closing.reason()),
                Failure::Other { detail, may_have_arrived } => CallError::Transport { detail, may_have_arrived },
            },
            ServiceError::TransportClosed => closed(self.gate.closing.reason()),
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
        let (peer, limit) = (self.exchange.peer.clone(), self.exchange.gate.limits.cancel_timeout);
        drop(self.exchange.runtime.spawn(async move {
            // If it cannot be told, the connection is on its way to be closed.
            drop(within(limit, peer.send_notification(notification)).await);
        }));
    }
}

/// The idle time, when it is over; never without one.
async fn expired(idle: Option<(Duration, Instant)>) -> Duration {
    let Some((time, end)) = idle else { return std::future::pending().await };
    until(end).await;
    time
}

/// The progress of a request, on its way to the caller. It is handed on only as far as it grows.
struct Feed<'p> {
    events: mpsc::Receiver<Progress>,
    last: Option<f64>,
    progress: &'p mut (dyn FnMut(Progress) + Send),
}

impl Feed<'_> {
    fn hand_on(&mut self, event: Progress) {
        if event.done.is_finite() && self.last.is_none_or(|last| event.done > last) {
            self.last = Some(event.done);
            (self.progress)(event);
        }
    }
}

/// What a repeated request gives back to the server.
#[derive(Default)]
pub(crate) struct Inputs {
    /// The answers by the names of the questions.
    pub(crate) responses: Option<BTreeMap<String, Value>>,
    /// The text that the server wants back unchanged.
    pub(crate) state: Option<String>,
}

impl Exchange {
    /// Refuses arguments that are too large.
    pub(crate) fn check_size(&self, arguments: &Map<String, Value>) -> Result<(), CallError> {
        let bytes = serde_json::to_vec(arguments).map_or(0, |json| json.len());
        let limit = self.gate.limits.argument_bytes;
        if bytes > limit { Err(CallError::ArgumentsTooLarge { bytes, limit }) } else { Ok(()) }
    }

    /// Sends a request until the server has all its answers, and gives the raw result.
    ///
    /// # Errors
    /// Any [`CallError`].
    pub(crate) async fn complete(
        &self,
        timing: &Timing,
        label: Option<Arc<str>>,
        request: impl Fn(Inputs) -> ClientRequest,
        progress: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Value, CallError> {
        let mut inputs = Inputs::default();
        let rounds = self.gate.limits.input_rounds;
        for _ in 0..=rounds {
            let result = self.send(request(inputs), timing, progress).await?;
            let Value::Object(mut fields) = result else { return Err(CallError::malformed("it is no JSON object")) };
            match fields.get("resultType").and_then(Value::as_str) {
                None | Some("complete") => return Ok(Value::Object(fields)),
                Some("input_required") => {}
                Some(other) => return Err(CallError::malformed(format!("its type is `{}`", shown(other)))),
            }
            let state = fields.get("requestState").and_then(Value::as_str).map(str::to_owned);
            let questions = match fields.remove("inputRequests") {
                Some(Value::Object(questions)) => questions,
                _ => Map::new(),
            };
            let left = timing.deadline.saturating_duration_since(now());
            let responses = tokio::select! {
                biased;
                reason = self.gate.closing.wait() => return Err(CallError::Closed { reason, sent: true }),
                answers = within(left, self.answers(questions, label.clone())) => {
                    answers.ok_or_else(|| timing.error())??
                }
            };
            inputs = Inputs { responses: (!responses.is_empty()).then_some(responses), state };
        }
        Err(CallError::NeedsInput { detail: format!("it asked more than {rounds} times") })
    }

    async fn answers(
        &self,
        questions: Map<String, Value>,
        label: Option<Arc<str>>,
    ) -> Result<BTreeMap<String, Value>, CallError> {
        let needs = |detail: String| CallError::NeedsInput { detail };
        let max = self.gate.limits.inputs;
        if questions.len() > max {
            return Err(needs(format!("it asked {} questions at once, more than {max}", questions.len())));
        }
        let mut answers = BTreeMap::new();
        for (name, question) in questions {
            let method = question.get("method").and_then(Value::as_str).unwrap_or_default();
            let asker = match (method, &self.asker) {
                ("elicitation/create", Some(asker)) => asker,
                ("elicitation/create", None) => return Err(needs("nobody answers its questions".to_owned())),
                (method, _) => return Err(needs(format!("this client does not offer `{}`", shown(method)))),
            };
            let params = question.get("params").unwrap_or(&Value::Null);
            answers.insert(name, asker.ask(params, label.clone()).await.json());
        }
        Ok(answers)
    }
}

/// Takes the list `key` out of a result.
pub(crate) fn list_of(result: &mut Value, key: &str) -> Result<Vec<Value>, CallError> {
    match result.get_mut(key).map(Value::take) {
        Some(Value::Array(items)) => Ok(items),
        _ => Err(CallError::malformed(format!("there is no list `{key}` in it"))),
    }
}
