//! What a server may send. Every message of every transport passes the gate.
//!
//! The gate must never wait, and it must never hand a notification on that starts a task in `rmcp`: those tasks have
//! no bound and no order.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    ClientNotification, ClientRequest, GetMeta as _, JsonRpcMessage, ProgressNotificationParam, ProgressToken,
    RequestId, ServerNotification,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::closing::{ClosedReason, Closing};
use crate::ids::number;
use crate::limits::Limits;
use crate::progress::{MESSAGE_MAX, Progress, ProgressSink};
use crate::text::start;
use crate::time::now;

/// The time in which messages are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// The gate of one connection.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: Limits,
    closing: Closing,
    changed: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Debug)]
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
    pub(crate) fn new(limits: Limits, closing: Closing, changed: Arc<Notify>) -> Self {
        let state = State {
            pending: HashMap::new(),
            listening: None,
            opening: None,
            asked: HashSet::new(),
            progress: HashMap::new(),
            window: now(),
            seen: 0,
        };
        Self { limits, closing, changed, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state whole, so a poisoned lock is safe to use.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connection is closed, and the future that completes when it is.
    pub(crate) fn closing(&self) -> &Closing {
        &self.closing
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
        match message {
            JsonRpcMessage::Response(response) => {
                self.expects(&response.id).then_some(JsonRpcMessage::Response(response))
            }
            JsonRpcMessage::Error(error) => {
                let is_expected = match &error.id {
                    Some(id) => self.expects(id),
                    None => self.count(),
                };
                is_expected.then_some(JsonRpcMessage::Error(error))
            }
            JsonRpcMessage::Request(request) => {
                (self.count() && self.admits(&request.id)).then_some(JsonRpcMessage::Request(request))
            }
            JsonRpcMessage::Notification(notification) => {
                let goes_on = self.count() && self.notified(&notification.notification);
                goes_on.then_some(JsonRpcMessage::Notification(notification))
            }
        }
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
                    let mut state = self.state();
                    state.asked.remove(id);
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
        let message = params.message.as_deref().map(|text| start(text, MESSAGE_MAX).to_owned());
        sink.push(Progress { done: params.progress, total: params.total, message });
    }
}
