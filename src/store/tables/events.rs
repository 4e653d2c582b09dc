//! Rows and queries of the event feed.

use ghost_domain::EventPayload;
use ghost_domain::event::{Event, EventFilter, NewEvent};
use ghost_domain::{EventId, Timestamp};
use uuid::Uuid;

use super::prelude::*;

/// Maximum number of sequence numbers that one read with a filter covers.
const READ_SPAN_MAX: i64 = 10_000;

insert! {
    event: Event, "events";
    seq, event_id, ts, kind, agent_id, channel,
    correlation_id = event.correlation_id.as_deref().filter(|text| identifier(text).is_none()),
    correlation = event.correlation_id.as_deref().and_then(identifier),
    payload = match &event.correlation_id {
        Some(text) if identifier(text).is_some() => shortened(event.payload.text(), text),
        _ => event.payload.text().to_owned(),
    }
}

/// Replaces the event's correlation id in a stored payload. JSON text, as this program writes it,
/// never contains this character.
const CORRELATION_MARK: char = '\u{1}';

/// Parses an id, but only if `text` has the form in which this program writes ids.
fn identifier(text: &str) -> Option<Uuid> {
    Uuid::parse_str(text).ok().filter(|id| id.as_hyphenated().encode_lower(&mut Uuid::encode_buffer()) == text)
}

/// The payload with its correlation id replaced by [`CORRELATION_MARK`]. Most payloads contain the
/// id, so this saves space.
fn shortened(payload: &str, id: &str) -> String {
    payload.replace(id, CORRELATION_MARK.encode_utf8(&mut [0; 4]))
}

/// Decodes an event. An error names its sequence, so that a reader can continue after it.
fn read(row: &ReadRow<'_>) -> Result<Event> {
    let seq: i64 = get(Event::TABLE, row, 0)?;
    read_after_seq(row, seq).map_err(|error| match error {
        StoreError::Row { table, what, .. } => StoreError::Row { table, key: seq.to_string(), what },
        other => other,
    })
}

fn read_after_seq(row: &ReadRow<'_>, seq: i64) -> Result<Event> {
    const TABLE: &str = Event::TABLE;
    let payload: &str = get(TABLE, row, 7)?;
    let correlation = get::<Option<Uuid>>(TABLE, row, 8)?.map(|id| id.to_string());
    let whole = match &correlation {
        Some(id) if payload.contains(CORRELATION_MARK) => payload.replace(CORRELATION_MARK, id),
        _ => payload.to_owned(),
    };
    let correlation_id = if correlation.is_some() { correlation } else { get(TABLE, row, 6)? };
    let payload = EventPayload::read(whole).map_err(|error| unreadable(TABLE, payload, error))?;
    Ok(fields!(TABLE, row, 1, Event {
        event_id, ts, kind, agent_id, channel; seq: seq, correlation_id: correlation_id, payload: payload
    }))
}

impl Tx {
    /// Events after the sequence `after` that match the filter, in order, at most `limit`. The
    /// second value is the sequence up to which the feed was read; the next read continues there.
    /// If a row cannot be decoded, the reads before it return all earlier events, and the next read
    /// returns an error that names its sequence.
    pub fn event_list(&mut self, after: i64, filter: &EventFilter, limit: u32) -> Result<(Vec<Event>, i64)> {
        let (first, last) = self.event_bounds()?;
        let from = after.max(first - 1);
        if from >= last || limit == 0 {
            return Ok((Vec::new(), from));
        }
        let everything = *filter == EventFilter::default();
        let until = if everything { last } else { last.min(from.saturating_add(READ_SPAN_MAX)) };
        let mut wanted = Conditions::new(
            "SELECT seq, event_id, ts, kind, agent_id, channel, correlation_id, payload, correlation FROM events",
        )
        .when(Some(from), "seq > $1")
        .when(Some(until), "seq <= $1")
        .when(filter.agent_id.as_ref(), "agent_id = $1")
        .when(filter.channel.as_deref(), "channel = $1");
        if !filter.kinds.is_empty() {
            // All kinds are one bound value, so the text of the statement does not depend on their
            // number.
            let kinds = to_json(Event::TABLE, "filter", &filter.kinds)?;
            let condition = "EXISTS (SELECT 1 FROM {each $1} AS k WHERE k.value = kind OR (substr(k.value, length(k.value)) = '.' \
                             AND substr(kind, 1, length(k.value)) = k.value))";
            wanted = wanted.when(Some(kinds), condition);
        }
        let (sql, args) = wanted.order("seq", i64::from(limit));
        let rows = self.rows(sql, args, |row| Ok(read(row)))?;
        let count = rows.len();
        let mut found = Vec::with_capacity(count);
        for event in rows {
            match event {
                Ok(event) => found.push(event),
                Err(error) if found.is_empty() => return Err(error),
                // Return the events before the damaged one. The next read starts with it and
                // returns the error.
                Err(_) => break,
            }
        }
        let read_up_to = match found.last() {
            Some(event) if found.len() < count || found.len() as u64 == u64::from(limit) => event.seq,
            _ => until,
        };
        Ok((found, read_up_to))
    }

    /// The first sequence that is still stored and the last one assigned; `(1, 0)` before any
    /// event.
    pub fn event_bounds(&mut self) -> Result<(i64, i64)> {
        let sql = sql!(
            "SELECT (SELECT min(seq) FROM events), (SELECT max(seq) FROM events), \
                   (SELECT value FROM counters WHERE name = 'events')"
        );
        let (first, last, floor): (Option<i64>, Option<i64>, Option<i64>) = self
            .row(sql, args![], |row| {
                Ok((get(Event::TABLE, row, 0)?, get(Event::TABLE, row, 1)?, get(Event::TABLE, row, 2)?))
            })?
            .unwrap_or_default();
        let last = last.unwrap_or(0).max(floor.unwrap_or(0));
        Ok((first.unwrap_or(last + 1), last))
    }

    /// Appends an event. Its sequence is assigned at the end of the command, in the order of
    /// commands and of calls within one. An ephemeral kind is an error.
    pub fn event_append(&mut self, event_id: EventId, at: Timestamp, event: NewEvent) -> Result<()> {
        if event.kind.is_ephemeral() {
            return Err(StoreError::Row {
                table: Event::TABLE,
                key: event_id.to_string(),
                what: format!("{} is ephemeral: publish it, never store it", event.kind),
            });
        }
        let event = self.batch()?.event(event_id, at, event);
        self.put(&event)?;
        self.batch()?.events.push(Event { payload: event.payload.into_text(), ..event });
        Ok(())
    }
}
