//! Commands: their supervisors are started, heard and, if one dies without a word, cleaned up after. A supervisor is one process
//! for each command; its end is the end of every process of its command.

use std::collections::HashSet;
use std::ffi::c_int;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::disk::{Occupied, occupied};
use super::frame::{Exec, Network, Refusal, Refused, flag, kind};
use super::kernel::*;
use super::launch::{Launch, failure_record};
use super::places::{Failed, Place, Step, arrange_mounts, at, open_places};
use super::protections::{Facts, Plan};
use super::service::{End, GRACE, Kind, Pump, Report, Runner, Sink, Stream};
use super::tree::{Tree, Why, descendants, kill_descendants};

impl Runner {
    /// Starts the supervisor of a command. A trial ends when it is set up.
    pub fn launch(&self, exec: &Exec, trial: bool) -> Result<Stream, Refusal> {
        let plan = Plan::new(exec, &self.facts)?;
        let system = |errno| Refusal(Refused::SetUp, format!("process: {}", io::Error::from_raw_os_error(errno)));
        let start = || -> Result<Stream, Errno> {
            let mut pair = [0; 2];
            libc!(socketpair(AF_UNIX as c_int, SOCK_SEQPACKET as c_int | O_CLOEXEC, 0, pair.as_mut_ptr()))?;
            let (control, theirs) = (owned(pair[0]), owned(pair[1]));
            let (stdin, sink) = if exec.has(flag::STDIN) {
                let (stdin, ours) = pipe_pair()?;
                set_nonblocking(ours.as_raw_fd())?;
                (Some(stdin), Some(Sink::new(ours)))
            } else {
                (None, None)
            };
            let (mut pumps, mut outs) = (Vec::new(), Vec::new());
            for (channel, credit) in [1, 2].into_iter().zip(exec.credit) {
                let (ours, out) = pipe_pair()?;
                set_nonblocking(ours.as_raw_fd())?;
                pumps.push(Pump { channel, fd: Some(ours), credit, discard: credit == u32::MAX, total: 0 });
                outs.push(out);
            }
            let null = self.null.as_raw_fd();
            let stdin = stdin.as_ref().map_or(null, AsRawFd::as_raw_fd);
            let stdio = [stdin, outs[0].as_raw_fd(), outs[1].as_raw_fd()];
            let spaces = if plan.namespaces { CLONE_NAMESPACES } else { 0 };
            let network = if plan.netns { CLONE_NEWNET } else { 0 };
            let pid = sys!(nr::CLONE, spaces | network | SIGCHLD as usize, 0, 0, 0, 0)? as i32;
            if pid == 0 {
                let ends = Ends { control: theirs.as_raw_fd(), stdio, null };
                supervise(exec, &plan, &self.facts, &ends, trial);
            }
            // A supervisor enforces the deadline. Should it hang (a dead network mount), it is killed itself.
            let limit = (exec.deadline_ms > 0).then(|| Duration::from_millis(exec.deadline_ms.into()) + GRACE);
            let force_at = limit.map(|limit| Instant::now() + limit);
            let kind = Kind::Command { pid, control, in_force: plan.in_force, started: false, report: None, force_at };
            Ok(Stream { kind, pumps, sink, identity: plan.identity() })
        };
        with_identity(plan.identity(), start).and_then(|started| started).map_err(system)
    }

    /// Takes what a supervisor says: started, refused or ended. Its silence is the loss of the command.
    pub fn on_control(&mut self, id: u32) {
        let mut message = [0; 4096];
        let Some(Stream { kind: Kind::Command { control, in_force, started, report, .. }, .. }) =
            self.streams.get_mut(&id)
        else {
            return;
        };
        let (count, fds) = match receive_message(control.as_raw_fd(), &mut message) {
            Err(EAGAIN | EINTR) => return,
            Err(_) => (0, Vec::new()),
            Ok(received) => received,
        };
        match message[..count] {
            [b'S'] => {
                *started = true;
                let bits = in_force.to_le_bytes();
                self.frame(kind::STARTED, id, &[&bits]);
                self.adopt(id, fds);
            }
            [b'X', code, ref text @ ..] => {
                let (code, text) = (u16::from(code).to_le_bytes(), text.to_vec());
                self.streams.remove(&id);
                self.frame(kind::REFUSED, id, &[&code, &text]);
            }
            [b'R', why, a, b, c, d, ref rest @ ..] => {
                let status = i32::from_le_bytes([a, b, c, d]);
                let (numbers, found) = rest.split_at(rest.len().min(24));
                *report = Some(Report { why, status, numbers: numbers.to_vec(), found: found.to_vec() });
            }
            _ => {
                *report = Some(Report { why: Why::Lost as u8, status: 0, numbers: vec![0; 24], found: Vec::new() });
                *started = true;
                self.sweep();
            }
        }
    }

