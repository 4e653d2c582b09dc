//! The variables of a command: an allow-list, and settings that keep `git` from running what a repository names (SBX-06).
//!
//! No variable of the daemon gets in that the world does not name.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ghost_config::plan::{SandboxNetwork, SandboxPlan};

use crate::tunnel;

/// Settings that keep a repository's own configuration from running programs: they win over `.git/config`. `diff.external`
/// cannot be switched off so. Repositories of the workspace may belong to other users: an operator, or another agent.
const GIT: [(&str, &str); 6] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.editor", "true"),
    ("protocol.ext.allow", "never"),
    ("safe.directory", "*"),
];

/// The environment of a command, as `name=value`, sorted by name. `workspace`, `home` and `tmp` are paths as the command
/// sees them; `own` are the call's variables, which win.
pub(crate) fn environment(
    plan: &SandboxPlan,
    workspace: &str,
    home: &str,
    tmp: &str,
    own: &[(String, String)],
) -> Vec<String> {
    let fixed = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("HOME", home),
        ("TMPDIR", tmp),
        ("LANG", "C.UTF-8"),
        ("TERM", "dumb"),
        ("AGENT_WORKSPACE", workspace),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_TERMINAL_PROMPT", "0"),
    ];
    let mut env: BTreeMap<String, String> =
        fixed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    env.insert("GIT_CONFIG_COUNT".to_owned(), GIT.len().to_string());
    for (at, (key, value)) in GIT.iter().enumerate() {
        env.insert(format!("GIT_CONFIG_KEY_{at}"), (*key).to_owned());
        env.insert(format!("GIT_CONFIG_VALUE_{at}"), (*value).to_owned());
    }
    if plan.network == SandboxNetwork::Proxy {
        // Programs read the one spelling or the other.
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            env.insert(name.to_owned(), tunnel::ADDRESS.to_owned());
        }
        // The loopback addresses inside are the command's own, unless the world lists one of them as a host.
        let own = [("localhost", IpAddr::from(Ipv4Addr::LOCALHOST)), ("::1", IpAddr::from(Ipv6Addr::LOCALHOST))];
        let is_listed = plan.hosts.iter().any(|host| own.iter().any(|(name, address)| host.covers(name, *address)));
        for name in ["no_proxy", "NO_PROXY"].into_iter().filter(|_| !is_listed) {
            env.insert(name.to_owned(), "localhost,127.0.0.1,::1".to_owned());
        }
    }
    for name in &plan.passthrough_env {
        if let Ok(value) = std::env::var(name) {
            env.insert(name.clone(), value);
        }
    }
    env.extend(plan.env.clone());
    env.extend(own.iter().cloned());
    env.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}
