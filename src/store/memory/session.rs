//! The tables as one command or query sees them, for the time of one call.

use ghost_domain::Event;
use ghost_domain::event::NewEvent;
use ghost_domain::ports::Signal;
use ghost_domain::{EventId, Timestamp};

use super::tables::{Tables, next};
use crate::tables::{PAGE_MAX, Reads, Writes, page_size};

/// The largest number of rows in one page of a list.
pub(super) const LIST_MAX: usize = PAGE_MAX as usize;

/// The first `limit` rows of a list, which are in order.
pub(super) fn page<'a, R: Clone + 'a>(rows: impl IntoIterator<Item = &'a R>, limit: u32) -> Vec<R> {
    rows.into_iter().take(bound(page_size(limit))).cloned().collect()
}

/// A limit that the caller chose, as `usize`.
pub(super) fn bound(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// A number of rows, as `u32`.
pub(super) fn count(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

/// One command or query. Reads and writes share it, so a command sees its own writes. A query gets
/// only the [`Reads`] trait of it.
pub(super) struct Session<'a> {
    pub(super) tables: &'a mut Tables,
    pub(super) events: Vec<(EventId, Timestamp, NewEvent)>,
    pub(super) signals: Vec<Signal>,
}

impl<'a> Session<'a> {
    pub(super) fn new(tables: &'a mut Tables) -> Self {
        Self { tables, events: Vec::new(), signals: Vec::new() }
    }

    /// Assigns sequence numbers to the command's events and stores them. Returns the events and the
    /// signals.
    pub(super) fn finish(self) -> (Vec<Event>, Vec<Signal>) {
        let Self { tables, events, signals } = self;
        let events = events
            .into_iter()
            .map(|(event_id, ts, new)| {
                let event = Event {
                    seq: next(&mut tables.counters.event),
                    event_id,
                    ts,
                    kind: new.kind,
                    agent_id: new.agent_id,
                    channel: new.channel,
                    correlation_id: new.correlation_id,
                    payload: new.payload.into(),
                };
                tables.events.put(event.seq, event.clone());
                event
            })
            .collect();
        (events, signals)
    }
}

impl Reads for Session<'_> {}

impl Writes for Session<'_> {
    fn signal(&mut self, signal: Signal) {
        self.signals.push(signal);
    }
}
