//! Images that tools return: what is recorded of one, and what its file's first bytes say.
//!
//! This module must never decode an image, and a record must never hold its bytes.

use serde::{Deserialize, Serialize};

use crate::macros::text_enum;

/// The largest image that a model is shown, in bytes. In base64 it stays below the 5 MiB that Anthropic takes.
pub const IMAGE_BYTES_MAX: u64 = 3_750_000;

/// The longest side of an image that a model is shown, in pixels. Anthropic refuses a longer one.
pub const IMAGE_SIDE_MAX: u32 = 8_000;

/// An upper estimate of the tokens of one image. Providers charge by its area, scaled down to at most this much.
pub const IMAGE_TOKENS: usize = 5_000;

text_enum! {
    /// The media type of an image. All providers that take images take the first two.
    MediaType, "type of image" {
        /// PNG.
        Png = "image/png",
        /// JPEG.
        Jpeg = "image/jpeg",
        /// GIF, of one picture.
        Gif = "image/gif",
        /// WebP, of one picture.
        Webp = "image/webp",
    }
}

/// An image in a file of the workspace. The file's bytes are read when a model is shown it; if they no longer have this
/// hash, the model is told so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageFile {
    /// Path of the file, relative to the workspace root.
    pub path: String,
    /// Media type.
    pub media_type: MediaType,
    /// SHA-256 of the file in lower-case hexadecimal.
    pub sha256: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
}

impl ImageFile {
    /// The text that stands for the image where it is not shown, with the reason if there is one.
    pub fn note(&self, why: Option<&str>) -> String {
        let (bytes, media_type) = (grouped(self.bytes), self.media_type);
        let (width, height, path) = (self.width, self.height, &self.path);
        let why = why.map(|why| format!("; {why}")).unwrap_or_default();
        format!("[image: {bytes} bytes, {media_type}, {width}x{height}, saved at {path}{why}]")
    }
}

/// A number with a comma between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What the beginning of an image says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHead {
    /// Media type, whatever the file is called.
    pub media_type: MediaType,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Whether it has several pictures, which not all providers take.
    pub animated: bool,
}

impl MediaType {
    /// The media type by the first bytes of a file; `None` if it is no image of a known type. 12 bytes are enough.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => None,
        }
    }
}

impl ImageHead {
    /// Reads the head of an image; `None` if `bytes`, the whole file, is no image of a known type or is damaged.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let media_type = MediaType::of(bytes)?;
        let (width, height) = match media_type {
            MediaType::Png => (number::<4>(bytes, 16, true)?, number::<4>(bytes, 20, true)?),
            MediaType::Jpeg => jpeg_size(bytes)?,
            MediaType::Gif => (number::<2>(bytes, 6, false)?, number::<2>(bytes, 8, false)?),
            MediaType::Webp => webp_size(bytes)?,
        };
        let has = |mark: &[u8]| bytes.windows(mark.len()).any(|window| window == mark);
        let animated = match media_type {
            MediaType::Gif => has(b"NETSCAPE2.0"),
            MediaType::Webp => bytes.get(12..16) == Some(b"VP8X") && bytes.get(20).is_some_and(|flags| flags & 2 != 0),
            MediaType::Png | MediaType::Jpeg => false,
        };
        (width > 0 && height > 0).then_some(Self { media_type, width, height, animated })
    }
}

/// The number of `N` bytes at `at`, with the highest byte first or last.
fn number<const N: usize>(bytes: &[u8], at: usize, high_first: bool) -> Option<u32> {
    let part = bytes.get(at..at.checked_add(N)?)?;
    let add = |sum: u32, byte: &u8| sum << 8 | u32::from(*byte);
    Some(if high_first { part.iter().fold(0, add) } else { part.iter().rev().fold(0, add) })
}

