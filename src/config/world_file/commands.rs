//! `sandbox` and `cli_policy`: where commands run, and which may run.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use ghost_policy::{Action, Mode, Settings, Tier, shipped};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::kinds::{AtMost, Count, Name, TEXT_MAX, Text, Thousandths, Variable, choice, text_kind};
use crate::plan::web::WebTarget;
use crate::plan::{RemotePlan, SandboxKind, SandboxNetwork, SandboxPlan, SandboxScope, WorkspaceAccess};
use crate::reader::Field;
use crate::typed::{Read, Spanned};

/// Longest time of a command, in milliseconds.
const TIMEOUT_MAX: u64 = 86_400_000;
/// Longest time of a background command, in milliseconds: a week.
const BACKGROUND_MAX: u64 = 604_800_000;

text_kind! {
    /// A protection that a world may require.
    pub Protection(String), 64, "protection", |word| choice(word, &[
        "seccomp", "files", "network", "signals", "trace", "tree", "metadata", "tasks", "namespaces", "netns", "uid", "cgroup",
    ])
}

/// `sandbox`: where commands run, and within which bounds.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxSection {
    /// Where commands run.
    #[schemars(extend("default" = "none"))]
    kind: SandboxKind,
    /// Protections without which no command runs, besides `seccomp`, `files`, `network`, `signals` and `trace`.
    require: Vec<Protection>,
    /// Memory of a command's whole process tree, in MiB.
    #[schemars(extend("default" = SandboxPlan::default().memory_bytes >> 20))]
    memory_mb: Option<Count<16, 1_048_576>>,
    /// What a command may add to the files that it can write, in MiB; an entry for each 16 KB, at least 1,024.
    #[schemars(extend("default" = SandboxPlan::default().disk_bytes >> 20))]
    disk_mb: Option<Count<1, 1_048_576>>,
    /// Processes and threads of the tree; at the bound it is killed.
    #[schemars(extend("default" = SandboxPlan::default().processes))]
    pids: Option<Count<1, 1_000_000>>,
    /// Variables of commands.
    #[schemars(title = "map of variables to texts")]
    env: BTreeMap<String, Text<TEXT_MAX>>,
    /// Variables of the daemon that commands get. Their values are redacted wherever output is recorded or shown.
    passthrough_env: Vec<Variable>,
    /// What commands see of the workspace.
    #[schemars(extend("default" = "rw"))]
    workspace_access: WorkspaceAccess,
    /// Milliseconds of a command that asks for no time.
    #[schemars(extend("default" = millis(SandboxPlan::default().default_timeout)))]
    default_timeout_ms: Option<Count<1, TIMEOUT_MAX>>,
    /// The most milliseconds of a command; a longer wish is clamped.
    #[schemars(extend("default" = millis(SandboxPlan::default().max_timeout)))]
    max_timeout_ms: Option<Count<1, TIMEOUT_MAX>>,
    /// The most milliseconds of a background command.
    #[schemars(extend("default" = millis(SandboxPlan::default().background_timeout)))]
    background_timeout_ms: Option<Count<1, BACKGROUND_MAX>>,
    /// Bytes of standard output that are kept, from the beginning and the end.
    #[schemars(extend("default" = SandboxPlan::default().stdout_limit))]
    stdout_limit: Option<Count<0, 16_777_216>>,
    /// Bytes of standard error that are kept, from the beginning and the end.
    #[schemars(extend("default" = SandboxPlan::default().stderr_limit))]
    stderr_limit: Option<Count<0, 16_777_216>>,
    /// What commands reach over the network.
    #[schemars(extend("default" = "none"))]
    network: Option<Spanned<SandboxNetwork>>,
    /// With `network: proxy`: the hosts, written as targets of `web`, as far as the rules of `web` allow them.
    hosts: Option<Spanned<AtMost<500, WebTarget>>>,
    /// The image, by name, digest or id. The engine must have it; it is never pulled.
    #[schemars(extend("default" = SandboxPlan::default().image))]
    image: Option<Spanned<Image>>,
    /// Which commands share a container.
    #[schemars(extend("default" = "agent"))]
    scope: Option<Spanned<SandboxScope>>,
    /// Processors of a container. The default is no bound.
    cpus: Option<Spanned<Thousandths<10, 1_024_000>>>,
    /// Containers at one time. If all are busy, a command of another agent is refused (`rate_limited`); an idle one
    /// makes room.
    #[schemars(extend("default" = SandboxPlan::default().containers_max))]
    containers_max: Option<Spanned<Count<1, 10_000>>>,
    /// The root is always read-only; `false` is refused.
    #[schemars(extend("default" = true))]
    read_only_root: Option<Spanned<bool>>,
    /// The toolbox server; `http` only for this machine (`127.0.0.1`, `::1`, `localhost`). Required for `kind:
    /// remote`.
    url: Option<Spanned<Server>>,
    /// The variable with the server's token; its value is redacted wherever output is recorded or shown. Required for
    /// `kind: remote`.
    token_env: Option<Spanned<Variable>>,
    /// A PEM file with the only certificates that are trusted, relative to the world's directory. The default are the
    /// system's.
    #[schemars(title = "path")]
    ca_file: Option<Spanned<Text<1_024>>>,
    /// Nothing uses this yet.
    #[schemars(extend("deprecated" = true))]
    container: Option<Spanned<Text<1_024>>>,
    /// Nothing uses this yet.
    #[schemars(extend("deprecated" = true))]
    user: Option<Spanned<Text<1_024>>>,
    /// Nothing uses this yet.
    #[schemars(extend("deprecated" = true))]
    setup_command: Option<Spanned<Text<1_024>>>,
    /// Nothing uses this yet.
    #[schemars(extend("deprecated" = true))]
    binds: Option<Spanned<Vec<Text<1_024>>>>,
}

