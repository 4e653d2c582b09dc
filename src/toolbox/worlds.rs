//! The worlds that use this server: for each a copy of its workspace, and the sandboxes of its commands.

use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ghost_config::plan::{SandboxKind, SandboxPlan};
use ghost_domain::text::shown;
use ghost_domain::{Clock, Code, Refusal};
use ghost_sandbox::remote::node::{Places, random_name};
use ghost_sandbox::remote::protocol::{Access, Bounds, is_world};
use ghost_sandbox::remote::tree::{Hashes, Tree};
use ghost_sandbox::{Closed, Local, Report, Sandbox as _, Users};
use tokio::sync::{Semaphore, watch};

use crate::users::{AgentUsers, Range, WorldUsers};

/// The file that a server locks, in its directory.
const LOCK: &str = "lock";
/// The directory of the worlds, in that of the server.
const WORLDS: &str = "worlds";
/// The directory of the copy, in that of its world.
const COPY: &str = "workspace";
/// A copy that is being removed.
const GONE: &str = "gone";
/// The file with the name of this life of the copy.
const EPOCH: &str = "epoch";
/// Worlds of one server.
const WORLDS_MAX: usize = 256;
/// Sandboxes of one world: ghostd uses one at a time, and another after its settings have changed.
const SANDBOXES_MAX: usize = 8;
/// Commands at one time.
const COMMANDS_MAX: usize = 128;

/// All worlds.
pub(crate) struct Worlds {
    /// The server's directory.
    dir: PathBuf,
    report: Report,
    /// `None` if the server is not root, so that commands run as its own user.
    users: Option<Arc<AgentUsers>>,
    clock: Arc<dyn Clock>,
    worlds: Mutex<BTreeMap<String, Arc<World>>>,
    commands: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
    /// Keeps other servers out of the directory.
    _lock: File,
}

/// What a sandbox was opened with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) bounds: Bounds,
    pub(crate) access: Access,
    pub(crate) require: Vec<String>,
}

/// One world.
pub(crate) struct World {
    pub(crate) tree: Arc<Tree>,
    /// The name of this life of the copy.
    pub(crate) epoch: String,
    pub(crate) hashes: Arc<Mutex<Hashes>>,
    workspace: PathBuf,
    users: Option<Arc<WorldUsers>>,
    sandboxes: tokio::sync::Mutex<BTreeMap<Key, Arc<Local>>>,
    /// The places that running commands may write to.
    pub(crate) busy: Places,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Changes under these locks leave a valid value.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worlds {
    /// Prepares the directory, and finds out what this machine can enforce.
    ///
    /// # Errors
    /// If commands cannot be protected here: the refusal names what is missing.
    pub(crate) async fn open(
        dir: &Path,
        agent_uids: Range,
        clock: Arc<dyn Clock>,
        stopped: watch::Receiver<bool>,
    ) -> Result<Self, Refusal> {
        let unusable = |error: std::io::Error| {
            Refusal::new(Code::Unavailable, format!("the directory {} cannot be used: {error}", dir.display()))
                .hint("give another one with --dir")
        };
        let worlds = dir.join(WORLDS);
        std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&worlds).map_err(unusable)?;
        let dir = dir.canonicalize().map_err(unusable)?;
        // It ends with the process, however that ends.
        let lock = std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(dir.join(LOCK));
        let lock = lock.map_err(unusable)?;
        if let Err(error) = lock.try_lock() {
            return Err(match error {
                TryLockError::WouldBlock => {
                    Refusal::new(Code::Conflict, format!("another server uses the directory {}", dir.display()))
                        .hint("give each server a directory of its own with --dir")
                }
                TryLockError::Error(error) => unusable(error),
            });
        }
        let plan = SandboxPlan { kind: SandboxKind::Local, ..SandboxPlan::default() };
        let probe = Local::open(&plan, &dir, &dir.join(WORLDS), Arc::new(Closed), Arc::clone(&clock), None)
            .await
            .map_err(|why| {
                Refusal::new(Code::Unavailable, format!("commands cannot be protected here, so none may run: {why}"))
                    .hint("docs/security.md lists what the kernel must offer")
            })?;
        let report = probe.report().clone();
        probe.close().await;
        let is_root = rustix::process::geteuid().is_root();
        let users = is_root.then(|| AgentUsers::open(&dir, agent_uids)).transpose()?;
        let commands = Arc::new(Semaphore::new(COMMANDS_MAX));
        Ok(Self { dir, report, users, clock, worlds: Mutex::default(), commands, stopped, _lock: lock })
    }

