//! Shared state as wire messages. Text by agents is redacted.

use ghost_domain::StateEntry;
use ghost_domain::redact::Redactor;
use ghost_proto::v1;

/// A value, redacted. A value without a secret is sent exactly as it was written, with all digits of
/// its numbers.
#[must_use]
pub fn entry(entry: &StateEntry, redactor: &Redactor) -> v1::StateEntry {
    let value = entry.value.value();
    let clean = redactor.redact_json(&value);
    v1::StateEntry {
        key: entry.key.clone(),
        value_json: if clean == value { entry.value.to_string() } else { clean.to_string() },
        version: entry.version,
        writer: entry.writer.to_string(),
        updated_at_ms: entry.updated_at.0,
    }
}
