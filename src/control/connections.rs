//! A connection of a peer, with its time limits: for the first request, for a peer that reads nothing,
//! and for the end of the daemon. A connection that misses one fails its next read or write, so the
//! server that drives it ends it.
//!
//! This module must never keep a connection open for a peer that sends no request or reads nothing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ghost_domain::time::BoxFuture;
use ghost_domain::{Clock, Limits};
use ghost_world::World;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::UCred;
use tokio::sync::watch;
use tonic::transport::server::Connected;

use crate::connection_limit::{ConnectionPermit, Evictable};

/// Time for the TLS handshake and the first request together.
pub(crate) const FIRST_REQUEST: Duration = Duration::from_secs(10);

/// The other end of a connection. tonic puts it into the extensions of each request.
#[derive(Clone)]
pub(crate) struct Peer {
    credentials: Option<UCred>,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It has sent no request yet.
    Silent,
    /// It has sent a request.
    Asked,
    /// Its connection must end.
    Closed,
}

impl Peer {
    pub(crate) fn new(credentials: Option<UCred>) -> Self {
        Self { credentials, state: watch::Sender::new(State::Silent) }
    }

    /// The user of the peer. Only Unix sockets know it.
    pub(crate) fn credentials(&self) -> Option<UCred> {
        self.credentials
    }

    /// Records that a request has arrived.
    pub(crate) fn request_arrived(&self) {
        self.state.send_if_modified(|state| {
            let first = *state == State::Silent;
            if first {
                *state = State::Asked;
            }
            first
        });
    }

    /// Closes the whole connection.
    pub(crate) fn close(&self) {
        self.state.send_replace(State::Closed);
    }

    /// Whether [`Self::close`] was called.
    #[cfg(test)]
    pub(crate) fn is_closed(&self) -> bool {
        *self.state.borrow() == State::Closed
    }

    /// Completes with the reason when the connection must end. `closed` becomes true when the daemon
    /// begins to stop. Its sender is dropped when the requests under way have had their time.
    async fn end(self, clock: Arc<dyn Clock>, mut closed: watch::Receiver<bool>) -> &'static str {
        let mut state = self.state.subscribe();
        tokio::select! {
            biased;
            _ = state.wait_for(|state| *state != State::Silent) => {}
            // A daemon that stops does not wait for a first request.
            _ = closed.wait_for(|closed| *closed) => return "the daemon is stopping",
            () = clock.sleep(FIRST_REQUEST) => return "the peer has sent no request in time",
        }
        tokio::select! {
            biased;
            _ = state.wait_for(|state| *state == State::Closed) => "its place is needed, or a stream of it is not read",
            () = async { while closed.changed().await.is_ok() {} } => "the daemon has stopped",
        }
    }
}

impl Evictable for Peer {
    fn is_silent(&self) -> bool {
        *self.state.borrow() == State::Silent
    }

    fn close(&self) {
        Self::close(self);
    }
}

/// A connection that keeps to its time limits.
pub(crate) struct Connection<IO> {
    io: IO,
    peer: Peer,
    /// Completes when the connection must end.
    end: BoxFuture<'static, &'static str>,
    clock: Arc<dyn Clock>,
    /// How long a write may wait for the peer.
    stall_limit: Duration,
    /// Runs while a write waits for the peer.
    stall_timer: Option<BoxFuture<'static, ()>>,
    /// Kept as long as the connection, even after an HTTP upgrade.
    _permit: ConnectionPermit,
}

