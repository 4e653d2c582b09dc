//! The item stream that a gRPC transport reads. It keeps the reader's permit until the transport
//! drops it. If a stream has ended and its reader does not read the rest, its connection is closed
//! after a timeout.

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
use crate::connections::Peer;

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
    /// If the reader reads nothing for `timeout` after the feeder's end, the connection to `peer` is
    /// closed. Nothing less ends a stream whose reader grants no window: hyper does not poll it.
    pub(crate) fn new(
        items: mpsc::Receiver<T>,
        feeder: JoinHandle<()>,
        permit: Arc<StreamPermit>,
        clock: Arc<dyn Clock>,
        timeout: Duration,
        peer: Option<Peer>,
    ) -> Self {
        let drain_timeout = DrainTimeout::new(clock, timeout);
        let ending = drain_timeout.clone();
        // A separate task, because the stream is not polled while its reader does not read.
        let mut drain = JoinSet::new();
        drain.spawn(async move {
            ending.after(feeder).await;
            if let Some(peer) = peer {
                tracing::debug!("a connection is closed because a stream of it is not read");
                peer.close();
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
    use ghost_domain::testing::ManualClock;
    use tokio_stream::StreamExt as _;

    use super::*;
    use crate::streams::readers::Readers;

    /// Lets every task run until it waits.
    async fn settle() {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn the_connection_of_a_reader_that_still_drains_its_queue_is_not_closed() {
        let clock = ManualClock::at(0);
        let permit = Arc::new(Readers::default().take(1).unwrap());
        let (sender, items) = mpsc::channel(8);
        for number in 0..8 {
            sender.try_send(number).unwrap();
        }
        let feeder = tokio::spawn(async move { drop(sender) });
        let peer = Peer::new(None);
        let timeout = Duration::from_secs(5);
        let mut stream = PermitStream::new(items, feeder, permit, clock.clone(), timeout, Some(peer.clone()));
        for number in 0..6 {
            settle().await;
            clock.advance(Duration::from_secs(4));
            settle().await;
            assert!(!peer.is_closed(), "it was closed before item {number}");
            assert_eq!(stream.next().await, Some(number));
        }
        settle().await;
        clock.advance(timeout);
        settle().await;
        assert!(peer.is_closed(), "it took nothing more");
    }
}
