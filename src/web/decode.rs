//! Undoes the compression of a body, within a bound. Pure.
//!
//! More than the bound must never be held: a few kilobytes can unpack to gigabytes.

use std::io::Read;

use brotli_decompressor::Decompressor;
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use ghost_domain::text::shown;
use ghost_domain::{Code, Refusal};

/// Codings of one body. More than two are a trick.
const CODINGS_MAX: usize = 2;
/// Bytes of a decompressor's buffer.
const BUFFER: usize = 8 * 1_024;

/// The codings that requests accept.
pub(crate) const ACCEPTED: &str = "gzip, deflate, br";

/// The body as it was before the codings of `Content-Encoding`, which are in the order in which they were applied. It
/// has at most `max` bytes, in every step.
///
/// # Errors
/// `TooLarge` above the bound; `ExecFailed` for a coding that is unknown or a body that is broken.
pub fn decode(body: Vec<u8>, codings: &str, max: usize) -> Result<Vec<u8>, Refusal> {
    let codings: Vec<String> = codings
        .split(',')
        .map(|coding| coding.trim().to_ascii_lowercase())
        .filter(|coding| !coding.is_empty() && coding != "identity")
        .collect();
    if codings.len() > CODINGS_MAX {
        return Err(broken(&format!("it is compressed {} times over", codings.len())));
    }
    codings.iter().rev().try_fold(body, |body, coding| undo(&body, coding, max))
}

fn undo(body: &[u8], coding: &str, max: usize) -> Result<Vec<u8>, Refusal> {
    // Servers send a compressed answer to HEAD, and some an empty one, without any bytes.
    if body.is_empty() {
        return Ok(Vec::new());
    }
    match coding {
        "gzip" | "x-gzip" => read(MultiGzDecoder::new(body), coding, max),
        // The standard means zlib; some servers send the bare stream.
        "deflate" => match read(ZlibDecoder::new(body), coding, max) {
            Err(refusal) if refusal.code == Code::ExecFailed => read(DeflateDecoder::new(body), coding, max),
            done => done,
        },
        "br" => read(Decompressor::new(body, BUFFER), coding, max),
        other => Err(broken(&format!("it is compressed as `{}`, which was not asked for", shown(other, 40)))),
    }
}

fn read(from: impl Read, coding: &str, max: usize) -> Result<Vec<u8>, Refusal> {
    let mut out = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX).saturating_add(1);
    from.take(limit).read_to_end(&mut out).map_err(|error| broken(&format!("its {coding} is broken: {error}")))?;
    if out.len() > max {
        return Err(too_large(max));
    }
    Ok(out)
}

fn broken(why: &str) -> Refusal {
    Refusal::new(Code::ExecFailed, format!("the answer cannot be read: {why}"))
        .hint("the server is at fault; try another source")
}

/// The refusal of a body above the bound.
pub(crate) fn too_large(max: usize) -> Refusal {
    Refusal::new(Code::TooLarge, format!("the answer has more than {max} bytes (web.max_bytes)"))
        .hint("look for a smaller page, or ask the operator to raise the bound")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn every_coding_is_undone() {
        let text = b"hello hello hello".repeat(10);
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::fast());
        zlib.write_all(&text).unwrap();
        let mut bare = DeflateEncoder::new(Vec::new(), Compression::fast());
        bare.write_all(&text).unwrap();
        // Made by the reference encoder.
        let brotli = b"\x8b\x08\x80hello hello hello\n\x03".to_vec();
        assert_eq!(decode(brotli, "br", 100).unwrap(), b"hello hello hello\n");
        assert_eq!(decode(gzip(&text), "GZip", 1_000).unwrap(), text);
        assert_eq!(decode(zlib.finish().unwrap(), "deflate", 1_000).unwrap(), text);
        assert_eq!(decode(bare.finish().unwrap(), "deflate", 1_000).unwrap(), text);
        assert_eq!(decode(gzip(&gzip(&text)), "gzip, gzip", 1_000).unwrap(), text);
        assert_eq!(decode(text.clone(), "identity", 1_000).unwrap(), text);
        assert_eq!(decode(Vec::new(), "gzip", 1).unwrap(), b"");
    }

    // covers: BI-13a
    #[test]
    fn bombs_and_broken_bodies_are_refused() {
        let code = |body: Vec<u8>, codings: &str| decode(body, codings, 10_000).unwrap_err().code;
        let bomb = gzip(&vec![0; 1 << 26]);
        assert!(bomb.len() < 70_000);
        assert_eq!(code(bomb.clone(), "gzip"), Code::TooLarge);
        // 64 MiB of nothing, made by the reference encoder.
        let head = "cbffff3ff82700e2b14020f7fe8fffff7ff04f00c4611180eefd1fffffffe09f0088c30200ddfb3ffeffffc13f0110870500baf77ffcffff83";
        let tail = "7f02200e0b0074effff8ffff07ff04401c1600e8defff1ffff0ffe0980382c00d0bdffe3ffff1ffc1300715800a07bff37";
        let hex = format!("{head}{tail}");
        let brotli = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        assert_eq!(code(brotli, "br"), Code::TooLarge);
        // A bomb within a small layer.
        assert_eq!(code(gzip(&bomb), "gzip, gzip"), Code::TooLarge);
        let members: Vec<u8> = std::iter::repeat_n(gzip(&[0; 1_000]), 20).flatten().collect();
        assert_eq!(code(members, "gzip"), Code::TooLarge);
        for (body, codings) in [
            (b"plain".to_vec(), "gzip"),
            (b"plain".to_vec(), "br"),
            (b"plain".to_vec(), "zstd"),
            (gzip(b"abc")[..12].to_vec(), "gzip"),
            (b"x".to_vec(), "gzip, gzip, gzip"),
            (vec![0xff; 100], "deflate"),
        ] {
            assert_eq!(code(body, codings), Code::ExecFailed, "{codings}");
        }
    }
}
