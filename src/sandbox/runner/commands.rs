//! Commands: their supervisors are started, heard and, if one dies without a word, cleaned up after.

use std::collections::HashSet;
use std::ffi::c_int;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::frame::{Refusal, Refused, kind};
use super::kernel::*;
use super::numbers::nr;
use super::processes::{descendants, kill_descendants};
use super::protections::Plan;
use super::request::{Exec, flag};
use super::service::{End, GRACE, Runner};
use super::streams::{Kind, Pump, Report, Sink, Stream};
use super::supervisor::{Ends, supervise};
use super::tree::Why;

impl Runner {
    /// Starts the supervisor of a command. Without a payload it only tries the set-up.
    pub fn launch(&self, exec: &Exec, payload: Option<&[u8]>) -> Result<Stream, Refusal> {
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
                supervise(exec, &plan, &self.facts, &ends, payload);
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
