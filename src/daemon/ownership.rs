//! That the data directory and the database in it are still those that this daemon took.
//!
//! Must never: let a daemon go on in files that nobody can find any more, or beside another one.

use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ghost_domain::{Clock, Code, Refusal};

use crate::data_dir::DataDir;
use crate::data_dir::LOCK;
use crate::database;

/// How often it is looked at. The store itself looks before every commit: this is for a daemon that has nothing to write.
const EVERY: Duration = Duration::from_secs(2);

/// What the system knows a file by.
type Identity = (u64, u64);

fn identity(of: &Metadata) -> Identity {
    (of.dev(), of.ino())
}

/// The files that a daemon lives by, as it took them.
pub(crate) struct Held {
    files: Vec<(PathBuf, Identity)>,
}

impl Held {
    /// The lock, and the database that is open, with its log.
    pub(crate) fn of(data_dir: &DataDir) -> Self {
        let mut files = Vec::new();
        files.extend(data_dir.locked().map(|(path, meta)| (path, identity(&meta))));
        for name in [database::FILE, database::LOG] {
            let path = data_dir.path().join(name);
            files.extend(std::fs::metadata(&path).ok().map(|meta| (path, identity(&meta))));
        }
        Self { files }
    }

    /// Whether the database is where it was.
    fn has_its_database(&self) -> bool {
        self.files.iter().any(|(path, taken)| path.ends_with(database::FILE) && !is_gone(path, *taken))
    }

    /// Returns when one of them is gone: what the daemon ends with.
    pub(crate) async fn gone(&self, clock: &dyn Clock) -> Refusal {
        loop {
            if let Some((path, _)) = self.files.iter().find(|(path, taken)| is_gone(path, *taken)) {
                let what = format!("{} was removed or replaced while this daemon used it", path.display());
                let hint = if path.ends_with(database::LOG) {
                    "what was acknowledged is in the database: start the daemon again"
                } else if path.ends_with(LOCK) && self.has_its_database() {
                    "the data are in their place: start the daemon again"
                } else {
                    "what was acknowledged is where that file is now: bring it back, then start the daemon again"
                };
                return Refusal::new(Code::Internal, format!("{what}: it ends, since nothing more can be kept"))
                    .hint(hint);
            }
            clock.sleep(EVERY).await;
        }
    }
}

/// Whether nothing lies there any more, or something else. What cannot be looked at is not known to be gone.
fn is_gone(path: &Path, taken: Identity) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => identity(&found) != taken,
        Err(error) => {
            matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::StaleNetworkFileHandle)
        }
    }
}