text_kind! {
    /// The name of an image.
    pub Image(String), 512, "image", |image| match image.chars().any(|c| c.is_whitespace() || c.is_control()) || image.starts_with('-') {
        true => Err((format!("`{image}` is not the name of an image"), "write a name such as `ghost-toolbox`".into())),
        false => Ok(image.to_owned()),
    }
}

text_kind! {
    /// The address of a toolbox server: a scheme, a host and perhaps a port. Without TLS, only a server on this machine.
    pub Server(String), 2_000, "`https://HOST:PORT`", |text| {
        let (scheme, host) = text.trim_end_matches('/').split_once("://").unwrap_or(("", text));
        let is_plain = !host.is_empty()
            && !host.contains(['/', '?', '#', '@', '\\'])
            && host.bytes().all(|b| b.is_ascii_graphic());
        match scheme {
            "https" if is_plain => Ok(format!("{scheme}://{host}")),
            "http" if is_plain && is_this_machine(host) => Ok(format!("{scheme}://{host}")),
            "http" if is_plain => {
                let hint = "write https://HOST:PORT; http is for a server on this machine (127.0.0.1, ::1, localhost)";
                Err(("the token and the files would travel in the open".into(), hint.into()))
            }
            _ => Err((format!("`{text}` is not the address of a server"), "write it as https://HOST:PORT".into())),
        }
    }
}

