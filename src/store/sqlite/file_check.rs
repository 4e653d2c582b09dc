//! Checks with each commit that the files of an open database are the ones that were opened, whole, and written by
//! SQLite alone. A commit is acknowledged only if this check passes after it.
//!
//! A check reads a few headers and never the content. It notices a file that was removed, replaced or cut, an
//! overwritten header, and on local file systems any write by another program. It must never take for damage what
//! SQLite does itself: it begins the log again and cuts it to its limit, and a database grows at a checkpoint.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::log_file::{FRAME, HEADER, beside, frame_at, log_of, number};
use crate::error::StoreError;

/// Bytes at the start of a database that never change while it is open: the magic text, the size of a page and the
/// versions of the format (<https://www.sqlite.org/fileformat.html#the_database_header>).
const CONSTANT: usize = 24;
/// Bytes of the log's index that are read: its header twice, and what checkpoints have copied and have begun to copy.
const INDEX: usize = 132;
/// Where the number of frames stands that a checkpoint has begun to copy.
const INDEX_BEGUN: usize = 128;
/// Bytes of the index's header.
const INDEX_HEADER: usize = 48;
/// Bytes of the index before its first list of pages.
const INDEX_LISTS: u64 = 136;
/// Entries and bytes of each block of the index.
const BLOCK: (u64, u64) = (4_096, 32_768);

/// Frames in the log from which a commit runs a checkpoint. All other commands wait for it: 50 to 90 ms with 4,000, half of
/// that with these, for 3 percent fewer sends a second.
pub(crate) const CHECKPOINT_FRAMES: u32 = 2_000;

/// What is wrong with a file that SQLite did not write.
const OVERWRITTEN: &str = "another program has written to it";

/// File systems whose time of the last write changes with each write, and with nothing else but a write or `touch`:
/// ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs.
const EXACT_TIMES: [u32; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630];

/// Device and number of a file.
pub(crate) type Identity = (u64, u64);

/// The identity of the file at a path.
pub(crate) fn identity(path: &Path) -> io::Result<Identity> {
    std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// An open file. SQLite's own handles are locked; the system drops a process's locks on a file when any of its handles
/// is closed. So these stay open as long as the database.
struct Watched {
    path: PathBuf,
    file: File,
    identity: Identity,
}

/// The size of a page in bytes, from two bytes of a header: the largest does not fit, so 1 stands for it.
fn page_size(stored: u32) -> u64 {
    if stored == 1 { 65_536 } else { u64::from(stored) }
}

/// Size and time of the last write of a file.
type Written = (u64, (i64, i64));

fn written(meta: &Metadata) -> Written {
    (meta.len(), (meta.mtime(), meta.mtime_nsec()))
}

impl Watched {
    fn open(path: PathBuf) -> Result<Self, StoreError> {
        let file = OpenOptions::new().read(true).open(&path);
        let opened = file.and_then(|file| file.metadata().map(|meta| (file, (meta.dev(), meta.ino()))));
        match opened {
            Ok((file, identity)) => Ok(Self { path, file, identity }),
            Err(error) => Err(StoreError::Open { what: error.to_string(), path }),
        }
    }

    /// Whether the file was removed or replaced by another. A file is not gone only because its metadata cannot be
    /// read.
    fn is_gone(&self) -> bool {
        match identity(&self.path) {
            Ok(found) => found != self.identity,
            Err(error) => {
                matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::StaleNetworkFileHandle
                )
            }
        }
    }

    fn written(&self) -> io::Result<Written> {
        self.file.metadata().map(|meta| written(&meta))
    }

    /// Reads `N` bytes at `at`; `None` if the file ends before.
    fn bytes<const N: usize>(&self, at: u64) -> io::Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        match self.file.read_exact_at(&mut bytes, at) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What the index says about the log.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Index {
    /// Size of a page in bytes.
    page: u64,
    /// The newest committed frame, from 1; 0 if the log holds none.
    newest: u32,
    /// Checksum of that frame.
    sum: (u32, u32),
    salt: [u8; 8],
    /// Frames that a checkpoint has copied into the database.
    copied: u32,
    /// Frames that a checkpoint has begun to copy, perhaps at this moment in another program, or when it was interrupted.
    begun: u32,
}

impl Index {
    /// Reads the index's bytes; `None` if SQLite did not write them.
    fn parse(bytes: &[u8; INDEX]) -> Option<Self> {
        let (first, rest) = bytes.split_at(INDEX_HEADER);
        let native = |at: usize| {
            let four: [u8; 4] = bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).unwrap_or_default();
            u32::from_ne_bytes(four)
        };
        let mut salt = [0; 8];
        salt.copy_from_slice(&bytes[32..40]);
        (first == &rest[..INDEX_HEADER] && bytes[12] == 1).then(|| Self {
            page: page_size(u16::from_ne_bytes([bytes[14], bytes[15]]).into()),
            newest: native(16),
            sum: (native(24), native(28)),
            salt,
            copied: native(2 * INDEX_HEADER),
            begun: native(INDEX_BEGUN),
        })
    }
}

