//! Frames: their kinds, and how their fields are read and written. `PROTOCOL.md` describes them.
//!
//! Reading must never trust a length.

use std::ffi::CString;

/// Changes whenever a frame changes. The daemon embeds the runner, so the two are equal unless an image is stale.
pub const VERSION: u16 = 3;
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
    pub const SIGNAL: u8 = 0x06;
    pub const KILL: u8 = 0x07;
    pub const DIAL: u8 = 0x08;
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
    Connect = 7,
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
    pub fn text(&mut self) -> Result<CString, Malformed> {
        let length = self.u32()? as usize;
        CString::new(self.take(length)?).map_err(|_| Malformed("text holds a zero byte".into()))
    }
    pub fn list<T>(&mut self, item: impl Fn(&mut Self) -> Result<T, Malformed>) -> Result<Vec<T>, Malformed> {
        // Every item takes at least one byte, so the payload's bound is a bound on the list.
        let count = self.u32()? as usize;
        if count > self.0.len() {
            return Err(Malformed("list is longer than its payload".into()));
        }
        (0..count).map(|_| item(self)).collect()
    }
    pub fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("payload is too long".into())) }
    }
}

pub fn put_text(into: &mut Vec<u8>, text: &str) {
    into.extend_from_slice(&(text.len() as u32).to_le_bytes());
    into.extend_from_slice(text.as_bytes());
}
