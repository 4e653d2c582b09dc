//! The `events` table, which is the event feed.

use ghost_domain::event::{Event, EventFilter, NewEvent};
use ghost_domain::{EventId, Timestamp};

use crate::error::Result;

/// Reads of the feed.
pub trait EventReads {
    /// Events after the sequence `after` that match the filter, in order, at most `limit`. The
    /// second value is the sequence up to which the feed was read; the next read continues there.
    /// If a row cannot be decoded, the reads before it return all earlier events, and the next read
    /// returns an error that names its sequence.
    fn event_list(&mut self, after: i64, filter: &EventFilter, limit: u32) -> Result<(Vec<Event>, i64)>;

    /// The first sequence that is still stored and the last one assigned; `(1, 0)` before any
    /// event.
    fn event_bounds(&mut self) -> Result<(i64, i64)>;
}

/// Writes of the feed.
pub trait EventWrites {
    /// Appends an event. Its sequence is assigned at the end of the command, in the order of
    /// commands and of calls within one. An ephemeral kind is an error.
    fn event_append(&mut self, event_id: EventId, at: Timestamp, event: NewEvent) -> Result<()>;
}
