//! Reads `sandbox` and `cli_policy`: where commands run, and which may run (SBX-07, SBX-10).

use std::collections::BTreeMap;
use std::time::Duration;

use ghost_policy::{Action, Mode, Settings, Tier, shipped};

use super::parts::{Named, names, unused, with};
use super::remote::remote;
use crate::plan::{SandboxKind, SandboxNetwork, SandboxPlan, SandboxScope, WorkspaceAccess};
use crate::reader::{Field, Map};

/// Names of the protections that a world may require.
const PROTECTIONS: [&str; 12] = [
    "seccomp",
    "files",
    "network",
    "signals",
    "trace",
    "tree",
    "metadata",
    "tasks",
    "namespaces",
    "netns",
    "uid",
    "cgroup",
];
/// Longest time of a command, in milliseconds.
const TIMEOUT_MAX: u64 = 86_400_000;
/// Longest time of a background command, in milliseconds: a week.
const BACKGROUND_MAX: u64 = 604_800_000;

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
    if let Some(most) = map.get("background_timeout_ms").and_then(|field| field.count(1..=BACKGROUND_MAX)) {
        plan.background_timeout = Duration::from_millis(most);
    }
    let limit = |key: &'static str| {
        map.get(key).and_then(|field| field.count(0..=16_777_216)).and_then(|bytes| usize::try_from(bytes).ok())
    };
    plan.stdout_limit = limit("stdout_limit").unwrap_or(plan.stdout_limit);
    plan.stderr_limit = limit("stderr_limit").unwrap_or(plan.stderr_limit);
    network(map, plan);
    containers(map, plan);
    plan.remote = remote(map, plan.kind);
    without_effect(map);
}

/// What commands reach over the network.
fn network(map: &Map<'_>, plan: &mut SandboxPlan) {
    let mut is_known = true;
    if let Some(field) = map.get("network") {
        // `bridge` is the older name.
        plan.network = match field.choice(&["bridge", "none", "open", "proxy"]) {
            Some("bridge" | "open") => SandboxNetwork::Open,
            Some("proxy") => SandboxNetwork::Proxy,
            Some(_) => SandboxNetwork::None,
            None => {
                is_known = false;
                SandboxNetwork::None
            }
        };
        if plan.network == SandboxNetwork::Open && plan.kind != SandboxKind::Docker {
            let message = format!("the sandbox `{}` has no network that leads everywhere", plan.kind.as_str());
            field.error(message, "write `network: proxy` and the `hosts`, or `network: none`, or use `kind: docker`");
        }
        if plan.network == SandboxNetwork::Proxy && plan.kind == SandboxKind::Remote {
            field.error("commands on a toolbox server have no network", "write `network: none`, or use another `kind`");
        }
    }
    let hosts = map.get("hosts");
    plan.hosts = hosts.as_ref().map(super::web::targets).unwrap_or_default();
    match (plan.network, hosts, map.get("network")) {
        (SandboxNetwork::Proxy, None, Some(field)) => {
            field.error("no hosts are named that commands may reach", "add `hosts: [crates.io, \"*.crates.io\"]`");
        }
        (SandboxNetwork::None | SandboxNetwork::Open, Some(field), _) if is_known => {
            field.error("it has an effect with `network: proxy` only", "add `network: proxy`, or remove the line");
        }
        _ => {}
    }
}

/// Keys of containers.
fn containers(map: &Map<'_>, plan: &mut SandboxPlan) {
    let only_docker = |field: &Field<'_>| {
        if plan.kind != SandboxKind::Docker {
            field.warn("it has an effect in the sandbox `docker` only", "remove it, or write `kind: docker`");
        }
    };
    if let Some(field) = map.get("image") {
        only_docker(&field);
        if let Some(image) = field.text(512) {
            if image.chars().any(|c| c.is_whitespace() || c.is_control()) || image.starts_with('-') {
                field.error(
                    format!("`{}` is not the name of an image", field.shown()),
                    "write a name such as `ghost-toolbox`",
                );
            }
            image.clone_into(&mut plan.image);
        }
    }
    if let Some(field) = map.get("scope") {
        only_docker(&field);
        plan.scope = match field.choice(&["agent", "session", "world"]) {
            Some("world") => SandboxScope::World,
            Some("session") => SandboxScope::Session,
            _ => SandboxScope::Agent,
        };
    }
    if let Some(field) = map.get("cpus") {
        only_docker(&field);
        // At most 1,024,000, so it fits.
        plan.cpu_millis = field.number(0.01..=1_024.0).map(|cpus| (cpus * 1_000.0).round() as u32);
    }
    if let Some(field) = map.get("containers_max") {
        only_docker(&field);
        if let Some(most) = field.count(1..=10_000).and_then(|most| usize::try_from(most).ok()) {
            plan.containers_max = most;
        }
    }
    if let Some(field) = map.get("read_only_root") {
        only_docker(&field);
        if field.flag() == Some(false) {
            field.error("the root of containers is always read-only", "remove the line; `/tmp` can be written");
        }
    }
}

/// Keys that are not built yet.
fn without_effect(map: &Map<'_>) {
    for key in ["container", "user", "setup_command"] {
        if let Some(field) = map.get(key) {
            field.text(1_024);
            unused(&field);
        }
    }
    if let Some(field) = map.get("binds") {
        field.texts(1_024);
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
    /// Whether the world file has the section.
    pub is_written: bool,
}

/// Reads `cli_policy`. Without it, the shipped tiers apply. With `tiers`, only those of the file do.
pub fn cli_policy<'n>(map: &Map<'n>) -> CliPolicy<'n> {
    let mut policy = CliPolicy { settings: shipped(), groups: Vec::new(), is_written: false };
    let Some(map) = map.get("cli_policy").and_then(|field| field.map()) else { return policy };
    policy.is_written = true;
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
