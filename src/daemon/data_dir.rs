//! The data directory of a world: where it is, and that one daemon alone uses it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ghost_domain::{Code, Refusal};
use rustix::fs::{FlockOperation, flock};

/// Where worlds keep their data: `$GHOST_STATE_DIR`, else `~/.local/state/ghost`.
#[must_use]
pub fn state_dir(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if let Some(dir) = env("GHOST_STATE_DIR").filter(|dir| !dir.is_empty()) {
        return Some(PathBuf::from(dir));
    }
    env("HOME").filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".local/state/ghost"))
}

/// The data directory of a world that was given none.
pub fn default_data_dir(world_id: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, Refusal> {
    state_dir(env).map(|dir| dir.join(world_id)).ok_or_else(|| {
        Refusal::new(
            Code::InvalidArguments,
            "there is nowhere to keep the world's data: neither GHOST_STATE_DIR nor HOME is set",
        )
        .hint("give --data DIR")
    })
}

/// A data directory in use. Held for as long as the daemon lives; the lock goes with the process, however it ends.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Makes the directory if it is not there, and locks it.
    ///
    /// # Errors
    /// When it cannot be made or written, or another daemon uses it.
    pub fn lock(path: &Path) -> Result<Self, Refusal> {
        let denied = |what: &str, error: &dyn std::fmt::Display| {
            Refusal::new(Code::Unavailable, format!("the data directory {} {what}: {error}", path.display()))
                .hint("give another directory with --data, or make this one writable")
        };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| denied("cannot be made", &error))?;
        let path = path.canonicalize().map_err(|error| denied("cannot be found", &error))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(path.join("lock"))
            .map_err(|error| denied("cannot be written", &error))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            let holder = std::fs::read_to_string(path.join("lock")).unwrap_or_default();
            let holder = holder.trim();
            let who = if holder.is_empty() { String::new() } else { format!(" (process {holder})") };
            return Err(Refusal::new(
                Code::Conflict,
                format!("another ghostd{who} uses the data directory {}", path.display()),
            )
            .hint(
                "talk to that one with ghostctl, stop it with `ghostctl shutdown`, or give --data another directory",
            ));
        }
        let write = || -> std::io::Result<()> {
            lock.set_len(0)?;
            (&lock).write_all(std::process::id().to_string().as_bytes())
        };
        write().map_err(|error| denied("cannot be written", &error))?;
        Ok(Self { path, _lock: lock })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}
