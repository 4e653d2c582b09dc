//! One copy of a workspace on a disk: lists it, and changes single entries of it.
//!
//! It must never follow a symbolic link, whoever made it and whenever: every directory on the way is opened by itself.

mod entry;
mod incoming;
mod list;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, statat, symlinkat, unlinkat};
use rustix::io::Errno;

pub use incoming::Incoming;
pub use list::{Hashes, TreeError};

use self::entry::{TARGET_MAX, clear, dir_at, hand_over, is_still, kind, open_dir, open_file, open_to_owner, size};
use super::node::{self, Node, Nodes};

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
        list::list(&self.root, self.is_copy, scope.trim_matches('/'), hashes, busy, now_ms)
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

    /// Opens a regular file to read it, with its size. `None` if there is none.
    ///
    /// # Errors
    /// If a link stands in the way, or the disk fails.
    pub fn read(&self, path: &str) -> io::Result<Option<(File, u64)>> {
        let (dir, name) = self.place(path)?;
        let file = match open_file(&dir, name) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let found = fstat(&file)?;
        Ok((kind(&found) == FileType::RegularFile).then(|| (file, size(&found))))
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
        entry::empty(&dir_at(&self.root, "")?)
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
            entry::empty(&open_dir(&dir, name)?)?;
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

#[cfg(test)]
mod tests;
