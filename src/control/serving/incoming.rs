//! Accepts the connections of one listener, within the limit of open connections.
//!
//! This module must never end because a connection could not be accepted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ghost_world::World;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;

use super::percent::PercentFilter;
use crate::serving::connections::ConnectionLimit;
use crate::serving::connections::LogThrottle;
use crate::serving::connections::{Connection, Peer};

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
    pub(super) world: Arc<World>,
    pub(super) closed: watch::Receiver<bool>,
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
    pub(super) async fn next(&self) -> Connection<L::Io> {
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
