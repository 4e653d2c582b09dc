//! The first request of a connection: one that does not send it in time is let go, and no daemon that stops waits for it.
//!
//! Must never: end a connection that has asked for something.

use std::fmt::Display;
use std::pin::Pin;
use std::time::Duration;

use ghost_domain::time::BoxFuture;
use ghost_world::World;
use tokio::sync::watch;

/// A handshake with the first request after it takes no longer.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(10);

/// The first request of one connection, which is waited for from the moment that the connection was taken.
pub(super) struct First {
    came: watch::Sender<bool>,
    late: BoxFuture<'static, ()>,
}

/// Says that a request came.
#[derive(Clone)]
pub(super) struct Came(watch::Sender<bool>);

impl First {
    pub(super) fn new(world: &World) -> Self {
        Self { came: watch::Sender::new(false), late: world.ctx().ports.clock.sleep(HANDSHAKE) }
    }

    pub(super) fn came(&self) -> Came {
        Came(self.came.clone())
    }

    /// Completes when it is too late for the first request, and never once that came.
    pub(super) async fn missed(&mut self) {
        let mut came = self.came.subscribe();
        tokio::select! {
            biased;
            () = async { drop(came.wait_for(|came| *came).await) } => std::future::pending().await,
            () = self.late.as_mut() => {}
        }
    }

    /// Serves a connection to its end: its own, that of a peer that asks for nothing, or the daemon's.
    pub(super) async fn drive<C, E>(
        mut self,
        mut served: Pin<&mut C>,
        wind_down: impl FnOnce(Pin<&mut C>) + Send,
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
            // It asked for nothing, so nothing of it is under way.
            None if !*self.came.borrow() => return,
            None => {
                wind_down(served.as_mut());
                served.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }
}

impl Came {
    pub(super) fn tell(&self) {
        self.0.send_if_modified(|came| !std::mem::replace(came, true));
    }
}
