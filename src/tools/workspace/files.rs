//! Reads, hashes and replaces one file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use ghost_domain::droid_id::DROIDS;
use ghost_domain::text::clip;
use ghost_domain::write_acl::{MARK, TEMP_PREFIX, WorkspacePath, is_reserved};
use ghost_domain::{Code, Refusal};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::encoding::Encoding;
use super::faults::{in_the_way, io_refusal};
use super::parents;

/// The number of bytes of a file that are read to find a line or to hash the file that a write
/// would replace. Every file that a tool can write is smaller.
pub(super) const SCAN_MAX: u64 = 64 * 1024 * 1024;

/// The number of names that are tried for a temporary file. Each name is new in this process, so
/// the first one works unless a crashed process left it.
const TEMP_TRIES: u32 = 1_000;
/// The mode of files: closed to other users of the machine.
const FILE_MODE: u32 = 0o640;

static TEMP_COUNT: AtomicU64 = AtomicU64::new(0);

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
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Refuses names that are reserved.
pub(super) fn check_name(path: &WorkspacePath) -> Result<(), Refusal> {
    if path.as_str().split('/').any(is_reserved) {
        return Err(Refusal::new(
            Code::PathDenied,
            format!("`{}`: {MARK} and names that begin with {TEMP_PREFIX} are reserved", clip(path.as_str(), 120)),
        )
        .hint("choose another name"));
    }
    Ok(())
}

/// Opens a regular file for reading. Links within the root are followed. Never blocks, not even on
/// a pipe.
pub(super) fn open(root: &Dir, path: &WorkspacePath) -> Result<(cap_std::fs::File, u64), Refusal> {
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
pub(super) fn size(root: &Dir, path: &WorkspacePath) -> Result<u64, Refusal> {
    open(root, path).map(|(_, size)| size)
}

fn nonblock() -> i32 {
    // The bit is far below the sign bit on every platform.
    i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0)
}

fn directory(path: &WorkspacePath) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("`{}` is a directory", clip(path.as_str(), 120)))
        .hint("use workspace.list to see what is in it")
}

fn too_large(path: &WorkspacePath, size: u64, limit: u64) -> Refusal {
    Refusal::new(Code::TooLarge, format!("`{}` has {size} bytes; at most {limit} are taken", clip(path.as_str(), 120)))
        .hint("read it in parts with offset and limit, or spread the content over several files")
}

fn skip_beyond_line(path: &WorkspacePath, line: u64, has: u64, skip: u64) -> Refusal {
    let shown = clip(path.as_str(), 120);
    Refusal::new(Code::InvalidArguments, format!("line {line} of `{shown}` has {has} bytes; {skip} were to be skipped"))
        .hint("give the next_skip_bytes of the result before, with its next_offset")
}

fn binary(path: &WorkspacePath) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("`{}` is a binary file, not text", clip(path.as_str(), 120)))
        .hint("only text can be read this way: UTF-8, UTF-16 with its mark, or Windows-1252")
}

/// The bytes of a small PDF may be those of a text, but its text is not in them.
fn pdf(path: &WorkspacePath) -> Refusal {
    Refusal::new(Code::InvalidArguments, format!("`{}` is a PDF, not text", clip(path.as_str(), 120)))
        .hint("convert it to text first, for example with pdftotext")
}

/// Changing the file would convert it to UTF-8, which was not requested.
fn not_utf8(path: &WorkspacePath, encoding: Encoding) -> Refusal {
    let (path, name) = (clip(path.as_str(), 120), encoding.name());
    Refusal::new(Code::InvalidArguments, format!("`{path}` is text in {name}, and only UTF-8 is changed in place"))
        .hint("nothing was written; read it and write the whole of it with workspace.write, which makes it UTF-8")
}

pub(super) fn read(root: &Dir, path: &WorkspacePath, max_bytes: u64) -> Result<Vec<u8>, Refusal> {
    let (file, size) = open(root, path)?;
    read_bounded(file, path, size, max_bytes)
}

