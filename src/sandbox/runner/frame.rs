//! Frames: their kinds, how their fields are read and written, and the request to run a command. `PROTOCOL.md` describes them.
//! No length is trusted. The daemon includes this file, too.

use std::ffi::CString;

/// Changes whenever a frame changes. The daemon embeds the runner, so the two are equal unless an image is stale.
pub const VERSION: u16 = 4;
/// Largest payload of a frame, in bytes. A longer script goes through standard input.
pub const MAX_FRAME: usize = 256 * 1024;
/// Bytes that the daemon may send to one stream before it is granted more.
pub const WINDOW: u32 = 128 * 1024;
/// Largest DATA frame the runner sends, and the size of one read.
pub const CHUNK: usize = 64 * 1024;

pub mod kind {
    pub const HELLO: u8 = 0x01;
    pub const EXEC: u8 = 0x02;
    pub const DATA: u8 = 0x03;
    pub const EOF: u8 = 0x04;
    pub const CREDIT: u8 = 0x05;
    pub const KILL: u8 = 0x07;
    pub const LISTEN: u8 = 0x09;
    pub const CLOSE: u8 = 0x0A;
    pub const WATCH: u8 = 0x0B;
    pub const STARTED: u8 = 0x82;
    pub const EXIT: u8 = 0x86;
    pub const REFUSED: u8 = 0x87;
    pub const OPENED: u8 = 0x88;
    pub const ACCEPTED: u8 = 0x89;
    pub const CLOSED: u8 = 0x8A;
    pub const FATAL: u8 = 0x8F;
    /// Set in frames that the runner sends.
    pub const FROM_RUNNER: u8 = 0x80;
}

/// A frame that breaks the protocol. It ends the runner: after it nothing in the stream can be trusted.
#[derive(Debug)]
pub struct Malformed(pub String);

/// Why a stream was not opened. The codes are part of the protocol.
#[derive(Clone, Copy)]
pub enum Refused {
    Protection = 1,
    Identity = 2,
    Request = 3,
    SetUp = 4,
    Program = 5,
    TooMany = 6,
    Listen = 8,
}
pub struct Refusal(pub Refused, pub String);

/// Reads little-endian fields from a payload, refusing what is short.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(|| Malformed("payload is too short".into()))?;
        self.0 = rest;
        Ok(taken)
    }
    pub fn number(&mut self, bytes: usize) -> Result<u64, Malformed> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.number(1)? as u8)
    }
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(self.number(2)? as u16)
    }
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(self.number(4)? as u32)
    }
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        self.number(8)
    }
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        self.take(length)
    }
    pub fn text(&mut self) -> Result<CString, Malformed> {
        CString::new(self.bytes()?).map_err(|_| Malformed("text holds a zero byte".into()))
    }
    pub fn list<T>(&mut self, item: impl Fn(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        // Every item takes at least one byte, so the payload's bound is a bound on the list.
        let count = self.u32()? as usize;
        if count > self.0.len() {
            return Err(Malformed("list is longer than its payload".into()));
        }
        (0..count).map(|_| item(self)).collect()
    }
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("payload is too long".into())) }
    }
}

pub fn put_text(into: &mut Vec<u8>, text: &str) {
    into.extend_from_slice(&(text.len() as u32).to_le_bytes());
    into.extend_from_slice(text.as_bytes());
}

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
    macro_rules! guards {
        ($($name:ident $bit:literal $text:literal),* $(,)?) => {
            $(pub const $name: u32 = $bit;)*
            pub const NAMES: &[(u32, &str)] = &[$(($name, $text)),*];
        };
    }
    guards! {
        SECCOMP 1 "seccomp", FILES 2 "files", NETWORK 4 "network", SIGNALS 8 "signals", TRACE 16 "trace", TREE 32 "tree",
        METADATA 64 "metadata", TASKS 128 "tasks", NAMESPACES 256 "namespaces", NETNS 512 "netns", UID 1024 "uid",
        PORTS 2048 "ports",
    }
}

#[derive(Default)]
pub struct Exec {
    pub flags: u32,
    pub required: u32,
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
}

impl Exec {
    pub fn decode(payload: &[u8]) -> Result<Exec, Malformed> {
        let mut from = Fields(payload);
        let exec = Exec {
            flags: from.u32()?,
            required: from.u32()?,
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
