//! What one reader of a stream gets and holds: the items; its permit, which counts it among the open streams of all
//! transports; the time limit to drain its queue after its stream has ended; and the stream of items that a gRPC transport
//! reads. A reader that still reads is never disconnected.
//!
//! Recent events are kept in the encodings of the transports, so that each stored event is encoded once, for any number of
//! readers.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ghost_domain::{Clock, Code, Event, Limits, Refusal};
use ghost_proto::{json, v1};
use ghost_world::World;
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::Stream;

use crate::convert;
use crate::serving::connections::Peer;

/// The number of open event streams, and of streams disconnected because their readers were too
/// slow.
#[derive(Default)]
pub(crate) struct Readers(Arc<AtomicUsize>, Arc<AtomicU64>);

/// Permission for one open stream. Dropping it makes the permit available again.
pub(crate) struct StreamPermit(Arc<AtomicUsize>, Arc<AtomicU64>);

impl Readers {
    pub(crate) fn take(&self, limit: u32) -> Result<StreamPermit, Refusal> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |open| (open < limit).then_some(open + 1));
        match taken {
            Ok(_) => Ok(StreamPermit(Arc::clone(&self.0), Arc::clone(&self.1))),
            Err(open) => {
                Err(Refusal::new(Code::RateLimited, format!("{open} event streams are open, which is the limit"))
                    .hint("end one of them, or raise limits.subscribers_max in world-config.yaml")
                    .details(serde_json::json!({ "subscribers_max": limit })))
            }
        }
    }

    /// Number of open streams.
    pub(crate) fn open(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }

    /// Number of streams that were disconnected since the daemon started because their readers were
    /// too slow.
    pub(crate) fn cut_off(&self) -> u64 {
        self.1.load(Ordering::Acquire)
    }
}

impl StreamPermit {
    /// Counts its stream as disconnected.
    pub(crate) fn count_cut_off(&self) {
        self.1.fetch_add(1, Ordering::AcqRel);
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The drain timeout of one reader. Clones share it.
#[derive(Clone)]
pub(crate) struct DrainTimeout {
    clock: Arc<dyn Clock>,
    timeout: Duration,
    taken: Arc<Notify>,
}

impl DrainTimeout {
    /// The drain timeout of a reader of this world.
    pub(crate) fn of(world: &World) -> Self {
        let ctx = world.ctx();
        Self::new(Arc::clone(&ctx.ports.clock), Limits::seconds(ctx.limits().reader_stall_seconds))
    }

    /// A reader that reads nothing for `timeout` times out.
    fn new(clock: Arc<dyn Clock>, timeout: Duration) -> Self {
        Self { clock, timeout, taken: Arc::default() }
    }

    /// Restarts the timeout, because the reader has read something.
    pub(crate) fn taken(&self) {
        self.taken.notify_one();
    }

    /// Completes when the feeder has ended and the reader has then read nothing for the timeout.
    pub(crate) async fn after(&self, feeder: JoinHandle<()>) {
        // If the feeder panicked, the stream has ended too.
        let _ = feeder.await;
        self.wait().await;
    }

    /// Completes when the reader has read nothing for the timeout.
    pub(crate) async fn wait(&self) {
        loop {
            tokio::select! {
                biased;
                () = self.taken.notified() => {}
                () = self.clock.sleep(self.timeout) => return,
            }
        }
    }
}

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
        drain_timeout: DrainTimeout,
        peer: Option<Peer>,
    ) -> Self {
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

/// One item of a stream.
#[derive(Debug)]
pub(crate) enum Item {
    /// An event, and the position after it.
    Event(Arc<EncodedEvent>, i64),
    /// A sign of life. Every matching stored event up to this position has been sent.
    Position(i64),
    /// The final item.
    Ended(Ended),
}

/// Why the daemon ended a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The reader was too slow.
    Lagged,
    /// The daemon is stopping.
    Stopping,
    /// The feed could not be read.
    Failed,
}

/// The end of a stream that its reader can resume.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub reason: EndReason,
    pub refusal: Refusal,
    /// Every matching stored event up to this position has been sent.
    pub position: i64,
}

/// Number of slots for recent events. Readers that keep up find their events here.
const SLOTS: usize = 512;

/// An event in the encodings of the transports.
#[derive(Debug)]
pub(crate) struct EncodedEvent {
    /// The gRPC message.
    pub wire: v1::Event,
    /// Whether the event is streamed but never stored.
    pub ephemeral: bool,
    text: OnceLock<String>,
}

