//! The shared workspace: every file that agents read and write, opened relative to one capability handle, so that
//! neither `..` nor a symbolic link leaves the root (DESIGN.md section 4; ACL-07, ART-04).
//!
//! Must never: follow a symbolic link on the way to a write, leave half a file, or block the runtime: whatever touches
//! the disk goes through [`Workspace::offload`].

mod encoding;
mod faults;
mod files;
mod layout;
mod list;
mod parents;
mod stamps;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cap_std::fs::Dir;
use ghost_domain::journal::FilePlan;
use ghost_domain::write_acl::WorkspacePath;
use ghost_domain::{AgentId, Code, Refusal, WatchSnapshot};

pub use encoding::Encoding;
pub(crate) use faults::io_refusal;
pub(crate) use files::read_text;
pub use files::{FileText, Lines, sha256_hex};
pub(crate) use list::list as list_dir;
pub use list::{DEPTH_MAX, ENTRIES_MAX, Entry, EntryKind, Listing};

/// Locks that keep "compare with what was there, then replace" whole. Two paths may share one.
const LOCKS: usize = 64;

/// The workspace of one world. Cheap to share behind an `Arc`.
pub struct Workspace {
    disk: Arc<Disk>,
    inline: bool,
    place: PathBuf,
}

struct Disk {
    root: Dir,
    locks: [Mutex<()>; LOCKS],
}

impl Workspace {
    /// Opens the workspace at `root`: creates it and its layout if need be, and removes temporary files that a crash
    /// left. Blocks; meant for boot. Later calls run on the blocking pool of the runtime.
    ///
    /// # Errors
    /// `Unavailable` if the directory cannot be made or opened, `PathDenied` if something else is in its place.
    pub fn open(root: &Path) -> Result<Self, Refusal> {
        Self::build(root, false)
    }

    /// The same with every call run in the caller, for simulation: nothing is left to a scheduler.
    ///
    /// # Errors
    /// See [`open`](Self::open).
    pub fn inline(root: &Path) -> Result<Self, Refusal> {
        Self::build(root, true)
    }

    fn build(root: &Path, inline: bool) -> Result<Self, Refusal> {
        let place = root.to_owned();
        let root = layout::open_root(root)?;
        layout::create_seed(&root)?;
        layout::sweep(&root)?;
        let disk = Disk { root, locks: std::array::from_fn(|_| Mutex::new(())) };
        Ok(Self { disk: Arc::new(disk), inline, place })
    }

    /// Where it lies, to be told of changes in it: a hint only, never a way to its files. `None` for an inline workspace,
    /// whose world is driven by its own clock alone.
    #[must_use]
    pub fn place(&self) -> Option<&Path> {
        (!self.inline).then_some(self.place.as_path())
    }

    /// Whether its directory is no longer where it was opened: what agents write from then on is found by nobody.
    ///
    /// # Errors
    /// `Unavailable` if the runtime is shutting down.
    pub async fn is_lost(&self) -> Result<bool, Refusal> {
        let place = self.place.clone();
        self.on_disk(move |disk| Ok(layout::is_elsewhere(&disk.root, &place))).await
    }

