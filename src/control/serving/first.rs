//! The deadline for the first request of a connection. A peer that misses it is disconnected. A daemon
//! that stops does not wait for a peer that has sent no request.
//!
//! Must never: end a connection that has sent a request.

use std::fmt::Display;
use std::pin::Pin;
use std::time::Duration;

use ghost_domain::time::BoxFuture;
use ghost_world::World;
use tokio::sync::watch;

/// Time for the TLS handshake and the first request together.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);

/// Waits for the first request of one connection, from the moment it was accepted.
pub(super) struct FirstRequest {
    arrived: watch::Sender<bool>,
    deadline: BoxFuture<'static, ()>,
}

/// Reports that a request has arrived.
#[derive(Clone)]
pub(super) struct RequestArrived(watch::Sender<bool>);

impl FirstRequest {
    pub(super) fn new(world: &World) -> Self {
        Self { arrived: watch::Sender::new(false), deadline: world.ctx().ports.clock.sleep(HANDSHAKE) }
    }

    pub(super) fn arrived(&self) -> RequestArrived {
        RequestArrived(self.arrived.clone())
    }

    /// Completes when the deadline has passed without a request. Never completes once a request has
    /// arrived.
    pub(super) async fn missed(&mut self) {
        let mut arrived = self.arrived.subscribe();
        tokio::select! {
            biased;
            () = async { drop(arrived.wait_for(|arrived| *arrived).await) } => std::future::pending().await,
            () = self.deadline.as_mut() => {}
        }
    }

    /// Serves a connection until it ends, misses the deadline of its first request, or the daemon
    /// stops.
    pub(super) async fn drive<C, E>(
        mut self,
        mut served: Pin<&mut C>,
        shut_down: impl FnOnce(Pin<&mut C>) + Send,
        mut closed: watch::Receiver<bool>,
    ) where
        C: Future<Output = Result<(), E>> + Send,
        E: Display,
    {
        let ended = tokio::select! {
            biased;
            ended = served.as_mut() => Some(ended),
            () = async { drop(closed.wait_for(|closed| *closed).await) } => None,
            () = self.missed() => {
                tracing::debug!("a connection sent no request in time");
                return;
            }
        };
        let ended = match ended {
            Some(ended) => ended,
            // It has sent no request, so nothing is under way.
            None if !*self.arrived.borrow() => return,
            None => {
                shut_down(served.as_mut());
                served.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

impl RequestArrived {
    pub(super) fn report(&self) {
        self.0.send_if_modified(|arrived| !std::mem::replace(arrived, true));
    }
}
