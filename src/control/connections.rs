//! Limits for peers that stop reading: a write that makes no progress fails after a timeout, and one
//! stream of a gRPC connection can be reset without the others.
//!
//! Must never: keep a connection or a stream open for a peer that reads nothing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ghost_domain::time::BoxFuture;
use ghost_domain::{Clock, Limits};
use ghost_world::World;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tonic::transport::server::Connected;

use crate::connection_limit::ConnectionPermit;

/// A connection whose writes fail when the peer has read nothing for too long.
pub(crate) struct StallTimeout<IO> {
    io: IO,
    clock: Arc<dyn Clock>,
    limit: Duration,
    /// Runs while a write waits for the peer.
    timer: Option<BoxFuture<'static, ()>>,
    /// Kept as long as the connection, even after an HTTP upgrade.
    _permit: ConnectionPermit,
}

impl<IO> StallTimeout<IO> {
    /// Uses `reader_stall_seconds` of the world's current limits as the timeout.
    pub(crate) fn new(io: IO, world: &World, permit: ConnectionPermit) -> Self {
        let limit = Limits::seconds(world.ctx().limits().reader_stall_seconds);
        Self { io, clock: Arc::clone(&world.ctx().ports.clock), limit, timer: None, _permit: permit }
    }

    /// Starts the timer when a write cannot proceed, and fails the write when the timer ends.
    fn time_out(&mut self, written: Poll<io::Result<usize>>, ctx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.timer = None;
            return written;
        }
        let (clock, limit) = (&self.clock, self.limit);
        let timer = self.timer.get_or_insert_with(|| clock.sleep(limit));
        timer.as_mut().poll(ctx).map(|()| {
            // A completed future must not be polled again; the next write starts a new timer.
            self.timer = None;
            Err(io::Error::new(io::ErrorKind::TimedOut, "the peer has read nothing for too long"))
        })
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for StallTimeout<IO> {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(ctx, buf)
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for StallTimeout<IO> {
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

impl<IO: Connected> Connected for StallTimeout<IO> {
    type ConnectInfo = IO::ConnectInfo;

    fn connect_info(&self) -> IO::ConnectInfo {
        self.io.connect_info()
    }
}

tokio::task_local! {
    /// The reset handle of the stream that the task serves.
    static RESET: Reset;
}

/// Resets one stream of a connection, as if its client had gone. hyper does not poll a stream whose
/// client grants no window, so the stream cannot end by itself.
#[derive(Clone, Default)]
pub(crate) struct Reset(Arc<Notify>);

impl Reset {
    /// The handle of the stream that the current task serves, or `None` outside of one.
    pub(crate) fn of_this_stream() -> Option<Self> {
        RESET.try_with(Clone::clone).ok()
    }

    /// Resets the stream.
    pub(crate) fn fire(&self) {
        self.0.notify_one();
    }
}

/// Runs each stream of a gRPC connection as a task of its own, which can be reset.
#[derive(Clone)]
pub(crate) struct Streams;

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        let reset = Reset::default();
        let scope = reset.clone();
        tokio::spawn(RESET.scope(scope, async move {
            tokio::select! {
                biased;
                // hyper resets a stream that is dropped before its end.
                () = reset.0.notified() => {}
                _ = stream => {}
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Scene;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn a_write_fails_when_the_peer_reads_nothing_for_too_long() {
        let scene = Scene::with("limits: { reader_stall_seconds: 5 }\n").await;
        let (near, mut far) = tokio::io::duplex(8);
        let permit = crate::connection_limit::ConnectionLimit::default().take(&scene.world).await;
        let mut near = StallTimeout::new(near, &scene.world, permit);
        near.write_all(&[1; 8]).await.unwrap();
        // A peer that reads slowly has not stalled.
        for _ in 0..3 {
            let write = near.write(&[2; 8]);
            tokio::pin!(write);
            assert!(futures_util::poll!(&mut write).is_pending());
            scene.clock.advance(Duration::from_secs(4));
            assert!(futures_util::poll!(&mut write).is_pending());
            far.read_exact(&mut [0; 8]).await.unwrap();
            assert_eq!(write.await.unwrap(), 8);
        }
        let write = near.write(&[3; 8]);
        tokio::pin!(write);
        assert!(futures_util::poll!(&mut write).is_pending());
        scene.clock.advance(Duration::from_secs(6));
        assert_eq!(write.as_mut().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // A new write starts a new timer.
        assert!(futures_util::poll!(&mut write).is_pending());
    }

    #[tokio::test]
    async fn resetting_one_stream_leaves_the_others_running() {
        use hyper::rt::Executor as _;
        let (sender, received) = tokio::sync::oneshot::channel();
        let (hold, dropped) = tokio::sync::oneshot::channel::<()>();
        Streams.execute(async move {
            let _hold = hold;
            sender.send(Reset::of_this_stream()).ok();
            std::future::pending::<()>().await;
        });
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        Streams.execute(async move {
            // The receiver is still there.
            let _ = end.send(());
        });
        received.await.unwrap().expect("a stream knows how it is ended").fire();
        assert!(dropped.await.is_err(), "it was dropped");
        ended.await.unwrap();
        assert!(Reset::of_this_stream().is_none(), "not outside of a stream");
    }
}
