//! What the kernel offers, and what a command gets of it: never less than its request requires.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use super::frame::{Exec, Network, Refusal, Refused, VERSION, WINDOW, flag, guard, put_text};
use super::kernel::*;

/// The unprivileged identity ("nobody") that a runner started as root gives its commands by default.
pub const NOBODY: u32 = 65534;

pub struct Facts {
    pub landlock: u32,
    pub seccomp: bool,
    pub namespaces: bool,
    pub netns: bool,
    pub uid: u32,
    pub gid: u32,
    /// Root that may change its identity, and does for every command.
    pub drops: bool,
    /// The runner is the first process of its container, so the kernel kills everything with it.
    pub first: bool,
    /// Why something is missing, a line each.
    pub reasons: String,
}

impl Facts {
    pub fn find() -> Facts {
        let landlock = sys!(nr::LANDLOCK_CREATE_RULESET, 0, 0, 1).unwrap_or(0) as u32;
        let action: u32 = 0x0005_0000; // SECCOMP_RET_ERRNO
        let seccomp = sys!(nr::SECCOMP, 2, 0, address(&action)).is_ok();
        // SAFETY: these two calls cannot fail and touch no memory.
        let (uid, gid) = unsafe { (getuid(), getgid()) };
        let (header, mut capabilities) = ([0x2008_0522u32, 0], [0u32; 6]);
        let known = sys!(nr::CAPGET, address(&header), &raw mut capabilities).is_ok();
        let drops = uid == 0 && known && capabilities[0] & 0xC0 == 0xC0; // CAP_SETGID, CAP_SETUID
        let first = process_id() == 1;
        let mut reasons = String::new();
        if landlock < 6 {
            let _ = writeln!(reasons, "landlock: version {landlock}; files need 3, ports 4, signals 6");
        }
        if !seccomp {
            reasons.push_str("seccomp: the kernel has no filters\n");
        }
        if uid == 0 && !drops {
            reasons.push_str("uid: root without CAP_SETUID and CAP_SETGID cannot become another user\n");
        }
        Facts { landlock, seccomp, namespaces: false, netns: false, uid, gid, drops, first, reasons }
    }

    /// The protections that hold for a command in the given circumstances.
    pub fn guards(&self, inside: bool, netns: bool, becomes: bool, sealed: bool) -> u32 {
        let held = [
            (guard::SECCOMP, self.seccomp),
            (guard::FILES, self.landlock >= 3), // below, files that may only be read could be truncated
            (guard::NETWORK, self.seccomp),
            (guard::SIGNALS, inside || self.landlock >= 6),
            (guard::TRACE, inside || self.landlock >= 1),
            (guard::TREE, inside || self.first),
            (guard::METADATA, inside || (sealed && self.seccomp)),
            (guard::TASKS, inside),
            (guard::NAMESPACES, inside),
            (guard::NETNS, netns),
            (guard::UID, becomes),
            (guard::PORTS, self.landlock >= 4),
        ];
        held.iter().filter(|(_, holds)| *holds).fold(0, |bits, (bit, _)| bits | bit)
    }

    /// The protections that a command can be given here at best.
    pub fn available(&self) -> u32 {
        self.guards(self.namespaces, self.netns, self.drops, true)
    }

    /// The HELLO payload.
    pub fn hello(&self) -> Vec<u8> {
        let mut payload = VERSION.to_le_bytes().to_vec();
        for number in [self.landlock, self.available(), self.uid, self.gid, process_id() as u32, WINDOW] {
            payload.extend_from_slice(&number.to_le_bytes());
        }
        payload.extend_from_slice(&[u8::from(self.seccomp), u8::from(self.namespaces), u8::from(self.drops)]);
        let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("").to_owned();
        let folder = PathBuf::from(format!("/sys/fs/cgroup{group}"));
        let controllers = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        for text in [kernel.trim(), std::env::consts::ARCH, controllers.trim(), self.reasons.trim()] {
            put_text(&mut payload, text);
        }
        payload
    }
}

/// What one command gets, decided before anything is created.
pub struct Plan {
    pub namespaces: bool,
    pub netns: bool,
    /// The uid and gid of the command, and whether they differ from the runner's own.
    pub user: (u32, u32),
    pub becomes: bool,
    pub in_force: u32,
}

impl Plan {
    pub fn new(exec: &Exec, facts: &Facts) -> Result<Plan, Refusal> {
        let refuse = |code, text: &str| Err(Refusal(code, text.to_owned()));
        let own = if facts.uid == 0 { (NOBODY, NOBODY) } else { (facts.uid, facts.gid) };
        let user = (
            if exec.uid == DEFAULT_ID { own.0 } else { exec.uid },
            if exec.gid == DEFAULT_ID { own.1 } else { exec.gid },
        );
        let becomes = user != (facts.uid, facts.gid);
        if user.0 == 0 || (becomes && user.1 == 0) {
            return refuse(Refused::Identity, "uid: a command never runs as root");
        }
        if becomes && !facts.drops {
            return refuse(Refused::Identity, "uid: this runner cannot become another user");
        }
        let namespaces = exec.has(flag::NAMESPACES) && facts.namespaces;
        let netns = namespaces && exec.has(flag::NETNS) && facts.netns && exec.network != Network::Open;
        if exec.has(flag::PRIVATE_TMP) && !namespaces {
            // The listed `/tmp` would be the host's.
            return refuse(Refused::Protection, "namespaces: a private /tmp needs them");
        }
        if exec.network == Network::Private && !netns {
            return refuse(Refused::Protection, "netns: the private network needs it");
        }
        if exec.network == Network::Ports && facts.landlock < 4 {
            return refuse(Refused::Protection, "ports: a list of ports needs Landlock 4");
        }
        if !exec.tunnel.is_empty() && !netns || exec.tunnel.len() > 16 {
            return refuse(Refused::Request, "tunnel: only for the private network, and at most 16");
        }
        let sealed = exec.has(flag::SEAL_METADATA);
        let mut in_force = facts.guards(namespaces, netns, becomes, sealed);
        if exec.has(flag::UNIX) {
            in_force &= !guard::NETWORK;
        }
        let missing = exec.required & !in_force;
        if let Some((_, name)) = guard::NAMES.iter().find(|(bit, _)| missing & bit != 0) {
            let reasons = facts.reasons.trim().replace('\n', "; ");
            return Err(Refusal(Refused::Protection, format!("{name}: required and not to be had here. {reasons}")));
        }
        Ok(Plan { namespaces, netns, user, becomes, in_force })
    }

    pub fn identity(&self) -> Option<(u32, u32)> {
        self.becomes.then_some(self.user)
    }
}
