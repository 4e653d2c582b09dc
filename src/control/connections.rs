//! Connections of readers that may stall: the bytes that a peer does not take are waited for only so long, and one stream
//! of a gRPC connection can be ended without the others.
//!
//! Must never: hold a connection or a stream for a peer that takes nothing of what it is sent.

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

/// A connection that fails when its peer has taken nothing for too long.
pub(crate) struct StallTimeout<IO> {
    io: IO,
    clock: Arc<dyn Clock>,
    most: Duration,
    /// Runs while the peer takes nothing.
    waits: Option<BoxFuture<'static, ()>>,
    /// Held as long as the connection is, whatever it has become.
    _permit: ConnectionPermit,
}

impl<IO> StallTimeout<IO> {
    /// Waits as long as the world's limits say.
    pub(crate) fn new(io: IO, world: &World, permit: ConnectionPermit) -> Self {
        let most = Limits::seconds(world.ctx().limits().reader_stall_seconds);
        Self { io, clock: Arc::clone(&world.ctx().ports.clock), most, waits: None, _permit: permit }
    }

    /// Begins to wait where a write cannot go on, and ends the connection when it has waited long enough.
    fn judge(&mut self, written: Poll<io::Result<usize>>, ctx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waits = None;
            return written;
        }
        let (clock, most) = (&self.clock, self.most);
        let waits = self.waits.get_or_insert_with(|| clock.sleep(most));
        waits.as_mut().poll(ctx).map(|()| {
            // What has completed must not be polled again, should there be another write.
            self.waits = None;
            Err(io::Error::new(io::ErrorKind::TimedOut, "the peer took nothing of what it was sent for too long"))
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
        self.judge(written, ctx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(ctx, pieces);
        self.judge(written, ctx)
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
    /// Of the stream that the task serves.
    static RESET: Reset;
}

/// Ends one stream of a connection, as if its client had gone. A stream whose client grants it no window is not asked for
/// more, so nothing but this ends it.
#[derive(Clone, Default)]
pub(crate) struct Reset(Arc<Notify>);

impl Reset {
    /// Of the stream that is served here, if it is one that can be ended.
    pub(crate) fn of_this_stream() -> Option<Self> {
        RESET.try_with(Clone::clone).ok()
    }

    /// Ends it.
    pub(crate) fn fire(&self) {
        self.0.notify_one();
    }
}

/// Runs each stream of a gRPC connection as a task of its own that can be ended.
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
                // What is dropped unfinished is reset.
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
    async fn a_peer_that_takes_nothing_is_waited_for_only_so_long() {
        let scene = Scene::with("limits: { reader_stall_seconds: 5 }\n").await;
        let (near, mut far) = tokio::io::duplex(8);
        let permit = crate::connection_limit::ConnectionLimit::default().take(&scene.world).await;
        let mut near = StallTimeout::new(near, &scene.world, permit);
        near.write_all(&[1; 8]).await.unwrap();
        // It takes a little now and then: that is no stall.
        for _ in 0..3 {
            let waits = near.write(&[2; 8]);
            tokio::pin!(waits);
            assert!(futures_util::poll!(&mut waits).is_pending());
            scene.clock.advance(Duration::from_secs(4));
            assert!(futures_util::poll!(&mut waits).is_pending());
            far.read_exact(&mut [0; 8]).await.unwrap();
            assert_eq!(waits.await.unwrap(), 8);
        }
        let waits = near.write(&[3; 8]);
        tokio::pin!(waits);
        assert!(futures_util::poll!(&mut waits).is_pending());
        scene.clock.advance(Duration::from_secs(6));
        assert_eq!(waits.as_mut().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // One that is tried once more is waited for anew.
        assert!(futures_util::poll!(&mut waits).is_pending());
    }

    #[tokio::test]
    async fn one_stream_is_ended_and_its_neighbour_goes_on() {
        use hyper::rt::Executor as _;
        let (tell, told) = tokio::sync::oneshot::channel();
        let (hold, held) = tokio::sync::oneshot::channel::<()>();
        Streams.execute(async move {
            let _hold = hold;
            tell.send(Reset::of_this_stream()).ok();
            std::future::pending::<()>().await;
        });
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        Streams.execute(async move {
            // Who waits for it is there.
            let _ = end.send(());
        });
        told.await.unwrap().expect("a stream knows how it is ended").fire();
        assert!(held.await.is_err(), "it was dropped");
        ended.await.unwrap();
        assert!(Reset::of_this_stream().is_none(), "not outside of a stream");
    }
}
