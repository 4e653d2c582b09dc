//! Streams: commands, connections and listeners, with what flows in and out of them.

use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use super::frame::WINDOW;
use super::kernel::*;

/// The reading side of a stream: a command's stdout (1) or stderr (2), or what a connection receives (0).
pub struct Pump {
    pub channel: u8,
    pub fd: Option<OwnedFd>,
    pub credit: u32,
    /// The daemon wants no more: what comes is counted and dropped.
    pub discard: bool,
    pub total: u64,
}

/// The writing side: a command's stdin, or what a connection sends. It never holds more than a window.
pub struct Sink {
    pub fd: OwnedFd,
    pub waiting: Vec<u8>,
    /// What the daemon may still send, and what it has not yet been granted again.
    pub allowed: u32,
    pub owed: u32,
    pub closing: bool,
}

impl Sink {
    pub fn new(fd: OwnedFd) -> Sink {
        Sink { fd, waiting: Vec::new(), allowed: WINDOW, owed: 0, closing: false }
    }
}

/// What a stream is.
pub enum Kind {
    Command {
        pid: i32,
        control: OwnedFd,
        in_force: u32,
        started: bool,
        report: Option<Report>,
        force_at: Option<Instant>,
    },
    Connection {
        connecting: bool,
        error: Errno,
    },
    Listener {
        listener: TcpListener,
        owner: u32,
        port: u16,
    },
}

/// What a supervisor says at the end: the bytes of its message, or the lack of one.
pub struct Report {
    pub why: u8,
    pub status: i32,
    pub numbers: Vec<u8>,
    /// A directory that the command left, and that nobody should walk.
    pub found: Vec<u8>,
}

/// A stream.
pub struct Stream {
    pub kind: Kind,
    pub pumps: Vec<Pump>,
    pub sink: Option<Sink>,
    pub identity: Option<(u32, u32)>,
}

impl Stream {
    pub fn connection(fd: OwnedFd, connecting: bool) -> Result<Stream, Errno> {
        set_nonblocking(fd.as_raw_fd())?;
        let other = duplicate(fd.as_raw_fd(), 3)?;
        let pump = Pump { channel: 0, fd: Some(fd), credit: 0, discard: false, total: 0 };
        let kind = Kind::Connection { connecting, error: 0 };
        Ok(Stream { kind, pumps: vec![pump], sink: Some(Sink::new(other)), identity: None })
    }
}