impl<IO> Connection<IO> {
    /// The time limits are those of the world's current settings. `closed`: see [`Peer::end`].
    pub(crate) fn new(
        io: IO,
        peer: Peer,
        world: &World,
        closed: watch::Receiver<bool>,
        permit: ConnectionPermit,
    ) -> Self {
        let clock = Arc::clone(&world.ctx().ports.clock);
        let end = Box::pin(peer.clone().end(Arc::clone(&clock), closed));
        let stall_limit = Limits::seconds(world.ctx().limits().reader_stall_seconds);
        Self { io, peer, end, clock, stall_limit, stall_timer: None, _permit: permit }
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Ready with an error when the connection must end.
    fn poll_end(&mut self, ctx: &mut Context<'_>) -> Poll<io::Error> {
        self.end.as_mut().poll(ctx).map(|why| {
            // A completed future must not be polled again.
            self.end = Box::pin(std::future::ready(why));
            io::Error::new(io::ErrorKind::ConnectionAborted, why)
        })
    }

    /// Lets a write wait for the peer up to the stall limit.
    fn time_out(&mut self, written: Poll<io::Result<usize>>, ctx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stall_timer = None;
            return written;
        }
        if let Poll::Ready(error) = self.poll_end(ctx) {
            return Poll::Ready(Err(error));
        }
        let (clock, limit) = (&self.clock, self.stall_limit);
        let timer = self.stall_timer.get_or_insert_with(|| clock.sleep(limit));
        timer.as_mut().poll(ctx).map(|()| {
            // A completed future must not be polled again; the next write starts a new timer.
            self.stall_timer = None;
            Err(io::Error::new(io::ErrorKind::TimedOut, "the peer has read nothing for too long"))
        })
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Connection<IO> {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(error) = self.poll_end(ctx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.io).poll_read(ctx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Connection<IO> {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(ctx, bytes);
        self.time_out(written, ctx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(ctx, pieces);
        self.time_out(written, ctx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(ctx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(ctx)
    }
}

impl<IO> Connected for Connection<IO> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_limit::ConnectionLimit;
    use crate::fixture::TestControl;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    /// A connection whose buffer holds 8 bytes, its other end, and the sender of `closed`.
    async fn connection(test: &TestControl) -> (Connection<DuplexStream>, DuplexStream, watch::Sender<bool>) {
        let (near, far) = tokio::io::duplex(8);
        let (closing, closed) = watch::channel(false);
        let peer = Peer::new(None);
        let permit = ConnectionLimit::default().take(&test.world, Arc::new(peer.clone())).await;
        (Connection::new(near, peer, &test.world, closed, permit), far, closing)
    }

    #[tokio::test]
    async fn a_write_fails_when_the_peer_reads_nothing_for_too_long() {
        let test = TestControl::with("limits: { reader_stall_seconds: 5 }\n").await;
        let (mut near, mut far, _closing) = connection(&test).await;
        near.peer().request_arrived();
        near.write_all(&[1; 8]).await.unwrap();
        // A peer that reads slowly has not stalled.
        for _ in 0..3 {
            let write = near.write(&[2; 8]);
            tokio::pin!(write);
            assert!(futures_util::poll!(&mut write).is_pending());
            test.clock.advance(Duration::from_secs(4));
            assert!(futures_util::poll!(&mut write).is_pending());
            far.read_exact(&mut [0; 8]).await.unwrap();
            assert_eq!(write.await.unwrap(), 8);
        }
        let write = near.write(&[3; 8]);
        tokio::pin!(write);
        assert!(futures_util::poll!(&mut write).is_pending());
        test.clock.advance(Duration::from_secs(6));
        assert_eq!(write.as_mut().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // A new write starts a new timer.
        assert!(futures_util::poll!(&mut write).is_pending());
    }

    #[tokio::test]
    async fn a_connection_ends_when_its_peer_is_silent_is_closed_or_the_daemon_stops() {
        let test = TestControl::new().await;
        for (asks, closes, stops, ends) in [
            (false, false, false, true),
            (true, false, false, false),
            (true, true, false, true),
            (false, false, true, true),
            (true, false, true, false),
        ] {
            let (mut near, _far, closing) = connection(&test).await;
            let peer = near.peer().clone();
            let mut bytes = [0];
            let read = near.read(&mut bytes);
            tokio::pin!(read);
            assert!(futures_util::poll!(&mut read).is_pending());
            if asks {
                peer.request_arrived();
                assert!(futures_util::poll!(&mut read).is_pending());
            }
            if closes {
                peer.close();
            }
            if stops {
                closing.send_replace(true);
            } else {
                test.clock.advance(FIRST_REQUEST);
            }
            let case = (asks, closes, stops);
            assert_eq!(futures_util::poll!(&mut read).is_ready(), ends, "{case:?}");
            if !ends {
                drop(closing);
                assert_eq!(read.await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted, "{case:?}");
            }
        }
    }
}
