//! The runner itself: what it holds, and its loop. Its other work is in files of their own: `orders` (frames), `commands`,
//! `flow` (bytes), `connections`, `ending`.
//!
//! It must never block on anything but its one wait.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::frame::{Malformed, Refusal, kind};
use super::kernel::*;
use super::numbers::nr;
use super::protections::Facts;
use super::request::{Exec, Network, flag};
use super::streams::{Kind, Stream};

/// Above this many unsent bytes the runner reads neither commands' output nor its own input.
pub const OUT_LIMIT: usize = 512 * 1024;
/// Streams of all kinds at one time.
pub const MAX_STREAMS: usize = 256;
/// How long a supervisor may take to report after it was told to kill.
pub const GRACE: Duration = Duration::from_secs(2);

/// What a ready descriptor is for.
#[derive(Clone, Copy)]
pub enum Role {
    Input,
    Output,
    Signals,
    Control(u32),
    Connecting(u32),
    Sink(u32),
    Pump(u32, usize),
    Accept(u32),
}

/// Why the runner ends.
pub enum End {
    /// The daemon closed the stream, died, or was silent for too long.
    Closed,
    Signal,
    Malformed(String),
    System(&'static str, Errno),
}

/// The runner.
pub struct Runner {
    pub facts: Facts,
    pub null: OwnedFd,
    pub signals: OwnedFd,
    pub greeted: bool,
    pub received: Vec<u8>,
    /// The longest silence of the daemon while a command runs, if it promised to speak, and when it last spoke.
    pub silence: Option<Duration>,
    pub heard_at: Instant,
    /// Frames not yet written.
    pub out: Vec<u8>,
    pub streams: BTreeMap<u32, Stream>,
    /// The next stream that the runner itself opens, an accepted connection. The daemon's ids are below this range.
    pub next: u32,
}

impl Runner {
    pub fn new() -> Result<Runner, Errno> {
        libc!(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0))?;
        libc!(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))?;
        close_all_but(&[]);
        let null = fs::File::options().read(true).write(true).open("/dev/null");
        let null = duplicate(null.map_err(|error| error.raw_os_error().unwrap_or(0))?.as_raw_fd(), 3)?;
        let signals = signals_as_reads(&[1, 2, 3, 15, SIGCHLD])?;
        let facts = Facts::find();
        if facts.drops {
            sys!(nr::SETGROUPS, 0, 0)?; // what root belonged to is nothing for its commands
        }
        let (received, out, streams) = (Vec::new(), Vec::new(), BTreeMap::new());
        let (silence, heard_at) = (None, Instant::now());
        let greeted = false;
        let mut runner =
            Runner { facts, null, signals, greeted, received, silence, heard_at, out, streams, next: 1 << 31 };
        runner.try_namespaces();
        set_nonblocking(0)?;
        set_nonblocking(1)?;
        let hello = runner.facts.hello();
        runner.frame(kind::HELLO, 0, &[&hello]);
        Ok(runner)
    }

    /// Finds out whether commands can have namespaces by building them once as a command would.
    pub fn try_namespaces(&mut self) {
        (self.facts.namespaces, self.facts.netns) = (true, true);
        let flags = flag::NAMESPACES | flag::NETNS | flag::PRIVATE_TMP;
        let (uid, gid, cwd) = (DEFAULT_ID, DEFAULT_ID, c"/".into());
        let exec = Exec { flags, network: Network::Private, uid, gid, cwd, tmp_bytes: 1 << 20, ..Exec::default() };
        let failure = match self.launch(&exec, None) {
            Err(Refusal(_, text)) => Some(text),
            Ok(Stream { kind: Kind::Command { pid, control, .. }, .. }) => {
                let mut status = 0;
                let _ = libc!(wait4(pid, &mut status, 0, std::ptr::null_mut()));
                let mut text = [0; 512];
                let said = receive_message(control.as_raw_fd(), &mut text).map_or(0, |(count, _)| count);
                match (status, said) {
                    (0, _) => None,
                    (_, 2..) => Some(String::from_utf8_lossy(&text[2..said]).into_owned()),
                    _ => Some(format!("the probe ended with status {status}")),
                }
            }
            Ok(_) => None,
        };
        if let Some(text) = failure {
            (self.facts.namespaces, self.facts.netns) = (false, false);
            let _ = writeln!(self.facts.reasons, "namespaces: {text}");
        }
    }

    /// Serves until the stream ends, then leaves nothing behind.
    pub fn serve(&mut self) -> End {
        loop {
            if let Err(end) = self.turn() {
                self.finish(&end);
                return end;
            }
        }
    }

    pub fn turn(&mut self) -> Result<(), End> {
        let (mut fds, roles) = self.interest();
        let force = self.streams.values().filter_map(|stream| match &stream.kind {
            Kind::Command { force_at, .. } => *force_at,
            _ => None,
        });
        let runs = self.streams.values().any(|stream| matches!(stream.kind, Kind::Command { .. }));
        let silent_at = self.silence.filter(|_| runs).map(|silence| self.heard_at + silence);
        let due = force.chain(silent_at).min();
        let timeout = due.map(|at| at.saturating_duration_since(Instant::now()));
        wait_ready(&mut fds, timeout).map_err(|errno| End::System("poll", errno))?;
        for (fd, role) in fds.iter().zip(roles).filter(|(fd, _)| fd.ready != 0) {
            match role {
                Role::Signals => self.on_signals()?,
                Role::Control(id) => self.on_control(id),
                Role::Connecting(id) => self.on_connected(id),
                Role::Sink(id) => self.feed(id),
                Role::Pump(id, index) => self.pump(id, index, false),
                Role::Accept(id) => self.accept(id),
                Role::Output if fd.ready & !POLLOUT != 0 => return Err(End::Closed),
                Role::Output => {}
                Role::Input => self.input()?,
            }
        }
        // Input that came meanwhile has been read above.
        if silent_at.is_some_and(|_| self.silence.is_some_and(|silence| self.heard_at.elapsed() >= silence)) {
            return Err(End::Closed);
        }
        self.settle();
        self.flush()
    }

    /// The descriptors to wait for. News of commands comes before their output, and output before new input.
    pub fn interest(&self) -> (Vec<PollFd>, Vec<Role>) {
        let mut fds = Vec::with_capacity(4 + self.streams.len() * 4);
        let mut roles = Vec::with_capacity(fds.capacity());
        let mut add = |fd: RawFd, events: i16, role| {
            fds.push(PollFd { fd, events, ready: 0 });
            roles.push(role);
        };
        add(self.signals.as_raw_fd(), POLLIN, Role::Signals);
        let room = self.out.len() < OUT_LIMIT;
        for (id, stream) in &self.streams {
            match &stream.kind {
                Kind::Command { control, report: None, .. } => add(control.as_raw_fd(), POLLIN, Role::Control(*id)),
                // No command may use up the streams that others need.
                Kind::Listener { listener, .. } if room && self.streams.len() < MAX_STREAMS / 2 => {
                    add(listener.as_raw_fd(), POLLIN, Role::Accept(*id));
                }
                _ => {}
            }
        }
        for (id, stream) in &self.streams {
            if let Kind::Connection { connecting: true, .. } = stream.kind {
                if let Some(sink) = &stream.sink {
                    add(sink.fd.as_raw_fd(), POLLOUT, Role::Connecting(*id));
                }
                continue;
            }
            if let Some(sink) = stream.sink.as_ref().filter(|sink| !sink.waiting.is_empty()) {
                add(sink.fd.as_raw_fd(), POLLOUT, Role::Sink(*id));
            }
            if matches!(stream.kind, Kind::Command { started: false, .. }) || !room {
                continue;
            }
            for (index, pump) in stream.pumps.iter().enumerate() {
                if let (Some(fd), true) = (&pump.fd, pump.discard || pump.credit > 0) {
                    add(fd.as_raw_fd(), POLLIN, Role::Pump(*id, index));
                }
            }
        }
        add(1, if self.out.is_empty() { 0 } else { POLLOUT }, Role::Output);
        if room {
            add(0, POLLIN, Role::Input);
        }
        (fds, roles)
    }
}

impl From<Malformed> for End {
    fn from(Malformed(text): Malformed) -> End {
        End::Malformed(text)
    }
}
