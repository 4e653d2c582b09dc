//! Reads and hashes one file, and finds out whether it is an image that a model can be shown. An image that a provider
//! refuses must never pass: the refusal would end the turn.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::os::fd::OwnedFd;

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use ghost_domain::image::{IMAGE_BYTES_MAX, IMAGE_SIDE_MAX, ImageHead, MediaType};
use ghost_domain::text::clip;
use ghost_domain::write_acl::{MARK, TEMP_PREFIX, is_reserved};
use ghost_domain::{ImageFile, Refusal, WorkspacePath, refusal};
use ghost_operations::Result;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::encoding::Encoding;
use super::system::{self, in_the_way, io_refusal};

/// The number of bytes of a file that are read to find a line or to hash the file that a write
/// would replace. Every file that a tool can write is smaller.
pub(super) const SCAN_MAX: u64 = 64 * 1024 * 1024;

/// The lines to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    /// The first line, counted from 1; 0 means 1.
    pub first: u64,
    /// The number of bytes to skip in the first line, counted in UTF-8.
    pub skip: u64,
    /// The largest number of lines; `None` means all.
    pub count: Option<u64>,
    /// The largest number of bytes of text.
    pub max_bytes: usize,
}

/// The first bytes of a PDF.
const PDF: &[u8] = b"%PDF-";

/// A part of a text file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileText {
    /// The lines as UTF-8.
    pub content: String,
    /// The encoding of the file.
    pub encoding: Encoding,
    /// The size of the whole file, in bytes.
    pub bytes: u64,
    /// The number of lines in `content`.
    pub lines: u64,
    /// Whether the file continues after `content`.
    pub truncated: bool,
}

/// The lower-case hexadecimal SHA-256 of `bytes`.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Refuses names that are reserved.
pub(super) fn check_name(path: &WorkspacePath) -> Result<()> {
    if path.as_str().split('/').any(is_reserved) {
        return Err(refusal!(
            PathDenied,
            "`{}`: {MARK} and names that begin with {TEMP_PREFIX} are reserved",
            clip(path.as_str(), 120)
        )
        .hint("choose another name"));
    }
    Ok(())
}

/// Opens a regular file for reading. Links within the root are followed. Never blocks, not even on
/// a pipe.
pub(super) fn open(root: &Dir, path: &WorkspacePath) -> Result<(cap_std::fs::File, u64)> {
    check_name(path)?;
    let failed = |error: io::Error| io_refusal("read", path.as_str(), &error);
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(nonblock());
    let file = root.open_with(path.as_str(), &options).map_err(failed)?;
    let facts = file.metadata().map_err(failed)?;
    if facts.is_dir() {
        return Err(directory(path));
    }
    if !facts.is_file() {
        return Err(in_the_way(path.as_str(), "a pipe, a socket or a device"));
    }
    Ok((file, facts.len()))
}

/// The size of a regular file.
pub(super) fn size(root: &Dir, path: &WorkspacePath) -> Result<u64> {
    open(root, path).map(|(_, size)| size)
}

fn nonblock() -> i32 {
    // The bit is far below the sign bit on every platform.
    i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0)
}

fn directory(path: &WorkspacePath) -> Refusal {
    refusal!(InvalidArguments, "`{}` is a directory", clip(path.as_str(), 120))
        .hint("use workspace.list to see what is in it")
}

fn too_large(path: &WorkspacePath, size: u64, limit: u64) -> Refusal {
    refusal!(TooLarge, "`{}` has {size} bytes; at most {limit} are taken", clip(path.as_str(), 120))
        .hint("read it in parts with offset and limit, or spread the content over several files")
}

fn skip_beyond_line(path: &WorkspacePath, line: u64, has: u64, skip: u64) -> Refusal {
    let shown = clip(path.as_str(), 120);
    refusal!(InvalidArguments, "line {line} of `{shown}` has {has} bytes; {skip} were to be skipped")
        .hint("give the next_skip_bytes of the result before, with its next_offset")
}

fn binary(path: &WorkspacePath) -> Refusal {
    refusal!(InvalidArguments, "`{}` is a binary file, not text", clip(path.as_str(), 120))
        .hint("only text can be read this way: UTF-8, UTF-16 with its mark, or Windows-1252")
}

/// The bytes of a small PDF may be those of a text, but its text is not in them.
fn pdf(path: &WorkspacePath) -> Refusal {
    refusal!(InvalidArguments, "`{}` is a PDF, not text", clip(path.as_str(), 120))
        .hint("convert it to text first, for example with pdftotext")
}

/// Changing the file would convert it to UTF-8, which was not requested.
fn not_utf8(path: &WorkspacePath, encoding: Encoding) -> Refusal {
    let (path, name) = (clip(path.as_str(), 120), encoding.name());
    refusal!(InvalidArguments, "`{path}` is text in {name}, and only UTF-8 is changed in place")
        .hint("nothing was written; read it and write the whole of it with workspace.write, which makes it UTF-8")
}

