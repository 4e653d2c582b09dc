//! Detects the encoding of a file's text and converts the text to UTF-8.
//!
//! This module must never show a binary file as text or change a file. Without a byte order mark
//! the detected encoding is a guess, so results name it.

use std::io::{self, BufRead, Read};

use encoding_rs::{CoderResult, Decoder, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// In text, at most one of this many bytes is a control character that text does not use.
const CONTROLS_ONE_IN: u64 = 512;
/// In Western European text, at most one of this many bytes is beyond ASCII. Other scripts and
/// compressed data have more.
const BEYOND_ASCII_ONE_IN: u64 = 3;
/// Bytes without a character in Windows-1252.
const UNUSED: [u8; 5] = [0x81, 0x8d, 0x8f, 0x90, 0x9d];
/// The number of bytes that are decoded at a time.
const CHUNK: usize = 16 * 1024;

/// The encoding of a text file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8, with or without a byte order mark.
    Utf8,
    /// UTF-16, low byte first, with a byte order mark.
    Utf16Le,
    /// UTF-16, high byte first, with a byte order mark.
    Utf16Be,
    /// Windows-1252, which includes Latin-1.
    Windows1252,
}

impl Encoding {
    /// The usual name of the encoding, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Utf16Le => "utf-16le",
            Self::Utf16Be => "utf-16be",
            Self::Windows1252 => "windows-1252",
        }
    }

    /// Detects the encoding of `source`; `None` if it is not text. `cut` is true if the file
    /// continues after `source`.
    pub(super) fn of(mut source: impl BufRead, cut: bool) -> io::Result<Option<Self>> {
        let mut statistics = Statistics::default();
        loop {
            let chunk = source.fill_buf()?;
            if chunk.is_empty() {
                return Ok(statistics.encoding(cut));
            }
            statistics.take(chunk);
            let length = chunk.len();
            source.consume(length);
        }
    }

    /// Converts `source` from this encoding to UTF-8. UTF-8 is not changed; the byte order mark of
    /// UTF-16 is removed.
    pub(super) fn decoded<R: BufRead>(self, source: R) -> Decoded<R> {
        let (decoder, mark) = match self {
            Self::Utf8 => (None, 0),
            Self::Utf16Le => (Some(UTF_16LE.new_decoder_without_bom_handling()), 2),
            Self::Utf16Be => (Some(UTF_16BE.new_decoder_without_bom_handling()), 2),
            Self::Windows1252 => (Some(WINDOWS_1252.new_decoder_without_bom_handling()), 0),
        };
        Decoded { source, decoder, mark, text: Vec::new(), given: 0, ended: false }
    }
}

/// Statistics about a text, from which its encoding is detected.
#[derive(Default)]
struct Statistics {
    /// The first two bytes.
    head: Vec<u8>,
    bytes: u64,
    /// The bytes of an incomplete character at the end.
    incomplete: Vec<u8>,
    not_utf8: bool,
    unused: bool,
    nulls: u64,
    controls: u64,
    beyond_ascii: u64,
    /// For UTF-16: the decoder, and whether it failed.
    wide: Option<Decoder>,
    not_wide: bool,
}

impl Statistics {
    fn take(&mut self, chunk: &[u8]) {
        // The mark may be split across two chunks, so wait for both bytes.
        let mark = chunk.len().min(2_usize.saturating_sub(self.head.len()));
        self.head.extend(&chunk[..mark]);
        if self.wide.is_none() {
            self.wide = match self.marked() {
                Some(Encoding::Utf16Be) => Some(UTF_16BE.new_decoder_without_bom_handling()),
                Some(_) => Some(UTF_16LE.new_decoder_without_bom_handling()),
                None => None,
            };
        }
        self.bytes += chunk.len() as u64;
        for byte in chunk {
            match byte {
                0 => self.nulls += 1,
                b'\t' | b'\n' | b'\r' | 0x0c => {}
                0x01..=0x1f | 0x7f => self.controls += 1,
                0x80.. => {
                    self.beyond_ascii += 1;
                    self.unused |= UNUSED.contains(byte);
                }
                _ => {}
            }
        }
        self.take_utf8(chunk);
        if let Some(decoder) = &mut self.wide {
            self.not_wide |= !is_decoded(decoder, &chunk[mark..]);
        }
    }

    fn marked(&self) -> Option<Encoding> {
        match self.head[..] {
            [0xff, 0xfe] => Some(Encoding::Utf16Le),
            [0xfe, 0xff] => Some(Encoding::Utf16Be),
            _ => None,
        }
    }

    fn take_utf8(&mut self, chunk: &[u8]) {
        if self.not_utf8 {
            return;
        }
        let joined;
        let bytes = if self.incomplete.is_empty() {
            chunk
        } else {
            joined = [&self.incomplete, chunk].concat();
            &joined
        };
        match std::str::from_utf8(bytes) {
            Ok(_) => self.incomplete = Vec::new(),
            Err(error) if error.error_len().is_none() => self.incomplete = bytes[error.valid_up_to()..].to_vec(),
            Err(_) => self.not_utf8 = true,
        }
    }

