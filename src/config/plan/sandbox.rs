//! The sandbox of a world: where commands run, and within which bounds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::web::WebTarget;

/// Where commands run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxKind {
    /// Nowhere: the world has no tools that run commands.
    #[default]
    None,
    /// On this machine, fenced in by the kernel.
    Local,
    /// In containers of a Docker engine on this machine.
    Docker,
    /// On a toolbox server.
    Remote,
}

impl SandboxKind {
    /// The word in the world file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Local => "local",
            Self::Docker => "docker",
            Self::Remote => "remote",
        }
    }
}

/// Which commands share a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SandboxScope {
    /// Those of one agent.
    #[default]
    Agent,
    /// Those of one agent in one session: in one conversation, or in its own work.
    Session,
    /// Those of all agents.
    World,
}

/// What commands reach over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(transform = with_older_name)]
pub enum SandboxNetwork {
    /// Nothing.
    #[default]
    None,
    /// The hosts of `hosts`, through ghostd's proxy.
    Proxy,
    /// Whatever the engine's bridge leads to, with `kind: docker` only. `bridge` is the older name.
    #[serde(alias = "bridge")]
    Open,
}

fn with_older_name(schema: &mut schemars::Schema) {
    if let Some(serde_json::Value::Array(words)) = schema.get_mut("oneOf") {
        words.push(serde_json::json!({ "const": "bridge", "deprecated": true }));
    }
}

/// What commands see of the workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceAccess {
    /// Only the agent's own directory.
    None,
    /// All of it, to read.
    #[serde(rename = "ro")]
    ReadOnly,
    /// All of it to read, and the agent's own write prefixes to write.
    #[serde(rename = "rw")]
    #[default]
    ReadWrite,
}

/// The toolbox server of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemotePlan {
    /// Its address, without a path: `https`, or `http` on this machine.
    pub url: String,
    /// The variable with the token.
    pub token_env: String,
    /// A PEM file with the only certificate authorities that are trusted; without it, those of the system are.
    pub ca_file: Option<PathBuf>,
}

/// The `sandbox` of a world file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPlan {
    /// Where commands run.
    pub kind: SandboxKind,
    /// Protections without which no command runs, by name, besides those that always apply.
    pub require: Vec<String>,
    /// Memory of a command's whole tree, in bytes.
    pub memory_bytes: u64,
    /// Tasks of a command's whole tree.
    pub processes: u32,
    /// Bytes that a command may add to the files it can write.
    pub disk_bytes: u64,
    /// Variables that commands get.
    pub env: BTreeMap<String, String>,
    /// Variables of the daemon that commands get.
    pub passthrough_env: Vec<String>,
    /// What commands see of the workspace.
    pub workspace_access: WorkspaceAccess,
    /// How long a command runs if it does not say so.
    pub default_timeout: Duration,
    /// The longest time that a command may ask for.
    pub max_timeout: Duration,
    /// How long a background command may run.
    pub background_timeout: Duration,
    /// Bytes of standard output that are kept.
    pub stdout_limit: usize,
    /// Bytes of standard error that are kept.
    pub stderr_limit: usize,
    /// The image of containers: a name, a name with a digest, or an id.
    pub image: String,
    /// Which commands share a container.
    pub scope: SandboxScope,
    /// What commands reach over the network.
    pub network: SandboxNetwork,
    /// With [`SandboxNetwork::Proxy`]: the hosts, as far as the rules of `web` allow them.
    pub hosts: Vec<WebTarget>,
    /// Processor time of a container, in thousandths of one processor; without it, as much as there is.
    pub cpu_millis: Option<u32>,
    /// Containers at one time.
    pub containers_max: usize,
    /// The toolbox server, for the kind `remote` only.
    pub remote: Option<RemotePlan>,
}

impl SandboxPlan {
    /// With relative paths resolved against the world's directory `dir`.
    #[must_use]
    pub fn within(mut self, dir: &Path) -> Self {
        if let Some(file) = self.remote.as_mut().and_then(|remote| remote.ca_file.as_mut()) {
            *file = dir.join(&*file);
        }
        self
    }
}

impl Default for SandboxPlan {
    fn default() -> Self {
        Self {
            kind: SandboxKind::None,
            require: Vec::new(),
            memory_bytes: 1_024 << 20,
            processes: 256,
            disk_bytes: 1_024 << 20,
            env: BTreeMap::new(),
            passthrough_env: Vec::new(),
            workspace_access: WorkspaceAccess::ReadWrite,
            default_timeout: Duration::from_secs(30),
            max_timeout: Duration::from_secs(120),
            background_timeout: Duration::from_secs(3_600),
            stdout_limit: 50 * 1_024,
            stderr_limit: 10 * 1_024,
            image: "ghost-toolbox".to_owned(),
            scope: SandboxScope::Agent,
            network: SandboxNetwork::None,
            hosts: Vec::new(),
            cpu_millis: None,
            containers_max: 64,
            remote: None,
        }
    }
}