/// The state that the last check found.
struct Last {
    index: Index,
    /// The head of the newest frame; empty if there was none.
    frame: Option<[u8; FRAME]>,
    database: Written,
    log: Written,
}

/// The files of an open database, as the last check found them.
pub(crate) struct FileCheck {
    database: Watched,
    log: Watched,
    index: Watched,
    constant: [u8; CONSTANT],
    exact_times: bool,
    last: Option<Last>,
}

/// Why a check failed.
enum Fault {
    /// A file could not be read.
    Unread(io::Error),
    /// A file is damaged: which, and how.
    Damaged(PathBuf, &'static str),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Unread(error)
    }
}

impl FileCheck {
    /// Opens the files of a database that SQLite has open and no one writes.
    pub(crate) fn open(database: &Path) -> Result<Self, StoreError> {
        let damaged = |path: &Path, what: &str| StoreError::Damaged { path: path.to_owned(), what: what.into() };
        let [database, log, index] = [database.to_owned(), log_of(database), beside(database, "-shm")];
        let (database, log, index) = (Watched::open(database)?, Watched::open(log)?, Watched::open(index)?);
        let constant = database.bytes::<CONSTANT>(0).ok().flatten();
        let constant = constant.ok_or_else(|| damaged(&database.path, "it has no header"))?;
        let exact_times = rustix::fs::fstatfs(&database.file)
            .is_ok_and(|found| u32::try_from(found.f_type).is_ok_and(|kind| EXACT_TIMES.contains(&kind)));
        let mut check = Self { database, log, index, constant, exact_times, last: None };
        check.written()?;
        Ok(check)
    }

    /// Whether the database file was removed or replaced.
    pub(crate) fn is_gone(&self) -> bool {
        self.database.is_gone()
    }

    /// Returns [`StoreError::Gone`] if a file was removed or replaced.
    pub(crate) fn present(&self) -> Result<(), StoreError> {
        match [&self.database, &self.log, &self.index].into_iter().find(|file| file.is_gone()) {
            Some(file) => Err(StoreError::Gone { path: file.path.clone() }),
            None => Ok(()),
        }
    }

    /// Checks the files before SQLite writes: since the last check, only another program can have written them.
    pub(crate) fn untouched(&self) -> Result<(), StoreError> {
        self.present()?;
        let now = self.examine().map_err(|fault| self.error(fault))?;
        let Some(last) = self.last.as_ref().filter(|_| self.exact_times) else { return Ok(()) };
        // If the index changed, the other program is SQLite, too: it may run a checkpoint.
        let copying = now.index.begun > now.index.copied;
        let changed = [(&self.database, now.database != last.database && !copying), (&self.log, now.log != last.log)];
        match changed.into_iter().find(|(_, changed)| *changed && now.index == last.index) {
            Some((file, _)) => Err(self.error(Fault::Damaged(file.path.clone(), OVERWRITTEN))),
            None => Ok(()),
        }
    }