/// A time of the plan, as the file writes it.
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl SandboxSection {
    /// The plan. Reports keys that do not go together, and those without an effect.
    pub(super) fn plan<T>(&self, place: &Field<'_>, read: &Read<'_, T>) -> SandboxPlan {
        let default = SandboxPlan::default();
        let millis = |own: Option<u64>, default| own.map_or(default, Duration::from_millis);
        let max_timeout = millis(self.max_timeout_ms.map(|ms| ms.0), default.max_timeout);
        self.warn_of_kind(read);
        SandboxPlan {
            kind: self.kind,
            require: self.require.iter().map(|protection| protection.0.clone()).collect(),
            memory_bytes: self.memory_mb.map_or(default.memory_bytes, |megabytes| megabytes.0 << 20),
            processes: self.pids.map_or(default.processes, Count::u32),
            disk_bytes: self.disk_mb.map_or(default.disk_bytes, |megabytes| megabytes.0 << 20),
            env: self.env.iter().map(|(name, text)| (name.clone(), text.0.clone())).collect(),
            passthrough_env: self.passthrough_env.iter().map(|name| name.0.clone()).collect(),
            workspace_access: self.workspace_access,
            default_timeout: millis(self.default_timeout_ms.map(|ms| ms.0), default.default_timeout).min(max_timeout),
            max_timeout,
            background_timeout: millis(self.background_timeout_ms.map(|ms| ms.0), default.background_timeout),
            stdout_limit: self.stdout_limit.map_or(default.stdout_limit, Count::usize),
            stderr_limit: self.stderr_limit.map_or(default.stderr_limit, Count::usize),
            image: self.image.as_ref().map_or(default.image, |image| image.0.clone()),
            scope: self.scope.as_ref().map_or(default.scope, |scope| scope.value),
            network: self.network(place, read),
            hosts: self.hosts.as_ref().map(|hosts| hosts.0.clone()).unwrap_or_default(),
            // At most 1,024,000, so it fits.
            cpu_millis: self.cpus.as_ref().map(|cpus| (cpus.0 * 1_000.0).round() as u32),
            containers_max: self.containers_max.as_ref().map_or(default.containers_max, |most| most.usize()),
            remote: self.remote(place),
        }
    }

    /// What commands reach over the network.
    fn network<T>(&self, place: &Field<'_>, read: &Read<'_, T>) -> SandboxNetwork {
        let written = |key: &str| place.node().get(key).is_some();
        let Some(network) = &self.network else {
            // A wrong network was reported; what it should be is unknown.
            if let Some(hosts) = self.hosts.as_ref().filter(|_| !written("network")) {
                without_proxy(read.at(hosts));
            }
            return SandboxNetwork::None;
        };
        let (field, kind) = (read.at(network), self.kind);
        match (network.value, &self.hosts) {
            (SandboxNetwork::Open, _) if kind != SandboxKind::Docker => field.error(
                format!("the sandbox `{}` has no network that leads everywhere", kind.as_str()),
                "write `network: proxy` and the `hosts`, or `network: none`, or use `kind: docker`",
            ),
            (SandboxNetwork::Proxy, _) if kind == SandboxKind::Remote => {
                let hint = "write `network: none`, or use another `kind`";
                field.error("commands on a toolbox server have no network", hint);
            }
            (SandboxNetwork::Proxy, None) if !written("hosts") => {
                let hint = "add `hosts: [crates.io, \"*.crates.io\"]`";
                field.error("no hosts are named that commands may reach", hint);
            }
            _ => {}
        }
        if let (SandboxNetwork::None | SandboxNetwork::Open, Some(hosts)) = (network.value, &self.hosts) {
            without_proxy(read.at(hosts));
        }
        network.value
    }

    /// The toolbox server, for the kind `remote`.
    fn remote(&self, place: &Field<'_>) -> Option<RemotePlan> {
        if self.kind != SandboxKind::Remote {
            return None;
        }
        for (key, example) in [("url", "https://toolbox.example:9090"), ("token_env", "GHOST_TOOLBOX_TOKEN")] {
            if place.node().get(key).is_none() {
                place.error(format!("`{key}` is missing"), format!("for example `{key}: {example}`"));
            }
        }
        let ca_file = self.ca_file.as_ref().map(|file| PathBuf::from(&file.0));
        Some(RemotePlan { url: self.url.as_ref()?.0.clone(), token_env: self.token_env.as_ref()?.0.clone(), ca_file })
    }

    /// Warns of keys that another kind of sandbox reads, and of those that nothing reads yet.
    fn warn_of_kind<T>(&self, read: &Read<'_, T>) {
        fn place<'f, 'n, T, K>(read: &'f Read<'n, T>, key: &Option<Spanned<K>>) -> Option<&'f Field<'n>> {
            key.as_ref().map(|key| read.at(key))
        }
        let docker = [
            place(read, &self.image),
            place(read, &self.scope),
            place(read, &self.cpus),
            place(read, &self.containers_max),
            place(read, &self.read_only_root),
        ];
        let remote = [place(read, &self.url), place(read, &self.token_env), place(read, &self.ca_file)];
        let keys = [(SandboxKind::Docker, &docker[..]), (SandboxKind::Remote, &remote[..])];
        for (kind, fields) in keys.into_iter().filter(|(kind, _)| *kind != self.kind) {
            for field in fields.iter().flatten() {
                let hint = format!("remove it, or write `kind: {}`", kind.as_str());
                field.warn(format!("it has an effect in the sandbox `{}` only", kind.as_str()), hint);
            }
        }
        let unused = [&self.container, &self.user, &self.setup_command].map(|key| place(read, key));
        for field in unused.into_iter().chain([place(read, &self.binds)]).flatten() {
            field.warn("nothing uses this yet", "remove it, or leave it for a version of Ghost that does");
        }
        if let Some(root) = self.read_only_root.as_ref().filter(|root| !root.value) {
            read.at(root).error("the root of containers is always read-only", "remove the line; `/tmp` can be written");
        }
    }
}

fn without_proxy(hosts: &Field<'_>) {
    hosts.error("it has an effect with `network: proxy` only", "add `network: proxy`, or remove the line");
}

/// `cli_policy`: which commands may run. Without it, the shipped tiers apply. With `tiers`, only those of the file do.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CliPolicySection {
    /// What happens to programs that no tier names.
    #[schemars(extend("default" = "ask"))]
    default: Option<Word>,
    /// Whether every command of the line is judged, or only its first word.
    #[schemars(extend("default" = "segments"))]
    mode: Judged,
    /// The tiers, by name. The default is as shipped.
    tiers: Option<BTreeMap<String, TierSection>>,
}