    /// Takes over the listening sockets that a supervisor opened in its command's network.
    pub fn adopt(&mut self, owner: u32, fds: Vec<OwnedFd>) {
        for listener in fds.into_iter().map(TcpListener::from) {
            let port = listener.local_addr().map_or(0, |address| address.port());
            if listener.set_nonblocking(true).is_ok() {
                let id = self.new_id();
                let kind = Kind::Listener { listener, owner, port };
                self.streams.insert(id, Stream { kind, pumps: Vec::new(), sink: None, identity: None });
            }
        }
    }

    pub fn on_signals(&mut self) -> Result<(), End> {
        let mut records = [0u8; 128 * 16];
        let count = read_some(self.signals.as_raw_fd(), &mut records).unwrap_or(0);
        if records[..count].chunks_exact(128).any(|record| i32::from(record[0]) != SIGCHLD) {
            return Err(End::Signal);
        }
        while let Ok(Some(_)) = reap() {}
        Ok(())
    }

    /// Kills what a dead supervisor left to us: every child that is not a supervisor.
    pub fn sweep(&mut self) {
        let lost = |stream: &Stream| match &stream.kind {
            Kind::Command { pid, report, .. } => report.is_none().then_some(*pid),
            _ => None,
        };
        let known: Vec<i32> = self.streams.values().filter_map(lost).collect();
        let identities: HashSet<Option<(u32, u32)>> = self.streams.values().map(|stream| stream.identity).collect();
        for _ in 0..1000 {
            while let Ok(Some(_)) = reap() {}
            if descendants(&known).is_empty() {
                return;
            }
            for identity in &identities {
                let _ = with_identity(*identity, || kill_descendants(&known));
            }
            let _ = wait_ready(&mut [], Some(Duration::from_millis(1)));
        }
    }
}

/// The descriptors that a supervisor keeps.
pub struct Ends {
    pub control: RawFd,
    pub stdio: [RawFd; 3],
    pub null: RawFd,
}

/// Runs in the forked supervisor and never returns. As the first process of a PID namespace, or as a subreaper, it owns
/// every process of its command, also after a double fork and `setsid`.
pub fn supervise(exec: &Exec, plan: &Plan, facts: &Facts, ends: &Ends, trial: bool) -> ! {
    let (signals, tunnels, places) = match set_up(exec, plan, ends) {
        Ok(set) => set,
        Err(failed) => refuse(ends, &failed),
    };
    if trial {
        quit(0)
    }
    let start = || {
        let (report, write_end) = pipe_pair().map_err(at(Step::Streams))?;
        let write_end = duplicate(write_end.as_raw_fd(), 16).map_err(at(Step::Streams))?;
        let launch = Launch::prepare(exec, plan, facts, &places, ends.stdio, write_end.as_raw_fd())?;
        let base = if exec.disk > 0 { occupied(exec, &[], &HashSet::new(), false) } else { Occupied::default() };
        let started = Instant::now();
        let main = sys!(nr::CLONE, SIGCHLD, 0, 0, 0, 0).map_err(at(Step::Program))? as i32;
        if main == 0 {
            let (step, errno) = launch.run(exec);
            let _ = write_some(launch.report, &failure_record(step, errno));
            quit(127);
        }
        Ok((report, main, base, started))
    };
    let (report, main, base, started) = match start() {
        Ok(started) => started,
        Err(failed) => refuse(ends, &failed),
    };
    // They hold the old root.
    drop(places);
    for end in ends.stdio.into_iter().filter(|end| *end != ends.null) {
        drop(owned(end));
    }
    if let Some(failed) = failure_in(&report, exec) {
        refuse(ends, &failed);
    }
    let tunnel_fds: Vec<RawFd> = tunnels.iter().map(AsRawFd::as_raw_fd).collect();
    let _ = send_message(ends.control, b"S", &tunnel_fds);
    drop(tunnels);
    let tree = Tree { main, base, exec, inside: plan.namespaces, started };
    let result = tree.watch(ends.control, &signals);
    let mut message = vec![b'R', result.why as u8];
    message.extend_from_slice(&result.status.to_le_bytes());
    for number in [result.duration_us, result.max_rss_kib, result.cpu_us] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    message.extend_from_slice(result.found.unwrap_or_default().as_bytes());
    let _ = send_message(ends.control, &message, &[]);
    quit(0)
}

