//! The frames of the daemon, and what they order.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::connections::dial;
use super::frame::{CHUNK, Fields, MAX_FRAME, Malformed, Refusal, Refused, VERSION, kind};
use super::kernel::*;
use super::request::Exec;
use super::service::{End, GRACE, MAX_STREAMS, Runner};
use super::streams::{Kind, Stream};

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
        if matches!(kind, kind::EXEC | kind::DIAL | kind::LISTEN) {
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
                let data = fields.take(fields.0.len())?;
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
            kind::SIGNAL => {
                let number = fields.u8()?;
                fields.end()?;
                if !(1..=64).contains(&number) {
                    return Err(Malformed(format!("there is no signal {number}")));
                }
                if let Some(Stream { kind: Kind::Command { control, .. }, .. }) = self.streams.get(&id) {
                    let _ = send_message(control.as_raw_fd(), &[b'G', number], &[]);
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
            self.launch(&exec, Some(payload))
        } else if kind == kind::DIAL {
            let (host, port) = (fields.text()?, fields.u16()?);
            fields.end()?;
            dial(&host.to_string_lossy(), port)
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
