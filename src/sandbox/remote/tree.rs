//! One copy of a workspace on a disk: lists it, changes single entries of it, and receives files, which have a name of their own
//! until they are whole. No symbolic link is followed, whoever made it and whenever: every directory on the way is opened by
//! itself.

mod entries;

use std::fs::File;
use std::io;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ghost_domain::write_acl::TEMP_PREFIX;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, fchown, fstat, mkdirat, openat, renameat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

pub use self::entries::{Hashes, TreeError};
use self::entries::{
    Heir, TARGET_MAX, clear, dir_at, hand_over, is_still, kind, open_dir, open_file, open_to_owner, size,
};
use super::node;
use super::node::{Node, Nodes};
use super::protocol::PIECE;

/// A copy of a workspace.
#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
    /// Whether entries that their owner closed to itself are opened again.
    is_copy: bool,
}

impl Tree {
    /// The workspace at `root`. Its modes are somebody else's.
    ///
    /// # Errors
    /// If it is no directory, or cannot be opened.
    pub fn open(root: &Path) -> io::Result<Self> {
        Ok(Self { root: openat(CWD, root, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?, is_copy: false })
    }

    /// A server's copy at `root`. Commands run as its user, so one may close an entry to the server, with `chmod 000` for
    /// example. A list opens it again: else it could not agree with ghostd's workspace any more.
    ///
    /// # Errors
    /// If it is no directory, or cannot be opened.
    pub fn open_copy(root: &Path) -> io::Result<Self> {
        Ok(Self { is_copy: true, ..Self::open(root)? })
    }

    /// The entries below the directory `scope`, and how many names were left out because they are no text. Contents are
    /// kept in `hashes`, but not of files below the directories `busy`, which commands may be writing. `now_ms` is the
    /// time in milliseconds since 1970.
    ///
    /// # Errors
    /// If there are too many entries or bytes, or the disk fails.
    pub fn list(
        &self,
        scope: &str,
        hashes: &mut Hashes,
        busy: &[String],
        now_ms: i64,
    ) -> Result<(Nodes, usize), TreeError> {
        entries::list(&self.root, self.is_copy, scope.trim_matches('/'), hashes, busy, now_ms)
    }

    /// Makes the directory `path` with all above it, unless it is there.
    ///
    /// # Errors
    /// If a link stands in the way, or the disk fails.
    pub fn prepare(&self, path: &str) -> io::Result<()> {
        let mut at = dir_at(&self.root, "")?;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at = match open_dir(&at, part) {
                Err(Errno::NOENT) => {
                    mkdirat(&at, part, Mode::from_raw_mode(0o755))?;
                    hand_over(&at, part, self.is_copy)?;
                    open_dir(&at, part)?
                }
                found => found?,
            };
        }
        Ok(())
    }

    /// The directory of an entry, and the entry's name in it.
    fn place<'p>(&self, path: &'p str) -> io::Result<(OwnedFd, &'p str)> {
        if !node::is_plain(path) || path.split('/').any(ghost_domain::write_acl::is_reserved) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is not one of a workspace"));
        }
        let name = path.rsplit('/').next().unwrap_or(path);
        Ok((dir_at(&self.root, node::parent(path))?, name))
    }

    /// The content of a regular file of `left` bytes, piece by piece. `None` if there is no such file.
    ///
    /// # Errors
    /// If a link stands in the way, or the disk fails.
    pub fn pieces(&self, path: &str, left: u64) -> io::Result<Option<Pieces>> {
        let (dir, name) = self.place(path)?;
        let file = match open_file(&dir, name) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let found = fstat(&file)?;
        let is_it = kind(&found) == FileType::RegularFile && size(&found) == left;
        Ok(is_it.then_some(Pieces { file, left }))
    }

    /// Removes an entry that is `was`; a directory must be empty. Returns whether it was so.
    ///
    /// # Errors
    /// If a link stands in the way, or the disk fails.
    pub fn remove(&self, path: &str, was: &Node) -> io::Result<bool> {
        let (dir, name) = self.place(path)?;
        let still = is_still(&dir, name, Some(was))?;
        if still {
            clear(&dir, name, Some(was))?;
        }
        Ok(still)
    }

    /// Makes a directory where `was` is. Returns whether it was so.
    ///
    /// # Errors
    /// If a link stands in the way, or the disk fails.
    pub fn make_dir(&self, path: &str, was: Option<&Node>) -> io::Result<bool> {
        let (dir, name) = self.place(path)?;
        let still = is_still(&dir, name, was)?;
        if still {
            clear(&dir, name, was)?;
            mkdirat(&dir, name, Mode::from_raw_mode(0o755))?;
            hand_over(&dir, name, self.is_copy)?;
        }
        Ok(still)
    }

    /// Makes a symbolic link where `was` is. Returns whether it was so.
    ///
    /// # Errors
    /// If a link stands in the way, or the disk fails.
    pub fn make_link(&self, path: &str, target: &str, was: Option<&Node>) -> io::Result<bool> {
        let (dir, name) = self.place(path)?;
        let still = target.len() <= TARGET_MAX && is_still(&dir, name, was)?;
        if still {
            clear(&dir, name, was)?;
            symlinkat(target, &dir, name)?;
            hand_over(&dir, name, self.is_copy)?;
        }
        Ok(still)
    }

    /// Removes everything in it.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn remove_all(&self) -> io::Result<()> {
        entries::empty(&dir_at(&self.root, "")?)
    }

    /// Removes the entry `path` with all that is in it, however deep. Returns whether it was there.
    ///
    /// # Errors
    /// If a link stands in the way, or the disk fails, or a command writes there meanwhile.
    pub fn remove_tree(&self, path: &str) -> io::Result<bool> {
        let (dir, name) = match self.place(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            place => place?,
        };
        let found = match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(false),
            found => found?,
        };
        let is_dir = kind(&found) == FileType::Directory;
        if is_dir {
            open_to_owner(&dir, name, &found);
            entries::empty(&open_dir(&dir, name)?)?;
        }
        unlinkat(&dir, name, if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() })?;
        Ok(true)
    }

    /// Begins to write a file of `size` bytes.
    ///
    /// # Errors
    /// If its directory is not there, a link stands in the way, or the disk fails.
    pub fn receive(&self, path: &str, size: u64, executable: bool) -> io::Result<Incoming> {
        let (dir, name) = self.place(path)?;
        Incoming::begin(dir, name, size, executable, self.is_copy)
    }
}

