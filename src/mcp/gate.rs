//! What a server may send. Every message of every transport passes the gate.
//!
//! The gate never waits, and hands on no notification that starts a task in `rmcp`: those tasks have no bound and no order.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ghost_domain::text::prefix_bytes;
use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, ClientRequest, GetMeta as _, JsonRpcMessage, ProgressNotificationParam, ProgressToken,
    RequestId, ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::error::{ClosedReason, Closing};
use crate::incoming::number;
use crate::limits::{Limits, now, within};

/// The time in which messages are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// The gate of one connection.
pub(crate) struct Gate {
    pub(crate) limits: Limits,
    pub(crate) closing: Closing,
    /// Told when the tools changed.
    pub(crate) changed: Notify,
    state: Mutex<State>,
}

struct State {
    /// Requests of this side without an answer, by the numbers of `rmcp`, with the tokens of their progress.
    pending: HashMap<i64, Option<ProgressToken>>,
    /// The request that waits for changes as long as the connection is open.
    listening: Option<i64>,
    /// The request that opens the connection. A late answer to the first attempt would end the second.
    opening: Option<i64>,
    /// Requests of the server without an answer.
    asked: HashSet<RequestId>,
    progress: HashMap<ProgressToken, ProgressSink>,
    window: Instant,
    seen: u32,
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        let state = State {
            pending: HashMap::new(),
            listening: None,
            opening: None,
            asked: HashSet::new(),
            progress: HashMap::new(),
            window: now(),
            seen: 0,
        };
        Self { limits, closing: Closing::new(), changed: Notify::new(), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a message that goes to the server.
    pub(crate) fn outgoing(&self, message: &mut TxJsonRpcMessage<RoleClient>) {
        let mut state = self.state();
        match message {
            JsonRpcMessage::Request(request) => {
                let Some(id) = number(&request.id) else { return };
                state.pending.insert(id, None);
                match &mut request.request {
                    ClientRequest::DiscoverRequest(_) | ClientRequest::InitializeRequest(_) => {
                        if let Some(earlier) = state.opening.replace(id) {
                            state.pending.remove(&earlier);
                        }
                    }
                    ClientRequest::CallToolRequest(call) => {
                        let sink = call.extensions.remove::<ProgressSink>();
                        let token = request.request.get_meta().get_progress_token();
                        if let (Some(sink), Some(token)) = (sink, token)
                            && !sink.is_closed()
                        {
                            state.pending.insert(id, Some(token.clone()));
                            state.progress.insert(token, sink);
                        }
                    }
                    ClientRequest::SubscriptionsListenRequest(_) => state.listening = Some(id),
                    _ => {}
                }
            }
            JsonRpcMessage::Response(response) => {
                state.asked.remove(&response.id);
            }
            JsonRpcMessage::Error(error) => {
                if let Some(id) = &error.id {
                    state.asked.remove(id);
                }
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = cancelled.params.request_id.as_ref().and_then(number)
                {
                    state.pending.remove(&id);
                }
            }
        }
    }

    /// The message if it goes on to `rmcp`. Closes the connection if the server sends too much.
    pub(crate) fn incoming(&self, message: RxJsonRpcMessage<RoleClient>) -> Option<RxJsonRpcMessage<RoleClient>> {
        let goes_on = match &message {
            JsonRpcMessage::Response(response) => self.expects(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref().map_or_else(|| self.count(), |id| self.expects(id)),
            JsonRpcMessage::Request(request) => self.count() && self.admits(&request.id),
            JsonRpcMessage::Notification(told) => self.count() && self.notified(&told.notification),
        };
        goes_on.then_some(message)
    }

    /// The request that a line answers which cannot be read: the one with this number, or, if it has no number and looks
    /// like an answer, the only one that waits.
    pub(crate) fn answered_by(&self, id: Option<i64>, is_answer: bool) -> Option<i64> {
        let state = self.state();
        let mut waiting = state.pending.keys().copied().filter(|id| state.listening != Some(*id));
        match id {
            Some(id) => waiting.find(|one| *one == id),
            None if is_answer => waiting.next().filter(|_| waiting.next().is_none()),
            None => None,
        }
    }

    /// Counts a message that answers nothing. False if it was one too many: the connection is closed then.
    pub(crate) fn count(&self) -> bool {
        let limit = self.limits.messages_per_second;
        let mut state = self.state();
        let now = now();
        if now.duration_since(state.window) > WINDOW {
            state.window = now;
            state.seen = 0;
        }
        state.seen = state.seen.saturating_add(1);
        let fits = state.seen <= limit;
        drop(state);
        if !fits {
            self.closing.set(ClosedReason::Flood { limit });
        }
        fits
    }

    /// No progress with this token is handed on any more.
    pub(crate) fn forget(&self, token: &ProgressToken) {
        self.state().progress.remove(token);
    }

    /// Whether this side waits for the answer with `id`. Another one only counts.
    fn expects(&self, id: &RequestId) -> bool {
        let mut state = self.state();
        let token = number(id).and_then(|id| state.pending.remove(&id));
        if let Some(Some(token)) = &token {
            // Progress after the answer is not progress.
            state.progress.remove(token);
        }
        drop(state);
        if token.is_none() {
            self.count();
        }
        token.is_some()
    }

    /// Notes a request of the server. False if it is one too many: the connection is closed then.
    fn admits(&self, id: &RequestId) -> bool {
        let limit = self.limits.server_requests;
        let mut state = self.state();
        let reason = if state.asked.len() >= limit {
            ClosedReason::TooManyRequests { limit }
        } else if state.asked.insert(id.clone()) {
            return true;
        } else {
            ClosedReason::Protocol { detail: "two open requests have the same id" }
        };
        drop(state);
        self.closing.set(reason);
        false
    }

    /// Takes what a notification says. True if `rmcp` needs it as well.
    fn notified(&self, notification: &ServerNotification) -> bool {
        match notification {
            ServerNotification::ProgressNotification(progress) => {
                self.progressed(&progress.params);
                false
            }
            ServerNotification::ToolListChangedNotification(_) => {
                self.changed.notify_one();
                // A subscription counts what belongs to it.
                notification.get_meta().subscription_id().is_some()
            }
            ServerNotification::CancelledNotification(cancelled) => {
                if let Some(id) = &cancelled.params.request_id {
                    self.state().asked.remove(id);
                }
                true
            }
            ServerNotification::SubscriptionsAcknowledgedNotification(_) => true,
            _ => false,
        }
    }

    fn progressed(&self, params: &ProgressNotificationParam) {
        let mut state = self.state();
        let Some(sink) = state.progress.get(&params.progress_token) else { return };
        if sink.is_closed() {
            state.progress.remove(&params.progress_token);
            return;
        }
        let message = params.message.as_deref().map(|text| prefix_bytes(text, MESSAGE_MAX).to_owned());
        sink.push(Progress { done: params.progress, total: params.total, message });
    }
}

/// How far a call is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// How much is done, in the server's own unit. It grows with every event of a call.
    pub done: f64,
    /// How much there is to do, in the same unit.
    pub total: Option<f64>,
    /// What the server says about it, at most 1 KiB.
    pub message: Option<String>,
}

/// Bytes of a message that are kept.
const MESSAGE_MAX: usize = 1_024;

/// Where the progress of one call goes. It travels to the stream within the request, because the token of a request
/// is known only there before the server can answer.
#[derive(Clone)]
pub(crate) struct ProgressSink(mpsc::Sender<Progress>);

impl ProgressSink {
    /// A sink that holds at most `events`.
    pub(crate) fn new(events: usize) -> (Self, mpsc::Receiver<Progress>) {
        let (sender, receiver) = mpsc::channel(events.max(1));
        (Self(sender), receiver)
    }

