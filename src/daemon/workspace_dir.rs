//! The workspace of a world: where it is, and the claim on a workspace outside of the data directory. The claim is a
//! lock, and a mark that says whose workspace it is.
//!
//! Two worlds must never use one workspace. A workspace in the data directory needs no claim of its own: that of the
//! data directory protects it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use ghost_config::plan::Plan;
use ghost_config::real_place;
use ghost_domain::write_acl::MARK;
use ghost_domain::{Clock, Code, Refusal};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::data_dir::{AGAIN, DataDir, KILLED_TRIES, NewDirs, WORLD};

/// The default workspace, in the data directory.
pub(crate) const WORKSPACE: &str = "workspace";
/// Largest mark in bytes: a name and two paths.
const MARK_BYTES: u64 = 16 * 1024;
const ITS_OWN: &str =
    "give this world a workspace of its own with `workspace_dir` in its world file or with --workspace";

/// Whose workspace it is. The mark has one line for each field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owner {
    world_id: OsString,
    /// The canonical path of the world's directory.
    world_dir: PathBuf,
    /// The canonical path of the data directory.
    data_dir: PathBuf,
}

impl Owner {
    fn text(&self) -> Vec<u8> {
        let lines =
            [self.world_id.as_bytes(), self.world_dir.as_os_str().as_bytes(), self.data_dir.as_os_str().as_bytes()];
        lines.iter().flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let mut lines =
            text.strip_suffix(b"\n")?.split(|byte| *byte == b'\n').map(|line| OsString::from_vec(line.into()));
        Some(Self { world_id: lines.next()?, world_dir: lines.next()?.into(), data_dir: lines.next()?.into() })
    }

    /// Whether the workspace of `self` may be used by `other`. The data may have moved.
    fn is(&self, other: &Self) -> bool {
        let moved = || self.data_dir.join(WORLD).symlink_metadata().is_err();
        (&self.world_id, &self.world_dir) == (&other.world_id, &other.world_dir)
            && (self.data_dir == other.data_dir || moved())
    }
}

/// The claim on a workspace outside of the data directory.
#[derive(Debug)]
struct Claim {
    /// The mark. Its lock ends with the process.
    mark: File,
    owner: Owner,
    /// Whether the mark is new.
    new: bool,
    new_dirs: NewDirs,
    kept: AtomicBool,
}

/// The workspace of a world. If it is dropped before [`keep`](Self::keep), everything that the claim created is
/// removed again.
#[derive(Debug)]
pub(crate) struct WorkspaceDir {
    path: PathBuf,
    /// `None` for a workspace in the data directory.
    claim: Option<Claim>,
}

impl WorkspaceDir {
    /// Finds the workspace: at `given`, else where the world file says, else in the data directory. Claims it if it is
    /// outside of the data directory.
    ///
    /// # Errors
    /// `Conflict` if it belongs to another world or is in use; `InvalidArguments` if it shares files with the world
    /// or its data; `Unavailable` if it cannot be made or written, or is missing although the world has run. Then
    /// nothing has changed.
    pub(crate) async fn claim(
        data_dir: &DataDir,
        plan: &Plan,
        given: Option<&Path>,
        adopt: bool,
        clock: &dyn Clock,
    ) -> Result<Self, Refusal> {
        let default = data_dir.path().join(WORKSPACE);
        let place = real_place(given.or(plan.places.workspace_dir.as_deref()).unwrap_or(&default));
        if (given.is_some() || plan.places.workspace_dir.is_some())
            && let Some(dir) = plan.workspace_conflict(&place, Some(data_dir.path()))
        {
            let (place, dir) = (place.display(), dir.display());
            let what = format!("agents write into the workspace {place}, and it would share files with {dir}");
            return Err(Refusal::new(Code::InvalidArguments, what).hint(ITS_OWN));
        }
        if place.starts_with(data_dir.path()) {
            return Ok(Self { path: place, claim: None });
        }
        if let Some(foreign) =
            place.ancestors().skip(1).find(|dir| [MARK, WORLD].iter().any(|name| dir.join(name).is_file()))
        {
            let (place, foreign) = (place.display(), foreign.display());
            let what = format!("the workspace {place} is in {foreign}, which belongs to another world");
            return Err(Refusal::new(Code::Conflict, what).hint(ITS_OWN));
        }
        let there = place.symlink_metadata().is_ok();
        if !there && data_dir.has_held_a_world() {
            return Err(missing(&place));
        }
        let owner = Owner {
            world_id: plan.world_id.clone().into(),
            world_dir: plan.dir.clone(),
            data_dir: data_dir.path().into(),
        };
        let claim = Claim::lock(&place, &owner, adopt, clock).await?;
        Ok(Self { path: place, claim: Some(claim) })
    }

    /// The default workspace of a data directory.
    pub(crate) fn within(data_dir: &DataDir) -> Self {
        Self { path: data_dir.path().join(WORKSPACE), claim: None }
    }

    /// The path of the workspace.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is outside of the data directory.
    pub(crate) fn is_apart(&self) -> bool {
        self.claim.is_some()
    }

    /// Marks it as the workspace of this world. From now on it is kept when this value is dropped.
    pub(crate) fn keep(&self) {
        let Some(claim) = &self.claim else { return };
        claim.kept.store(true, Ordering::Relaxed);
        let text = claim.owner.text();
        // Written before it is shortened: a mark that is cut off by a crash names no world, and a later start refuses it.
        let written = claim.mark.write_all_at(&text, 0).and_then(|()| claim.mark.set_len(text.len() as u64));
        if let Err(error) = written.and_then(|()| claim.mark.sync_all()) {
            let path = self.path.join(MARK);
            tracing::warn!(%error, path = %path.display(), "the file could not be written: another world could use this workspace");
        }
    }

