//! A connection of a peer, with its time limits: for the first request, for a peer that reads nothing,
//! and for the end of the daemon. A connection that misses one fails its next read or write, so the
//! server that drives it ends it.
//!
//! This module must never keep a connection open for a peer that sends no request or reads nothing.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ghost_domain::time::BoxFuture;
use ghost_domain::{Clock, Limits, Timestamp};
use ghost_world::World;
use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::UCred;
use tokio::sync::{Notify, watch};
use tonic::transport::server::Connected;

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

/// How often the limit is read again while it is reached: a reload may have raised it, and connections have become
/// silent for long enough.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Files that the rest of the daemon keeps open.
const OWN_FILES: u64 = 64;
/// Connections that are allowed however few files the process may open.
const CONNECTIONS_LEAST: u64 = 4;
/// How long a connection may be without a request before it makes room for others.
const SILENT_MIN: Duration = Duration::from_millis(500);

/// A connection, as the limit sees it.
pub(crate) trait Evictable: Send + Sync {
    /// Whether it has sent no request yet, and is open.
    fn is_silent(&self) -> bool;
    /// Closes it.
    fn close(&self);
}

/// A connection limit, shared by several listeners.
#[derive(Clone, Default)]
pub(crate) struct ConnectionLimit(Arc<Counted>);

#[derive(Default)]
struct Counted {
    taken: AtomicUsize,
    freed: Notify,
    /// Throttles the warning that the limit is reached.
    warned: LogThrottle,
    /// Connections without a request so far, the oldest first, and when they were accepted.
    silent: Mutex<VecDeque<(Timestamp, Arc<dyn Evictable>)>>,
}

/// Permission for one open connection. Dropping it makes the permit available again.
pub(crate) struct ConnectionPermit(Arc<Counted>, Arc<dyn Evictable>);

impl ConnectionLimit {
    /// Waits until fewer connections are open than the world's current limit, then takes a permit for `peer`.
    pub(crate) async fn take(&self, world: &World, peer: Arc<dyn Evictable>) -> ConnectionPermit {
        loop {
            let limit = limit(world.ctx().limits().connections_max);
            let counted = &self.0;
            let now = world.ctx().ports.clock.steady();
            let acquired = counted
                .taken
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| (taken < limit).then_some(taken + 1));
            if acquired.is_ok() {
                let mut silent = counted.silent();
                silent.retain(|(_, peer)| peer.is_silent());
                silent.push_back((now, Arc::clone(&peer)));
                return ConnectionPermit(Arc::clone(counted), peer);
            }
            if counted.warned.is_due(now) {
                tracing::warn!(connections_max = limit, "the connection limit is reached; new connections wait");
            }
            counted.close_silent(now);
            tokio::select! {
                () = counted.freed.notified() => {}
                // A reload may have raised the limit.
                () = world.ctx().ports.clock.sleep(RETRY_PAUSE) => {}
            }
        }
    }
}

impl Counted {
    fn silent(&self) -> MutexGuard<'_, VecDeque<(Timestamp, Arc<dyn Evictable>)>> {
        // A poisoned lock is safe to use: no call panics between two changes of the list.
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the oldest connection that has been silent for some time.
    fn close_silent(&self, now: Timestamp) {
        let mut silent = self.silent();
        silent.retain(|(_, peer)| peer.is_silent());
        if silent.front().is_some_and(|(since, _)| now.since(*since) >= SILENT_MIN)
            && let Some((_, peer)) = silent.pop_front()
        {
            peer.close();
        }
    }
}

/// The limit of connections: `most`, or fewer if the process may not have so many files open.
fn limit(most: u32) -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = (files.saturating_sub(OWN_FILES) / 2).max(CONNECTIONS_LEAST).min(u64::from(most));
    usize::try_from(room).unwrap_or(usize::MAX)
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.1.close();
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
        self.0.freed.notify_one();
    }
}

/// Shortest time between two log lines.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Marks a throttle that has not logged yet.
const NEVER: i64 = i64::MIN;

/// Time of the last log line, in milliseconds.
pub(crate) struct LogThrottle(AtomicI64);

impl Default for LogThrottle {
    fn default() -> Self {
        Self(AtomicI64::new(NEVER))
    }
}

impl LogThrottle {
    /// Whether to log now, at an instant of the steady clock.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        let last = self.0.load(Ordering::Relaxed);
        let due = last == NEVER || now >= Timestamp(last).plus(LOG_EVERY);
        if due {
            self.0.store(now.0, Ordering::Relaxed);
        }
        due
    }
}

#[cfg(test)]
mod connections_tests {
    use super::*;
    use crate::serving::connections::ConnectionLimit;
    use crate::testing::TestControl;
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

#[cfg(test)]
mod log_throttle_tests {
    use super::*;

    #[test]
    fn an_event_that_repeats_every_second_is_logged_once_a_minute() {
        let throttle = LogThrottle::default();
        let last: Vec<i64> = (0..=120_i64).filter(|second| throttle.is_due(Timestamp(second * 1_000))).collect();
        assert_eq!(last, [0, 60, 120]);
    }
}
