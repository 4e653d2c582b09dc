//! Whether the files of an open database are still where they were opened.
//!
//! Must never: take a file that cannot be looked at for one that is gone.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::StoreError;

/// A file, by what the system knows it by.
struct File {
    path: PathBuf,
    identity: (u64, u64),
}

impl File {
    /// What lies at `path` now; none if that cannot be told.
    fn at(path: PathBuf) -> Option<Self> {
        let found = std::fs::metadata(&path).ok()?;
        Some(Self { path, identity: (found.dev(), found.ino()) })
    }

    /// Whether nothing lies there any more, or something else.
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

/// The log beside a database.
pub(super) fn log_of(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// Where an open database lies. SQLite never replaces its log while a connection is open.
pub(super) struct FileIdentity {
    database: Option<File>,
    log: Option<File>,
}

impl FileIdentity {
    /// The place of a database that is open.
    pub(super) fn of(database: &Path) -> Self {
        Self { database: File::at(database.to_owned()), log: File::at(log_of(database)) }
    }

    /// Whether the database has been removed or replaced.
    pub(super) fn is_gone(&self) -> bool {
        self.database.as_ref().is_some_and(File::is_gone)
    }

    /// That what is written now will be found there.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match [&self.database, &self.log].into_iter().flatten().find(|file| file.is_gone()) {
            Some(file) => Err(StoreError::Gone { path: file.path.clone() }),
            None => Ok(()),
        }
    }
}
