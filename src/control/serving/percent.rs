//! Clients on grpc's C core (Python, Ruby, PHP, C++) send the path of a Unix socket as `:authority`, with percent signs
//! (grpc#38142). The `http` crate refuses a percent sign there and h2 resets the stream, so on the daemon's own sockets the
//! sign becomes a harmless one of the same length before h2 sees it. Nobody reads the authority of a Unix socket.
//!
//! Must never: change a length or any other byte, or hold up a connection that sends no such authority.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

/// What every HTTP/2 connection begins with.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes before the payload of a frame.
const HEAD: usize = 9;
/// Bytes of a payload that h2 takes. A longer one is left for it to refuse.
const PAYLOAD_MAX: usize = 16_384;
/// Bytes of the frames that hold the fields of one request. Of more, h2 is left to judge.
const BLOCK_MAX: usize = 4 * PAYLOAD_MAX;
/// The frame that begins a request, and that which goes on with its fields.
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A connection whose authorities have no percent signs.
pub(super) struct Percentless<IO> {
    io: IO,
    /// Read and not looked at yet.
    raw: Vec<u8>,
    /// Looked at, from `given` on not read yet.
    done: Vec<u8>,
    given: usize,
    /// Bytes to come that are passed on as they are.
    skip: usize,
    /// Whether frames are looked at. They are until the first request shows that this client sends no percent sign.
    looks: bool,
}

impl<IO> Percentless<IO> {
    pub(super) fn new(io: IO) -> Self {
        Self { io, raw: Vec::new(), done: Vec::new(), given: 0, skip: PREFACE.len(), looks: true }
    }

    /// Moves what can be judged from `raw` to `done`.
    fn sort(&mut self) {
        let mut at = 0;
        while at < self.raw.len() && self.looks {
            let rest = self.raw.get_mut(at..).unwrap_or_default();
            if self.skip > 0 {
                let passed = self.skip.min(rest.len());
                self.skip -= passed;
                at += passed;
                continue;
            }
            let Some((length, kind, _)) = head(rest) else { break };
            if kind != HEADERS || length > PAYLOAD_MAX {
                self.skip = HEAD + length;
                continue;
            }
            let Some((parts, end)) = fragments(rest) else { break };
            // A later request may say it anew, when its entry has left the table of the connection.
            self.looks = replace_percent(rest, &parts);
            at += end;
        }
        let until = if self.looks { at } else { self.raw.len() };
        self.done.extend(self.raw.drain(..until));
    }
}

/// The length of a frame's payload, its kind and its flags.
fn head(frame: &[u8]) -> Option<(usize, u8, u8)> {
    let &[a, b, c, kind, flags] = frame.first_chunk()?;
    Some(((usize::from(a) << 16) | (usize::from(b) << 8) | usize::from(c), kind, flags))
}

/// Where the parts of a header block stand in `frames`, which begin with its HEADERS, and where the last of them ends. `None`
/// while more is to come. What follows another frame, or is too long, is no part: h2 refuses it.
fn fragments(frames: &[u8]) -> Option<(Vec<Range<usize>>, usize)> {
    let (mut parts, mut at) = (Vec::new(), 0);
    loop {
        let (length, kind, flags) = head(frames.get(at..)?)?;
        let (start, end) = (at + HEAD, at + HEAD + length);
        if (at > 0 && kind != CONTINUATION) || length > PAYLOAD_MAX || end > BLOCK_MAX {
            return Some((parts, at));
        }
        let payload = frames.get(start..end)?;
        let (mut before, mut after) = (0, 0);
        if kind == HEADERS {
            let pads = flags & PADDED != 0;
            before = usize::from(pads) + if flags & PRIORITY == 0 { 0 } else { 5 };
            after = if pads { usize::from(*payload.first().unwrap_or(&0)) } else { 0 };
        }
        parts.push(start + before..end.saturating_sub(after));
        at = end;
        if flags & END_HEADERS != 0 {
            return Some((parts, at));
        }
    }
}

/// Takes the percent signs out of the authority of the request whose header block stands in these parts of `frames`. Gives
/// whether there were any.
fn replace_percent(frames: &mut [u8], parts: &[Range<usize>]) -> bool {
    // A field may stand across two of them.
    let mut block: Vec<u8> = parts.iter().filter_map(|part| frames.get(part.clone())).flatten().copied().collect();
    let Some((value, packed)) = authority(&block) else { return false };
    let Some(value) = block.get_mut(value) else { return false };
    let found = if packed { replace_packed(value) } else { replace_plain(value) };
    let mut rest = block.as_slice();
    for part in parts {
        if let Some(part) = frames.get_mut(part.clone())
            && let Some((own, behind)) = rest.split_at_checked(part.len())
        {
            part.copy_from_slice(own);
            rest = behind;
        }
    }
    found
}

