//! Reads `sandbox` and `cli_policy`: where commands run, and which may run (SBX-07, SBX-10).

use std::collections::BTreeMap;
use std::time::Duration;

use ghost_policy::{Action, Mode, Settings, Tier, shipped};

use super::parts::{Named, names, unused, with};
use crate::plan::{SandboxKind, SandboxPlan, WorkspaceAccess};
use crate::reader::{Field, Map};

/// Names of the protections that a world may require.
const PROTECTIONS: [&str; 11] =
    ["seccomp", "files", "network", "signals", "trace", "tree", "metadata", "tasks", "namespaces", "netns", "uid"];
/// Longest time of a command, in milliseconds.
const TIMEOUT_MAX: u64 = 86_400_000;

/// Reads `sandbox`.
pub fn sandbox(map: &Map<'_>) -> SandboxPlan {
    let mut plan = SandboxPlan::default();
    if let Some(field) = map.get("sandbox") {
        with(&field, |map| read_sandbox(map, &mut plan));
    }
    plan
}

fn read_sandbox(map: &Map<'_>, plan: &mut SandboxPlan) {
    plan.kind = match map.get("kind").and_then(|field| field.choice(&["docker", "local", "none", "remote"])) {
        Some("local") => SandboxKind::Local,
        Some("docker") => SandboxKind::Docker,
        Some("remote") => SandboxKind::Remote,
        _ => SandboxKind::None,
    };
    if let Some(field) = map.get("require") {
        plan.require = field.list().iter().filter_map(|item| item.choice(&PROTECTIONS)).map(str::to_owned).collect();
    }
    if let Some(megabytes) = map.get("memory_mb").and_then(|field| field.count(16..=1_048_576)) {
        plan.memory_bytes = megabytes << 20;
    }
    if let Some(megabytes) = map.get("disk_mb").and_then(|field| field.count(1..=1_048_576)) {
        plan.disk_bytes = megabytes << 20;
    }
    if let Some(tasks) = map.get("pids").and_then(|field| field.count32(1..=1_000_000)) {
        plan.processes = tasks;
    }
    for (key, value) in map.get("env").map(|field| field.entries()).unwrap_or_default() {
        if let Some(text) = value.text(super::parts::TEXT_MAX) {
            plan.env.insert(key.text.clone(), text.to_owned());
        }
    }
    for item in map.get("passthrough_env").map(|field| field.list()).unwrap_or_default() {
        plan.passthrough_env.extend(super::parts::variable(&item));
    }
    plan.workspace_access = match map.get("workspace_access").and_then(|field| field.choice(&["none", "ro", "rw"])) {
        Some("none") => WorkspaceAccess::None,
        Some("ro") => WorkspaceAccess::ReadOnly,
        _ => WorkspaceAccess::ReadWrite,
    };
    let timeout = |key: &'static str| map.get(key).and_then(|field| field.count(1..=TIMEOUT_MAX));
    let (default, most) = (timeout("default_timeout_ms"), timeout("max_timeout_ms"));
    plan.max_timeout = most.map_or(plan.max_timeout, Duration::from_millis);
    plan.default_timeout = default.map_or(plan.default_timeout, Duration::from_millis).min(plan.max_timeout);
    let limit = |key: &'static str| {
        map.get(key).and_then(|field| field.count(0..=16_777_216)).and_then(|bytes| usize::try_from(bytes).ok())
    };
    plan.stdout_limit = limit("stdout_limit").unwrap_or(plan.stdout_limit);
    plan.stderr_limit = limit("stderr_limit").unwrap_or(plan.stderr_limit);
    if let Some(field) = map.get("network")
        && field.choice(&["bridge", "none"]) == Some("bridge")
    {
        field.error("commands have no network yet", "write `network: none`, or remove the line");
    }
    without_effect(map);
}

/// Keys of sandboxes that are not built yet.
fn without_effect(map: &Map<'_>) {
    for key in ["image", "container", "user", "setup_command"] {
        if let Some(field) = map.get(key) {
            field.text(1_024);
            unused(&field);
        }
    }
    if let Some(field) = map.get("cpus") {
        field.number(0.01..=1_024.0);
        unused(&field);
    }
    if let Some(field) = map.get("read_only_root") {
        field.flag();
        unused(&field);
    }
    if let Some(field) = map.get("binds") {
        field.texts(1_024);
        unused(&field);
    }
    if let Some(field) = map.get("scope") {
        field.choice(&["agent", "session", "world"]);
        unused(&field);
    }
}

fn action(field: &Field<'_>) -> Option<Action> {
    match field.choice(&["allow", "ask", "deny"])? {
        "allow" => Some(Action::Allow),
        "ask" => Some(Action::Ask),
        _ => Some(Action::Deny),
    }
}

/// The `cli_policy` of a world file.
pub struct CliPolicy<'n> {
    /// The settings.
    pub settings: Settings,
    /// The privilege groups that its tiers name.
    pub groups: Vec<Named<'n>>,
}

/// Reads `cli_policy`. Without it, the shipped tiers apply. With `tiers`, only those of the file do.
pub fn cli_policy<'n>(map: &Map<'n>) -> CliPolicy<'n> {
    let mut policy = CliPolicy { settings: shipped(), groups: Vec::new() };
    let Some(map) = map.get("cli_policy").and_then(|field| field.map()) else { return policy };
    let settings = &mut policy.settings;
    if let Some(default) = map.get("default").and_then(|field| action(&field)) {
        settings.default = default;
    }
    if map.get("mode").and_then(|field| field.choice(&["first_token", "segments"])) == Some("first_token") {
        settings.mode = Mode::FirstToken;
    }
    if let Some(tiers) = map.get("tiers") {
        settings.tiers = BTreeMap::new();
        for (key, field) in tiers.entries() {
            let Some(tier) = field.map() else { continue };
            let groups = tier.get("groups").map(|field| names(&field)).unwrap_or_default();
            let commands = tier.get("commands").map(|field| field.texts(200)).unwrap_or_default();
            let found = Tier {
                commands: commands.into_iter().map(|(_, text)| text.to_owned()).collect(),
                action: tier.get("action").and_then(|field| action(&field)).unwrap_or(Action::Deny),
                groups: groups.iter().map(|(_, name)| (*name).to_owned()).collect(),
                max_timeout_ms: tier.get("max_timeout_ms").and_then(|field| field.count(1..=TIMEOUT_MAX)),
                unrestricted: tier.get("unrestricted").and_then(|field| field.flag()).unwrap_or(false),
            };
            tier.finish(&[]);
            policy.groups.extend(groups);
            settings.tiers.insert(key.text.clone(), found);
        }
    }
    map.finish(&[]);
    policy
}
