//! The shared workspace: all files that agents read and write. Paths are opened relative to one
//! capability handle, so that neither `..` nor a symbolic link leaves the root.
//!
//! A write must never follow a symbolic link or leave half a file. Disk access must never block the
//! runtime; it goes through [`Workspace::offload`].

mod encoding;
mod reading;
mod repositories;
mod system;
mod walk;
mod writing;

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cap_std::fs::Dir;
pub use encoding::Encoding;
use ghost_domain::droid::TASK_FILE;
use ghost_domain::{AgentId, Code, FilePlan, ImageFile, WatchSnapshot, WorkspacePath, refusal};
use ghost_operations::Result;
use ghost_sandbox::remote::tree::Tree;
pub(crate) use reading::read_text;
pub use reading::{FileText, Lines, sha256_hex};
pub use repositories::{GitLook, GitPlaces};
pub(crate) use system::io_refusal;
pub use system::is_out_of_room;
pub(crate) use walk::list as list_dir;
pub use walk::{DEPTH_MAX, ENTRIES_MAX, Entry, EntryKind, Listing};
pub use writing::FileWrite;

#[cfg(feature = "testing")]
pub use writing::fault;

/// The number of locks that make "compare, then replace" atomic. Two paths may share a lock.
const LOCKS: usize = 64;

