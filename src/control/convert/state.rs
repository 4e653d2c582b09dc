//! Shared state on the wire. What agents wrote leaves only redacted.

use ghost_domain::StateEntry;
use ghost_domain::redact::Redactor;
use ghost_proto::v1;

/// A value, redacted.
#[must_use]
pub fn entry(entry: &StateEntry, redactor: &Redactor) -> v1::StateEntry {
    v1::StateEntry {
        key: entry.key.clone(),
        value_json: redactor.clean_json(entry.value.clone()).to_string(),
        version: entry.version,
        writer: entry.writer.to_string(),
        updated_at_ms: entry.updated_at.0,
    }
}
