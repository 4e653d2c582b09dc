//! Replaces percent signs in `:authority`. Clients on gRPC's C core (Python, Ruby, PHP, C++) send the
//! percent-encoded path of a Unix socket there (grpc#38142). The `http` crate rejects a percent sign in
//! an authority, and h2 resets the stream. So on Unix sockets a hyphen replaces each percent sign
//! before h2 reads it. Nothing reads the authority of a Unix socket.
//!
//! This module must never change a length or any other byte, or delay a connection that sends no
//! such authority.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first bytes of every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame header.
const HEADER_BYTES: usize = 9;
/// Largest payload that h2 accepts, in bytes. h2 rejects larger ones.
const PAYLOAD_MAX: usize = 16_384;
/// Largest number of bytes in the frames of one header block that are examined. Larger blocks go to h2
/// unchanged.
const BLOCK_MAX: usize = 4 * PAYLOAD_MAX;
/// The frame type that begins a request, and the type that continues its header block.
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A connection whose `:authority` values have no percent signs.
pub(crate) struct PercentFilter<IO> {
    io: IO,
    /// Read, but not examined yet.
    raw: Vec<u8>,
    /// Examined; the bytes from `delivered` on have not been read by h2 yet.
    done: Vec<u8>,
    delivered: usize,
    /// Number of following bytes to pass on unchanged.
    skip: usize,
    /// Whether frames are examined. Examination stops at the first request that has no percent sign.
    examining: bool,
}

impl<IO> PercentFilter<IO> {
    pub(super) fn new(io: IO) -> Self {
        Self { io, raw: Vec::new(), done: Vec::new(), delivered: 0, skip: PREFACE.len(), examining: true }
    }

    /// Examines complete frames in `raw` and moves them to `done`.
    fn examine(&mut self) {
        let mut at = 0;
        while at < self.raw.len() && self.examining {
            let rest = self.raw.get_mut(at..).unwrap_or_default();
            if self.skip > 0 {
                let passed = self.skip.min(rest.len());
                self.skip -= passed;
                at += passed;
                continue;
            }
            let Some((length, kind, _)) = frame_header(rest) else { break };
            if kind != HEADERS || length > PAYLOAD_MAX {
                self.skip = HEADER_BYTES + length;
                continue;
            }
            let Some((parts, end)) = fragments(rest) else { break };
            // Every request is examined: the client may send the literal again after HPACK has evicted
            // its entry.
            self.examining = replace_percent(rest, &parts);
            at += end;
        }
        let until = if self.examining { at } else { self.raw.len() };
        self.done.extend(self.raw.drain(..until));
    }
}

/// Payload length, type and flags of a frame.
fn frame_header(frame: &[u8]) -> Option<(usize, u8, u8)> {
    let &[a, b, c, kind, flags] = frame.first_chunk()?;
    Some(((usize::from(a) << 16) | (usize::from(b) << 8) | usize::from(c), kind, flags))
}

/// The byte ranges of a header block's fragments in `frames`, which begin with its HEADERS frame, and
/// the end of the last one. `None` while more bytes are needed. An interrupted or oversized block ends
/// early; h2 rejects it.
fn fragments(frames: &[u8]) -> Option<(Vec<Range<usize>>, usize)> {
    let (mut parts, mut at) = (Vec::new(), 0);
    loop {
        let (length, kind, flags) = frame_header(frames.get(at..)?)?;
        let (start, end) = (at + HEADER_BYTES, at + HEADER_BYTES + length);
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

/// Replaces the percent signs in the authority of the header block in these ranges of `frames`. Returns
/// whether there were any.
fn replace_percent(frames: &mut [u8], parts: &[Range<usize>]) -> bool {
    // A field may be split across two fragments.
    let mut block: Vec<u8> = parts.iter().filter_map(|part| frames.get(part.clone())).flatten().copied().collect();
    let Some((value, huffman)) = authority(&block) else { return false };
    let Some(value) = block.get_mut(value) else { return false };
    let found = if huffman { replace_in_huffman(value) } else { replace_in_plain(value) };
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

fn replace_in_plain(value: &mut [u8]) -> bool {
    let signs = value.iter_mut().filter(|byte| **byte == b'%');
    signs.map(|sign| *sign = b'-').count() > 0
}

/// The range of the literal value of `:authority` in an HPACK block (RFC 7541), and whether it is
/// Huffman-coded.
fn authority(block: &[u8]) -> Option<(Range<usize>, bool)> {
    let mut at = 0;
    loop {
        let first = *block.get(at)?;
        // An indexed field or a table size update: neither contains a literal.
        if first & 0x80 != 0 || first & 0xe0 == 0x20 {
            let bits = if first & 0x80 != 0 { 7 } else { 5 };
            (_, at) = number(block, at, bits)?;
            continue;
        }
        let (name, after) = number(block, at, if first & 0xc0 == 0x40 { 6 } else { 4 })?;
        at = after;
        // Entry 1 of the static table is `:authority`. The C core sends the name as a plain literal.
        let mut is_authority = name == 1;
        if name == 0 {
            let (text, huffman) = string(block, at)?;
            at = text.end;
            is_authority = !huffman && block.get(text)? == b":authority";
        }
        let (value, huffman) = string(block, at)?;
        if is_authority {
            return Some((value, huffman));
        }
        at = value.end;
    }
}

/// An HPACK integer with a prefix of `bits` bits, and where it ends.
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

/// The range of an HPACK string, and whether it is Huffman-coded.
fn string(block: &[u8], at: usize) -> Option<(Range<usize>, bool)> {
    let huffman = *block.get(at)? & 0x80 != 0;
    let (length, start) = number(block, at, 7)?;
    let text = start..start + length;
    (text.end <= block.len()).then_some((text, huffman))
}

/// Replaces `%` by `-` in a Huffman-coded value. Their codes, 010101 and 010110, have the same length. Characters of
/// a path have codes of 5 to 8 bits, and each length has its own range of codes. At a longer code the rest stays
/// unchanged.
fn replace_in_huffman(value: &mut [u8]) -> bool {
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
            // The first code that is longer, for 5, 6, 7 and 8 bits.
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
            // Swap the last two bits.
            for (bit_index, set) in [(at + 4, true), (at + 5, false)] {
                if let Some(byte) = value.get_mut(bit_index / 8) {
                    let mask = 0x80 >> (bit_index % 8);
                    *byte = if set { *byte | mask } else { *byte & !mask };
                }
            }
            found = true;
        }
        at += length;
    }
    found
}

impl<IO: AsyncRead + Unpin> AsyncRead for PercentFilter<IO> {
    fn poll_read(mut self: Pin<&mut Self>, ctx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let this = &mut *self;
            if this.delivered < this.done.len() {
                let rest = this.done.get(this.delivered..).unwrap_or_default();
                let count = rest.len().min(buf.remaining());
                buf.put_slice(rest.get(..count).unwrap_or_default());
                this.delivered += count;
                return Poll::Ready(Ok(()));
            }
            (this.done, this.delivered) = (Vec::new(), 0);
            if !this.examining {
                return Pin::new(&mut this.io).poll_read(ctx, buf);
            }
            let mut bytes = [0; 4_096];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.io).poll_read(ctx, &mut read))?;
            // At the end of input nothing more can be examined.
            this.examining = !read.filled().is_empty();
            this.raw.extend_from_slice(read.filled());
            this.examine();
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for PercentFilter<IO> {
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

#[cfg(test)]
#[path = "percent_tests.rs"]
mod tests;