fn replace_plain(value: &mut [u8]) -> bool {
    let signs = value.iter_mut().filter(|byte| **byte == b'%');
    signs.map(|sign| *sign = b'-').count() > 0
}

/// Where the literal value of `:authority` stands in a block of HPACK (RFC 7541), and whether it is Huffman-coded.
fn authority(block: &[u8]) -> Option<(Range<usize>, bool)> {
    let mut at = 0;
    loop {
        let first = *block.get(at)?;
        // An indexed field, or a new size of the table: neither has a literal.
        if first & 0x80 != 0 || first & 0xe0 == 0x20 {
            let bits = if first & 0x80 != 0 { 7 } else { 5 };
            (_, at) = number(block, at, bits)?;
            continue;
        }
        let (name, after) = number(block, at, if first & 0xc0 == 0x40 { 6 } else { 4 })?;
        at = after;
        // The first entry of the static table is `:authority`. The C core writes the name out, uncoded.
        let mut meant = name == 1;
        if name == 0 {
            let (text, packed) = string(block, at)?;
            at = text.end;
            meant = !packed && block.get(text)? == b":authority";
        }
        let (value, packed) = string(block, at)?;
        if meant {
            return Some((value, packed));
        }
        at = value.end;
    }
}

/// A number whose first byte has `bits` bits of it, and where it ends.
fn number(block: &[u8], at: usize, bits: u32) -> Option<(usize, usize)> {
    let full = (1_usize << bits) - 1;
    let mut value = usize::from(*block.get(at)?) & full;
    if value < full {
        return Some((value, at + 1));
    }
    for (more, shift) in [0, 7, 14].into_iter().enumerate() {
        let byte = *block.get(at + 1 + more)?;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some((value, at + 2 + more));
        }
    }
    None
}

/// Where a string stands, and whether it is Huffman-coded.
fn string(block: &[u8], at: usize) -> Option<(Range<usize>, bool)> {
    let packed = *block.get(at)? & 0x80 != 0;
    let (length, start) = number(block, at, 7)?;
    let text = start..start + length;
    (text.end <= block.len()).then_some((text, packed))
}

/// The same in a Huffman-coded value: `%` is 010101 there and `-` is 010110, of the same length. Letters, digits and the signs
/// of a path have 5 to 8 bits, and each length has its own range; at a longer sign, which a path has not, it is left as it is.
fn replace_packed(value: &mut [u8]) -> bool {
    let bit = |value: &[u8], at: usize| value.get(at / 8).is_some_and(|byte| (byte >> (7 - at % 8)) & 1 == 1);
    let (bits, mut at, mut found) = (value.len() * 8, 0, false);
    while at + 5 <= bits {
        let (mut code, mut length) = (0_u32, 0);
        let known = loop {
            if at + length == bits || length == 8 {
                break false;
            }
            code = (code << 1) | u32::from(bit(value, at + length));
            length += 1;
            // The first code of the next length, for 5, 6, 7 and 8 bits.
            let bound = match length {
                5 => 0b01010,
                6 => 0b10_1110,
                7 => 0b111_1100,
                8 => 0b1111_1110,
                _ => 0,
            };
            if code < bound {
                break true;
            }
        };
        if !known {
            break;
        }
        if (code, length) == (0b01_0101, 6) {
            // Its last two bits change places.
            for (place, set) in [(at + 4, true), (at + 5, false)] {
                if let Some(byte) = value.get_mut(place / 8) {
                    let mask = 0x80 >> (place % 8);
                    *byte = if set { *byte | mask } else { *byte & !mask };
                }
            }
            found = true;
        }
        at += length;
    }
    found
}

impl<IO: AsyncRead + Unpin> AsyncRead for Percentless<IO> {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let this = &mut *self;
            if this.given < this.done.len() {
                let rest = this.done.get(this.given..).unwrap_or_default();
                let count = rest.len().min(buf.remaining());
                buf.put_slice(rest.get(..count).unwrap_or_default());
                this.given += count;
                return Poll::Ready(Ok(()));
            }
            (this.done, this.given) = (Vec::new(), 0);
            if !this.looks {
                return Pin::new(&mut this.io).poll_read(ctx, buf);
            }
            let mut bytes = [0; 4_096];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.io).poll_read(ctx, &mut read))?;
            // At the end nothing can be judged any more.
            this.looks = !read.filled().is_empty();
            this.raw.extend_from_slice(read.filled());
            this.sort();
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Percentless<IO> {
    fn poll_write(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(ctx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(ctx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(ctx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(ctx)
    }
}

impl<IO: Connected> Connected for Percentless<IO> {
    type ConnectInfo = IO::ConnectInfo;

    fn connect_info(&self) -> IO::ConnectInfo {
        self.io.connect_info()
    }
}

#[cfg(test)]
#[path = "percent_tests.rs"]
mod tests;