/// Tells the runner why the command is not run, and ends.
pub fn refuse(ends: &Ends, failed: &Failed) -> ! {
    let Refusal(code, text) = failed.refusal();
    let _ = send_message(ends.control, &[&[b'X', code as u8], text.as_bytes()].concat(), &[]);
    quit(1)
}

/// Reads what the child reported. Nothing means that it has become its program.
pub fn failure_in(report: &OwnedFd, exec: &Exec) -> Option<Failed> {
    let mut record = [0; 5];
    let count = loop {
        match read_some(report.as_raw_fd(), &mut record) {
            Err(EINTR) => {}
            other => break other.unwrap_or(0),
        }
    };
    if count < 5 {
        return None;
    }
    let step = Step::ALL.get(record[0] as usize).copied().unwrap_or(Step::Program);
    let what = match step {
        Step::Program => exec.argv[0].to_string_lossy().into_owned(),
        Step::Directory => exec.cwd.to_string_lossy().into_owned(),
        _ => String::new(),
    };
    Some(Failed(step, i32::from_le_bytes([record[1], record[2], record[3], record[4]]), what))
}

/// What a supervisor has when its place is made: the signals as reads, the listening tunnels, and the listed places.
type Set<'e> = (OwnedFd, Vec<TcpListener>, Vec<Place<'e>>);

pub fn set_up<'e>(exec: &'e Exec, plan: &Plan, ends: &Ends) -> Result<Set<'e>, Failed> {
    // What the runner holds for other commands must not live on here: their ends would never close.
    close_all_but(&[ends.control, ends.stdio[0], ends.stdio[1], ends.stdio[2], ends.null]);
    for place in 0..3 {
        libc!(dup2(ends.null, place)).map_err(at(Step::Streams))?;
    }
    let signals = signals_as_reads(&[SIGCHLD]).map_err(at(Step::Streams))?;
    libc!(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)).map_err(at(Step::Streams))?;
    // A process that cannot be dumped does not own its files in /proc. It must for these few writes.
    libc!(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)).map_err(at(Step::Map))?;
    // The kernel's out-of-memory killer should take commands before the daemon. Raising the score needs no privilege.
    let _ = fs::write("/proc/self/oom_score_adj", "800");
    let places = if plan.namespaces {
        let (uid, gid) = plan.user;
        let maps = [
            ("setgroups", "deny".into()),
            ("gid_map", format!("{gid} {gid} 1")),
            ("uid_map", format!("{uid} {uid} 1")),
        ];
        for (file, text) in maps {
            fs::write(format!("/proc/self/{file}"), text)
                .map_err(|error| Failed(Step::Map, error.raw_os_error().unwrap_or(0), file.into()))?;
        }
        sys!(nr::SETRESGID, gid, gid, gid).map_err(at(Step::Map))?;
        sys!(nr::SETRESUID, uid, uid, uid).map_err(at(Step::Map))?;
        let mut places = open_places(exec)?;
        arrange_mounts(exec, &mut places)?;
        // The death of the first process takes the whole PID namespace with it.
        libc!(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)).map_err(at(Step::Map))?;
        places
    } else {
        open_places(exec)?
    };
    libc!(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)).map_err(at(Step::Map))?;
    let mut tunnels = Vec::new();
    if plan.netns && exec.network != Network::None {
        raise_loopback().map_err(at(Step::Loopback))?;
        for port in &exec.tunnel {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, *port));
            tunnels.push(listener.map_err(|error| at(Step::Tunnel)(error.raw_os_error().unwrap_or(0)))?);
        }
    }
    Ok((signals, tunnels, places))
}

/// Brings the loopback device of a new network namespace up.
pub fn raise_loopback() -> Result<(), Errno> {
    let fd = owned(libc!(socket(AF_INET as c_int, 2 | O_CLOEXEC, 0))?);
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    request[16] = 1; // IFF_UP
    libc!(ioctl(fd.as_raw_fd(), 0x8914, request.as_mut_ptr())).map(drop) // SIOCSIFFLAGS
}
