//! The item stream that a gRPC transport reads. It keeps the reader's permit until the transport
//! drops it. A stream that has ended is reset after a timeout if its reader does not read the rest.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ghost_domain::Clock;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::Stream;

use super::drain_timeout::DrainTimeout;
use super::readers::StreamPermit;
use crate::connections::Reset;

/// The items of a stream with the permit of its reader.
pub(crate) struct PermitStream<T> {
    items: mpsc::Receiver<T>,
    /// Kept as long as the transport keeps the stream: an open stream is counted even if its reader
    /// does not read.
    _permit: Arc<StreamPermit>,
    drain_timeout: DrainTimeout,
    /// Waits for the drain timeout. Dropping it aborts the wait.
    _drain: JoinSet<()>,
}

impl<T> PermitStream<T> {
    /// Must be called in the task that serves the stream. If the reader reads nothing for `timeout`
    /// after the feeder's end, the stream is reset.
    pub(crate) fn new(
        items: mpsc::Receiver<T>,
        feeder: JoinHandle<()>,
        permit: Arc<StreamPermit>,
        clock: Arc<dyn Clock>,
        timeout: Duration,
    ) -> Self {
        let reset = Reset::of_this_stream();
        let drain_timeout = DrainTimeout::new(clock, timeout);
        let ending = drain_timeout.clone();
        // A separate task, because the stream is not polled while its reader does not read.
        let mut drain = JoinSet::new();
        drain.spawn(async move {
            ending.after(feeder).await;
            if let Some(reset) = reset {
                reset.fire();
            }
        });
        Self { items, _permit: permit, drain_timeout, _drain: drain }
    }
}

impl<T> Stream for PermitStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<Option<T>> {
        let item = self.items.poll_recv(ctx);
        if item.is_ready() {
            self.drain_timeout.taken();
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use ghost_provider::testing::ManualClock;
    use hyper::rt::Executor as _;
    use tokio::sync::oneshot;
    use tokio_stream::StreamExt as _;

    use super::*;
    use crate::connections::Streams;
    use crate::streams::readers::Readers;

    /// Lets every task run until it waits.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_reader_that_still_drains_its_queue_is_not_reset() {
        let clock = ManualClock::at(0);
        let permit = Arc::new(Readers::default().take(1).unwrap());
        let (sender, items) = mpsc::channel(8);
        for number in 0..8 {
            sender.try_send(number).unwrap();
        }
        let feeder = tokio::spawn(async move { drop(sender) });
        let (give, given) = oneshot::channel();
        let (hold, mut dropped) = oneshot::channel::<()>();
        let time = clock.clone();
        Streams.execute(async move {
            let _hold = hold;
            let stream = PermitStream::new(items, feeder, permit, time, Duration::from_secs(5));
            assert!(give.send(stream).is_ok());
            std::future::pending::<()>().await;
        });
        let mut stream = given.await.unwrap();
        for number in 0..6 {
            settle().await;
            clock.advance(Duration::from_secs(4));
            settle().await;
            assert_eq!(
                dropped.try_recv(),
                Err(oneshot::error::TryRecvError::Empty),
                "it was reset before item {number}"
            );
            assert_eq!(stream.next().await, Some(number));
        }
        settle().await;
        clock.advance(Duration::from_secs(5));
        assert!(dropped.await.is_err(), "it took nothing more");
    }
}
