//! The data directory of a world: where it is, and the lock that lets only one daemon use it.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ghost_domain::{Clock, Code, Refusal};
use rustix::fs::{FlockOperation, flock};

/// The socket of the default listener.
pub(crate) const SOCKET: &str = "ghostd.sock";
/// The lock file. It contains the process id of the daemon that holds the lock.
pub(crate) const LOCK: &str = "lock";
/// The file with the id of the world whose data this is. It shows that there was a database, even if that is lost.
pub(crate) const WORLD: &str = "world.id";
/// The file with the canonical path of the world directory that created the data. Two directories of the same name
/// have the same world id, and must not share data. The file is part of the data, so it stays correct if the data
/// is moved.
const MADE_BY: &str = "world.dir";
/// The word after the process id in the lock file while that process is shutting down.
const ENDING: &str = "ending";
/// Maximum number of tries if the lock file is removed while it is being locked.
const TRIES_MAX: usize = 16;
/// Time between two tries if another daemon holds the lock.
pub(crate) const AGAIN: Duration = Duration::from_millis(20);
/// Number of tries if that daemon is shutting down: two seconds.
const ENDING_TRIES: u32 = 100;
/// Number of tries otherwise: a daemon that was just killed may still hold the lock for a moment.
pub(crate) const KILLED_TRIES: u32 = 10;

/// The parent of all default data directories: `$GHOST_STATE_DIR`, else `~/.local/state/ghost`.
pub fn state_dir(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    if let Some(dir) = env("GHOST_STATE_DIR").filter(|dir| !dir.is_empty()) {
        return Some(PathBuf::from(dir));
    }
    env("HOME").filter(|home| !home.is_empty()).map(|home| Path::new(&home).join(".local/state/ghost"))
}