    /// Checks the files after SQLite wrote, and takes their state as the present one. SQLite writes to the database
    /// only in a checkpoint, and runs one only at the end of a long log.
    pub(crate) fn written(&mut self) -> Result<(), StoreError> {
        self.present()?;
        let now = self.examine().map_err(|fault| self.error(fault))?;
        if let Some(last) = self.last.as_ref().filter(|_| self.exact_times)
            && now.database != last.database
            && (now.index.salt, now.index.copied) == (last.index.salt, last.index.copied)
            && now.index.begun <= now.index.copied
            && now.index.newest < CHECKPOINT_FRAMES
        {
            return Err(self.error(Fault::Damaged(self.database.path.clone(), OVERWRITTEN)));
        }
        self.last = Some(now);
        Ok(())
    }

    fn error(&self, fault: Fault) -> StoreError {
        match fault {
            Fault::Unread(error) => {
                StoreError::Broken(format!("{} cannot be read: check the disk ({error})", self.database.path.display()))
            }
            Fault::Damaged(path, what) => StoreError::Damaged { path, what: what.into() },
        }
    }

    fn examine(&self) -> Result<Last, Fault> {
        let database = self.examine_database()?;
        let damaged = |file: &Watched, what| Fault::Damaged(file.path.clone(), what);
        let index = self.index.bytes::<INDEX>(0)?.as_ref().and_then(Index::parse);
        let index = index.ok_or_else(|| damaged(&self.index, "its header is damaged"))?;
        let log = self.log.written()?;
        // SQLite changes the salt when it begins the log again.
        let last = self.last.as_ref().filter(|last| last.index.salt == index.salt);
        let missing = || damaged(&self.log, "commits are missing from it");
        if last.is_some_and(|last| index.newest < last.index.newest) {
            return Err(missing());
        }
        if index.newest == 0 {
            return Ok(Last { index, frame: None, database, log });
        }
        let cut = || damaged(&self.log, "it is shorter than what was committed to it");
        if log.0 < frame_at(index.newest.saturating_add(1), index.page) {
            return Err(cut());
        }
        let head = self.log.bytes::<HEADER>(0)?.ok_or_else(cut)?;
        if head[16..24] != index.salt || u64::from(number(&head, 8)) != index.page {
            return Err(damaged(&self.log, "its header is damaged"));
        }
        let frame = self.frame(index.newest, &index)?;
        if index.sum != (number(&frame, 16), number(&frame, 20)) {
            return Err(damaged(&self.log, "its newest frame is damaged"));
        }
        // The newest frame of the check before. If the log was cut meanwhile and has grown again, that frame is
        // missing.
        if let Some((last, known)) = last.and_then(|last| Some((last, last.frame?)))
            && self.frame(last.index.newest, &index)? != known
        {
            return Err(missing());
        }
        Ok(Last { index, frame: Some(frame), database, log })
    }

    /// Checks the database's header and size.
    fn examine_database(&self) -> Result<Written, Fault> {
        let damaged = |what| Fault::Damaged(self.database.path.clone(), what);
        let written = self.database.written()?;
        let head = self.database.bytes::<32>(0)?.ok_or_else(|| damaged("it is cut short"))?;
        if head[..CONSTANT] != self.constant {
            return Err(damaged("its header is damaged"));
        }
        // SQLite makes a database smaller only in VACUUM, and then the header says its size.
        let whole = u64::from(number(&head, 28)) * page_size(number(&head, 16) >> 16);
        if self.last.as_ref().is_some_and(|last| written.0 < last.database.0) && written.0 != whole {
            return Err(damaged("it is cut short"));
        }
        Ok(written)
    }

    /// The head of a frame, which the log and its index must agree on.
    fn frame(&self, number_of: u32, index: &Index) -> Result<[u8; FRAME], Fault> {
        let damaged = |file: &Watched, what| Fault::Damaged(file.path.clone(), what);
        let frame = self.log.bytes::<FRAME>(frame_at(number_of, index.page))?;
        let frame = frame.filter(|frame| frame[8..16] == index.salt);
        let frame = frame.ok_or_else(|| damaged(&self.log, "commits are missing from it"))?;
        let entry = u64::from(number_of) - 1 + INDEX_LISTS / 4;
        let at = entry / BLOCK.0 * BLOCK.1 + entry % BLOCK.0 * 4;
        match self.index.bytes::<4>(at)?.map(u32::from_ne_bytes) {
            Some(page) if page == number(&frame, 0) => Ok(frame),
            _ => Err(damaged(&self.index, "it does not list the pages of the log")),
        }
    }
}
