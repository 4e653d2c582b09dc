//! Events as they leave: made once, however many readers there are.
//!
//! Must never: hold more than the newest events, or give one event for another.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ghost_domain::Event;
use ghost_proto::v1;

use crate::convert;

/// Events that are remembered. Readers that keep up are all within these.
const LATELY: usize = 512;

/// An event in the forms in which it leaves.
#[derive(Debug)]
pub(crate) struct Shown {
    /// As gRPC sends it.
    pub wire: v1::Event,
    /// Whether it is streamed only.
    pub ephemeral: bool,
    text: OnceLock<String>,
}

impl Shown {
    pub(crate) fn of(event: &Event) -> Self {
        Self { wire: convert::event(event), ephemeral: event.kind.is_ephemeral(), text: OnceLock::new() }
    }

    /// As SSE, WebSocket and `ghostctl --json` show it: one line of JSON.
    pub(crate) fn text(&self) -> &str {
        self.text.get_or_init(|| ghost_record::event(&self.wire, self.ephemeral).to_string())
    }
}

/// The newest events that some reader got, each at the place of its sequence.
pub(crate) struct Lately(Box<[Mutex<Option<Arc<Shown>>>]>);

impl Default for Lately {
    fn default() -> Self {
        Self((0..LATELY).map(|_| Mutex::new(None)).collect())
    }
}

impl Lately {
    /// The event as it leaves; made only if no reader got it lately.
    pub(crate) fn shown(&self, event: &Event) -> Arc<Shown> {
        // Many ephemeral events share one sequence.
        let place = usize::try_from(event.seq).ok().and_then(|seq| self.0.get(seq % LATELY));
        let Some(place) = place.filter(|_| !event.kind.is_ephemeral()) else { return Arc::new(Shown::of(event)) };
        // What is put here is whole, so a poisoned lock still guards a whole value.
        let mut kept = place.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.as_ref().filter(|kept| kept.wire.seq == event.seq) {
            Some(kept) => Arc::clone(kept),
            None => {
                let made = Arc::new(Shown::of(event));
                *kept = Some(Arc::clone(&made));
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
    fn an_event_is_made_once_and_a_later_one_takes_its_place() {
        let lately = Lately::default();
        let first = lately.shown(&event(5, EventKind::TurnStarted));
        assert!(Arc::ptr_eq(&first, &lately.shown(&event(5, EventKind::TurnStarted))));
        let later = i64::try_from(LATELY).unwrap() + 5;
        assert_eq!(lately.shown(&event(later, EventKind::TurnStarted)).wire.seq, later);
        assert_eq!(lately.shown(&event(5, EventKind::TurnStarted)).wire.seq, 5);
        let delta = lately.shown(&event(5, EventKind::ModelDelta));
        assert!(delta.ephemeral && !first.ephemeral);
        assert!(delta.text().contains("\"ephemeral\":true"));
    }

    #[test]
    fn an_event_is_one_line() {
        let shown = Shown::of(&event(5, EventKind::TurnStarted));
        assert!(!shown.text().contains(['\n', '\r']), "{}", shown.text());
    }

    proptest! {
        #[test]
        fn no_event_is_given_for_another(seqs in prop::collection::vec(0_i64..3_000, 1..200)) {
            let lately = Lately::default();
            for seq in seqs {
                let shown = lately.shown(&event(seq, EventKind::TurnStarted));
                prop_assert_eq!(shown.wire.seq, seq);
                let said: serde_json::Value = serde_json::from_str(shown.text()).unwrap();
                prop_assert_eq!(&said["payload"]["seq"], &json!(seq));
            }
        }
    }
}
