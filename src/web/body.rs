//! The body of an answer: its compression, which is undone within a bound, its type and its text. Pure.
//!
//! More than the bound must never be held: a few kilobytes can unpack to gigabytes.

use std::io::Read;

use brotli_decompressor::Decompressor;
use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
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

/// Bytes at the start of a page in which it may name its encoding.
const PRESCAN: usize = 1_024;

/// The text of a body: by its mark, else by the `charset` of its header, else by what an HTML page says, else UTF-8 if
/// it is valid, else Windows-1252. `None` for a body that is no text.
#[must_use]
pub fn text_of(body: &[u8], charset: Option<&str>, html: bool) -> Option<String> {
    if let Some((encoding, _)) = Encoding::for_bom(body) {
        return Some(encoding.decode(body).0.into_owned());
    }
    let named = charset.and_then(|label| Encoding::for_label(label.as_bytes()));
    let named = named.or_else(|| html.then(|| declared(&body[..body.len().min(PRESCAN)])).flatten());
    if let Some(encoding) = named {
        let text = encoding.decode_without_bom_handling(body).0;
        return Some(text.into_owned()).filter(|text| html || !text.contains('\0'));
    }
    if body.contains(&0) {
        return None;
    }
    let encoding = if std::str::from_utf8(body).is_ok() { UTF_8 } else { WINDOWS_1252 };
    Some(encoding.decode_without_bom_handling(body).0.into_owned())
}

/// The encoding that the start of a page declares.
fn declared(start: &[u8]) -> Option<&'static Encoding> {
    let lower = start.to_ascii_lowercase();
    let at = lower.windows(8).position(|word| word == b"charset=")? + 8;
    let label: Vec<u8> = lower[at..]
        .iter()
        .copied()
        .skip_while(|byte| matches!(byte, b'"' | b'\'' | b' '))
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':' | b'.'))
        .collect();
    let found = Encoding::for_label(&label)?;
    // A page that can be read up to here is not UTF-16, whatever it says (WHATWG's prescan).
    Some(if found == encoding_rs::UTF_16LE || found == encoding_rs::UTF_16BE { UTF_8 } else { found })
}

/// A `Content-Type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Media {
    /// The type in lower case, without parameters; empty if there is none.
    pub essence: String,
    /// The encoding of the text, if it is named.
    pub charset: Option<String>,
}

impl Media {
    /// Parses a header.
    #[must_use]
    pub fn parse(header: &str) -> Self {
        let mut parts = header.split(';');
        let essence = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let plain = |c: char| c.is_ascii_alphanumeric() || "!#$&^_.+-/".contains(c);
        let essence = if essence.len() <= 100 && essence.chars().all(plain) { essence } else { String::new() };
        let charset = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            let value = value.trim().trim_matches('"');
            (name.trim().eq_ignore_ascii_case("charset") && value.len() <= 40).then(|| value.to_owned())
        });
        Self { essence, charset }
    }

    /// Whether this is an HTML page.
    #[must_use]
    pub fn is_html(&self) -> bool {
        matches!(self.essence.as_str(), "text/html" | "application/xhtml+xml")
    }

    /// Whether this may be text. A content without a type may be; its bytes decide.
    #[must_use]
    pub fn is_text(&self) -> bool {
        let known = [
            "",
            "application/javascript",
            "application/json",
            "application/ld+json",
            "application/toml",
            "application/x-javascript",
            "application/x-ndjson",
            "application/x-sh",
            "application/x-yaml",
            "application/xml",
            "application/yaml",
            "application/x-www-form-urlencoded",
            "image/svg+xml",
        ];
        self.essence.starts_with("text/")
            || known.contains(&self.essence.as_str())
            || self.essence.ends_with("+json")
            || self.essence.ends_with("+xml")
            || self.essence.ends_with("+yaml")
    }
}

#[cfg(test)]
mod decode_tests {
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

#[cfg(test)]
mod charset_tests {
    use super::*;

    #[test]
    fn text_is_read_in_its_encoding() {
        let of = |body: &[u8], charset, html| text_of(body, charset, html);
        assert_eq!(of("grün".as_bytes(), None, false).as_deref(), Some("grün"));
        assert_eq!(of(b"gr\xfcn", None, false).as_deref(), Some("grün"));
        assert_eq!(of(b"\xcf\xf0\xe8", Some("windows-1251"), false).as_deref(), Some("При"));
        assert_eq!(
            of(b"<meta charset='windows-1251'>\xcf", None, true).as_deref(),
            Some("<meta charset='windows-1251'>П")
        );
        assert_eq!(of(b"<meta charset=utf-16>x", None, true).as_deref(), Some("<meta charset=utf-16>x"));
        assert_eq!(of(b"\xff\xfea\0b\0", Some("utf-8"), false).as_deref(), Some("ab"));
        assert_eq!(of(b"\xef\xbb\xbfa", None, false).as_deref(), Some("a"));
        assert_eq!(of(b"a", Some("no-such"), false).as_deref(), Some("a"));
        assert_eq!(of(b"PK\x03\x04\0\0", None, false), None);
        assert_eq!(of(b"a\0b", Some("utf-8"), false), None);
    }
}

#[cfg(test)]
mod media_tests {
    use super::*;

    #[test]
    fn types_are_read_with_their_encoding() {
        let media = Media::parse("Text/HTML ; Charset=\"ISO-8859-1\"; x=y");
        assert!(media.is_html() && media.is_text());
        assert_eq!(media.charset.as_deref(), Some("ISO-8859-1"));
        for text in ["", "application/json", "application/problem+json", "text/csv", "application/atom+xml"] {
            assert!(Media::parse(text).is_text(), "{text}");
        }
        for binary in ["application/pdf", "image/png", "application/octet-stream", "application/zip", "audio/mpeg"] {
            assert!(!Media::parse(binary).is_text(), "{binary}");
        }
        assert_eq!(Media::parse("a b\u{7}/c").essence, "");
    }
}