    pub(crate) fn report(&self) -> &Report {
        &self.report
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Turns true when the server stops.
    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        self.stopped.clone()
    }

    /// Room for one more command.
    ///
    /// # Errors
    /// `RateLimited` if there is none.
    pub(crate) fn room(&self) -> Result<tokio::sync::OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.commands).try_acquire_owned().map_err(|_| {
            let what = format!("{COMMANDS_MAX} commands run on this server already");
            Refusal::new(Code::RateLimited, what).hint("try again when others have ended")
        })
    }

    /// Where commands of a world see their workspace.
    ///
    /// # Errors
    /// If it is no name of a world.
    pub(crate) fn workspace(&self, world: &str) -> Result<PathBuf, Refusal> {
        if !is_world(world) {
            return Err(Refusal::new(Code::InvalidArguments, format!("`{}` is no name of a world", shown(world, 80)))
                .hint("use letters, digits, `.`, `_` and `-`"));
        }
        Ok(self.dir.join(WORLDS).join(world).join(COPY))
    }

    /// A world, which is made if it is new.
    ///
    /// # Errors
    /// If it has no valid name, there are too many, or the disk fails.
    pub(crate) async fn world(self: &Arc<Self>, name: &str) -> Result<Arc<World>, Refusal> {
        let workspace = self.workspace(name)?;
        if let Some(world) = lock(&self.worlds).get(name) {
            return Ok(Arc::clone(world));
        }
        let (me, name) = (Arc::clone(self), name.to_owned());
        let opened = tokio::task::spawn_blocking(move || {
            let mut worlds = lock(&me.worlds);
            if let Some(world) = worlds.get(&name) {
                return Ok(Arc::clone(world));
            }
            let is_new = !workspace.exists();
            if is_new && std::fs::read_dir(me.dir.join(WORLDS)).map_or(0, Iterator::count) >= WORLDS_MAX {
                let what = format!("this server has {WORLDS_MAX} worlds, which is the limit");
                return Err(Refusal::new(Code::RateLimited, what)
                    .hint("an operator removes directories of worlds that are gone"));
            }
            let users = me.users.as_ref().map(|users| users.of_world(&name));
            let world = Arc::new(opened(workspace, users).map_err(|error| {
                Refusal::new(Code::Unavailable, format!("the copy of the workspace cannot be used: {error}"))
                    .hint("an operator must look at the server's disk")
            })?);
            worlds.insert(name, Arc::clone(&world));
            Ok(world)
        });
        opened.await.map_err(|error| Refusal::new(Code::Internal, format!("opening a world panicked: {error}")))?
    }

    /// Drops the copy of a world and kills its commands: it has more than a copy may, and no command could run with it
    /// any more. The next request makes a new one, to which ghostd sends its workspace again.
    ///
    /// # Errors
    /// If it cannot be moved away.
    pub(crate) async fn begin_anew(self: &Arc<Self>, world: &Arc<World>) -> std::io::Result<()> {
        for sandbox in world.sandboxes.lock().await.values() {
            sandbox.close().await;
        }
        let (me, world) = (Arc::clone(self), Arc::clone(world));
        let dropped = tokio::task::spawn_blocking(move || {
            let mut worlds = lock(&me.worlds);
            // Another request may have done it meanwhile.
            if !worlds.values().any(|known| Arc::ptr_eq(known, &world)) {
                return Ok(());
            }
            let gone = world.workspace.with_file_name(GONE);
            remove_all(&gone)?;
            std::fs::rename(&world.workspace, &gone)?;
            worlds.retain(|_, known| !Arc::ptr_eq(known, &world));
            drop(worlds);
            tracing::warn!(dir = %world.workspace.display(), "a copy was too large, and begins anew");
            remove_all(&gone)
        });
        dropped.await.map_err(std::io::Error::other)?
    }

    /// The sandbox of a world with these settings.
    ///
    /// # Errors
    /// If it cannot be had: a required protection is missing.
    pub(crate) async fn sandbox(&self, world: &World, key: Key) -> Result<Arc<Local>, Refusal> {
        let mut sandboxes = world.sandboxes.lock().await;
        if let Some(found) = sandboxes.get(&key) {
            return Ok(Arc::clone(found));
        }
        if sandboxes.len() >= SANDBOXES_MAX {
            sandboxes.retain(|_, sandbox| Arc::strong_count(sandbox) > 1);
        }
        if sandboxes.len() >= SANDBOXES_MAX {
            return Err(Refusal::new(Code::RateLimited, "commands with too many different settings run at once")
                .hint("try again when they have ended"));
        }
        let plan = SandboxPlan {
            kind: SandboxKind::Local,
            require: key.require.clone(),
            memory_bytes: key.bounds.memory_bytes,
            processes: key.bounds.processes,
            disk_bytes: key.bounds.disk_bytes,
            workspace_access: key.access.into(),
            ..SandboxPlan::default()
        };
        let users = world.users.clone().map(|users| users as Arc<dyn Users>);
        let (outlet, clock) = (Arc::new(Closed), Arc::clone(&self.clock));
        let opened = Local::open(&plan, &self.dir, &world.workspace, outlet, clock, users).await;
        let sandbox = opened.map_err(|why| {
            Refusal::new(Code::Unavailable, format!("the command cannot be protected, so it does not run: {why}"))
                .hint("an operator must look at the server, or at `sandbox.require`")
        })?;
        sandboxes.insert(key, Arc::clone(&sandbox));
        Ok(sandbox)
    }

    /// Kills everything that runs.
    pub(crate) async fn close(&self) {
        let worlds: Vec<Arc<World>> = lock(&self.worlds).values().cloned().collect();
        for world in worlds {
            for sandbox in world.sandboxes.lock().await.values() {
                sandbox.close().await;
            }
        }
    }
}

