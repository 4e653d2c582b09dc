//! Checks that the lock file and the database are still the files that this daemon opened. The store itself checks the
//! database's files with each commit.
//!
//! A daemon must never work on deleted files, or at the same time as another daemon.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ghost_domain::{Clock, Code, Refusal};

use crate::data_dir::DataDir;
use crate::data_dir::LOCK;
use crate::storage;

/// Time between two checks.
const EVERY: Duration = Duration::from_secs(2);

/// Device and inode of a file.
type Identity = (u64, u64);

fn identity(of: &Metadata) -> Identity {
    (of.dev(), of.ino())
}

/// The files that a daemon depends on, as it opened them.
pub(crate) struct OpenFiles {
    files: Vec<(PathBuf, Identity)>,
}

impl OpenFiles {
    /// The lock file and the open database, if that is a file.
    pub(crate) fn new(data_dir: &DataDir) -> Self {
        let mut files = Vec::new();
        files.extend(data_dir.locked().map(|(path, meta)| (path, identity(&meta))));
        let path = data_dir.path().join(storage::FILE);
        files.extend(std::fs::metadata(&path).ok().map(|meta| (path, identity(&meta))));
        Self { files }
    }

    /// Whether the database file is still the same. PostgreSQL has none here that could be gone.
    fn has_its_database(&self) -> bool {
        self.files.iter().all(|(path, taken)| !path.ends_with(storage::FILE) || !is_gone(path, *taken))
    }

    /// Returns when one of the files is removed or replaced, with the error with which the daemon
    /// ends.
    pub(crate) async fn gone(&self, clock: &dyn Clock) -> Refusal {
        loop {
            if let Some((path, _)) = self.files.iter().find(|(path, taken)| is_gone(path, *taken)) {
                let what = format!("{} was removed or replaced while this daemon used it", path.display());
                let hint = if path.ends_with(LOCK) && self.has_its_database() {
                    "the database is still in its place: start the daemon again"
                } else {
                    "the acknowledged data is where that file is now: restore it, then start the daemon again"
                };
                return Refusal::new(
                    Code::Internal,
                    format!("{what}: the daemon ends, because it can store nothing more"),
                )
                .hint(hint);
            }
            clock.sleep(EVERY).await;
        }
    }
}

/// Whether the path no longer has the same file. If the path cannot be checked, the file is treated
/// as unchanged.
fn is_gone(path: &Path, taken: Identity) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => identity(&found) != taken,
        Err(error) => {
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::StaleNetworkFileHandle)
        }
    }
}