    /// Runs blocking work where it may block. In an inline workspace that is here and now. Work that has begun runs to
    /// its end even if the caller stops waiting.
    ///
    /// # Errors
    /// What `work` gives; `Unavailable` if the runtime is shutting down.
    pub async fn offload<T, F>(&self, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, Refusal> + Send + 'static,
    {
        if self.inline {
            return work();
        }
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Refusal::new(Code::Unavailable, "the daemon is stopping")
                    .hint("nothing was changed; try again when it is back")),
            },
        }
    }

    async fn on_disk<T, F>(&self, work: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce(&Disk) -> Result<T, Refusal> + Send + 'static,
    {
        let disk = Arc::clone(&self.disk);
        self.offload(move || work(&disk)).await
    }

    /// Creates `agents/<id>/` with `drafts`, `notes` and `inbox` (ART-04). Does nothing where they exist.
    ///
    /// # Errors
    /// `PathDenied` if something else is in the way, `Unavailable` if the disk refuses.
    pub async fn ensure_agent(&self, agent_id: &AgentId) -> Result<(), Refusal> {
        let agent_id = agent_id.clone();
        self.on_disk(move |disk| layout::create_agent(&disk.root, &agent_id)).await
    }

    /// Reads a whole file of at most `max_bytes`. Symbolic links that stay inside the workspace are followed.
    ///
    /// # Errors
    /// `NotFound`; `TooLarge` above the bound; `InvalidArguments` for a directory; `PathDenied` for a device, a pipe or
    /// a link that leads out.
    pub async fn read(&self, path: &WorkspacePath, max_bytes: u64) -> Result<Vec<u8>, Refusal> {
        let path = path.clone();
        self.on_disk(move |disk| files::read(&disk.root, &path, max_bytes)).await
    }

    /// The size of a file, in bytes. One look at what the directory says, without its content and without the blocking
    /// pool: it may be taken inside a transaction.
    ///
    /// # Errors
    /// As [`read`](Self::read), but for its bound.
    pub fn size_now(&self, path: &WorkspacePath) -> Result<u64, Refusal> {
        files::size(&self.disk.root, path)
    }

    /// Reads lines of a text file: at most `lines.max_bytes` of them, cut at a character.
    ///
    /// # Errors
    /// As [`read`](Self::read), and `InvalidArguments` for a file that is no text, in no known [`Encoding`].
    pub async fn read_text(&self, path: &WorkspacePath, lines: Lines) -> Result<FileText, Refusal> {
        let path = path.clone();
        self.on_disk(move |disk| files::read_text(&disk.root, &path, lines)).await
    }

    /// Reads a whole text file of at most `max_bytes`, for a change of it: no symbolic link is followed. `None` if there
    /// is no such file.
    ///
    /// # Errors
    /// As [`read_text`](Self::read_text), `InvalidArguments` for text that is not UTF-8, `PathDenied` for a symbolic link anywhere on the way, `TooLarge`.
    pub async fn text_for_change(&self, path: &WorkspacePath, max_bytes: u64) -> Result<Option<String>, Refusal> {
        let path = path.clone();
        self.on_disk(move |disk| files::whole_text(&disk.root, &path, max_bytes)).await
    }

    /// The lower-case hexadecimal SHA-256 of the file that a write to `path` would replace; `None` if there is none.
    ///
    /// # Errors
    /// `PathDenied` if a symbolic link is on the way or something that is no file is in the way; `TooLarge` above 64 MiB.
    pub async fn hash(&self, path: &WorkspacePath) -> Result<Option<String>, Refusal> {
        let path = path.clone();
        self.on_disk(move |disk| files::hash(&disk.root, &path)).await
    }

    /// Puts `bytes` at `path` as one step: whoever looks sees the old content or the new, also after a crash. Missing
    /// parents are created. Returns when the content is on the disk.
    ///
    /// # Errors
    /// `PathDenied` as for [`hash`](Self::hash); `Unavailable` for a full or read-only disk, with the old content left.
    pub async fn write_atomic(&self, path: &WorkspacePath, bytes: &[u8]) -> Result<(), Refusal> {
        let (path, bytes) = (path.clone(), bytes.to_vec());
        self.on_disk(move |disk| {
            let _held = disk.lock(&path);
            files::write_atomic(&disk.root, &path, &bytes)
        })
        .await
    }

    /// Carries out a planned write, if what is there is still what the plan saw. This is how a turn should write: of two
    /// agents that change one file at once, the second is told instead of undoing the first.
    ///
    /// # Errors
    /// `Conflict` if the file has changed since; otherwise as [`write_atomic`](Self::write_atomic).
    pub async fn carry_out(&self, plan: &FilePlan, bytes: &[u8]) -> Result<(), Refusal> {
        let (path, before, bytes) = (WorkspacePath::parse(&plan.path, false)?, plan.before.clone(), bytes.to_vec());
        self.on_disk(move |disk| {
            let _held = disk.lock(&path);
            if files::hash(&disk.root, &path)? != before {
                return Err(Refusal::new(
                    Code::Conflict,
                    format!("`{}` was changed by someone else meanwhile", path.as_str()),
                )
                .hint("nothing was written; read the file again and repeat the change"));
            }
            files::write_atomic(&disk.root, &path, &bytes)
        })
        .await
    }

    /// Takes back a planned write that was carried out, for an effect that had to go with it and was refused: removes the
    /// file if there was none before and it holds what the plan put there. Says whether nothing of the write is left.
    ///
    /// # Errors
    /// As for [`hash`](Self::hash).
    pub async fn take_back(&self, plan: &FilePlan) -> Result<bool, Refusal> {
        let (path, plan) = (WorkspacePath::parse(&plan.path, false)?, plan.clone());
        self.on_disk(move |disk| {
            let _held = disk.lock(&path);
            let found = files::hash(&disk.root, &path)?;
            if found == plan.before {
                return Ok(true);
            }
            if plan.before.is_some() || found.as_ref() != Some(&plan.after) {
                return Ok(false);
            }
            files::remove(&disk.root, &path).map(|()| true)
        })
        .await
    }

    /// What tells this state of the files at or below `path` from another, for at most `most` of them, and among as many
    /// directories and links; those of its own level only unless `recursive`. `None` if nothing is there. No symbolic
    /// link is followed.
    ///
    /// # Errors
    /// `TooLarge` above the bound; `PathDenied` if a symbolic link or a device is on the way, or if a directory is closed
    /// to the daemon; `Unavailable` if one cannot be looked at now.
    pub async fn stamps(
        &self,
        path: &WorkspacePath,
        recursive: bool,
        most: usize,
    ) -> Result<Option<WatchSnapshot>, Refusal> {
        let path = path.clone();
        self.on_disk(move |disk| stamps::stamps(&disk.root, &path, recursive, most)).await
    }

    /// Lists what is under `path`, sorted by path: `depth` levels (1 to [`DEPTH_MAX`]), at most `limit` entries (never
    /// more than [`ENTRIES_MAX`]), of which path or name match `glob` (`*` stands for any run of characters).
    ///
    /// # Errors
    /// `NotFound`; `InvalidArguments` if it is no directory; `PathDenied` for a link that leads out.
    pub async fn list(
        &self,
        path: &WorkspacePath,
        depth: u32,
        glob: Option<&str>,
        limit: usize,
    ) -> Result<Listing, Refusal> {
        let (path, glob) = (path.clone(), glob.map(str::to_owned));
        self.on_disk(move |disk| list::list(&disk.root, &path, depth, glob.as_deref(), limit)).await
    }
}

impl Disk {
    fn lock(&self, path: &WorkspacePath) -> std::sync::MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let at = usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or(0);
        // It guards no value, so a poisoned one guards as well as any.
        self.locks[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod encoding_tests;
#[cfg(test)]
mod tests;
