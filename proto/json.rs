//! The messages as JSON. `ghostctl --json`, REST and the event streams all use these forms, so that
//! programs can rely on them. `build.rs` derives `Serialize` for the messages that clients get: a
//! key is the name of its field. A time `x_ms` is written as `x` in RFC 3339, an amount `x_micros`
//! as `x_usd` in dollars, and JSON text `x_json` as the value `x`. `build.rs` lists the exceptions.
//!
//! This module must never leave out a key because it has no value (the value is `null`), or give an
//! id different names in different records. Exception: events leave out `channel` and
//! `correlation_id` if they have none.

use jiff::Timestamp;
use jiff::fmt::temporal::DateTimePrinter;
use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::v1;

/// A record as JSON.
#[must_use]
pub fn value<T: Serialize>(record: &T) -> Value {
    // A message always serializes: its keys are texts. So the error text is never shown.
    serde_json::to_value(record).unwrap_or_else(|error| Value::from(error.to_string()))
}

/// A record, or several, as indented JSON text.
#[must_use]
pub fn text<T: Serialize>(records: &T) -> String {
    serde_json::to_string_pretty(records).unwrap_or_else(|error| Value::from(error.to_string()).to_string())
}

/// An event as JSON. `ephemeral` marks an event that is streamed but not stored.
#[must_use]
pub fn event(event: &v1::Event, ephemeral: bool) -> Value {
    let mut json = value(event);
    if ephemeral && let Value::Object(object) = &mut json {
        object.insert("ephemeral".into(), true.into());
    }
    json
}

/// Parses JSON text from the daemon. Empty text becomes `null`; text that is not JSON becomes a
/// string.
#[must_use]
pub fn parsed(text: &str) -> Value {
    if text.is_empty() {
        return Value::Null;
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

/// Formats milliseconds since 1970 as RFC 3339 in UTC: `2026-11-21T22:08:00.000Z`.
#[must_use]
pub fn rfc3339(ms: i64) -> String {
    // The calendar ends with the year 9999; its end stands for all that is later.
    let end = if ms < 0 { Timestamp::MIN } else { Timestamp::MAX };
    let at = Timestamp::from_millisecond(ms).unwrap_or(end);
    DateTimePrinter::new().precision(Some(3)).timestamp_to_string(&at)
}

// The functions below serialize fields. A field is a value or an `Option` of it.

pub(crate) fn instant<T: Copy + Into<Option<i64>>, S: Serializer>(ms: &T, s: S) -> Result<S::Ok, S::Error> {
    (*ms).into().map(rfc3339).serialize(s)
}

#[allow(clippy::cast_precision_loss)] // amounts stay far below 2^53 millionths
pub(crate) fn dollars<T: Copy + Into<Option<u64>>, S: Serializer>(micros: &T, s: S) -> Result<S::Ok, S::Error> {
    (*micros).into().map(|micros| micros as f64 / 1e6).serialize(s)
}

pub(crate) fn parsed_text<T: Clone + Into<Option<String>>, S: Serializer>(text: &T, s: S) -> Result<S::Ok, S::Error> {
    parsed(&text.clone().into().unwrap_or_default()).serialize(s)
}

/// Copies JSON text, so that numbers keep all their digits.
pub(crate) fn as_written<S: Serializer>(text: &str, s: S) -> Result<S::Ok, S::Error> {
    match serde_json::from_str::<&RawValue>(text) {
        Ok(written) => written.serialize(s),
        Err(_) => parsed(text).serialize(s),
    }
}

pub(crate) fn null_if_empty<S: Serializer>(text: &str, s: S) -> Result<S::Ok, S::Error> {
    (!text.is_empty()).then_some(text).serialize(s)
}

/// Writes counts as an object: `{"running": 2}`.
pub(crate) fn counts<S: Serializer>(counts: &[v1::NamedCount], s: S) -> Result<S::Ok, S::Error> {
    s.collect_map(counts.iter().map(|count| (&count.name, count.count)))
}

pub(crate) fn zero_if_absent<S: Serializer>(tokens: &Option<v1::TokenUsage>, s: S) -> Result<S::Ok, S::Error> {
    tokens.unwrap_or_default().serialize(s)
}

/// Writes a task's history, and before it `notes`: the history entries that have a note.
pub(crate) fn notes_and_history<S: Serializer>(history: &[v1::TaskEvent], s: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Note<'a> {
        at: String,
        by: &'a str,
        note: &'a str,
    }
    #[derive(Serialize)]
    struct Both<'a> {
        notes: Vec<Note<'a>>,
        history: &'a [v1::TaskEvent],
    }
    let notes = history.iter().filter_map(|event| {
        Some(Note { at: rfc3339(event.changed_at_ms), by: &event.by, note: event.note.as_deref()? })
    });
    Both { notes: notes.collect(), history }.serialize(s)
}

#[cfg(test)]
mod tests;
