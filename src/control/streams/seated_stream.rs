//! What a gRPC transport reads of a stream: the reader keeps its seat until it is truly gone, and one that is cut off and
//! takes no note of it is gone within a bound.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ghost_domain::Clock;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::Stream;

use super::drain_timeout::DrainTimeout;
use super::readers::Seat;
use crate::connections::Reset;

/// The items of a stream with the seat of their reader.
pub(crate) struct SeatedStream<T> {
    items: mpsc::Receiver<T>,
    /// Held as long as the transport has the stream: one that is not read counts as a reader until it is gone.
    _seat: Arc<Seat>,
    drain_timeout: DrainTimeout,
    /// Waits for the farewell; ends with the stream.
    _waits: JoinSet<()>,
}

impl<T> SeatedStream<T> {
    /// Must be made where the stream is served. Its reader may take nothing for `patience` after the feeder's end; then
    /// the stream is reset.
    pub(crate) fn new(
        items: mpsc::Receiver<T>,
        feeder: JoinHandle<()>,
        seat: Arc<Seat>,
        clock: Arc<dyn Clock>,
        patience: Duration,
    ) -> Self {
        let reset = Reset::of_this_stream();
        let drain_timeout = DrainTimeout::new(clock, patience);
        let ending = drain_timeout.clone();
        // A task of its own, since nobody looks here while a reader does not read.
        let mut waits = JoinSet::new();
        waits.spawn(async move {
            ending.after(feeder).await;
            if let Some(reset) = reset {
                reset.fire();
            }
        });
        Self { items, _seat: seat, drain_timeout, _waits: waits }
    }
}

impl<T> Stream for SeatedStream<T> {
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

    /// Lets every task get to where it waits.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_reader_that_still_takes_what_is_left_is_not_reset() {
        let clock = ManualClock::at(0);
        let seat = Arc::new(Readers::default().take(1).unwrap());
        let (sender, items) = mpsc::channel(8);
        for number in 0..8 {
            sender.try_send(number).unwrap();
        }
        let feeder = tokio::spawn(async move { drop(sender) });
        let (give, given) = oneshot::channel();
        let (hold, mut held) = oneshot::channel::<()>();
        let time = clock.clone();
        Streams.execute(async move {
            let _hold = hold;
            let stream = SeatedStream::new(items, feeder, seat, time, Duration::from_secs(5));
            assert!(give.send(stream).is_ok());
            std::future::pending::<()>().await;
        });
        let mut stream = given.await.unwrap();
        for number in 0..6 {
            settle().await;
            clock.advance(Duration::from_secs(4));
            settle().await;
            assert_eq!(held.try_recv(), Err(oneshot::error::TryRecvError::Empty), "it was reset before item {number}");
            assert_eq!(stream.next().await, Some(number));
        }
        settle().await;
        clock.advance(Duration::from_secs(5));
        assert!(held.await.is_err(), "it took nothing more");
    }
}