pub(super) fn read(root: &Dir, path: &WorkspacePath, max_bytes: u64) -> Result<Vec<u8>> {
    let (file, size) = open(root, path)?;
    read_bounded(file, path, size, max_bytes)
}

fn read_bounded(file: impl Read, path: &WorkspacePath, size: u64, max_bytes: u64) -> Result<Vec<u8>> {
    if size > max_bytes {
        return Err(too_large(path, size, max_bytes));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // The file may grow while it is read.
    file.take(max_bytes.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| io_refusal("read", path.as_str(), &error))?;
    if bytes.len() as u64 > max_bytes {
        return Err(too_large(path, bytes.len() as u64, max_bytes));
    }
    Ok(bytes)
}

/// A reader for the first [`SCAN_MAX`] bytes of a file.
fn scan(file: &mut cap_std::fs::File) -> impl BufRead {
    BufReader::with_capacity(64 * 1024, file.take(SCAN_MAX))
}

pub(crate) fn read_text(root: &Dir, path: &WorkspacePath, wanted: Lines) -> Result<FileText> {
    let (mut file, size) = open(root, path)?;
    let failed = |error: io::Error| io_refusal("read", path.as_str(), &error);
    let mut head = Vec::with_capacity(PDF.len());
    (&mut file).take(PDF.len() as u64).read_to_end(&mut head).map_err(failed)?;
    if head == PDF {
        return Err(pdf(path));
    }
    file.rewind().map_err(failed)?;
    // Detect from the whole file, so that every part of it is read in the same encoding.
    let encoding = Encoding::of(scan(&mut file), size > SCAN_MAX).map_err(failed)?.ok_or_else(|| binary(path))?;
    file.rewind().map_err(failed)?;
    let mut reader = BufReader::with_capacity(64 * 1024, encoding.decoded(scan(&mut file)));
    let first = wanted.first.max(1);
    let end = wanted.count.map_or(u64::MAX, |count| first.saturating_add(count));
    let (mut line, mut skipped, mut out, mut full) = (1_u64, 0_u64, Vec::new(), false);
    'scan: while line < end {
        let buffer = reader.fill_buf().map_err(failed)?;
        if buffer.is_empty() {
            break;
        }
        let mut used = 0;
        for byte in buffer {
            if line == first && skipped < wanted.skip {
                if *byte == b'\n' {
                    return Err(skip_beyond_line(path, first, skipped, wanted.skip));
                }
                skipped += 1;
            } else if line >= first {
                if out.len() == wanted.max_bytes {
                    full = true;
                    break 'scan;
                }
                out.push(*byte);
            }
            used += 1;
            if *byte == b'\n' {
                line += 1;
                if line >= end {
                    break;
                }
            }
        }
        reader.consume(used);
    }
    let ended = !full && reader.fill_buf().map_err(failed)?.is_empty();
    let stopped = ended && size > SCAN_MAX;
    if stopped && out.is_empty() {
        return Err(refusal!(
            TooLarge,
            "line {first} of `{}` is beyond its first {SCAN_MAX} bytes, and no more is read; it has {size}",
            clip(path.as_str(), 120)
        )
        .hint("split it into smaller files"));
    }
    if line == first && skipped < wanted.skip {
        return Err(skip_beyond_line(path, first, skipped, wanted.skip));
    }
    // Only continuation bytes of a character have these high bits.
    if wanted.skip > 0 && out.first().is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000) {
        return Err(refusal!(
            InvalidArguments,
            "byte {} of line {first} of `{}` is inside a character",
            wanted.skip,
            clip(path.as_str(), 120)
        )
        .hint("give the next_skip_bytes of the result before"));
    }
    let content = text_of(out, full || stopped).ok_or_else(|| binary(path))?;
    let lines = content.lines().count() as u64;
    Ok(FileText { truncated: !ended || stopped, content, encoding, bytes: size, lines })
}

/// `bytes` as text. If they were truncated, an incomplete character at the end is dropped.
fn text_of(bytes: Vec<u8>, cut: bool) -> Option<String> {
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if cut && error.utf8_error().error_len().is_none() => {
            let keep = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(keep);
            String::from_utf8(bytes).ok()
        }
        Err(_) => None,
    }
}

