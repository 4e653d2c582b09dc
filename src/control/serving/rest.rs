//! One HTTP connection: HTTP/1, with upgrades for WebSockets.
//!
//! Must never: speak HTTP/2. There a reader that stalls blocks its stream without blocking a write, so
//! no write timeout could detect it.

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

use super::first::{FirstRequest, HANDSHAKE};

/// Serves one connection to its end, or until it becomes a WebSocket.
pub(super) async fn connection<IO>(
    io: IO,
    router: Router,
    clock: Arc<dyn Clock>,
    first: FirstRequest,
    closed: watch::Receiver<bool>,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let arrived = first.arrived();
    let service = router.map_request(move |request: hyper::Request<Incoming>| {
        arrived.report();
        request
    });
    let mut builder = http1::Builder::new();
    // The head of each later request has the same time limit as the first request.
    builder.timer(PortTimer(clock)).header_read_timeout(HANDSHAKE);
    let served = builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(service)).with_upgrades();
    first.drive(pin!(served), |served| served.graceful_shutdown(), closed).await;
}

/// hyper's timer, on the clock port.
#[derive(Clone)]
struct PortTimer(Arc<dyn Clock>);

impl Timer for PortTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(PortSleep(Mutex::new(self.0.sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(Timer::now(self)))
    }
}

/// A sleep for hyper. hyper requires `Sync`, hence the mutex; it is never contended.
struct PortSleep(Mutex<BoxFuture<'static, ()>>);

impl Future for PortSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.get_mut().0.get_mut().unwrap_or_else(PoisonError::into_inner);
        sleep.as_mut().poll(ctx)
    }
}

impl Sleep for PortSleep {}
