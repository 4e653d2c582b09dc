//! Reads and checks `cli_policy`, `sandbox` and `approvals`, which have no effect yet (SBX-07,
//! SBX-10, EXEC-06). A file that contains them loads with warnings.
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

/// Reads all three sections.
pub fn read(map: &Map<'_>) {
    if let Some(field) = map.get("cli_policy") {
        unused(&field);
        with(&field, cli_policy);
    }
    if let Some(field) = map.get("sandbox") {
        unused(&field);
        with(&field, sandbox);
    }
    if let Some(field) = map.get("approvals") {
        unused(&field);
        with(&field, approvals);
    }
}

fn with(field: &Field<'_>, read: impl FnOnce(&Map<'_>)) {
    if let Some(map) = field.map() {
        read(&map);
        map.finish(&[]);
    }
}

fn cli_policy(map: &Map<'_>) {
    let actions = ["allow", "ask", "deny"];
    map.get("default").map(|field| field.choice(&actions));
    map.get("mode").map(|field| field.choice(&["first_token", "segments"]));
    for (_, tier) in map.get("tiers").map(|field| field.entries()).unwrap_or_default() {
        with(&tier, |tier| {
            tier.get("commands").map(|field| field.texts(200));
            tier.get("action").map(|field| field.choice(&actions));
            tier.get("groups").map(|field| names(&field));
            tier.get("max_timeout_ms").map(|field| field.count(1..=86_400_000));
        });
    }
}

fn sandbox(map: &Map<'_>) {
    map.get("kind").map(|field| field.choice(&["docker", "local", "none", "remote"]));
    for key in ["image", "container", "user", "setup_command"] {
        map.get(key).map(|field| field.text(1_024));
    }
    map.get("network").map(|field| field.choice(&["bridge", "none"]));
    map.get("memory_mb").map(|field| field.count(16..=1_048_576));
    map.get("cpus").map(|field| field.number(0.01..=1_024.0));
    map.get("pids").map(|field| field.count(1..=1_000_000));
    map.get("read_only_root").map(|field| field.flag());
    map.get("binds").map(|field| field.texts(1_024));
    for (_, value) in map.get("env").map(|field| field.entries()).unwrap_or_default() {
        if !value.is_null() {
            let _ = value.text(super::parts::TEXT_MAX);
        }
    }
    for item in map.get("passthrough_env").map(|field| field.list()).unwrap_or_default() {
        super::parts::variable(&item);
    }
    map.get("workspace_access").map(|field| field.choice(&["none", "ro", "rw"]));
    map.get("scope").map(|field| field.choice(&["agent", "session", "world"]));
    for key in ["default_timeout_ms", "max_timeout_ms"] {
        map.get(key).map(|field| field.count(1..=86_400_000));
    }
    for key in ["stdout_limit", "stderr_limit"] {
        map.get(key).map(|field| field.count(0..=16_777_216));
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
