//! One connection of the HTTP side: HTTP/1, with upgrades for WebSockets.
//!
//! Must never: speak HTTP/2. There a stalled reader holds its stream without holding up a write that could be timed.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Router;
use ghost_domain::Clock;
use ghost_domain::time::BoxFuture;
use hyper::body::Incoming;
use hyper::rt::{Sleep, Timer};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tower::util::ServiceExt as _;

use super::first::{First, HANDSHAKE};

/// Serves one connection to its end, or until it is a WebSocket.
pub(super) async fn connection<IO>(
    io: IO,
    router: Router,
    clock: Arc<dyn Clock>,
    first: First,
    closed: watch::Receiver<bool>,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let came = first.came();
    let service = router.map_request(move |request: hyper::Request<Incoming>| {
        came.tell();
        request
    });
    let mut builder = http1::Builder::new();
    // The head of a later request takes no longer than the first.
    builder.timer(PortTimer(clock)).header_read_timeout(HANDSHAKE);
    let served = builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(service)).with_upgrades();
    first.drive(pin!(served), |served| served.graceful_shutdown(), closed).await;
}

/// The Clock port as hyper wants it.
#[derive(Clone)]
struct PortTimer(Arc<dyn Clock>);

impl Timer for PortTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(Waiting(Mutex::new(self.0.sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(Timer::now(self)))
    }
}

/// A wait that hyper may share, which it never does: the lock is only for the type.
struct Waiting(Mutex<BoxFuture<'static, ()>>);

impl Future for Waiting {
    type Output = ();

    fn poll(self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<()> {
        let waits = self.get_mut().0.get_mut().unwrap_or_else(PoisonError::into_inner);
        waits.as_mut().poll(ctx)
    }
}

impl Sleep for Waiting {}
