//! Accepts connections on bound listeners, within the limit of open connections, and serves gRPC and REST on them until the
//! daemon stops. No peer's handshake, silence or disconnection delays other peers or the shutdown.
//!
//! REST is HTTP/1, with upgrades for WebSockets. Over HTTP/2 a reader that stalls would block its stream without blocking a
//! write, so no write timeout could detect it. (`axum::serve` speaks it, and waits for requests without a limit.)

pub(crate) mod connections;
pub(crate) mod grpc;
mod percent;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use ghost_world::World;
use hyper::body::Incoming as Body;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::util::ServiceExt as _;

use self::connections::{Connection, ConnectionLimit, FIRST_REQUEST, LogThrottle, Peer};
use self::percent::PercentFilter;

/// Pause after a failed accept, mostly for want of file descriptors.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A bound socket.
pub(crate) trait Listen: Send + Sync + 'static {
    /// Its connections.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts a connection, and asks for the credentials of the peer if the socket has them.
    fn accept_peer(&self) -> impl Future<Output = io::Result<(Self::Io, Option<UCred>)>> + Send;
}

impl Listen for UnixListener {
    type Io = PercentFilter<UnixStream>;

    async fn accept_peer(&self) -> io::Result<(Self::Io, Option<UCred>)> {
        let (io, _) = self.accept().await?;
        let credentials = io.peer_cred().ok();
        Ok((PercentFilter::new(io), credentials))
    }
}

impl Listen for TcpListener {
    type Io = TcpStream;

    async fn accept_peer(&self) -> io::Result<(Self::Io, Option<UCred>)> {
        let (io, _) = self.accept().await?;
        io.set_nodelay(true)?;
        Ok((io, None))
    }
}

/// The connections of a listener.
pub(crate) struct Incoming<L> {
    listener: Arc<L>,
    limit: ConnectionLimit,
    world: Arc<World>,
    closed: watch::Receiver<bool>,
    /// Throttles the warning that accepting fails.
    failed: LogThrottle,
}

impl<L: Listen> Incoming<L> {
    /// `closed` becomes true when the daemon begins to stop. Its sender is dropped when the requests under
    /// way have had their time.
    pub(crate) fn new(
        listener: &Arc<L>,
        limit: &ConnectionLimit,
        world: &Arc<World>,
        closed: &watch::Receiver<bool>,
    ) -> Self {
        Self {
            listener: Arc::clone(listener),
            limit: limit.clone(),
            world: Arc::clone(world),
            closed: closed.clone(),
            failed: LogThrottle::default(),
        }
    }

    /// The next connection. Dropping the future closes a connection that waits for the limit.
    async fn next(&self) -> Connection<L::Io> {
        loop {
            match self.listener.accept_peer().await {
                Ok((io, credentials)) => {
                    let peer = Peer::new(credentials);
                    let permit = self.limit.take(&self.world, Arc::new(peer.clone())).await;
                    return Connection::new(io, peer, &self.world, self.closed.clone(), permit);
                }
                Err(error) if is_peer_error(&error) => tracing::debug!(%error, "a connection was not accepted"),
                Err(error) => {
                    let clock = &self.world.ctx().ports.clock;
                    if self.failed.is_due(clock.steady()) {
                        tracing::warn!(%error, "a connection could not be accepted; trying again");
                    }
                    clock.sleep(RETRY_PAUSE).await;
                }
            }
        }
    }
}

/// Whether the error concerns only this one connection.
fn is_peer_error(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | Interrupted | TimedOut | WouldBlock)
}

/// Serves until the daemon stops and the last connection has ended.
pub(crate) async fn serve_rest(incoming: Incoming<TcpListener>, router: Router, tls: Option<TlsAcceptor>) {
    let closed = incoming.closed.clone();
    let mut closing = closed.clone();
    let mut connections = JoinSet::new();
    loop {
        let io = tokio::select! {
            biased;
            // A dropped sender also means the end.
            _ = closing.wait_for(|closed| *closed) => break,
            io = incoming.next() => io,
        };
        // Reaps tasks of ended connections, so that they do not pile up.
        while connections.try_join_next().is_some() {}
        connections.spawn(begin(io, tls.clone(), router.clone(), closed.clone()));
    }
    drop(incoming);
    while connections.join_next().await.is_some() {}
}

/// Serves one connection, after its TLS handshake if there is one. The handshake is within the time limit of the first
/// request.
async fn begin(io: Connection<TcpStream>, tls: Option<TlsAcceptor>, router: Router, mut closed: watch::Receiver<bool>) {
    let peer = io.peer().clone();
    let Some(tls) = tls else { return serve_connection(io, peer, router, closed).await };
    let accepted = tokio::select! {
        biased;
        accepted = tls.accept(io) => accepted,
        () = async { drop(closed.wait_for(|closed| *closed).await) } => return,
    };
    match accepted {
        Ok(io) => serve_connection(io, peer, router, closed).await,
        Err(error) => tracing::debug!(%error, "a connection ended before its TLS handshake did"),
    }
}

/// Serves one connection to its end, or until it becomes a WebSocket.
async fn serve_connection<IO: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    io: IO,
    peer: Peer,
    router: Router,
    mut closed: watch::Receiver<bool>,
) {
    let service = router.map_request(move |request: hyper::Request<Body>| {
        peer.request_arrived();
        request
    });
    let mut builder = http1::Builder::new();
    // The head of each later request has the same time limit as the first request.
    builder.timer(TokioTimer::new()).header_read_timeout(FIRST_REQUEST);
    let mut served =
        pin!(builder.serve_connection(TokioIo::new(io), TowerToHyperService::new(service)).with_upgrades());
    let ended = tokio::select! {
        biased;
        ended = served.as_mut() => ended,
        () = async { drop(closed.wait_for(|closed| *closed).await) } => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
