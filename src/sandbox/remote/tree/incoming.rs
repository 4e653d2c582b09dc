//! A file that is being received: under a name of its own until it is whole.
//!
//! What is there already must never be half replaced.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use ghost_domain::write_acl::TEMP_PREFIX;
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fchown, openat, renameat, unlinkat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::entry::{Heir, clear, is_still};
use crate::remote::node::Node;

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