/// The content of a file. The last piece is an error if the file is shorter than it was, or the disk fails.
#[derive(Debug)]
pub struct Pieces {
    file: File,
    left: u64,
}

impl Iterator for Pieces {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let size = usize::try_from(self.left).unwrap_or(PIECE).min(PIECE);
        if size == 0 {
            return None;
        }
        let mut piece = vec![0; size];
        loop {
            match self.file.read(&mut piece) {
                Ok(read @ 1..) => {
                    piece.truncate(read);
                    self.left -= read as u64;
                    return Some(Ok(piece));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                ended => {
                    self.left = 0;
                    return Some(Err(ended.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into())));
                }
            }
        }
    }
}

/// Numbers the names of this process.
static COUNT: AtomicU64 = AtomicU64::new(0);
/// Names that are tried before a receive fails.
const TRIES: u32 = 100;

/// A file that is being received. Dropped before its end, it leaves nothing.
#[derive(Debug)]
pub struct Incoming {
    dir: OwnedFd,
    name: String,
    temp: String,
    file: File,
    hash: Sha256,
    left: u64,
    executable: bool,
    is_copy: bool,
}

impl Incoming {
    pub(super) fn begin(dir: OwnedFd, name: &str, size: u64, executable: bool, is_copy: bool) -> io::Result<Self> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _ in 0..TRIES {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let temp = format!("{TEMP_PREFIX}remote-{}-{count}", std::process::id());
            match openat(&dir, &temp, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => {
                    let (file, hash) = (File::from(file), Sha256::new());
                    return Ok(Self { dir, name: name.to_owned(), temp, file, hash, left: size, executable, is_copy });
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::from(Errno::EXIST))
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// If there is more than was announced, or the disk fails.
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.left = self
            .left
            .checked_sub(piece.len() as u64)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the file is longer than was announced"))?;
        self.hash.update(piece);
        self.file.write_all(piece)
    }

    /// Puts the file in its place if it has the content `sha256` and its place is still as `was` says. Returns whether
    /// that was so. With another `name` it goes there.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn finish(mut self, sha256: &str, was: Option<&Node>, name: Option<&str>) -> io::Result<bool> {
        let hash = std::mem::take(&mut self.hash).finalize();
        let name = name.unwrap_or(&self.name).to_owned();
        if self.left > 0 || hex::encode(hash) != sha256 || !is_still(&self.dir, &name, was)? {
            return Ok(false);
        }
        let mode = if self.executable { 0o755 } else { 0o644 };
        let heir = Heir::of(&self.dir, self.is_copy)?;
        fchmod(&self.file, heir.as_ref().map_or(Mode::from_raw_mode(mode), |heir| heir.mode(mode)))?;
        if let Some(heir) = heir {
            fchown(&self.file, Some(heir.uid), Some(heir.gid))?;
        }
        if matches!(was, Some(Node::Dir | Node::Other)) {
            clear(&self.dir, &name, was)?;
        }
        renameat(&self.dir, &self.temp, &self.dir, &name)?;
        self.temp.clear();
        Ok(true)
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if self.temp.is_empty() {
            return;
        }
        if let Err(error) = unlinkat(&self.dir, &self.temp, AtFlags::empty()) {
            tracing::debug!(%error, name = %self.temp, "a temporary file is left");
        }
    }
}

#[cfg(test)]
mod tests;