fn read_bounded(file: impl Read, path: &WorkspacePath, size: u64, max_bytes: u64) -> Result<Vec<u8>, Refusal> {
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

pub(crate) fn read_text(root: &Dir, path: &WorkspacePath, wanted: Lines) -> Result<FileText, Refusal> {
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
        return Err(Refusal::new(
            Code::TooLarge,
            format!(
                "line {first} of `{}` is beyond its first {SCAN_MAX} bytes, and no more is read; it has {size}",
                clip(path.as_str(), 120)
            ),
        )
        .hint("split it into smaller files"));
    }
    if line == first && skipped < wanted.skip {
        return Err(skip_beyond_line(path, first, skipped, wanted.skip));
    }
    // Only continuation bytes of a character have these high bits.
    if wanted.skip > 0 && out.first().is_some_and(|byte| byte & 0b1100_0000 == 0b1000_0000) {
        return Err(Refusal::new(
            Code::InvalidArguments,
            format!("byte {} of line {first} of `{}` is inside a character", wanted.skip, clip(path.as_str(), 120)),
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
fn open_for_change(root: &Dir, path: &WorkspacePath) -> Result<Option<(File, u64)>, Refusal> {
    check_name(path)?;
    let Some((parent, name)) = parents::parent_of(root, path, false)? else { return Ok(None) };
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
fn regular_or_missing(parent: &OwnedFd, name: &str, path: &WorkspacePath) -> Result<bool, Refusal> {
    regular_size(parent, name, path).map(|size| size.is_some())
}

/// The size of the regular file at `name`; `None` if nothing is there. Anything else there is refused.
pub(super) fn regular_size(parent: &OwnedFd, name: &str, path: &WorkspacePath) -> Result<Option<u64>, Refusal> {
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

pub(super) fn whole_text(root: &Dir, path: &WorkspacePath, max_bytes: u64) -> Result<Option<String>, Refusal> {
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

pub(super) fn hash(root: &Dir, path: &WorkspacePath) -> Result<Option<String>, Refusal> {
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
pub(super) fn digest(root: &Dir, path: &WorkspacePath) -> Result<Option<(String, u64)>, Refusal> {
    let Some((file, _)) = open_for_change(root, path)? else { return Ok(None) };
    hash_of(file, path).map(Some)
}

/// The SHA-256 and the number of the bytes that `file` has.
fn hash_of(mut file: impl Read, path: &WorkspacePath) -> Result<(String, u64), Refusal> {
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

/// Removes the file at `path`. The caller must know that it exists.
pub(super) fn remove(root: &Dir, path: &WorkspacePath) -> Result<(), Refusal> {
    let failed = |error: Errno| io_refusal("remove", path.as_str(), &error.into());
    let Some((parent, name)) = parents::parent_of(root, path, false)? else { return Ok(()) };
    rustix::fs::unlinkat(&parent, name, AtFlags::empty()).map_err(failed)?;
    rustix::fs::fsync(&parent).map_err(failed)
}

pub(super) fn write_atomic(root: &Dir, path: &WorkspacePath, bytes: &[u8]) -> Result<(), Refusal> {
    replace(root, path, |file| file.write_all(bytes))
}

/// Writes a file that can be made again, into its opened directory. A crash of the daemon leaves the whole file or none; a
/// power loss may leave it empty.
pub(super) fn write_unsynced(
    root: &Dir,
    parent: OwnedFd,
    (path, name): (&WorkspacePath, &str),
    bytes: &[u8],
) -> Result<(), Refusal> {
    let failed = |error: io::Error| io_refusal("write", path.as_str(), &error);
    let (temp, mut file) = create_temp(parent.as_fd()).map_err(failed)?;
    let mut staged = Staged { root, parent, temp, name, path, is_placed: false };
    file.write_all(bytes).and_then(|()| Ok(readable(&file)?)).map_err(failed)?;
    staged.rename().map_err(|error| failed(error.into()))
}

/// Replaces the file at `path` with the bytes that `fill` writes, or leaves everything unchanged.
pub(super) fn replace(
    root: &Dir,
    path: &WorkspacePath,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), Refusal> {
    stage(root, path, fill)?.place()
}

/// New content of a file, complete on the disk beside the file. Dropping it removes the content.
pub(super) struct Staged<'p> {
    root: &'p Dir,
    parent: OwnedFd,
    temp: String,
    name: &'p str,
    path: &'p WorkspacePath,
    is_placed: bool,
}

/// Writes the new content of the file at `path` beside it.
pub(super) fn stage<'p>(
    root: &'p Dir,
    path: &'p WorkspacePath,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<Staged<'p>, Refusal> {
    check_name(path)?;
    // Check before anything is created, so that a refused write leaves no trace.
    if let Some((parent, name)) = parents::parent_of(root, path, false)? {
        regular_or_missing(&parent, name, path)?;
    }
    let failed = |error: io::Error| io_refusal("write", path.as_str(), &error);
    let Some((parent, name)) = parents::parent_of(root, path, true)? else {
        return Err(failed(Errno::NOENT.into()));
    };
    let (temp, file) = create_temp(parent.as_fd()).map_err(failed)?;
    let staged = Staged { root, parent, temp, name, path, is_placed: false };
    complete(file, fill).map_err(failed)?;
    Ok(staged)
}

impl Staged<'_> {
    /// Puts the content in the place of the file.
    pub(super) fn place(mut self) -> Result<(), Refusal> {
        let failed = |error: Errno| io_refusal("write", self.path.as_str(), &error.into());
        self.rename().map_err(failed)?;
        rustix::fs::fsync(&self.parent).map_err(failed)?;
        // A droid's own directories are created without a sync.
        match self.path.as_str().split('/').next() {
            Some(DROIDS) => parents::sync_above(self.root, self.path).map_err(failed),
            _ => Ok(()),
        }
    }

    fn rename(&mut self) -> Result<(), Errno> {
        rustix::fs::renameat(&self.parent, &self.temp, &self.parent, self.name)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            // Agents cannot read it under that name and the next start removes it, so a failure here does no harm.
            let _ = rustix::fs::unlinkat(&self.parent, &self.temp, AtFlags::empty());
        }
    }
}

/// Adds `bytes` to the end of the file at `path`, and creates it if it is missing. It is not synced.
pub(super) fn append(root: &Dir, path: &WorkspacePath, bytes: &[u8]) -> Result<(), Refusal> {
    check_name(path)?;
    let failed = |error: io::Error| io_refusal("write", path.as_str(), &error);
    let Some((parent, name)) = parents::parent_of(root, path, true)? else {
        return Err(failed(Errno::NOENT.into()));
    };
    regular_or_missing(&parent, name, path)?;
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(FILE_MODE)).map_err(|e| failed(e.into()))?;
    parents::hand_over(&parent, &fd).map_err(|e| failed(e.into()))?;
    let mut file = File::from(fd);
    // The file may have been replaced since the check above.
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(in_the_way(path.as_str(), "something that is not a file"));
    }
    file.write_all(bytes).map_err(failed)
}

fn create_temp(parent: std::os::fd::BorrowedFd<'_>) -> io::Result<(String, File)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..TEMP_TRIES {
        let temp = format!("{TEMP_PREFIX}{}", TEMP_COUNT.fetch_add(1, Ordering::Relaxed));
        match rustix::fs::openat(parent, &temp, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => {
                let handed_over = parents::hand_over(parent, &fd);
                return handed_over.map(|()| (temp, File::from(fd))).map_err(Into::into);
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// Completes the temporary file. It becomes readable for its group only now.
fn complete(mut file: File, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    fill(&mut file)?;
    readable(&file)?;
    file.sync_all()
}

fn readable(file: &File) -> Result<(), Errno> {
    rustix::fs::fchmod(file, Mode::from_raw_mode(FILE_MODE))
}
