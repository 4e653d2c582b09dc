//! Replaces, extends and removes files: one, or several together, all or none.
//!
//! A crash in the middle may leave a part of several. The hashes of the plans, which the journal has, tell which.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use cap_std::fs::Dir;
use ghost_domain::ids::DROIDS;
use ghost_domain::write_acl::TEMP_PREFIX;
use ghost_domain::{FilePlan, Refusal, WorkspacePath, refusal};
use ghost_operations::Result;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::reading::{SCAN_MAX, check_name, hash, read, regular_or_missing};
use super::system::{self, in_the_way, io_refusal};

/// The number of names that are tried for a temporary file. Each name is new in this process, so
/// the first one works unless a crashed process left it.
const TEMP_TRIES: u32 = 1_000;

/// The mode of files: closed to other users of the machine.
const FILE_MODE: u32 = 0o640;

static TEMP_COUNT: AtomicU64 = AtomicU64::new(0);

/// Removes the file at `path`. The caller must know that it exists.
pub(super) fn remove(root: &Dir, path: &WorkspacePath) -> Result<()> {
    let failed = |error: Errno| io_refusal("remove", path.as_str(), &error.into());
    let Some((parent, name)) = system::parent_of(root, path, false)? else { return Ok(()) };
    rustix::fs::unlinkat(&parent, name, AtFlags::empty()).map_err(failed)?;
    rustix::fs::fsync(&parent).map_err(failed)
}

pub(super) fn write_atomic(root: &Dir, path: &WorkspacePath, bytes: &[u8]) -> Result<()> {
    replace(root, path, |file| file.write_all(bytes))
}

/// Writes a file that can be made again, into its opened directory. A crash of the daemon leaves the whole file or none; a
/// power loss may leave it empty.
pub(super) fn write_unsynced(
    root: &Dir,
    parent: OwnedFd,
    (path, name): (&WorkspacePath, &str),
    bytes: &[u8],
) -> Result<()> {
    let failed = |error: io::Error| io_refusal("write", path.as_str(), &error);
    let (temp, mut file) = create_temp(parent.as_fd()).map_err(failed)?;
    let mut staged = Staged { root, parent, temp, name, path, is_placed: false };
    file.write_all(bytes).and_then(|()| Ok(readable(&file)?)).map_err(failed)?;
    staged.rename().map_err(|error| failed(error.into()))
}

/// Replaces the file at `path` with the bytes that `fill` writes, or leaves everything unchanged.
pub(super) fn replace(root: &Dir, path: &WorkspacePath, fill: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
    stage(root, path, fill)?.place()
}

/// New content of a file, complete on the disk beside the file. Dropping it removes the content.
pub(super) struct Staged<'p> {
    root: &'p Dir,
    parent: OwnedFd,
    temp: String,
    name: &'p str,
    path: &'p WorkspacePath,
    is_placed: bool,
}

/// Writes the new content of the file at `path` beside it.
pub(super) fn stage<'p>(
    root: &'p Dir,
    path: &'p WorkspacePath,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<Staged<'p>> {
    check_name(path)?;
    // Check before anything is created, so that a refused write leaves no trace.
    if let Some((parent, name)) = system::parent_of(root, path, false)? {
        regular_or_missing(&parent, name, path)?;
    }
    let failed = |error: io::Error| io_refusal("write", path.as_str(), &error);
    let Some((parent, name)) = system::parent_of(root, path, true)? else {
        return Err(failed(Errno::NOENT.into()));
    };
    let (temp, file) = create_temp(parent.as_fd()).map_err(failed)?;
    let staged = Staged { root, parent, temp, name, path, is_placed: false };
    complete(file, fill).map_err(failed)?;
    Ok(staged)
}

impl Staged<'_> {
    /// Puts the content in the place of the file.
    pub(super) fn place(mut self) -> Result<()> {
        let failed = |error: Errno| io_refusal("write", self.path.as_str(), &error.into());
        self.rename().map_err(failed)?;
        rustix::fs::fsync(&self.parent).map_err(failed)?;
        // A droid's own directories are created without a sync.
        match self.path.as_str().split('/').next() {
            Some(DROIDS) => system::sync_above(self.root, self.path).map_err(failed),
            _ => Ok(()),
        }
    }

    fn rename(&mut self) -> Result<(), Errno> {
        rustix::fs::renameat(&self.parent, &self.temp, &self.parent, self.name)?;
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for Staged<'_> {
    fn drop(&mut self) {
        if !self.is_placed {
            // Agents cannot read it under that name and the next start removes it, so a failure here does no harm.
            let _ = rustix::fs::unlinkat(&self.parent, &self.temp, AtFlags::empty());
        }
    }
}