/// One entry of `cli_policy.tiers`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TierSection {
    /// Programs (`rg`), or a program and its subcommand (`git push`).
    #[schemars(title = "list of commands")]
    commands: Vec<Text<200>>,
    /// What happens to a line that uses the tier. Of several tiers the strictest decides.
    #[schemars(extend("default" = "deny"))]
    action: Word,
    /// The tier holds only for agents with one of these privilege groups. The default is all agents.
    #[schemars(title = "list of groups")]
    groups: Vec<Spanned<Name>>,
    /// The most milliseconds of a line that uses the tier.
    max_timeout_ms: Option<Count<1, TIMEOUT_MAX>>,
    /// Whether its agents may also use what cannot be judged before it runs, such as `$(...)` in a command's name.
    unrestricted: bool,
}

/// What happens to a command.
#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Word {
    Allow,
    Ask,
    #[default]
    Deny,
}

impl From<Word> for Action {
    fn from(word: Word) -> Self {
        match word {
            Word::Allow => Self::Allow,
            Word::Ask => Self::Ask,
            Word::Deny => Self::Deny,
        }
    }
}

#[derive(Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Judged {
    FirstToken,
    #[default]
    Segments,
}

impl CliPolicySection {
    /// The settings.
    pub(super) fn settings(&self) -> Settings {
        let mut settings = shipped();
        if let Some(default) = self.default {
            settings.default = default.into();
        }
        if matches!(self.mode, Judged::FirstToken) {
            settings.mode = Mode::FirstToken;
        }
        if let Some(tiers) = &self.tiers {
            settings.tiers = tiers.iter().map(|(name, tier)| (name.clone(), tier.tier())).collect();
        }
        settings
    }

    /// The privilege groups that the tiers name.
    pub fn groups(&self) -> impl Iterator<Item = &Spanned<Name>> {
        self.tiers.iter().flat_map(BTreeMap::values).flat_map(|tier| &tier.groups)
    }
}

impl TierSection {
    fn tier(&self) -> Tier {
        Tier {
            commands: self.commands.iter().map(|command| command.0.clone()).collect(),
            action: self.action.into(),
            groups: self.groups.iter().map(|group| group.0.clone()).collect(),
            max_timeout_ms: self.max_timeout_ms.map(|ms| ms.0),
            unrestricted: self.unrestricted,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::world_file::tests::problems;

    // covers: TBX-07
    #[test]
    fn a_server_becomes_a_plan() {
        for (given, url) in [
            ("https://box.example:9090", "https://box.example:9090"),
            ("https://10.0.0.7/", "https://10.0.0.7"),
            ("http://127.0.0.1:9090", "http://127.0.0.1:9090"),
            ("'http://[::1]:9090'", "http://[::1]:9090"),
            ("http://localhost", "http://localhost"),
        ] {
            let text = format!("sandbox: {{ kind: remote, url: {given}, token_env: T, ca_file: ca.pem }}\n");
            let problems = problems(&text, |world| {
                let plan = world.sandbox.remote.as_ref().unwrap();
                assert_eq!((plan.url.as_str(), plan.token_env.as_str()), (url, "T"));
                assert_eq!(plan.ca_file, Some("ca.pem".into()));
            });
            assert_eq!(problems, "", "{given}");
        }
    }

    #[test]
    fn every_mistake_has_its_field_and_a_hint() {
        for (text, field, hint) in [
            ("token_env: T\n", "url", "https://toolbox.example:9090"),
            ("url: https://a\n", "token_env", "GHOST_TOOLBOX_TOKEN"),
            ("url: http://box.example:9090\ntoken_env: T\n", "url", "https://HOST:PORT"),
            ("url: http://127.0.0.1.example\ntoken_env: T\n", "url", "https://HOST:PORT"),
            ("url: https://a/b\ntoken_env: T\n", "url", "https://HOST:PORT"),
            ("url: https://user@a\ntoken_env: T\n", "url", "https://HOST:PORT"),
            ("url: box.example\ntoken_env: T\n", "url", "https://HOST:PORT"),
            ("url: https://a\ntoken_env: 'no name'\n", "token_env", "never the value"),
        ] {
            let text = format!("sandbox:\n  kind: remote\n  {}\n", text.trim_end().replace('\n', "\n  "));
            let found = problems(&text, |world| assert_eq!(world.sandbox.remote, None));
            assert!(found.contains(field) && found.contains(hint), "{text}: {found}");
        }
        let text = "sandbox: { kind: local, url: https://a }\n";
        let found = problems(text, |world| assert_eq!(world.sandbox.remote, None));
        assert!(found.starts_with("warning: ") && found.contains("kind: remote"), "{found}");
    }
}
