//! The event feed.

use std::ops::Bound;

use ghost_domain::event::{Event, EventFilter, NewEvent};
use ghost_domain::{EventId, Timestamp};

use super::session::{Session, bound};
use crate::StoreError;
use crate::tables::{EventReads, EventWrites, Result};

impl EventReads for Session<'_> {
    fn event_list(&mut self, after: i64, filter: &EventFilter, limit: u32) -> Result<(Vec<Event>, i64)> {
        if limit == 0 {
            return Ok((Vec::new(), after));
        }
        let later = self.tables.events.range((Bound::Excluded(after), Bound::Unbounded));
        let found: Vec<Event> =
            later.map(|(_, event)| event).filter(|event| filter.matches(event)).take(bound(limit)).cloned().collect();
        // If the page is full, the feed was read up to its last event; if not, up to the end.
        let read_up_to = match found.last() {
            Some(last) if found.len() == bound(limit) => last.seq,
            _ => self.tables.counters.event.max(after),
        };
        Ok((found, read_up_to))
    }

    fn event_bounds(&mut self) -> Result<(i64, i64)> {
        let last = self.tables.counters.event;
        let first = self.tables.events.iter().next().map_or(last + 1, |(seq, _)| *seq);
        Ok((first, last))
    }
}

impl EventWrites for Session<'_> {
    fn event_append(&mut self, event_id: EventId, at: Timestamp, event: NewEvent) -> Result<()> {
        if event.kind.is_ephemeral() {
            return Err(StoreError::Row {
                table: "events",
                key: event_id.to_string(),
                what: format!("{} is ephemeral: it is published, never stored", event.kind),
            });
        }
        self.events.push((event_id, at, event));
        Ok(())
    }
}