/// The default data directory of a world.
pub fn default_data_dir(world_id: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf, Refusal> {
    state_dir(env).map(|dir| dir.join(world_id)).ok_or_else(|| {
        Refusal::new(
            Code::InvalidArguments,
            "there is nowhere to keep the world's data: neither GHOST_STATE_DIR nor HOME is set",
        )
        .hint("give --data DIR, or write `data_dir` into the world file")
    })
}

/// The mode of directories that a start creates. They are for the daemon's user alone. Commands of a daemon that is root
/// run as another user, who must pass through them to the workspace.
const fn new_mode(is_root: bool) -> u32 {
    if is_root { 0o711 } else { 0o700 }
}

/// Directories that a start has created, the innermost first.
#[derive(Debug)]
pub(crate) struct NewDirs(Vec<PathBuf>);

impl NewDirs {
    /// Creates a directory and its parents, as far as they do not exist.
    pub(crate) fn create(dir: &Path, mode: u32) -> std::io::Result<Self> {
        let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && dir.symlink_metadata().is_err();
        let missing = Self(dir.ancestors().take_while(is_missing).map(Path::to_owned).collect());
        let made = DirBuilder::new().recursive(true).mode(mode).create(dir);
        made.inspect_err(|_| missing.remove()).map(|()| missing)
    }

    /// Removes them again. A directory with content stays, and so do its parents.
    pub(crate) fn remove(&self) {
        self.0.iter().for_each(|dir| drop(std::fs::remove_dir(dir)));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Replaces a file with an atomic rename.
pub(crate) fn replace(file: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut new = file.as_os_str().to_owned();
    new.push("-new");
    let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    made.write_all_at(content, 0)?;
    made.sync_all()?;
    std::fs::rename(&new, file)
}

/// A locked data directory. The lock ends with the process, however that ends. If it is dropped before
/// [`keep`](Self::keep), everything that locking created is removed again.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    lock: File,
    /// The state before it was locked.
    found: Found,
    kept: AtomicBool,
}

/// The state of a data directory before it was locked.
#[derive(Debug)]
struct Found {
    new_dirs: NewDirs,
    /// The content of the lock file; `None` if there was none.
    lock: Option<Vec<u8>>,
}

/// Why a directory could not be locked.
#[derive(Debug)]
enum Locked {
    /// Another daemon holds the lock; the content of the lock file.
    Held(String),
    Refused(Refusal),
}

impl From<Refusal> for Locked {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl DataDir {
    /// Creates the directory if it does not exist, and locks it. Waits up to two seconds for a
    /// daemon that is shutting down.
    ///
    /// # Errors
    /// If it cannot be created or written, or if another daemon uses it. Then the directory has not
    /// changed.
    pub async fn lock(path: &Path, clock: &dyn Clock) -> Result<Self, Refusal> {
        let mut tried = 0;
        loop {
            let text = match Self::attempt(path) {
                Ok(dir) => return Ok(dir),
                Err(Locked::Refused(refusal)) => return Err(refusal),
                Err(Locked::Held(text)) => text,
            };
            tried += 1;
            if tried >= if holder(&text).1 { ENDING_TRIES } else { KILLED_TRIES } {
                return Err(in_use(path, &text));
            }
            clock.sleep(AGAIN).await;
        }
    }

    fn attempt(path: &Path) -> Result<Self, Locked> {
        let denied = |what: &str, error: &dyn std::fmt::Display| {
            Refusal::new(Code::Unavailable, format!("the data directory {} {what}: {error}", path.display()))
                .hint("give another directory with --data, or make this one writable")
        };
        let mode = new_mode(rustix::process::geteuid().is_root());
        let new_dirs = NewDirs::create(path, mode).map_err(|error| denied("cannot be made", &error))?;
        let real = path.canonicalize().map_err(|error| denied("cannot be found", &error))?;
        let file = real.join(LOCK);
        for _ in 0..TRIES_MAX {
            let opened = open(&file).inspect_err(|_| new_dirs.remove());
            let (lock, new) = opened.map_err(|error| denied("cannot be written", &error))?;
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                return Err(Locked::Held(std::fs::read_to_string(&file).unwrap_or_default()));
            }
            // In the meantime a daemon whose start was refused may have removed its lock file.
            let is_there = lock.metadata().ok().zip(file.metadata().ok());
            if is_there.as_ref().is_some_and(|(ours, _)| !ours.is_file()) {
                // Reading a pipe would block the start until someone writes to it.
                return Err(denied("cannot be locked", &format!("{LOCK} in it is not a file")).into());
            }
            if is_there.is_none_or(|(ours, there)| (ours.dev(), ours.ino()) != (there.dev(), there.ino())) {
                continue;
            }
            let before = std::fs::read(&file).map_err(|error| denied("cannot be read", &error))?;
            let found = Found { new_dirs, lock: (!new).then_some(before) };
            let dir = Self { path: real, lock, found, kept: AtomicBool::new(false) };
            dir.write_lock_file(std::process::id().to_string().as_bytes())
                .map_err(|error| denied("cannot be written", &error))?;
            return Ok(dir);
        }
        Err(Locked::Held(String::new()))
    }

    /// The canonical path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the world directory `world_dir` created this data, unless `adopt` is set. Data of a world with
    /// another id is not checked here: the database checks the id. Data without a recorded directory is accepted.
    ///
    /// # Errors
    /// `Conflict` if another directory created the data; `Unavailable` if the record cannot be read.
    pub(crate) fn check_origin(&self, world_dir: &Path, world_id: &str, adopt: bool) -> Result<(), Refusal> {
        let content = |name: &str| match std::fs::read(self.path.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let file = self.path.join(name);
                Err(Refusal::new(Code::Unavailable, format!("{} cannot be read: {error}", file.display()))
                    .hint("make the data directory and its content readable, or give another with --data"))
            }
        };
        let same_id = content(WORLD)?.is_some_and(|id| id.trim_ascii() == world_id.as_bytes());
        let Some(mut made_by) = content(MADE_BY)?.filter(|_| same_id && !adopt) else { return Ok(()) };
        made_by.pop_if(|last| *last == b'\n');
        let made_by = PathBuf::from(OsString::from_vec(made_by));
        let current = real(world_dir);
        if made_by == current {
            return Ok(());
        }
        let what = format!(
            "the data directory {} was made by the world in {}, not by the one in {}",
            self.path.display(),
            made_by.display(),
            current.display()
        );
        Err(Refusal::new(Code::Conflict, what).hint(
            "give this world a data directory of its own with --data DIR; if this is the same world in a new place, take over the data with --adopt",
        ))
    }

    /// Marks the directory as the data of this world and world directory. From now on it is kept when this value is
    /// dropped.
    pub fn keep(&self, world_id: &str, world_dir: &Path) {
        self.kept.store(true, Ordering::Relaxed);
        self.made_by(&real(world_dir));
        let file = self.path.join(WORLD);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file);
        match made.and_then(|made| made.write_all_at(format!("{world_id}\n").as_bytes(), 0)) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                tracing::warn!(%error, path = %file.display(), "the file could not be written: if the database is lost, the next start treats the world as new");
            }
            _ => {}
        }
    }

    /// Records the world directory that the data belongs to, with an atomic rename.
    fn made_by(&self, world_dir: &Path) {
        let file = self.path.join(MADE_BY);
        let mut line = world_dir.as_os_str().as_bytes().to_vec();
        line.push(b'\n');
        if std::fs::read(&file).is_ok_and(|before| before == line) {
            return;
        }
        if let Err(error) = replace(&file, &line) {
            tracing::warn!(%error, path = %file.display(), "the file could not be written: another world directory of the same name could use this data");
        }
    }

    /// Whether a world has run here, so that there must be a database.
    pub(crate) fn has_held_a_world(&self) -> bool {
        self.path.join(WORLD).symlink_metadata().is_ok_and(|meta| meta.is_file())
    }

    /// Path and metadata of the lock file; `None` if the system does not return them.
    pub(crate) fn locked(&self) -> Option<(PathBuf, Metadata)> {
        Some((self.path.join(LOCK), self.lock.metadata().ok()?))
    }

    /// Writes to the lock file that this daemon is shutting down, so that the next one waits for it.
    pub fn ending(&self) {
        let text = format!("{} {ENDING}", std::process::id());
        if let Err(error) = self.write_lock_file(text.as_bytes()) {
            // If this write fails, the next daemon only waits for the shorter time.
            tracing::debug!(%error, "the shutdown could not be written to the lock file");
        }
    }

    fn write_lock_file(&self, text: &[u8]) -> std::io::Result<()> {
        self.lock.set_len(0)?;
        self.lock.write_all_at(text, 0)
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if self.kept.load(Ordering::Relaxed) {
            return;
        }
        // The lock is still held, so no other daemon uses the file.
        let undone = match &self.found.lock {
            Some(text) => self.write_lock_file(text),
            None => std::fs::remove_file(self.path.join(LOCK)),
        };
        if let Err(error) = undone {
            tracing::warn!(%error, path = %self.path.display(), "the lock file could not be restored");
        }
        self.found.new_dirs.remove();
    }
}

