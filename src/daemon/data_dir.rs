//! The data directory of a world: where it is, and that one daemon alone uses it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ghost_domain::{Code, Refusal};
use rustix::fs::{FlockOperation, flock};

/// The file that is locked; it says which process holds it.
const LOCK: &str = "lock";
/// How often a lock is tried for whose file was taken away meanwhile.
const TRIES_MAX: usize = 16;

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

/// A data directory in use. Held for as long as the daemon lives; the lock goes with the process, however it ends. Let go
/// before [`keep`](Self::keep), it is as it was found.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    lock: File,
    /// How it was found.
    found: Found,
    kept: AtomicBool,
}

/// How a data directory was before it was locked.
#[derive(Debug)]
struct Found {
    /// Directories that were not there, the innermost first.
    missing: Vec<PathBuf>,
    /// What the lock file said; `None` if there was none.
    lock: Option<Vec<u8>>,
}

impl DataDir {
    /// Makes the directory if it is not there, and locks it.
    ///
    /// # Errors
    /// When it cannot be made or written, or another daemon uses it. Nothing in it is changed then.
    pub fn lock(path: &Path) -> Result<Self, Refusal> {
        let denied = |what: &str, error: &dyn std::fmt::Display| {
            Refusal::new(Code::Unavailable, format!("the data directory {} {what}: {error}", path.display()))
                .hint("give another directory with --data, or make this one writable")
        };
        let missing: Vec<PathBuf> = path
            .ancestors()
            .take_while(|dir| !dir.as_os_str().is_empty() && dir.symlink_metadata().is_err())
            .map(Path::to_owned)
            .collect();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        let undo = || missing.iter().for_each(|dir| drop(std::fs::remove_dir(dir)));
        made.inspect_err(|_| undo()).map_err(|error| denied("cannot be made", &error))?;
        let real = path.canonicalize().map_err(|error| denied("cannot be found", &error))?;
        let file = real.join(LOCK);
        for _ in 0..TRIES_MAX {
            let (lock, new) =
                open(&file).inspect_err(|_| undo()).map_err(|error| denied("cannot be written", &error))?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                let holder = std::fs::read_to_string(&file).unwrap_or_default();
                return Err(in_use(path, holder.trim()));
            }
            // Between the two steps a daemon that was refused may have taken its file away.
            let is_there = lock.metadata().ok().zip(file.metadata().ok());
            if is_there.is_none_or(|(ours, there)| (ours.dev(), ours.ino()) != (there.dev(), there.ino())) {
                continue;
            }
            let before = std::fs::read(&file).map_err(|error| denied("cannot be read", &error))?;
            let found = Found { missing, lock: (!new).then_some(before) };
            let dir = Self { path: real, lock, found, kept: AtomicBool::new(false) };
            dir.say(std::process::id().to_string().as_bytes()).map_err(|error| denied("cannot be written", &error))?;
            return Ok(dir);
        }
        Err(in_use(path, ""))
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From here on it holds a world: what was made in it stays.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }

    fn say(&self, text: &[u8]) -> std::io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.write_all_at(text, 0)
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if self.kept.load(Ordering::Relaxed) {
            return;
        }
        // Still locked: nobody else reads or writes the file meanwhile.
        let undone = match &self.found.lock {
            Some(text) => self.say(text),
            None => std::fs::remove_file(self.path.join(LOCK)),
        };
        if let Err(error) = undone {
            tracing::warn!(%error, path = %self.path.display(), "the lock file is not as it was");
        }
        for dir in &self.found.missing {
            // One that holds something by now stays.
            if std::fs::remove_dir(dir).is_err() {
                break;
            }
        }
    }
}

/// The lock file, and whether it is new.
fn open(file: &Path) -> std::io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    match options.clone().create_new(true).open(file) {
        Ok(lock) => Ok((lock, true)),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            Ok((options.create(true).truncate(false).open(file)?, false))
        }
        Err(error) => Err(error),
    }
}

fn in_use(path: &Path, holder: &str) -> Refusal {
    let who = if holder.is_empty() { String::new() } else { format!(" (process {holder})") };
    Refusal::new(Code::Conflict, format!("another ghostd{who} uses the data directory {}", path.display()))
        .hint("talk to that one with ghostctl, stop it with `ghostctl shutdown`, or give --data another directory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_came_to_nothing_is_as_it_was() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/b");
        let dir = DataDir::lock(&path).unwrap();
        assert!(path.join(LOCK).is_file());
        let other = DataDir::lock(&path).unwrap_err();
        assert_eq!(other.code, Code::Conflict);
        assert_eq!(std::fs::read_to_string(path.join(LOCK)).unwrap(), std::process::id().to_string());
        drop(dir);
        assert!(!home.path().join("a").exists());

        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join(LOCK), "4711").unwrap();
        drop(DataDir::lock(&path).unwrap());
        assert_eq!(std::fs::read_to_string(path.join(LOCK)).unwrap(), "4711");
        let dir = DataDir::lock(&path).unwrap();
        dir.keep();
        drop(dir);
        assert_eq!(std::fs::read_to_string(path.join(LOCK)).unwrap(), std::process::id().to_string());
    }
}
