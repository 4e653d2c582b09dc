//! Bytes: from commands and connections to the daemon, as far as its credit goes, and back; and the end of what has ended.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::time::Instant;

use super::frame::{CHUNK, WINDOW, kind};
use super::kernel::*;
use super::service::{OUT_LIMIT, Runner};
use super::streams::{Kind, Stream};

impl Runner {
    /// Moves bytes from a command or connection to the daemon, as far as its credit goes. When `last`, no writer lives:
    /// an empty pipe has then ended, whoever else may hold it.
    pub fn pump(&mut self, id: u32, index: usize, last: bool) {
        let mut chunk = [0; CHUNK];
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let pump = &mut stream.pumps[index];
        let Some(fd) = &pump.fd else { return };
        let room = if pump.discard { CHUNK } else { CHUNK.min(pump.credit as usize) };
        if room == 0 {
            // Only the end can be told without credit.
            let mut waiting: c_int = 0;
            if last && libc!(ioctl(fd.as_raw_fd(), 0x541B, &raw mut waiting)).is_ok() && waiting == 0 {
                pump.fd = None;
                let channel = pump.channel;
                self.frame(kind::EOF, id, &[&[channel]]);
            }
            return;
        }
        let result = read_some(fd.as_raw_fd(), &mut chunk[..room]);
        let channel = pump.channel;
        match result {
            Ok(count @ 1..) => {
                pump.total += count as u64;
                if !pump.discard {
                    pump.credit -= count as u32;
                    self.frame(kind::DATA, id, &[&[channel], &chunk[..count]]);
                }
            }
            Err(EINTR) => {}
            Err(EAGAIN) if !last => {}
            Ok(0) | Err(_) => {
                if let (Kind::Connection { error, .. }, Err(errno)) = (&mut stream.kind, result) {
                    *error = errno;
                    stream.sink = None;
                }
                pump.fd = None;
                self.frame(kind::EOF, id, &[&[channel]]);
            }
        }
    }

    /// Moves waiting bytes to a command or connection, grants again what it took, and closes at the end.
    pub fn feed(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if matches!(stream.kind, Kind::Connection { connecting: true, .. }) {
            return;
        }
        let Some(sink) = &mut stream.sink else { return };
        let mut done = 0;
        let broken = loop {
            if done == sink.waiting.len() {
                break false;
            }
            match write_some(sink.fd.as_raw_fd(), &sink.waiting[done..]) {
                Ok(count) => done += count,
                Err(EINTR) => {}
                Err(EAGAIN) => break false,
                Err(_) => break true,
            }
        };
        sink.waiting.drain(..done);
        sink.owed += done as u32;
        let owed = if sink.owed >= WINDOW / 4 || sink.waiting.is_empty() { std::mem::take(&mut sink.owed) } else { 0 };
        sink.allowed += owed;
        let closed = sink.closing && sink.waiting.is_empty();
        if closed && matches!(stream.kind, Kind::Connection { .. }) {
            let _ = libc!(shutdown(sink.fd.as_raw_fd(), 1));
        }
        if broken || closed {
            stream.sink = None;
        }
        if broken {
            self.frame(kind::EOF, id, &[&[0]]); // nobody reads this any more
        } else if owed > 0 && !closed {
            self.frame(kind::CREDIT, id, &[&[0], &owed.to_le_bytes()]);
        }
    }

    /// Ends what has ended, and kills supervisors that outstayed their time.
    pub fn settle(&mut self) {
        let ids: Vec<u32> = self.streams.keys().copied().collect();
        for id in ids {
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            match &mut stream.kind {
                Kind::Command { report: Some(_), .. } => {
                    for index in 0..2 {
                        if self.out.len() < OUT_LIMIT {
                            self.pump(id, index, true);
                        }
                    }
                    self.exit_if_drained(id);
                }
                Kind::Command { pid, force_at, .. } if force_at.is_some_and(|at| Instant::now() >= at) => {
                    *force_at = None;
                    let pid = *pid;
                    let _ = with_identity(stream.identity, || send_signal(pid, SIGKILL));
                }
                Kind::Connection { error, .. } if stream.sink.is_none() && stream.pumps[0].fd.is_none() => {
                    let error = error.to_le_bytes();
                    self.streams.remove(&id);
                    self.frame(kind::CLOSED, id, &[&error]);
                }
                _ => {}
            }
        }
    }

    pub fn exit_if_drained(&mut self, id: u32) {
        let Some(Stream { kind: Kind::Command { report: Some(report), .. }, pumps, .. }) = self.streams.get(&id) else {
            return;
        };
        if pumps.iter().any(|pump| pump.fd.is_some()) {
            return;
        }
        let signal = report.status & 0x7F;
        let code = if signal == 0 { (report.status >> 8) & 0xFF } else { -1 };
        let totals = [pumps[0].total.to_le_bytes(), pumps[1].total.to_le_bytes()].concat();
        let (why, numbers, found) = (report.why, report.numbers.clone(), report.found.clone());
        self.streams.remove(&id);
        self.streams.retain(|_, stream| !matches!(stream.kind, Kind::Listener { owner, .. } if owner == id));
        self.frame(kind::EXIT, id, &[&[why], &code.to_le_bytes(), &[signal as u8], &numbers, &totals, &found]);
    }
}