impl EncodedEvent {
    pub(crate) fn of(event: &Event) -> Self {
        Self { wire: convert::event(event), ephemeral: event.kind.is_ephemeral(), text: OnceLock::new() }
    }

    /// One line of JSON, for SSE, WebSocket and `ghostctl --json`.
    pub(crate) fn text(&self) -> &str {
        self.text.get_or_init(|| json::event(&self.wire, self.ephemeral).to_string())
    }
}

/// The newest events that some reader got. The slot of an event is its sequence number modulo the
/// number of slots.
pub(crate) struct RecentEvents(Box<[Mutex<Option<Arc<EncodedEvent>>>]>);

impl Default for RecentEvents {
    fn default() -> Self {
        Self((0..SLOTS).map(|_| Mutex::new(None)).collect())
    }
}

impl RecentEvents {
    /// The encoded event. It is encoded only if its slot does not contain it.
    pub(crate) fn encoded(&self, event: &Event) -> Arc<EncodedEvent> {
        // Many ephemeral events share one sequence number, so they are not cached.
        let slot = usize::try_from(event.seq).ok().and_then(|seq| self.0.get(seq % SLOTS));
        let Some(slot) = slot.filter(|_| !event.kind.is_ephemeral()) else { return Arc::new(EncodedEvent::of(event)) };
        // A slot is replaced as a whole, so the value under a poisoned lock is still intact.
        let mut cached = slot.lock().unwrap_or_else(PoisonError::into_inner);
        match cached.as_ref().filter(|cached| cached.wire.seq == event.seq) {
            Some(cached) => Arc::clone(cached),
            None => {
                let made = Arc::new(EncodedEvent::of(event));
                *cached = Some(Arc::clone(&made));
                made
            }
        }
    }
}

#[cfg(test)]
mod drain_tests {
    use ghost_domain::testing::ManualClock;
    use tokio_stream::StreamExt as _;

    use super::*;

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
        let mut stream =
            PermitStream::new(items, feeder, permit, DrainTimeout::new(clock.clone(), timeout), Some(peer.clone()));
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

#[cfg(test)]
mod recent_tests {
    use super::*;
    use ghost_domain::{EventId, EventKind, Timestamp};
    use proptest::prelude::*;
    use serde_json::json;

    fn event(seq: i64, kind: EventKind) -> Event {
        Event {
            seq,
            event_id: EventId(uuid::Uuid::from_u128(7)),
            ts: Timestamp(1),
            kind,
            agent_id: None,
            channel: None,
            correlation_id: None,
            payload: json!({ "seq": seq, "lines": "a\nb\r\u{2028}" }).into(),
        }
    }

    #[test]
    fn an_event_is_encoded_once_and_a_later_one_replaces_it() {
        let recent = RecentEvents::default();
        let first = recent.encoded(&event(5, EventKind::TurnStarted));
        assert!(Arc::ptr_eq(&first, &recent.encoded(&event(5, EventKind::TurnStarted))));
        let later = i64::try_from(SLOTS).unwrap() + 5;
        assert_eq!(recent.encoded(&event(later, EventKind::TurnStarted)).wire.seq, later);
        assert_eq!(recent.encoded(&event(5, EventKind::TurnStarted)).wire.seq, 5);
        let delta = recent.encoded(&event(5, EventKind::ModelDelta));
        assert!(delta.ephemeral && !first.ephemeral);
        assert!(delta.text().contains("\"ephemeral\":true"));
    }

    #[test]
    fn an_event_is_one_line() {
        let encoded = EncodedEvent::of(&event(5, EventKind::TurnStarted));
        assert!(!encoded.text().contains(['\n', '\r']), "{}", encoded.text());
    }

    proptest! {
        #[test]
        fn no_event_is_returned_for_another(seqs in prop::collection::vec(0_i64..3_000, 1..200)) {
            let recent = RecentEvents::default();
            for seq in seqs {
                let encoded = recent.encoded(&event(seq, EventKind::TurnStarted));
                prop_assert_eq!(encoded.wire.seq, seq);
                let parsed: serde_json::Value = serde_json::from_str(encoded.text()).unwrap();
                prop_assert_eq!(&parsed["payload"]["seq"], &json!(seq));
            }
        }
    }
}
