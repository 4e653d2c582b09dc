//! The runner itself: what it holds, its loop, its connections, and its end, which leaves no process behind. It blocks on nothing
//! but its one wait. Its other work is in files of their own: `orders` (frames and bytes) and `commands`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};
use std::{fs, io};

use super::frame::{Exec, Malformed, Network, Refusal, Refused, WINDOW, flag, kind};
use super::kernel::*;
use super::protections::Facts;
use super::tree::kill_descendants;

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
        let failure = match self.launch(&exec, true) {
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
    pub fn connection(fd: OwnedFd) -> Result<Stream, Errno> {
        set_nonblocking(fd.as_raw_fd())?;
        let other = duplicate(fd.as_raw_fd(), 3)?;
        let pump = Pump { channel: 0, fd: Some(fd), credit: 0, discard: false, total: 0 };
        let kind = Kind::Connection { error: 0 };
        Ok(Stream { kind, pumps: vec![pump], sink: Some(Sink::new(other)), identity: None })
    }
}

impl Runner {
    pub fn new_id(&mut self) -> u32 {
        while self.streams.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1) | 1 << 31;
        }
        let id = self.next;
        self.next = self.next.wrapping_add(1) | 1 << 31;
        id
    }

    pub fn listen(&mut self, id: u32, port: u16) -> Result<Stream, Refusal> {
        let failed = |error: io::Error| Refusal(Refused::Listen, format!("127.0.0.1:{port}: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        self.frame(kind::OPENED, id, &[&port.to_le_bytes()]);
        Ok(Stream { kind: Kind::Listener { listener, owner: id, port }, pumps: Vec::new(), sink: None, identity: None })
    }

    pub fn accept(&mut self, id: u32) {
        let Some(Stream { kind: Kind::Listener { listener, owner, port }, .. }) = self.streams.get(&id) else { return };
        let (owner, port) = (*owner, *port);
        let Ok((connection, _)) = listener.accept() else { return };
        let _ = connection.set_nodelay(true);
        if let Ok(stream) = Stream::connection(connection.into()) {
            let id = self.new_id();
            self.streams.insert(id, stream);
            self.frame(kind::ACCEPTED, owner, &[&id.to_le_bytes(), &port.to_le_bytes()]);
        }
    }
}

impl Runner {
    /// Says why, if there is somebody to hear it, and kills every process below.
    pub fn finish(&mut self, end: &End) {
        if let End::Malformed(text) = end {
            self.frame(kind::FATAL, 0, &[text.as_bytes()]);
            let until = Instant::now() + GRACE;
            while self.flush().is_ok() && !self.out.is_empty() && Instant::now() < until {
                let mut fds = [PollFd { fd: 1, events: POLLOUT, ready: 0 }];
                let _ = wait_ready(&mut fds, Some(GRACE));
            }
        }
        let commands = |stream: &Stream| match stream.kind {
            Kind::Command { pid, .. } => Some((pid, stream.identity)),
            _ => None,
        };
        let supervisors: Vec<_> = self.streams.values().filter_map(commands).collect();
        let identities: Vec<_> = supervisors.iter().map(|(_, identity)| *identity).collect();
        self.streams.clear(); // closes the control sockets: the supervisors kill their trees and end
        let until = Instant::now() + GRACE;
        loop {
            match reap() {
                Ok(Some(_)) => continue,
                Err(_) => return,
                Ok(None) => {}
            }
            if Instant::now() > until {
                for (pid, identity) in &supervisors {
                    let _ = with_identity(*identity, || send_signal(*pid, SIGKILL));
                }
                for identity in &identities {
                    let _ = with_identity(*identity, || kill_descendants(&[]));
                }
            }
            let _ = wait_ready(&mut [], Some(Duration::from_millis(1)));
        }
    }
}
