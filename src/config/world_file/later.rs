//! Reads and checks `approvals`, which has no effect yet (EXEC-06). A file that contains it loads with a warning.
//!
//! An unknown key must never be accepted. A section without effect must never be accepted without a
//! warning.

use std::time::Duration;

use super::parts::names;
use crate::reader::{Field, Map};

/// Warns that a section has no effect.
pub fn unused(field: &Field<'_>) {
    field.warn("nothing uses this yet", "remove it, or leave it for a version of Ghost that does");
}

/// Reads the section.
pub fn read(map: &Map<'_>) {
    if let Some(field) = map.get("approvals") {
        unused(&field);
        with(&field, approvals);
    }
}

/// Reads a map and reports keys that `read` did not ask for.
pub fn with(field: &Field<'_>, read: impl FnOnce(&Map<'_>)) {
    if let Some(map) = field.map() {
        read(&map);
        map.finish(&[]);
    }
}

fn approvals(map: &Map<'_>) {
    let policy = |map: &Map<'_>| {
        map.get("security").map(|field| field.choice(&["allowlist", "deny", "full"]));
        map.get("ask").map(|field| field.choice(&["always", "off", "on-miss"]));
        map.get("ask_fallback").map(|field| field.choice(&["allowlist", "deny", "full"]));
        map.get("auto_allow_skills").map(|field| field.flag());
        map.get("allowlist").map(|field| field.texts(1_024));
    };
    policy(map);
    map.get("expires").map(|field| field.duration(Duration::from_secs(1)..=Duration::from_secs(7 * 86_400)));
    map.get("safe_bins").map(|field| names(&field));
    for (_, agent) in map.get("agents").map(|field| field.entries()).unwrap_or_default() {
        with(&agent, policy);
    }
}