    /// Whether it contains anything besides its mark.
    pub(crate) fn has_files(&self) -> bool {
        let Ok(mut entries) = std::fs::read_dir(&self.path) else { return false };
        entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != MARK))
    }

    /// Checks that a world that has run still has its workspace. Without their files, agents would treat lost work
    /// as work that was never done. An empty workspace may be intended, so it is only logged.
    ///
    /// # Errors
    /// `Unavailable` if the workspace does not exist, or did not before it was claimed.
    pub(crate) fn check_kept(&self) -> Result<(), Refusal> {
        let made = self.claim.as_ref().is_some_and(|claim| !claim.new_dirs.is_empty());
        if made || self.path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return Err(missing(&self.path));
        }
        if !self.has_files() {
            tracing::warn!(
                "the workspace {} is empty, but the world has run: if its files are elsewhere, stop the daemon and restore them",
                self.path.display()
            );
        }
        Ok(())
    }
}

impl Claim {
    /// Locks the workspace. Waits for a moment if a daemon that was just killed may still hold the lock.
    async fn lock(place: &Path, owner: &Owner, adopt: bool, clock: &dyn Clock) -> Result<Self, Refusal> {
        for _ in 1..KILLED_TRIES {
            match Self::attempt(place, owner, adopt)? {
                Some(claim) => return Ok(claim),
                None => clock.sleep(AGAIN).await,
            }
        }
        Self::attempt(place, owner, adopt)?.ok_or_else(|| {
            let what = format!("another ghostd uses the workspace {}", place.display());
            Refusal::new(Code::Conflict, what).hint(ITS_OWN)
        })
    }

    /// Tries once. `None` if another daemon holds the lock.
    fn attempt(place: &Path, owner: &Owner, adopt: bool) -> Result<Option<Self>, Refusal> {
        let denied = |what: &str, error: &dyn std::fmt::Display| {
            Refusal::new(Code::Unavailable, format!("the workspace {} {what}: {error}", place.display()))
                .hint("make it writable, or give another with `workspace_dir` or --workspace")
        };
        let new_dirs = NewDirs::create(place, 0o700).map_err(|error| denied("cannot be made", &error))?;
        let file = place.join(MARK);
        let new = file.symlink_metadata().is_err();
        // Opening a pipe must not block the start.
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
        let mark = options
            .open(&file)
            .inspect_err(|_| new_dirs.remove())
            .map_err(|error| denied("cannot be written", &error))?;
        match flock(&mark, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => {
                if new {
                    drop(std::fs::remove_file(&file));
                }
                new_dirs.remove();
                return Err(denied("cannot be locked", &std::io::Error::from(error)));
            }
        }
        let facts = mark.metadata().map_err(|error| denied("cannot be examined", &error))?;
        if !facts.is_file() {
            return Err(denied("cannot be locked", &format!("{MARK} in it is not a file")));
        }
        // In the meantime a daemon whose start was refused may have removed its mark.
        let is_there = file.metadata().is_ok_and(|there| (there.dev(), there.ino()) == (facts.dev(), facts.ino()));
        if !is_there {
            return Ok(None);
        }
        let mut text = Vec::new();
        (&mark).take(MARK_BYTES).read_to_end(&mut text).map_err(|error| denied("cannot be read", &error))?;
        // A mark without content was left by a start that was killed.
        if !text.is_empty() {
            may_use(place, Owner::parse(&text).as_ref(), owner, adopt)?;
        }
        Ok(Some(Self { mark, owner: owner.clone(), new, new_dirs, kept: AtomicBool::new(false) }))
    }
}

/// Checks that a marked workspace belongs to `owner`. `adopt` accepts another directory of the same world.
fn may_use(place: &Path, marked: Option<&Owner>, owner: &Owner, adopt: bool) -> Result<(), Refusal> {
    let mark = place.join(MARK);
    let other = match marked {
        Some(marked) if marked.is(owner) || (adopt && marked.world_id == owner.world_id) => return Ok(()),
        Some(marked) => marked,
        None => {
            let what = format!("the workspace {} has a damaged mark, {}", place.display(), mark.display());
            let hint = "if it is this world's workspace, remove that file; otherwise give another with --workspace";
            return Err(Refusal::new(Code::Conflict, what).hint(hint));
        }
    };
    let what = format!(
        "the workspace {} belongs to the world `{}` in {}, whose data is in {}",
        place.display(),
        other.world_id.display(),
        other.world_dir.display(),
        other.data_dir.display()
    );
    let hint = if other.world_id == owner.world_id {
        format!("{ITS_OWN}; if this is the same world in a new place, take over the workspace with --adopt")
    } else {
        format!("{ITS_OWN}; if the other world no longer exists, remove {}", mark.display())
    };
    Err(Refusal::new(Code::Conflict, what).hint(hint))
}

fn missing(place: &Path) -> Refusal {
    let what = format!("the workspace {} is missing, but the world has run", place.display());
    Refusal::new(Code::Unavailable, format!("{what}: its agents would continue without their files"))
        .hint("restore it from the backup of the same time as the database, or move it here if it was elsewhere; to continue without its files, create an empty directory there")
}

impl Drop for WorkspaceDir {
    fn drop(&mut self) {
        let Some(claim) = self.claim.as_ref().filter(|claim| !claim.kept.load(Ordering::Relaxed)) else { return };
        // The lock is still held, so no other daemon uses the workspace.
        if claim.new
            && let Err(error) = std::fs::remove_file(self.path.join(MARK))
        {
            tracing::warn!(%error, path = %self.path.display(), "the mark of the workspace could not be removed");
        }
        claim.new_dirs.remove();
    }
}

#[cfg(test)]
#[path = "workspace_dir_tests.rs"]
mod tests;