/// Opens the file that a write to `path` would replace.
fn open_for_change(root: &Dir, path: &WorkspacePath) -> Result<Option<(File, u64)>> {
    check_name(path)?;
    let Some((parent, name)) = system::parent_of(root, path, false)? else { return Ok(None) };
    if !regular_or_missing(&parent, name, path)? {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(&parent, name, flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(io_refusal("read", path.as_str(), &error.into())),
    };
    let facts = file.metadata().map_err(|error| io_refusal("read", path.as_str(), &error))?;
    // The file may have been replaced since the check above.
    if !facts.is_file() {
        return Err(in_the_way(path.as_str(), "something that is not a file"));
    }
    Ok(Some((file, facts.len())))
}

/// Whether a regular file is at `name`. Anything else there is refused.
pub(super) fn regular_or_missing(parent: &OwnedFd, name: &str, path: &WorkspacePath) -> Result<bool> {
    regular_size(parent, name, path).map(|size| size.is_some())
}

/// The size of the regular file at `name`; `None` if nothing is there. Anything else there is refused.
pub(super) fn regular_size(parent: &OwnedFd, name: &str, path: &WorkspacePath) -> Result<Option<u64>> {
    match rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(facts) => match FileType::from_raw_mode(facts.st_mode) {
            // A size is never negative.
            FileType::RegularFile => Ok(Some(u64::try_from(facts.st_size).unwrap_or_default())),
            FileType::Directory => Err(in_the_way(path.as_str(), "a directory")),
            FileType::Symlink => Err(in_the_way(path.as_str(), "a symbolic link")),
            _ => Err(in_the_way(path.as_str(), "a pipe, a socket or a device")),
        },
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(io_refusal("look at", path.as_str(), &error.into())),
    }
}

pub(super) fn whole_text(root: &Dir, path: &WorkspacePath, max_bytes: u64) -> Result<Option<String>> {
    let Some((file, size)) = open_for_change(root, path)? else { return Ok(None) };
    let bytes = read_bounded(file, path, size, max_bytes)?;
    String::from_utf8(bytes).map(Some).map_err(|error| {
        // Reading from memory cannot fail.
        match Encoding::of(error.as_bytes(), false) {
            Ok(Some(encoding)) => not_utf8(path, encoding),
            _ => binary(path),
        }
    })
}

pub(super) fn hash(root: &Dir, path: &WorkspacePath) -> Result<Option<String>> {
    let Some((file, size)) = open_for_change(root, path)? else { return Ok(None) };
    let refused = |size| too_large(path, size, SCAN_MAX).hint("nothing was written; choose another path");
    if size > SCAN_MAX {
        return Err(refused(size));
    }
    // The file may grow while it is read.
    match hash_of(file.take(SCAN_MAX + 1), path)? {
        (_, bytes) if bytes > SCAN_MAX => Err(refused(bytes)),
        (hash, _) => Ok(Some(hash)),
    }
}

/// The SHA-256 and the size of a file of any size; `None` if there is none.
pub(super) fn digest(root: &Dir, path: &WorkspacePath) -> Result<Option<(String, u64)>> {
    let Some((file, _)) = open_for_change(root, path)? else { return Ok(None) };
    hash_of(file, path).map(Some)
}

/// The SHA-256 and the number of the bytes that `file` has.
fn hash_of(mut file: impl Read, path: &WorkspacePath) -> Result<(String, u64)> {
    let (mut hasher, mut buffer, mut hashed) = (Sha256::new(), vec![0_u8; 64 * 1024], 0_u64);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok((hex::encode(hasher.finalize()), hashed)),
            Ok(count) => {
                hashed += count as u64;
                hasher.update(&buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io_refusal("read", path.as_str(), &error)),
        }
    }
}

/// Bytes that show whether a file is an image.
const HEAD: u64 = 12;

pub(super) fn image(root: &Dir, path: &WorkspacePath) -> Result<Option<ImageFile>> {
    let (file, size) = open(root, path)?;
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head).map_err(|error| io_refusal("read", path.as_str(), &error))?;
    if MediaType::of(&head).is_none() {
        return Ok(None);
    }
    let shown = clip(path.as_str(), 120);
    if size > IMAGE_BYTES_MAX {
        return Err(refusal!(
            TooLarge,
            "the image `{shown}` has {size} bytes; a model is shown at most {IMAGE_BYTES_MAX}"
        )
        .hint("make a smaller copy of it and read that"));
    }
    let bytes = read(root, path, IMAGE_BYTES_MAX)?;
    let Some(head) = ImageHead::read(&bytes) else {
        return Err(refusal!(InvalidArguments, "`{shown}` begins as an image and is damaged").hint("write it anew"));
    };
    if head.animated {
        return Err(refusal!(InvalidArguments, "`{shown}` is an image that moves; a model is shown still ones")
            .hint("save one picture of it and read that"));
    }
    let side = head.width.max(head.height);
    if side > IMAGE_SIDE_MAX {
        return Err(refusal!(
            TooLarge,
            "a side of the image `{shown}` has {side} pixels; a model is shown at most {IMAGE_SIDE_MAX}"
        )
        .hint("make a smaller copy of it and read that"));
    }
    Ok(Some(ImageFile {
        path: path.as_str().to_owned(),
        media_type: head.media_type,
        sha256: sha256_hex(&bytes),
        bytes: bytes.len() as u64,
        width: head.width,
        height: head.height,
    }))
}
