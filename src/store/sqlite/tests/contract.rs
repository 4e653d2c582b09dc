//! The contract suite on SQLite.

use std::path::PathBuf;

use ghost_domain::time::BoxFuture;

use crate::contract::{Medium, as_tests, for_each_check};
use crate::sqlite::{SqliteOptions, open_store};
use crate::{Store, StoreError};

/// A database file in a temporary directory.
struct File {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl File {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { path: dir.path().join("ghost.db"), _dir: dir }
    }
}

impl Medium for File {
    fn open(&self) -> BoxFuture<'_, Result<Store, StoreError>> {
        Box::pin(open_store(&self.path, SqliteOptions::default()))
    }
}

for_each_check!(as_tests, File::new());