/// Removes a directory with all that is in it, also what commands closed to their own user.
fn remove_all(dir: &Path) -> std::io::Result<()> {
    match Tree::open_copy(dir) {
        Ok(tree) => tree.remove_all()?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    std::fs::remove_dir(dir)
}

/// Opens a copy, which is made if it is missing.
fn opened(workspace: PathBuf, users: Option<Arc<WorldUsers>>) -> std::io::Result<World> {
    let dir = workspace.parent().map(Path::to_owned).unwrap_or_default();
    let is_there = workspace.is_dir();
    std::fs::DirBuilder::new().recursive(true).mode(0o711).create(&workspace)?;
    let file = workspace.with_file_name(EPOCH);
    let mut epoch = String::new();
    match std::fs::File::open(&file) {
        Ok(found) => drop(found.take(64).read_to_string(&mut epoch)?),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // A copy without files must not pass for the one that had them: what it lacks would count as deleted.
    if !is_there || epoch.is_empty() {
        epoch = random_name()?;
        let new = file.with_extension("new");
        let mut made = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        made.write_all(epoch.as_bytes())?;
        made.sync_all()?;
        std::fs::rename(new, &file)?;
    }
    tracing::info!(dir = %dir.display(), "a world uses this server");
    Ok(World {
        tree: Arc::new(Tree::open_copy(&workspace)?),
        epoch,
        hashes: Arc::default(),
        workspace,
        users,
        sandboxes: tokio::sync::Mutex::default(),
        busy: Places::default(),
    })
}
