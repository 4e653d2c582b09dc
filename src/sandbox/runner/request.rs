//! The request to run a command, as the daemon sends it.

use std::ffi::CString;

use super::frame::{Fields, Malformed};

pub mod flag {
    /// Standard input is a pipe that the daemon feeds; without it, `/dev/null`.
    pub const STDIN: u32 = 1;
    /// The tree lives until its last process ends; without it, it is killed when the main process ends.
    pub const BACKGROUND: u32 = 2;
    /// Use user, PID, mount, IPC and UTS namespaces if they can be had.
    pub const NAMESPACES: u32 = 4;
    /// Use a network namespace of its own as well. Needs NAMESPACES.
    pub const NETNS: u32 = 8;
    /// `/tmp` and `/dev/shm` are private file systems in memory. Refused without namespaces.
    pub const PRIVATE_TMP: u32 = 16;
    /// Allow `memfd_create`, whose memory no limit but a cgroup's covers.
    pub const MEMFD: u32 = 32;
    /// Without namespaces, refuse changes of mode, owner, times and attributes, which Landlock does not cover.
    pub const SEAL_METADATA: u32 = 64;
    /// Allow Unix sockets, which a browser needs. For containers alone: every socket file that is visible can be reached,
    /// so the protection of the network is then not in force.
    pub const UNIX: u32 = 128;
    pub const ALL: u32 = 255;
}

pub mod access {
    pub const READ: u8 = 1;
    pub const WRITE: u8 = 2;
    pub const EXECUTE: u8 = 4;
    /// Symbolic links in the path are followed. Only for paths that no agent can change.
    pub const FOLLOW: u8 = 64;
    /// A path that does not exist is skipped.
    pub const OPTIONAL: u8 = 128;
}

#[derive(Clone, Copy, Default, PartialEq)]
pub enum Network {
    /// No sockets but connected pairs.
    #[default]
    None = 0,
    /// TCP to the listed ports alone, by Landlock.
    Ports = 1,
    /// A network namespace of its own: loopback, and the tunnels.
    Private = 2,
    /// TCP and UDP to anywhere.
    Open = 3,
}

/// What must hold for a command. The same bits say what a kernel offers, what is required and what is in force.
pub mod guard {
    pub const SECCOMP: u32 = 1;
    pub const FILES: u32 = 2;
    pub const NETWORK: u32 = 4;
    pub const SIGNALS: u32 = 8;
    pub const TRACE: u32 = 16;
    pub const TREE: u32 = 32;
    pub const METADATA: u32 = 64;
    pub const TASKS: u32 = 128;
    pub const NAMESPACES: u32 = 256;
    pub const NETNS: u32 = 512;
    pub const UID: u32 = 1024;
    pub const PORTS: u32 = 2048;
    /// What the daemon may promise for a wrapper.
    pub const VOUCHED: u32 = NAMESPACES | NETNS | TASKS;
    pub const NAMES: [(u32, &str); 12] = [
        (SECCOMP, "seccomp"),
        (FILES, "files"),
        (NETWORK, "network"),
        (SIGNALS, "signals"),
        (TRACE, "trace"),
        (TREE, "tree"),
        (METADATA, "metadata"),
        (TASKS, "tasks"),
        (NAMESPACES, "namespaces"),
        (NETNS, "netns"),
        (UID, "uid"),
        (PORTS, "ports"),
    ];
}

#[derive(Default)]
pub struct Exec {
    pub flags: u32,
    pub required: u32,
    pub vouched: u32,
    pub network: Network,
    pub uid: u32,
    pub gid: u32,
    pub umask: u32,
    pub deadline_ms: u32,
    pub memory: u64,
    pub processes: u32,
    pub disk: u64,
    pub tmp_bytes: u64,
    /// nofile, fsize, as, data, cpu (seconds), nproc. 0 leaves a limit as it is.
    pub limits: [u64; 6],
    pub credit: [u32; 2],
    pub cwd: CString,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub paths: Vec<(u8, CString)>,
    pub connect: Vec<u16>,
    pub bind: Vec<u16>,
    pub tunnel: Vec<u16>,
    pub wrapper: Vec<CString>,
}

impl Exec {
    pub fn decode(payload: &[u8]) -> Result<Exec, Malformed> {
        let mut from = Fields(payload);
        let exec = Exec {
            flags: from.u32()?,
            required: from.u32()?,
            vouched: from.u32()?,
            network: match from.u8()? {
                0 => Network::None,
                1 => Network::Ports,
                2 => Network::Private,
                3 => Network::Open,
                other => return Err(Malformed(format!("unknown network mode {other}"))),
            },
            uid: from.u32()?,
            gid: from.u32()?,
            umask: from.u32()?,
            deadline_ms: from.u32()?,
            memory: from.u64()?,
            processes: from.u32()?,
            disk: from.u64()?,
            tmp_bytes: from.u64()?,
            limits: [from.u64()?, from.u64()?, from.u64()?, from.u64()?, from.u64()?, from.u64()?],
            credit: [from.u32()?, from.u32()?],
            cwd: from.text()?,
            argv: from.list(Fields::text)?,
            env: from.list(Fields::text)?,
            paths: from.list(|from| Ok((from.u8()?, from.text()?)))?,
            connect: from.list(Fields::u16)?,
            bind: from.list(Fields::u16)?,
            tunnel: from.list(Fields::u16)?,
            wrapper: from.list(Fields::text)?,
        };
        from.end()?;
        if exec.argv.is_empty() {
            return Err(Malformed("argv is empty".into()));
        }
        if exec.flags & !flag::ALL != 0 || exec.required >> guard::NAMES.len() != 0 {
            return Err(Malformed("unknown flag or protection".into()));
        }
        Ok(exec)
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}
