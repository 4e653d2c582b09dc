//! The data directory of a world: where it is, and that one daemon alone uses it.

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

/// The agents' files in the data directory.
pub(crate) const WORKSPACE: &str = "workspace";

/// The file that is locked; it says which process holds it.
pub(crate) const LOCK: &str = "lock";
/// The file that says which world the directory has held. It outlives the database, should that be lost.
const WORLD: &str = "world.id";
/// The file that says which world directory made the data: its canonical path. Two directories of the same name have the same
/// world id, and must not share data. It lies with the data, so data that are moved still know it.
const MADE_BY: &str = "world.dir";
/// The same while it is being written.
const MADE_BY_NEW: &str = "world.dir-new";
/// What the file says besides while that process is ending.
const ENDING: &str = "ending";
/// How often a lock is tried for whose file was taken away meanwhile.
const TRIES_MAX: usize = 16;
/// How soon a lock that another daemon holds is tried again.
const AGAIN: Duration = Duration::from_millis(20);
/// How often it is, if that daemon says that it is ending: for two seconds.
const ENDING_TRIES: u32 = 100;
/// The same if it does not say so, but may have been killed a moment ago.
const KILLED_TRIES: u32 = 10;

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

/// Why a directory is not locked.
#[derive(Debug)]
enum Locked {
    /// Another daemon holds it; what its file says.
    Held(String),
    Refused(Refusal),
}