    /// Hands an event over. It is left out if too many wait.
    pub(crate) fn push(&self, progress: Progress) {
        drop(self.0.try_send(progress));
    }

    /// Whether nobody waits for events any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// A transport that ends as soon as its connection is closed.
pub(crate) struct Guarded<T> {
    inner: T,
    gate: Arc<Gate>,
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotSent<E: Error + 'static> {
    /// The connection is closed.
    #[error("the connection is closed: {0}")]
    Closed(ClosedReason),
    /// The transport failed.
    #[error("{0}")]
    Failed(#[source] E),
}

impl<T> Guarded<T> {
    pub(crate) fn new(inner: T, gate: &Arc<Gate>) -> Self {
        Self { inner, gate: Arc::clone(gate) }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Guarded<T> {
    type Error = NotSent<T::Error>;

    fn send(
        &mut self,
        mut item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.gate.outgoing(&mut item);
        let send = self.inner.send(item);
        let closing = self.gate.closing.clone();
        async move {
            // `rmcp` waits for its sends before it ends, so a send must end with the connection.
            tokio::select! {
                biased;
                sent = send => sent.map_err(NotSent::Failed),
                reason = closing.wait() => Err(NotSent::Closed(reason)),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let closing = self.gate.closing.clone();
        loop {
            let message = tokio::select! {
                biased;
                _ = closing.wait() => return None,
                message = self.inner.receive() => message,
            };
            let Some(message) = message else {
                closing.set(ClosedReason::Ended);
                return None;
            };
            if let Some(message) = self.gate.incoming(message) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.gate.closing.set(ClosedReason::Here);
        within(self.gate.limits.close_timeout, self.inner.close()).await.unwrap_or(Ok(())).map_err(NotSent::Failed)
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        // The task of `rmcp` owns the transport. If the task is gone, nobody answers any more.
        self.gate.closing.set(ClosedReason::Ended);
    }
}