/// Adds `bytes` to the end of the file at `path`, and creates it if it is missing. It is not synced.
pub(super) fn append(root: &Dir, path: &WorkspacePath, bytes: &[u8]) -> Result<()> {
    check_name(path)?;
    let failed = |error: io::Error| io_refusal("write", path.as_str(), &error);
    let Some((parent, name)) = system::parent_of(root, path, true)? else {
        return Err(failed(Errno::NOENT.into()));
    };
    regular_or_missing(&parent, name, path)?;
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(FILE_MODE)).map_err(|e| failed(e.into()))?;
    system::hand_over(&parent, &fd).map_err(|e| failed(e.into()))?;
    let mut file = File::from(fd);
    // The file may have been replaced since the check above.
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(in_the_way(path.as_str(), "something that is not a file"));
    }
    file.write_all(bytes).map_err(failed)
}

fn create_temp(parent: std::os::fd::BorrowedFd<'_>) -> io::Result<(String, File)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..TEMP_TRIES {
        let temp = format!("{TEMP_PREFIX}{}", TEMP_COUNT.fetch_add(1, Ordering::Relaxed));
        match rustix::fs::openat(parent, &temp, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => {
                let handed_over = system::hand_over(parent, &fd);
                return handed_over.map(|()| (temp, File::from(fd))).map_err(Into::into);
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// Completes the temporary file. It becomes readable for its group only now.
fn complete(mut file: File, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    fill(&mut file)?;
    readable(&file)?;
    file.sync_all()
}

fn readable(file: &File) -> Result<(), Errno> {
    rustix::fs::fchmod(file, Mode::from_raw_mode(FILE_MODE))
}

/// A file of a plan, with its new content; `None` removes it.
#[derive(Clone, Debug)]
pub struct FileWrite {
    /// The path with the hashes before and after.
    pub plan: FilePlan,
    /// The new content.
    pub bytes: Option<Vec<u8>>,
}

/// A change that is ready to be made.
enum Ready<'p> {
    Write(Staged<'p>),
    Remove,
}

/// Carries out the writes. No path may be in two of them.
pub(super) fn carry_out(root: &Dir, paths: &[WorkspacePath], writes: &[FileWrite]) -> Result<()> {
    let all = || paths.iter().zip(writes);
    for (path, write) in all() {
        if hash(root, path)? != write.plan.before {
            return Err(refusal!(Conflict, "`{}` was changed meanwhile", path.as_str())
                .hint("nothing was written; read the file again and repeat the change"));
        }
    }
    // One write is atomic by itself.
    let undoable = writes.len() > 1;
    let mut ready = Vec::with_capacity(writes.len());
    for (path, write) in all() {
        let old = match &write.plan.before {
            Some(_) if undoable => Some(read(root, path, SCAN_MAX)?),
            _ => None,
        };
        let step = match &write.bytes {
            Some(bytes) => Ready::Write(stage(root, path, |file| file.write_all(bytes))?),
            None => Ready::Remove,
        };
        ready.push((path, write, old, step));
    }
    let mut made: Vec<Made<'_>> = Vec::with_capacity(ready.len());
    for (path, write, old, step) in ready {
        let done = match step {
            Ready::Write(staged) => staged.place(),
            Ready::Remove => remove(root, path),
        };
        made.push(Made { path, write, old });
        if let Err(refusal) = done {
            return Err(if undoable { undo(root, &made, refusal) } else { refusal });
        }
        #[cfg(feature = "testing")]
        fault::placed(made.len());
    }
    Ok(())
}

/// A change that was made.
struct Made<'p> {
    path: &'p WorkspacePath,
    write: &'p FileWrite,
    /// The content before.
    old: Option<Vec<u8>>,
}

/// Takes back the changes that were made; the last one failed. Returns the refusal for the caller.
fn undo(root: &Dir, made: &[Made<'_>], refusal: Refusal) -> Refusal {
    let mut left = Vec::new();
    for (at, Made { path, write, old }) in made.iter().enumerate().rev() {
        let is_back = match hash(root, path) {
            Ok(found) if found == write.plan.before => true,
            Ok(found) if found == write.plan.after => match old {
                Some(old) => write_atomic(root, path, old).is_ok(),
                None => remove(root, path).is_ok(),
            },
            // The one that failed was not put over what is there; whatever became of the others is not ours.
            _ => at + 1 == made.len(),
        };
        if !is_back {
            left.push(path.as_str());
        }
    }
    if left.is_empty() {
        return refusal;
    }
    refusal!(OutcomeUnknown, "{}; these could not be put back: {}", refusal.message, left.join(", "))
        .hint("read these files before you go on; the others are as they were")
}

/// A fault for tests: the process ends as if it were killed.
#[cfg(feature = "testing")]
pub mod fault {
    use std::sync::OnceLock;

    static AFTER: OnceLock<Box<dyn Fn(usize) + Send + Sync>> = OnceLock::new();

    /// Calls `then` after each file of a plan that is in its place, with the number of files so far. Only the first
    /// call has an effect.
    pub fn after_each(then: impl Fn(usize) + Send + Sync + 'static) {
        let _ = AFTER.set(Box::new(then));
    }

    pub(super) fn placed(files: usize) {
        if let Some(then) = AFTER.get() {
            then(files);
        }
    }
}
