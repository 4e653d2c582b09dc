//! Detects whether the files of an open database were removed or replaced.
//!
//! A file must never be reported as removed only because its metadata cannot be read.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::StoreError;

/// A file, identified by device and inode.
struct File {
    path: PathBuf,
    identity: (u64, u64),
}

impl File {
    /// The file at `path` now; `None` if its metadata cannot be read.
    fn read(path: PathBuf) -> Option<Self> {
        let found = std::fs::metadata(&path).ok()?;
        Some(Self { path, identity: (found.dev(), found.ino()) })
    }

    /// Whether the file was removed or replaced by another.
    fn is_gone(&self) -> bool {
        match std::fs::metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino()) != self.identity,
            Err(error) => {
                matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::StaleNetworkFileHandle
                )
            }
        }
    }
}

/// Path of the write-ahead log of a database.
pub(super) fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// The identity of an open database and its log. SQLite never replaces the log while a connection
/// is open.
pub(super) struct FileIdentity {
    database: Option<File>,
    log: Option<File>,
}

impl FileIdentity {
    /// Reads the identity of an open database.
    pub(super) fn read(database: &Path) -> Self {
        Self { database: File::read(database.to_owned()), log: File::read(log_of(database)) }
    }

    /// Whether the database file was removed or replaced.
    pub(super) fn is_gone(&self) -> bool {
        self.database.as_ref().is_some_and(File::is_gone)
    }

    /// Returns [`StoreError::Gone`] if the database or its log was removed or replaced.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match [&self.database, &self.log].into_iter().flatten().find(|file| file.is_gone()) {
            Some(file) => Err(StoreError::Gone { path: file.path.clone() }),
            None => Ok(()),
        }
    }
}