impl From<Refusal> for Locked {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl DataDir {
    /// Makes the directory if it is not there, and locks it. A daemon that is ending is waited for, for two seconds.
    ///
    /// # Errors
    /// When it cannot be made or written, or another daemon uses it. Nothing in it is changed then.
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
                return Err(Locked::Held(std::fs::read_to_string(&file).unwrap_or_default()));
            }
            // Between the two steps a daemon that was refused may have taken its file away.
            let is_there = lock.metadata().ok().zip(file.metadata().ok());
            if is_there.as_ref().is_some_and(|(ours, _)| !ours.is_file()) {
                // A pipe would make the start wait for whoever writes to it.
                return Err(denied("cannot be locked", &format!("{LOCK} in it is not a file")).into());
            }
            if is_there.is_none_or(|(ours, there)| (ours.dev(), ours.ino()) != (there.dev(), there.ino())) {
                continue;
            }
            let before = std::fs::read(&file).map_err(|error| denied("cannot be read", &error))?;
            let found = Found { missing, lock: (!new).then_some(before) };
            let dir = Self { path: real, lock, found, kept: AtomicBool::new(false) };
            dir.say(std::process::id().to_string().as_bytes()).map_err(|error| denied("cannot be written", &error))?;
            return Ok(dir);
        }
        Err(Locked::Held(String::new()))
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the world directory `world_dir` made these data, unless `adopt` says that it takes them over. Data of
    /// a world of another id are not judged here: the database says whose they are. Nor are data that a daemon made which did
    /// not record the directory yet.
    ///
    /// # Errors
    /// `Conflict` if another directory made them; `Unavailable` if that cannot be read.
    pub(crate) fn check_origin(&self, world_dir: &Path, world_id: &str, adopt: bool) -> Result<(), Refusal> {
        let of = |name: &str| match std::fs::read(self.path.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let file = self.path.join(name);
                Err(Refusal::new(Code::Unavailable, format!("{} cannot be read: {error}", file.display()))
                    .hint("make the data directory and what lies in it readable, or give another with --data"))
            }
        };
        let same_id = of(WORLD)?.is_some_and(|id| id.trim_ascii() == world_id.as_bytes());
        let Some(made_by) = of(MADE_BY)?.filter(|_| same_id && !adopt) else { return Ok(()) };
        let made_by = PathBuf::from(OsString::from_vec(line_of(made_by)));
        let here = real(world_dir);
        if made_by == here {
            return Ok(());
        }
        let what = format!(
            "the data directory {} was made by the world in {}, not by the one in {}",
            self.path.display(),
            made_by.display(),
            here.display()
        );
        Err(Refusal::new(Code::Conflict, what).hint(
            "give this world a data directory of its own with --data DIR; if it is the same world, moved, take the data over with --adopt",
        ))
    }

    /// From here on it holds this world, made by this world directory: what was made in it stays.
    pub fn keep(&self, world_id: &str, world_dir: &Path) {
        self.kept.store(true, Ordering::Relaxed);
        self.made_by(&real(world_dir));
        let file = self.path.join(WORLD);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file);
        match made.and_then(|made| made.write_all_at(format!("{world_id}\n").as_bytes(), 0)) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                tracing::warn!(%error, path = %file.display(), "if the database is lost, the next start takes the world for a new one");
            }
            _ => {}
        }
    }

    /// Records which world directory the data belong to, as a whole or not at all.
    fn made_by(&self, world_dir: &Path) {
        let (file, new) = (self.path.join(MADE_BY), self.path.join(MADE_BY_NEW));
        let mut line = world_dir.as_os_str().as_bytes().to_vec();
        line.push(b'\n');
        if std::fs::read(&file).is_ok_and(|before| before == line) {
            return;
        }
        let write = || {
            let made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            made.write_all_at(&line, 0)?;
            made.sync_all()?;
            std::fs::rename(&new, &file)
        };
        if let Err(error) = write() {
            tracing::warn!(%error, path = %file.display(), "another world directory of the same name is not told from this one");
        }
    }

    /// Whether it has held a world, so that there must be a database.
    pub(crate) fn has_held_a_world(&self) -> bool {
        self.path.join(WORLD).symlink_metadata().is_ok_and(|meta| meta.is_file())
    }

    /// Whether anything lies in the workspace.
    pub(crate) fn has_files(&self) -> bool {
        std::fs::read_dir(self.path.join(WORKSPACE)).is_ok_and(|mut entries| entries.next().is_some())
    }

    /// Checks that a world that has run still has its workspace: agents that go on without their files would take lost
    /// work for work that was never done. One that is empty is told; it may be meant.
    ///
    /// # Errors
    /// `Unavailable` if there is none.
    pub(crate) fn check_workspace(&self) -> Result<(), Refusal> {
        let workspace = self.path.join(WORKSPACE);
        if workspace.symlink_metadata().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
            let what = format!("the workspace {} is missing, but the world has run", workspace.display());
            return Err(Refusal::new(Code::Unavailable, format!("{what}: its agents would go on without their files"))
                .hint("bring it back from the backup that the database is of; to go on without its files, make an empty directory there"));
        }
        if !self.has_files() {
            tracing::warn!(
                "the workspace {} is empty, but the world has run: if its files are elsewhere, stop the daemon and bring them back",
                workspace.display()
            );
        }
        Ok(())
    }

    /// The lock file as it was locked; none if the system does not tell.
    pub(crate) fn locked(&self) -> Option<(PathBuf, Metadata)> {
        Some((self.path.join(LOCK), self.lock.metadata().ok()?))
    }

    /// Says in the lock file that this daemon is ending, so that the next one waits for it.
    pub fn ending(&self) {
        let text = format!("{} {ENDING}", std::process::id());
        if let Err(error) = self.say(text.as_bytes()) {
            // The next one waits a shorter time, or is refused as before.
            tracing::debug!(%error, "the lock file does not say that the daemon is ending");
        }
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

/// A path by which a directory is known, however it is written.
fn real(dir: &Path) -> PathBuf {
    dir.canonicalize().unwrap_or_else(|_| dir.to_owned())
}

/// What a file of one line holds.
fn line_of(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
    }
    bytes
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

/// The process that a lock file names, and whether it is ending.
fn holder(text: &str) -> (&str, bool) {
    let (process, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    (process, rest == ENDING)
}

fn in_use(path: &Path, text: &str) -> Refusal {
    let (process, ending) = holder(text);
    let who = if process.is_empty() { String::new() } else { format!(" (process {process})") };
    let what = format!("another ghostd{who} uses the data directory {}", path.display());
    if ending {
        return Refusal::new(Code::Conflict, format!("{what} and is ending"))
            .hint("start again when it has ended: it lets the turns under way finish first");
    }
    Refusal::new(Code::Conflict, what)
        .hint("talk to that one with ghostctl, stop it with `ghostctl shutdown`, or give --data another directory")
}

#[cfg(test)]
mod tests {
    use ghost_provider::testing::ManualClock;

    use super::*;

    #[test]
    fn a_directory_that_came_to_nothing_is_as_it_was() {
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
    fn data_belong_to_the_world_directory_that_made_them() {
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
        // Whose the data of another id are, the database says.
        dir.check_origin(&second, "other", false).unwrap();

        // Data that were moved still know it.
        drop(dir);
        std::fs::rename(&path, home.path().join("moved")).unwrap();
        let dir = open(&home.path().join("moved"));
        assert!(dir.check_origin(&second, "world", false).is_err());
        dir.check_origin(&second, "world", true).unwrap();
        dir.keep("world", &second);
        dir.check_origin(&second, "world", false).unwrap();
        assert!(dir.check_origin(&first, "world", false).is_err());

        // Data of a daemon that recorded no directory are taken as they are.
        std::fs::remove_file(dir.path().join(MADE_BY)).unwrap();
        dir.check_origin(&first, "world", false).unwrap();
    }

    #[tokio::test]
    async fn a_daemon_that_is_ending_is_waited_for() {
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

        // One that goes on for long is not, and one that says nothing for a moment only.
        for (ending, tries, told) in [(true, ENDING_TRIES, "and is ending"), (false, KILLED_TRIES, "uses the data")] {
            if ending {
                next.ending();
            } else {
                next.say(b"4711").unwrap();
            }
            let refused = DataDir::lock(path, &*clock);
            tokio::pin!(refused);
            for _ in 1..tries {
                assert!(futures_util::poll!(&mut refused).is_pending());
                clock.advance(AGAIN);
                tokio::task::yield_now().await;
            }
            let refusal = refused.await.unwrap_err();
            assert!(refusal.code == Code::Conflict && refusal.message.contains(told), "{refusal}");
        }
    }
}
