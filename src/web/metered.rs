//! A stream with bounds: bytes in both directions together, and silence.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ghost_domain::time::BoxFuture;
use ghost_domain::{Clock, Timestamp};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that fails once its bytes are used up, or when neither side has sent anything for a while.
pub(crate) struct Metered<S> {
    stream: S,
    left: u64,
    idle: Duration,
    active: Timestamp,
    alarm: BoxFuture<'static, ()>,
    clock: Arc<dyn Clock>,
}

impl<S> Metered<S> {
    pub(crate) fn new(stream: S, bytes: u64, idle: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { stream, left: bytes, idle, active: clock.steady(), alarm: clock.sleep(idle), clock }
    }

    /// Counts bytes that went through.
    fn count(&mut self, bytes: usize) -> io::Result<()> {
        self.active = self.clock.steady();
        match self.left.checked_sub(u64::try_from(bytes).unwrap_or(u64::MAX)) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(io::Error::other("the connection has used its bytes"))
            }
        }
    }

    /// Fails if nothing has happened for too long.
    fn check_silence(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.alarm.as_mut().poll(cx).is_ready() {
            let silent = self.clock.steady().since(self.active);
            if silent >= self.idle {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.alarm = self.clock.sleep(self.idle.saturating_sub(silent));
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match Pin::new(&mut self.stream).poll_read(cx, buf) {
            Poll::Ready(Ok(())) => Poll::Ready(self.count(buf.filled().len() - before)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => match self.check_silence(cx) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::other("the connection has used its bytes")));
        }
        let allowed = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        match Pin::new(&mut self.stream).poll_write(cx, &buf[..allowed]) {
            Poll::Ready(Ok(count)) => Poll::Ready(self.count(count).map(|()| count)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => match self.check_silence(cx) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