/// The workspace of one world. Share it in an `Arc`.
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
    /// Opens the workspace at `root`. Creates missing directories, and removes temporary files left
    /// by a crash. Blocks; call it at start. Later calls run on the blocking pool of the runtime.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the directory cannot be created or opened, `PathDenied` if something else
    /// is in its place.
    pub fn open(root: &Path) -> Result<Self> {
        Self::build(root, false)
    }

    /// Like [`open`](Self::open), but every call runs in the caller's thread. For simulation, which
    /// must not depend on a scheduler.
    ///
    /// # Errors
    ///
    /// See [`open`](Self::open).
    pub fn inline(root: &Path) -> Result<Self> {
        Self::build(root, true)
    }

    fn build(root: &Path, inline: bool) -> Result<Self> {
        let place = root.to_owned();
        let root = walk::open_root(root)?;
        walk::create_seed(&root)?;
        walk::sweep(&root)?;
        let disk = Disk { root, locks: std::array::from_fn(|_| Mutex::new(())) };
        Ok(Self { disk: Arc::new(disk), inline, place })
    }

    /// The path of the root, for watching changes; files must not be opened through it. `None` for
    /// an inline workspace, whose world runs on simulated time.
    pub fn place(&self) -> Option<&Path> {
        (!self.inline).then_some(self.place.as_path())
    }

    /// Whether the root is no longer at its path. Files that agents write from then on cannot be
    /// found.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the runtime is shutting down.
    pub async fn is_lost(&self) -> Result<bool> {
        let place = self.place.clone();
        self.on_disk(move |disk| Ok(walk::has_moved(&disk.root, &place))).await
    }

    /// Removes what is at `path` with all that is in it, however deep it is. Returns whether it was there.
    ///
    /// # Errors
    ///
    /// `PathDenied` if a symbolic link stands in the way; `Unavailable` if the disk fails, or a command writes there
    /// meanwhile.
    pub async fn remove_tree(&self, path: &WorkspacePath) -> Result<bool> {
        reading::check_name(path)?;
        let (place, path) = (self.place.clone(), path.as_str().to_owned());
        self.offload(move || {
            let removed = Tree::open(&place).and_then(|tree| tree.remove_tree(&path));
            removed.map_err(|error| io_refusal("remove", &path, &error))
        })
        .await
    }

    /// Runs blocking work on the blocking pool; in an inline workspace, in the caller's thread.
    /// Work that has begun runs to its end even if the caller stops waiting.
    ///
    /// # Errors
    ///
    /// The error of `work`; `Unavailable` if the runtime is shutting down.
    pub async fn offload<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T> + Send + 'static,
    {
        if self.inline {
            return work();
        }
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(refusal!(Unavailable, "the daemon is stopping")
                    .hint("nothing was changed; try again when it is back")),
            },
        }
    }

    async fn on_disk<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Disk) -> Result<T> + Send + 'static,
    {
        let disk = Arc::clone(&self.disk);
        self.offload(move || work(&disk)).await
    }

    /// Runs work about one path.
    async fn at<T, F>(&self, path: &WorkspacePath, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Dir, &WorkspacePath) -> Result<T> + Send + 'static,
    {
        let path = path.clone();
        self.on_disk(move |disk| work(&disk.root, &path)).await
    }

    /// Creates `agents/<id>/` with `drafts`, `notes` and `inbox`, unless they exist.
    ///
    /// # Errors
    ///
    /// `PathDenied` if something else is in the way, `Unavailable` if the disk fails.
    pub async fn ensure_agent(&self, agent_id: &AgentId) -> Result<()> {
        let agent_id = agent_id.clone();
        self.on_disk(move |disk| walk::create_agent(&disk.root, &agent_id)).await
    }

    /// Creates a droid's directory with `output/` and the file of its task, unless they exist. Nothing
    /// waits for the disk: call it before each turn of the droid. With `is_first` the droid has never worked: a
    /// directory of its name is of another droid, after a restore of an older database, and is renamed to `<id>.1`.
    ///
    /// # Errors
    ///
    /// As for [`ensure_agent`](Self::ensure_agent).
    pub async fn ensure_droid(&self, droid_id: &AgentId, task: String, is_first: bool) -> Result<()> {
        let path = WorkspacePath::parse(&format!("{}/{TASK_FILE}", droid_id.home()), false)?;
        self.on_disk(move |disk| walk::create_droid(&disk.root, &path, &task, is_first)).await
    }

    /// Reads a whole file of at most `max_bytes`. Symbolic links within the workspace are followed.
    ///
    /// # Errors
    ///
    /// `NotFound`; `TooLarge` above the limit; `InvalidArguments` for a directory; `PathDenied` for
    /// a device, a pipe, or a link that leads out.
    pub async fn read(&self, path: &WorkspacePath, max_bytes: u64) -> Result<Vec<u8>> {
        self.at(path, move |root, path| reading::read(root, path, max_bytes)).await
    }

    /// What a model needs to know of an image; `None` for a file that is none. Symbolic links within the workspace are
    /// followed.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read); `TooLarge` for an image that providers refuse for its bytes or its sides;
    /// `InvalidArguments` for one that is damaged or moves.
    pub async fn image(&self, path: &WorkspacePath) -> Result<Option<ImageFile>> {
        self.at(path, reading::image).await
    }

    /// What git would read and run in these places.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the runtime is shutting down.
    pub async fn look_at_repositories(&self, places: GitPlaces) -> Result<GitLook> {
        self.on_disk(move |disk| Ok(repositories::look(&disk.root, &places))).await
    }

    /// Checks that a file is not inside the directory of a repository: a bare one, or one that a `.git` file names.
    ///
    /// # Errors
    ///
    /// `PathDenied` if it is.
    pub async fn check_outside_repositories(&self, path: &WorkspacePath) -> Result<()> {
        self.at(path, repositories::check_outside).await
    }

    /// The size of a file, in bytes. Reads only metadata and does not use the blocking pool, so it
    /// may be called inside a transaction.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read), without `TooLarge`.
    pub fn size_now(&self, path: &WorkspacePath) -> Result<u64> {
        reading::size(&self.disk.root, path)
    }

    /// Reads lines of a text file: at most `lines.max_bytes` bytes, truncated at a character.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read), and `InvalidArguments` for a file that is not text in a
    /// known [`Encoding`].
    pub async fn read_text(&self, path: &WorkspacePath, lines: Lines) -> Result<FileText> {
        self.at(path, move |root, path| reading::read_text(root, path, lines)).await
    }

    /// Reads a whole text file of at most `max_bytes` in order to change it. Symbolic links are not
    /// followed. `None` if there is no such file.
    ///
    /// # Errors
    ///
    /// The errors of [`read_text`](Self::read_text); also `InvalidArguments` for text that is not
    /// UTF-8, `PathDenied` for a symbolic link anywhere in the path, `TooLarge`.
    pub async fn text_for_change(&self, path: &WorkspacePath, max_bytes: u64) -> Result<Option<String>> {
        self.at(path, move |root, path| reading::whole_text(root, path, max_bytes)).await
    }

    /// The lower-case hexadecimal SHA-256 of the file that a write to `path` would replace; `None`
    /// if there is none.
    ///
    /// # Errors
    ///
    /// `PathDenied` if the path contains a symbolic link or something other than a regular file is
    /// there; `TooLarge` above 64 MiB.
    pub async fn hash(&self, path: &WorkspacePath) -> Result<Option<String>> {
        self.at(path, reading::hash).await
    }

    /// Writes `bytes` to `path` atomically: a reader sees the old or the new content, also after a
    /// crash. Missing parents are created. Returns when the content is on the disk.
    ///
    /// # Errors
    ///
    /// `PathDenied` as for [`hash`](Self::hash); `Unavailable` for a full or read-only disk, with
    /// the old content unchanged.
    pub async fn write_atomic(&self, path: &WorkspacePath, bytes: &[u8]) -> Result<()> {
        let (path, bytes) = (path.clone(), bytes.to_vec());
        self.on_disk(move |disk| {
            let _held = disk.lock(&path);
            writing::write_atomic(&disk.root, &path, &bytes)
        })
        .await
    }

    /// Makes the planned writes, all or none, if no file has changed since the plan was made. Turns must write
    /// this way: if two agents change a file at once, the second gets a conflict instead of undoing
    /// the first change.
    ///
    /// # Errors
    ///
    /// `Conflict` if a file has changed since; `OutcomeUnknown` if a part was written and could not be taken back;
    /// otherwise the errors of [`write_atomic`](Self::write_atomic), with every file unchanged.
    pub async fn carry_out(&self, writes: Vec<FileWrite>) -> Result<()> {
        let paths = writes
            .iter()
            .map(|write| WorkspacePath::parse(&write.plan.path, false))
            .collect::<Result<Vec<WorkspacePath>>>()?;
        let mut names: Vec<&str> = paths.iter().map(WorkspacePath::as_str).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(refusal!(InvalidArguments, "`{}` would be written twice", twice[0])
                .hint("nothing was written; put all changes of a file into one"));
        }
        self.on_disk(move |disk| {
            let _held = disk.lock_all(&paths);
            writing::carry_out(&disk.root, &paths, &writes)
        })
        .await
    }

    /// Undoes planned writes whose accompanying effect was refused: removes the files that were not there before and
    /// still hold the planned content. Returns whether all files are as they were before the writes.
    ///
    /// # Errors
    ///
    /// The errors of [`hash`](Self::hash).
    pub async fn take_back(&self, plans: &[FilePlan]) -> Result<bool> {
        let mut all = true;
        for plan in plans {
            let (path, plan) = (WorkspacePath::parse(&plan.path, false)?, plan.clone());
            all &= self
                .on_disk(move |disk| {
                    let _held = disk.lock(&path);
                    let found = reading::hash(&disk.root, &path)?;
                    if found == plan.before {
                        return Ok(true);
                    }
                    if plan.before.is_some() || found != plan.after {
                        return Ok(false);
                    }
                    writing::remove(&disk.root, &path).map(|()| true)
                })
                .await?;
        }
        Ok(all)
    }

    /// Adds `bytes` to the end of a file, and creates it if it is missing. Nothing waits for the disk.
    ///
    /// # Errors
    ///
    /// The errors of [`write_atomic`](Self::write_atomic).
    pub async fn append(&self, path: &WorkspacePath, bytes: Vec<u8>) -> Result<()> {
        let path = path.clone();
        self.on_disk(move |disk| {
            let _held = disk.lock(&path);
            writing::append(&disk.root, &path, &bytes)
        })
        .await
    }

    /// The lower-case hexadecimal SHA-256 and the size of a file of any size; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The errors of [`hash`](Self::hash), but `TooLarge`.
    pub async fn digest(&self, path: &WorkspacePath) -> Result<Option<(String, u64)>> {
        self.at(path, reading::digest).await
    }

    /// A snapshot of the files at or below `path`, for at most `limit` files and at most as many
    /// directories and links. Without `recursive`, only the files directly in `path`. `None` if
    /// nothing is there. Symbolic links are not followed.
    ///
    /// # Errors
    ///
    /// `TooLarge` above the limit; `PathDenied` if a symbolic link or a device is in the path, or
    /// if the daemon may not read a directory; `Unavailable` if a directory cannot be read now.
    pub async fn stamps(&self, path: &WorkspacePath, recursive: bool, limit: usize) -> Result<Option<WatchSnapshot>> {
        self.at(path, move |root, path| walk::stamps(root, path, recursive, limit)).await
    }

    /// Removes the oldest files directly in `dir` until at most `keep` are left of those whose name `is_meant`. Other
    /// files stay. Does nothing if there is no such directory.
    ///
    /// # Errors
    ///
    /// The errors of [`stamps`](Self::stamps), with at most 1,000 files.
    pub async fn keep_newest(&self, dir: &WorkspacePath, keep: usize, is_meant: fn(&str) -> bool) -> Result<()> {
        let dir = dir.clone();
        self.on_disk(move |disk| {
            let Some(seen) = walk::stamps(&disk.root, &dir, false, 1_000)? else { return Ok(()) };
            let name = |path: &str| path.rsplit('/').next().is_some_and(is_meant);
            let mut files: Vec<_> = seen.files.into_iter().filter(|(path, _)| name(path)).collect();
            files.sort_by_key(|(_, stamp)| stamp.changed_ns);
            for (path, _) in files.iter().rev().skip(keep) {
                let path = WorkspacePath::parse(path, false)?;
                let _held = disk.lock(&path);
                match writing::remove(&disk.root, &path) {
                    // A call beside this one has removed it.
                    Err(refusal) if refusal.code != Code::NotFound => return Err(refusal),
                    _ => {}
                }
            }
            Ok(())
        })
        .await
    }

    /// Lists the entries under `path`, sorted by path: `depth` levels (1 to [`DEPTH_MAX`]), at most
    /// `limit` entries (never more than [`ENTRIES_MAX`]). With `glob`, only entries whose path or
    /// name matches (`*` stands for any run of characters).
    ///
    /// # Errors
    ///
    /// `NotFound`; `InvalidArguments` if `path` is not a directory; `PathDenied` for a link that
    /// leads out.
    pub async fn list(&self, path: &WorkspacePath, depth: u32, glob: Option<&str>, limit: usize) -> Result<Listing> {
        let (path, glob) = (path.clone(), glob.map(str::to_owned));
        self.on_disk(move |disk| walk::list(&disk.root, &path, depth, glob.as_deref(), limit)).await
    }
}

impl Disk {
    fn shard(path: &WorkspacePath) -> usize {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        usize::try_from(hasher.finish() % LOCKS as u64).unwrap_or(0)
    }

    fn hold(&self, shard: usize) -> std::sync::MutexGuard<'_, ()> {
        // The lock protects no value, so poisoning does not matter.
        self.locks[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self, path: &WorkspacePath) -> std::sync::MutexGuard<'_, ()> {
        self.hold(Self::shard(path))
    }

    /// Locks several paths, always in the same order, so that two callers never wait for each other.
    fn lock_all(&self, paths: &[WorkspacePath]) -> Vec<std::sync::MutexGuard<'_, ()>> {
        let shards: std::collections::BTreeSet<usize> = paths.iter().map(Self::shard).collect();
        shards.into_iter().map(|shard| self.hold(shard)).collect()
    }
}

#[cfg(test)]
mod encoding_tests;
#[cfg(test)]
mod tests;
