//! The `events` table: the feed.

use async_trait::async_trait;
use ghost_domain::event::{Event, EventFilter, NewEvent};
use ghost_domain::{EventId, Timestamp};

use crate::error::Result;

/// Reading the feed.
#[async_trait]
pub trait EventReads {
    /// Events after `after` that the filter wants, in order, at most `limit`. Besides them, the sequence up to which
    /// the feed was looked at: where nothing matched, the next read goes on from there. A row that does not read back is an
    /// error under its sequence, once everything before it has been given.
    async fn event_list(&mut self, after: i64, filter: &EventFilter, limit: u32) -> Result<(Vec<Event>, i64)>;

    /// The first sequence that is still kept and the last one given out; `(1, 0)` before any event.
    async fn event_bounds(&mut self) -> Result<(i64, i64)>;
}

/// Writing the feed.
#[async_trait]
pub trait EventWrites {
    /// States an event. Its sequence is given at the end of the transaction, in the order of commands and of calls
    /// within one. An ephemeral kind is an error here.
    async fn event_append(&mut self, event_id: EventId, at: Timestamp, event: NewEvent) -> Result<()>;
}
