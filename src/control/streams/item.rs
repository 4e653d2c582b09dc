//! The items that a reader gets from a stream. Recent events are kept in the encodings of the transports, so that each stored
//! event is encoded once, for any number of readers.
//!
//! The cache must never keep more than the newest events, or return one event for another.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ghost_domain::{Event, Refusal};
use ghost_proto::{json, v1};

use crate::convert;

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
mod tests {
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