    fn encoding(&self, cut: bool) -> Option<Encoding> {
        if let Some(marked) = self.marked() {
            let whole = cut || self.bytes.is_multiple_of(2);
            return (whole && !self.not_wide).then_some(marked);
        }
        if self.nulls > 0 {
            return None;
        }
        if !self.not_utf8 && (cut || self.incomplete.is_empty()) {
            return Some(Encoding::Utf8);
        }
        let is_rare = |count: u64, one_in: u64| count.saturating_mul(one_in) <= self.bytes;
        let text =
            !self.unused && is_rare(self.controls, CONTROLS_ONE_IN) && is_rare(self.beyond_ascii, BEYOND_ASCII_ONE_IN);
        text.then_some(Encoding::Windows1252)
    }
}

/// Whether the decoder accepts all of `chunk` without a NUL. UTF-32 would contain many.
fn is_decoded(decoder: &mut Decoder, mut chunk: &[u8]) -> bool {
    let mut text = vec![0; CHUNK];
    loop {
        let (result, read, written, replaced) = decoder.decode_to_utf8(chunk, &mut text, false);
        if replaced || text[..written].contains(&0) {
            return false;
        }
        chunk = &chunk[read..];
        if result == CoderResult::InputEmpty {
            return true;
        }
    }
}

/// A reader that converts its source to UTF-8.
pub(super) struct Decoded<R> {
    source: R,
    /// `None` passes the bytes through unchanged.
    decoder: Option<Decoder>,
    /// The number of bytes of the mark that must still be skipped.
    mark: usize,
    text: Vec<u8>,
    given: usize,
    ended: bool,
}

impl<R: BufRead> Read for Decoded<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(decoder) = &mut self.decoder else { return self.source.read(out) };
        while self.given == self.text.len() && !self.ended {
            let chunk = self.source.fill_buf()?;
            let mark = self.mark.min(chunk.len());
            let last = chunk.is_empty();
            self.text.resize(CHUNK, 0);
            // An incomplete character at the end becomes a replacement character: the text was
            // truncated there, or the file has changed since its encoding was detected.
            let (result, read, written, _) = decoder.decode_to_utf8(&chunk[mark..], &mut self.text, last);
            self.mark -= mark;
            self.source.consume(mark + read);
            self.text.truncate(written);
            self.given = 0;
            self.ended = last && result == CoderResult::InputEmpty;
        }
        let rest = &self.text[self.given..];
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        self.given += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::BufReader;

    fn encoding(bytes: &[u8]) -> Option<Encoding> {
        // Small chunks, so that marks and characters are split.
        Encoding::of(BufReader::with_capacity(1, bytes), false).unwrap()
    }

    fn text(bytes: &[u8]) -> String {
        let mut text = String::new();
        let source = BufReader::with_capacity(3, bytes);
        encoding(bytes).unwrap().decoded(source).read_to_string(&mut text).unwrap();
        text
    }

    fn utf16(text: &str, bytes_of: fn(u16) -> [u8; 2]) -> Vec<u8> {
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(bytes_of).collect()
    }

    #[test]
    fn encodings_and_binary_files_are_detected() {
        let latin = b"Gr\xf6\xdfe: 3,2 Mio. \x80 in M\xfcnchen, und kein Ende.\n";
        assert_eq!(
            (encoding(latin), text(latin).contains("Größe: 3,2 Mio. € in München")),
            (Some(Encoding::Windows1252), true)
        );
        assert_eq!(encoding("Größe: 5".as_bytes()), Some(Encoding::Utf8));
        assert_eq!(text("\u{feff}Größe".as_bytes()), "\u{feff}Größe");
        assert_eq!(encoding(b""), Some(Encoding::Utf8));
        assert_eq!(encoding(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), None);
        assert_eq!(encoding(b"plain\0text"), None);
        assert_eq!(encoding(b"\x1f\x8b\x08\x08\x01\x02\x03\xed\xcb\xb1"), None);
        // Cyrillic in Windows-1251 would be read as gibberish.
        assert_eq!(encoding(b"\xcf\xf0\xe8\xe2\xe5\xf2 \xec\xe8\xf0"), None);
        assert_eq!(encoding(&[0xff, 0xfe, 0]), None);
        assert_eq!(encoding(&[0xff, 0xfe, 0, 0, b'a', 0, 0, 0]), None, "UTF-32");
        assert_eq!(encoding(&[0xff, 0xfe, 0x00, 0xd8, b'a', 0]), None, "half a character");
    }

    #[test]
    fn a_cut_character_at_the_end_is_accepted() {
        assert_eq!(Encoding::of(&b"Gr\xc3"[..], true).unwrap(), Some(Encoding::Utf8));
        assert_eq!(Encoding::of(&b"\xff\xfea\0b"[..], true).unwrap(), Some(Encoding::Utf16Le));
    }

    proptest! {
        #[test]
        fn any_text_survives_conversion_from_utf16(words in "[^\0]{0,40}") {
            for (bytes, wanted) in
                [(utf16(&words, u16::to_le_bytes), Encoding::Utf16Le), (utf16(&words, u16::to_be_bytes), Encoding::Utf16Be)]
            {
                prop_assert_eq!(encoding(&bytes), Some(wanted));
                prop_assert_eq!(text(&bytes), words.clone());
            }
        }

        #[test]
        fn any_bytes_are_handled(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            if encoding(&bytes) == Some(Encoding::Utf8) {
                prop_assert_eq!(text(&bytes).into_bytes(), bytes);
            } else if encoding(&bytes).is_some() {
                text(&bytes);
            }
        }
    }
}
