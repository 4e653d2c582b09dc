//! What surrounds a command: its variables, an allow-list with settings that keep `git` from running what a repository names, and
//! the devices that every command has. No variable of the daemon gets in that the world does not name.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ghost_config::plan::{SandboxNetwork, SandboxPlan};

use crate::frame::right;
use crate::tunnel;

/// Settings that keep a repository's own configuration from running programs: they win over `.git/config`. Keys with a name
/// of their own (`filter.X.clean`, `diff.X.command`) and `diff.external` cannot be switched off so; ghostd looks for those
/// before it lets git run. Repositories of the workspace may belong to other users: an operator, or another agent.
const GIT: [(&str, &str); 23] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.editor", "true"),
    ("sequence.editor", "true"),
    ("core.sshCommand", "ssh"),
    ("core.askPass", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.alternateRefsCommand", "true"),
    ("interactive.diffFilter", "cat"),
    ("credential.helper", ""),
    ("gpg.program", "gpg"),
    ("gpg.ssh.program", "ssh-keygen"),
    ("gpg.x509.program", "gpgsm"),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("push.gpgSign", "false"),
    ("log.showSignature", "false"),
    ("merge.verifySignatures", "false"),
    // `git status` and `git diff` would run git in the working copies of submodules, with their configuration.
    ("diff.ignoreSubmodules", "dirty"),
    ("protocol.ext.allow", "never"),
    ("safe.directory", "*"),
    // A directory that a file tool made look like a bare repository is none, unless `--git-dir` names it.
    ("safe.bareRepository", "explicit"),
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
        // Attributes of the machine name drivers; a missing object would be fetched by a program that a remote names.
        ("GIT_ATTR_NOSYSTEM", "1"),
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_OPTIONAL_LOCKS", "0"),
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

/// Devices that commands may use.
pub(crate) fn devices() -> impl Iterator<Item = (u8, String)> {
    let devices = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
    devices.into_iter().map(|path| (right::READ | right::WRITE | right::OPTIONAL, path.to_owned()))
}

/// File systems in memory that commands may write to.
pub(crate) fn in_memory() -> impl Iterator<Item = (u8, String)> {
    ["/tmp", "/dev/shm"].into_iter().map(|path| (right::READ | right::WRITE | right::EXECUTE, path.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    // covers: SBX-06
    #[test]
    #[allow(clippy::disallowed_methods, reason = "git itself is under test, with nothing but these variables")]
    fn git_runs_nothing_that_a_plain_key_of_a_repository_names() {
        let dir = tempfile::tempdir().unwrap();
        let (place, marker) = (dir.path().join("r"), dir.path().join("marker"));
        let evil = dir.path().join("evil");
        std::fs::create_dir(&place).unwrap();
        std::fs::write(&evil, format!("#!/bin/sh\necho $0 >> {}\n", marker.display())).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&evil, mode).unwrap();
        let place_text = place.display().to_string();
        let env = environment(&SandboxPlan::default(), &place_text, &place_text, "/tmp", &[]);
        let git = |hardened: bool, arguments: &[&str]| {
            let mut git = Command::new("git");
            git.current_dir(&place).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments).env_clear();
            let plain = env.iter().filter(|pair| hardened || !pair.starts_with("GIT_CONFIG_"));
            git.envs(plain.filter_map(|pair| pair.split_once('='))).output()
        };
        // Without git there is nothing to try.
        if git(true, &["init", "-q"]).is_err() {
            return;
        }
        let value = evil.display().to_string();
        for key in [
            "core.fsmonitor",
            "core.pager",
            "core.editor",
            "core.sshCommand",
            "core.alternateRefsCommand",
            "gpg.program",
        ] {
            git(true, &["config", key, &value]).unwrap();
        }
        for key in ["commit.gpgSign", "log.showSignature", "core.askPass"] {
            git(true, &["config", key, "true"]).unwrap();
        }
        std::fs::copy(&evil, place.join(".git/hooks/pre-commit")).unwrap();
        std::fs::write(place.join("f"), "a").unwrap();
        let lines: [&[&str]; 7] = [
            &["add", "."],
            &["commit", "-q", "-m", "x"],
            &["commit", "-q", "--amend"],
            &["log"],
            &["status"],
            &["show"],
            &["fetch", "ssh://127.0.0.1:1/x"],
        ];
        for line in lines {
            git(true, line).unwrap();
        }
        assert!(!marker.exists(), "{}", std::fs::read_to_string(&marker).unwrap_or_default());
        assert!(git(true, &["rev-parse", "--verify", "HEAD"]).unwrap().status.success(), "the commit was made");
        // The same keys do run it where nothing holds them.
        git(false, &["status"]).unwrap();
        assert!(marker.exists());
    }
}