/// The size in the first frame header of a JPEG file.
fn jpeg_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        if *bytes.get(at)? != 0xff {
            return None;
        }
        match *bytes.get(at + 1)? {
            // Fill bytes, and marks without a segment.
            0xff => at += 1,
            0x01 | 0xd0..=0xd8 => at += 2,
            // The frame headers, but not the tables among their numbers.
            0xc0..=0xc3 | 0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf => {
                return Some((number::<2>(bytes, at + 7, true)?, number::<2>(bytes, at + 5, true)?));
            }
            _ => at += 2 + number::<2>(bytes, at + 2, true)?.max(2) as usize,
        }
    }
}

/// The size of a WebP file, in any of its three forms.
fn webp_size(bytes: &[u8]) -> Option<(u32, u32)> {
    match bytes.get(12..16)? {
        b"VP8 " => Some((number::<2>(bytes, 26, false)? & 0x3fff, number::<2>(bytes, 28, false)? & 0x3fff)),
        b"VP8L" => {
            let packed = number::<4>(bytes, 21, false)?;
            Some(((packed & 0x3fff) + 1, (packed >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => Some((number::<3>(bytes, 24, false)? + 1, number::<3>(bytes, 27, false)? + 1)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(hex: &str) -> Option<(MediaType, u32, u32, bool)> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
        ImageHead::read(&bytes).map(|head| (head.media_type, head.width, head.height, head.animated))
    }

    #[test]
    fn heads_are_read_by_their_content() {
        let png = "89504e470d0a1a0a 0000000d49484452 00000280 000001e0 0802000000";
        assert_eq!(read(png), Some((MediaType::Png, 640, 480, false)));
        // A segment of application data comes before the frame header, and a fill byte between them.
        let jpeg = "ffd8 ffe0 0006 4a464946 ff ffc4 0003 00 ffc2 0011 08 01e0 0280 03";
        assert_eq!(read(jpeg), Some((MediaType::Jpeg, 640, 480, false)));
        assert_eq!(read("474946383961 8002 e001 f70000"), Some((MediaType::Gif, 640, 480, false)));
        let looped = "474946383961 8002 e001 f70000 21ff0b 4e45545343415045322e30 0301000000";
        assert_eq!(read(looped), Some((MediaType::Gif, 640, 480, true)));
        let lossy = "52494646 00000000 57454250 56503820 00000000 000000 9d012a 8002 e001";
        assert_eq!(read(lossy), Some((MediaType::Webp, 640, 480, false)));
        let lossless = "52494646 00000000 57454250 5650384c 00000000 2f 7fc27700";
        assert_eq!(read(lossless), Some((MediaType::Webp, 640, 480, false)));
        let extended = "52494646 00000000 57454250 56503858 0a000000 02000000 7f0200 df0100";
        assert_eq!(read(extended), Some((MediaType::Webp, 640, 480, true)));
        for damaged in [&png[..40], "ffd8 ffe0 0006", "ffd8ff", "474946383961 0000 e001", "25504446", ""] {
            assert_eq!(read(damaged), None, "{damaged}");
        }
    }

    // covers: TOOL-15
    #[test]
    fn a_note_has_the_byte_count_and_the_place() {
        let (path, sha256) = ("agents/a/shot.png".to_owned(), "0a".to_owned());
        let image = ImageFile { path, media_type: MediaType::Png, sha256, bytes: 12_345, width: 640, height: 480 };
        assert_eq!(image.note(None), "[image: 12,345 bytes, image/png, 640x480, saved at agents/a/shot.png]");
        assert!(image.note(Some("why")).ends_with("shot.png; why]"));
        let bytes = [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")];
        assert_eq!(bytes.map(|(bytes, _)| grouped(bytes)), bytes.map(|(_, text)| text));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_fail(start in 0_usize..8, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            const STARTS: [&[u8]; 8] = [
                b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"\xff\xd8\xff\xc4", b"GIF89a", b"RIFF....WEBPVP8 ",
                b"RIFF....WEBPVP8L", b"RIFF....WEBPVP8X", b"",
            ];
            let _ = ImageHead::read(&[STARTS[start], &bytes].concat());
        }
    }
}
