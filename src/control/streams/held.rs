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

use super::Seat;
use crate::connections::Reset;

/// The items of a stream with the seat of their reader.
pub(crate) struct Held<T> {
    items: mpsc::Receiver<T>,
    /// Held as long as the transport has the stream: one that is not read counts as a reader until it is gone.
    _seat: Arc<Seat>,
    /// Ends with the stream.
    _farewell: JoinSet<()>,
}

impl<T> Held<T> {
    /// Must be made where the stream is served. Its reader has `patience` after the feeder's end to read what is left;
    /// then the stream is reset.
    pub(crate) fn new(
        items: mpsc::Receiver<T>,
        feeder: JoinHandle<()>,
        seat: Arc<Seat>,
        clock: Arc<dyn Clock>,
        patience: Duration,
    ) -> Self {
        let reset = Reset::of_this_stream();
        // A task of its own, since nobody looks here while a reader does not read.
        let mut farewell = JoinSet::new();
        farewell.spawn(async move {
            // A feeder does not panic; should it, the stream has ended all the same.
            let _ = feeder.await;
            clock.sleep(patience).await;
            if let Some(reset) = reset {
                reset.fire();
            }
        });
        Self { items, _seat: seat, _farewell: farewell }
    }
}

impl<T> Stream for Held<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.items.poll_recv(cx)
    }
}
