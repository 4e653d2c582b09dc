//! A transport behind the gate. It must never hand on a message that the gate did not see.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

use crate::closing::ClosedReason;
use crate::gate::Gate;
use crate::time::within;

/// A transport that ends as soon as its connection is closed.
pub(crate) struct Guarded<T> {
    inner: T,
    gate: Arc<Gate>,
    close_timeout: Duration,
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
    pub(crate) fn new(inner: T, gate: Arc<Gate>, close_timeout: Duration) -> Self {
        Self { inner, gate, close_timeout }
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
        let closing = self.gate.closing().clone();
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
        let closing = self.gate.closing().clone();
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
        self.gate.closing().set(ClosedReason::Here);
        within(self.close_timeout, self.inner.close()).await.unwrap_or(Ok(())).map_err(NotSent::Failed)
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        // The task of `rmcp` owns the transport. If the task is gone, nobody answers any more.
        self.gate.closing().set(ClosedReason::Ended);
    }
}