/// The canonical path of a directory; the path itself if it has none.
fn real(dir: &Path) -> PathBuf {
    dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
}

/// Opens the lock file. Returns whether it is new.
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

/// Reads a lock file: the process id, and whether that process is shutting down.
fn holder(text: &str) -> (&str, bool) {
    let (process, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    (process, rest == ENDING)
}

fn in_use(path: &Path, text: &str) -> Refusal {
    let (process, ending) = holder(text);
    let process = if process.is_empty() { String::new() } else { format!(" (process {process})") };
    let what = format!("another ghostd{process} uses the data directory {}", path.display());
    if ending {
        return Refusal::new(Code::Conflict, format!("{what} and is ending"))
            .hint("start again when it has ended; it first lets running turns finish");
    }
    Refusal::new(Code::Conflict, what)
        .hint("use that one with ghostctl, stop it with `ghostctl shutdown`, or give --data another directory")
}

#[cfg(test)]
mod tests {
    use ghost_domain::testing::ManualClock;

    use super::*;

    #[test]
    fn a_directory_that_is_not_kept_is_restored() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/b");
        let dir = DataDir::attempt(&path).unwrap();
        assert!(path.join(LOCK).is_file());
        assert!(matches!(DataDir::attempt(&path), Err(Locked::Held(_))));
        assert_eq!(std::fs::read_to_string(path.join(LOCK)).unwrap(), std::process::id().to_string());
        drop(dir);
        assert!(!home.path().join("a").exists());

        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join(LOCK), "4711").unwrap();
        drop(DataDir::attempt(&path).unwrap());
        assert_eq!(std::fs::read_to_string(path.join(LOCK)).unwrap(), "4711");
        let dir = DataDir::attempt(&path).unwrap();
        dir.keep("home", home.path());
        drop(dir);
        assert_eq!(std::fs::read_to_string(path.join(LOCK)).unwrap(), std::process::id().to_string());
    }

    #[test]
    fn data_belongs_to_the_world_directory_that_created_it() {
        let home = tempfile::tempdir().unwrap();
        let (first, second) = (home.path().join("a/world"), home.path().join("b/world"));
        for dir in [&first, &second] {
            std::fs::create_dir_all(dir).unwrap();
        }
        let path = home.path().join("data");
        let open = |path: &Path| DataDir::attempt(path).unwrap();
        let dir = open(&path);
        dir.check_origin(&first, "world", false).unwrap();
        dir.keep("world", &first);
        dir.check_origin(&first.join("../../a/world"), "world", false).unwrap();
        let refusal = dir.check_origin(&second, "world", false).unwrap_err();
        assert_eq!(refusal.code, Code::Conflict);
        assert!(refusal.hint.unwrap().contains("--adopt"));
        // Data of another world id is not checked here.
        dir.check_origin(&second, "other", false).unwrap();

        // The record moves with the data.
        drop(dir);
        std::fs::rename(&path, home.path().join("moved")).unwrap();
        let dir = open(&home.path().join("moved"));
        assert!(dir.check_origin(&second, "world", false).is_err());
        dir.check_origin(&second, "world", true).unwrap();
        dir.keep("world", &second);
        dir.check_origin(&second, "world", false).unwrap();
        assert!(dir.check_origin(&first, "world", false).is_err());

        // Data without a recorded directory is accepted.
        std::fs::remove_file(dir.path().join(MADE_BY)).unwrap();
        dir.check_origin(&first, "world", false).unwrap();
    }

    #[tokio::test]
    async fn a_start_waits_for_a_daemon_that_is_shutting_down() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path();
        let clock = ManualClock::at(0);
        let dir = DataDir::attempt(path).unwrap();
        dir.keep("home", path);
        dir.ending();
        let waits = DataDir::lock(path, &*clock);
        tokio::pin!(waits);
        for _ in 0..50 {
            assert!(futures_util::poll!(&mut waits).is_pending());
            clock.advance(AGAIN);
            tokio::task::yield_now().await;
        }
        drop(dir);
        let next = waits.await.unwrap();
        assert_eq!(std::fs::read_to_string(path.join(LOCK)).unwrap(), std::process::id().to_string());

        // A start does not wait for longer than the limits.
        for (ending, tries) in [(true, ENDING_TRIES), (false, KILLED_TRIES)] {
            if ending {
                next.ending();
            } else {
                next.write_lock_file(b"4711").unwrap();
            }
            let refused = DataDir::lock(path, &*clock);
            tokio::pin!(refused);
            for _ in 1..tries {
                assert!(futures_util::poll!(&mut refused).is_pending());
                clock.advance(AGAIN);
                tokio::task::yield_now().await;
            }
            let refusal = refused.await.unwrap_err();
            assert_eq!(refusal.code, Code::Conflict, "{refusal}");
        }
    }
}
