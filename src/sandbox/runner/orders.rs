//! The frames of the daemon and what they order; and the bytes: from commands and connections to the daemon, as far as its
//! credit goes, and back.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::frame::{CHUNK, Exec, Fields, MAX_FRAME, Malformed, Refusal, Refused, VERSION, WINDOW, kind};
use super::kernel::*;
use super::service::{End, GRACE, Kind, MAX_STREAMS, OUT_LIMIT, Runner, Stream};

impl Runner {
    pub fn frame(&mut self, kind: u8, id: u32, parts: &[&[u8]]) {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        self.out.extend_from_slice(&(length as u32).to_le_bytes());
        self.out.push(kind | kind::FROM_RUNNER);
        self.out.extend_from_slice(&id.to_le_bytes());
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
    }

    pub fn refuse(&mut self, id: u32, Refusal(code, text): Refusal) {
        self.frame(kind::REFUSED, id, &[&(code as u16).to_le_bytes(), text.as_bytes()]);
    }

    pub fn flush(&mut self) -> Result<(), End> {
        let mut done = 0;
        while done < self.out.len() {
            match write_some(1, &self.out[done..]) {
                Ok(count) => done += count,
                Err(EINTR) => {}
                Err(EAGAIN) => break,
                Err(_) => return Err(End::Closed),
            }
        }
        self.out.drain(..done);
        Ok(())
    }

    pub fn input(&mut self) -> Result<(), End> {
        let mut chunk = [0; CHUNK];
        match read_some(0, &mut chunk) {
            Ok(0) => return Err(End::Closed),
            Ok(count) => {
                self.received.extend_from_slice(&chunk[..count]);
                self.heard_at = Instant::now();
            }
            Err(EAGAIN | EINTR) => {}
            Err(errno) => return Err(End::System("read", errno)),
        }
        let received = std::mem::take(&mut self.received);
        let mut rest = received.as_slice();
        while let Some((header, body)) = rest.split_at_checked(9) {
            let mut fields = Fields(header);
            let (length, kind, id) = (fields.u32()? as usize, fields.u8()?, fields.u32()?);
            if length > MAX_FRAME {
                return Err(End::Malformed(format!("frame of {length} bytes; at most {MAX_FRAME}")));
            }
            let Some((payload, next)) = body.split_at_checked(length) else { break };
            self.take(kind, id, payload)?;
            rest = next;
        }
        self.received = rest.to_vec();
        Ok(())
    }

    /// Obeys one frame. Frames for a stream that has just ended cross its last frame on the way; they are ignored.
    pub fn take(&mut self, kind: u8, id: u32, payload: &[u8]) -> Result<(), Malformed> {
        let mut fields = Fields(payload);
        if !self.greeted {
            if kind != kind::HELLO {
                return Err(Malformed("the first frame must be HELLO".into()));
            }
            let version = fields.u16()?;
            if version != VERSION {
                return Err(Malformed(format!("version {version}; this runner speaks {VERSION}")));
            }
            self.greeted = true;
            return fields.end();
        }
        if matches!(kind, kind::EXEC | kind::LISTEN) {
            if self.streams.contains_key(&id) || id >> 31 != 0 {
                return Err(Malformed(format!("stream {id} is in use or out of range")));
            }
            return self.open(kind, id, payload);
        }
        match kind {
            kind::DATA | kind::EOF => {
                if fields.u8()? != 0 {
                    return Err(Malformed("only channel 0 can be written".into()));
                }
                let data = fields.rest();
                let Some(sink) = self.streams.get_mut(&id).and_then(|stream| stream.sink.as_mut()) else {
                    return Ok(());
                };
                if data.len() > sink.allowed as usize || sink.closing || (kind == kind::EOF && !data.is_empty()) {
                    return Err(Malformed(format!("stream {id}: more data than was granted, or data after its end")));
                }
                sink.allowed -= data.len() as u32;
                sink.closing = kind == kind::EOF;
                sink.waiting.extend_from_slice(data);
                self.feed(id);
            }
            kind::CREDIT => {
                let (channel, amount) = (fields.u8()?, fields.u32()?);
                fields.end()?;
                let pumps = self.streams.get_mut(&id).map(|stream| &mut stream.pumps);
                for pump in pumps.into_iter().flatten().filter(|pump| pump.channel == channel) {
                    pump.discard |= amount == u32::MAX;
                    pump.credit = pump.credit.saturating_add(amount);
                }
            }
            kind::KILL => {
                fields.end()?;
                if let Some(Stream { kind: Kind::Command { control, force_at, .. }, .. }) = self.streams.get_mut(&id) {
                    let _ = send_message(control.as_raw_fd(), b"K", &[]);
                    *force_at = Some(Instant::now() + GRACE);
                }
            }
            kind::CLOSE => {
                fields.end()?;
                if self.streams.get(&id).is_some_and(|stream| !matches!(stream.kind, Kind::Command { .. })) {
                    self.streams.remove(&id);
                    self.frame(kind::CLOSED, id, &[&0i32.to_le_bytes()]);
                }
            }
            kind::WATCH => {
                let seconds = fields.u16()?;
                fields.end()?;
                self.silence = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
            }
            _ => return Err(Malformed(format!("unknown frame {kind:#04x}"))),
        }
        Ok(())
    }

    pub fn open(&mut self, kind: u8, id: u32, payload: &[u8]) -> Result<(), Malformed> {
        let mut fields = Fields(payload);
        let opened = if self.streams.len() >= MAX_STREAMS {
            Err(Refusal(Refused::TooMany, format!("at most {MAX_STREAMS} streams")))
        } else if kind == kind::EXEC {
            let exec = Exec::decode(payload)?;
            self.launch(&exec, false)
        } else {
            let port = fields.u16()?;
            fields.end()?;
            self.listen(id, port)
        };
        match opened {
            Ok(stream) => drop(self.streams.insert(id, stream)),
            Err(refusal) => self.refuse(id, refusal),
        }
        Ok(())
    }
}

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
