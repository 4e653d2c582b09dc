//! The `docker` sandbox: commands run in containers of an engine on this machine. A container lives long and belongs to one
//! agent, unless the world lets all agents share one; its main process is the runner, which is fed over one attached stream.
//! A container does not outlive its daemon's next start, and mounts no more than the workspace and the runner.

mod body;
mod container;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bollard::models::SystemInfo;
use futures_util::future::join_all;
use ghost_config::plan::{SandboxNetwork, SandboxPlan, SandboxScope, WorkspaceAccess};
use ghost_domain::ids::ConversationId;
use ghost_domain::{AgentId, Clock, Code, Refusal, Timestamp};

use self::body::{Common, Place, WORKSPACE, inside};
use self::container::{Container, Engine, Image};
use crate::clock::within;
use crate::command::{
    Alone, Command, Finished, Progress, Protection, Report, Sandbox, ToolboxDir, lacking_protections, unavailable,
};
use crate::environment::{devices, environment, in_memory};
use crate::frame::{Exec, Network, right};
use crate::left::Left;
use crate::local::install;
use crate::own_dirs;
use crate::own_dirs::{DirOwner, NOBODY, User};
use crate::tunnel::{Client, Exit, Outlet};

/// An idle container ends after this time.
const IDLE: Duration = Duration::from_secs(600);
/// How long the removal of containers may take at the start and at the end, and the pause before the next look.
const CLEAR_MAX: Duration = Duration::from_secs(20);
const AGAIN: Duration = Duration::from_millis(50);
/// Labels of containers: the world, its data directory, and the start of the daemon that made them.
const WORLD: &str = "ghost.world";
const DATA: &str = "ghost.data";
const BOOT: &str = "ghost.boot";

/// The sandbox.
pub struct Docker {
    plan: SandboxPlan,
    engine: Arc<Engine>,
    common: Common,
    /// Protections that the runner has to give.
    required: u32,
    /// Protections that the container gives to every command.
    given: u32,
    report: Report,
    outlet: Arc<dyn Outlet>,
    clock: Arc<dyn Clock>,
    /// Places for containers of one command.
    alone: tokio::sync::Semaphore,
    slots: Mutex<BTreeMap<Share, Arc<Slot>>>,
    left: Left,
    /// Values of the labels.
    data: String,
    boot: String,
    is_root: bool,
}

/// Who shares a container.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Share {
    Agent(AgentId),
    Session(AgentId, Option<ConversationId>),
    /// A toolbox may have tokens in its variables, which other commands of the same user could read.
    Toolbox(AgentId, ToolboxDir),
    All,
}

impl Share {
    fn of(command: &Command, scope: SandboxScope) -> Self {
        if let Some(toolbox) = &command.toolbox {
            return Self::Toolbox(command.agent_id.clone(), toolbox.clone());
        }
        match scope {
            SandboxScope::Agent => Self::Agent(command.agent_id.clone()),
            SandboxScope::Session => Self::Session(command.agent_id.clone(), command.conversation_id),
            SandboxScope::World => Self::All,
        }
    }

    fn client(&self) -> Client {
        match self {
            Self::Agent(agent_id) | Self::Session(agent_id, _) | Self::Toolbox(agent_id, _) => {
                Client::Agent(agent_id.clone())
            }
            Self::All => Client::Shared,
        }
    }
}

/// The place of a container, and the container if it runs.
#[derive(Default)]
struct Slot {
    current: tokio::sync::Mutex<Option<Arc<Container>>>,
    /// When a command last began, in milliseconds.
    used_at: AtomicI64,
}

impl Slot {
    /// Whether no command runs or waits here.
    fn is_idle(self: &Arc<Self>) -> bool {
        // Whoever begins a command holds the slot until it holds the container.
        Arc::strong_count(self) == 1
            && self
                .current
                .try_lock()
                .is_ok_and(|current| current.as_ref().is_none_or(|one| Arc::strong_count(one) == 1))
    }
}

/// Of which world, of which data directory.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'o> {
    /// Id of the world.
    pub world_id: &'o str,
    /// Its data directory.
    pub data_dir: &'o Path,
}

impl Docker {
    /// Connects to the engine that `host` names (`DOCKER_HOST`; without it the usual one), removes what an earlier daemon
    /// left, and starts a container once, to learn what the engine and the kernel can enforce.
    ///
    /// # Errors
    /// Why commands cannot run there.
    pub async fn open(
        plan: &SandboxPlan,
        host: Option<&str>,
        owner: Owner<'_>,
        workspace: &Path,
        outlet: Arc<dyn Outlet>,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, String> {
        let absolute = |what: &str, dir: &Path| -> Result<PathBuf, String> {
            dir.canonicalize().map_err(|error| format!("the {what} cannot be found: {error}"))
        };
        let (workspace, data_dir) = (absolute("workspace", workspace)?, absolute("data directory", owner.data_dir)?);
        let engine = Arc::new(Engine::connect(host, Arc::clone(&clock)).await?);
        let info = engine.info().await?;
        let image = engine.image(&plan.image).await?;
        body::usable(&info)?;
        let program = install(&data_dir)?;
        let is_root = rustix::process::geteuid().is_root();
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if is_root {
            own_dirs::close_to_others(&workspace, User::NOBODY.gid)?;
        }
        let boot = format!("{}-{}", std::process::id(), clock.now().0);
        let data = data_dir.display().to_string();
        let labels = [(WORLD, owner.world_id), (DATA, data.as_str()), (BOOT, boot.as_str())];
        let common = Common {
            image: image.id.clone(),
            workspace,
            program,
            user: if is_root { (NOBODY, NOBODY) } else { own },
            labels: HashMap::from(labels.map(|(name, value)| (name.to_owned(), value.to_owned()))),
            toolbox: None,
        };
        let of_earlier = |labels: &HashMap<String, String>| labels.get(BOOT).is_none_or(|of| *of != boot);
        clear(&engine, &*clock, &[(WORLD, owner.world_id), (DATA, &data)], of_earlier)
            .await
            .map_err(|why| format!("containers of an earlier start are left: {why}"))?;
        let mut docker = Self {
            plan: plan.clone(),
            engine,
            common,
            required: 0,
            given: 0,
            report: Report::default(),
            outlet,
            clock,
            alone: tokio::sync::Semaphore::new(container::ALONE_MAX),
            slots: Mutex::default(),
            left: Left::default(),
            data,
            boot,
            is_root,
        };
        docker.learn(&info, &image).await?;
        let docker = Arc::new(docker);
        tokio::spawn(end_idle(Arc::downgrade(&docker)));
        Ok(docker)
    }

    /// Finds out what is enforced, with a container that mounts nothing of the workspace.
    async fn learn(&mut self, info: &SystemInfo, image: &Image) -> Result<(), String> {
        let probe =
            Container::start(Arc::clone(&self.engine), &self.plan, &self.common, Vec::new(), None, &self.clock).await?;
        let hello = probe.runner.hello();
        let mut required = Protection::required(&self.plan.require)?;
        let is_open = self.plan.network == SandboxNetwork::Open;
        if is_open && !self.plan.require.iter().any(|name| name == Protection::Network.as_str()) {
            required &= !Protection::Network.bit();
        }
        self.given = body::given(&self.plan, info, self.is_root);
        let in_force = self.in_force(hello.available);
        let lacking = required & !in_force;
        let missing = body::missing(&self.plan, info, in_force, &hello.missing, &probe.warnings);
        if lacking != 0 {
            return Err(lacking_protections(lacking, &missing));
        }
        self.required = required & !self.given;
        let browser = container::browser(&probe, &*self.clock).await?;
        self.report = Report { in_force, missing, image: format!("{} ({})", image.name, image.id), browser };
        Ok(())
    }

    /// What holds for a command to which the runner gives `bits`.
    fn in_force(&self, bits: u32) -> u32 {
        let open = if self.plan.network == SandboxNetwork::Open { Protection::Network.bit() } else { 0 };
        (bits | self.given) & !open
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<Share, Arc<Slot>>> {
        // Changes under the lock are single calls of the map.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a container. If there are as many as there may be, the one that was idle longest goes.
    fn slot(&self, key: Share) -> Result<Arc<Slot>, Refusal> {
        let mut slots = self.slots();
        if !slots.contains_key(&key) && slots.len() >= self.plan.containers_max {
            let idle = slots.iter().filter(|(_, slot)| slot.is_idle());
            let oldest = idle.min_by_key(|(_, slot)| slot.used_at.load(Ordering::Relaxed)).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else {
                let most = self.plan.containers_max;
                let what = format!("commands run in {most} containers already (`sandbox.containers_max`)");
                return Err(
                    Refusal::new(Code::RateLimited, what).hint("try again when other agents' commands have ended")
                );
            };
            slots.remove(&oldest);
        }
        let slot = slots.entry(key).or_default();
        slot.used_at.store(self.clock.steady().0, Ordering::Relaxed);
        Ok(Arc::clone(slot))
    }

    /// A container that mounts just these places. One that mounts others, because the agent's rights have changed, ends
    /// with its last command.
    async fn container(&self, share: Share, places: Vec<Place>) -> Result<Arc<Container>, Refusal> {
        let client = share.client();
        let mut common = self.common.clone();
        if let Share::Toolbox(_, toolbox) = &share {
            common.toolbox = Some(toolbox.clone());
        }
        let slot = self.slot(share)?;
        let mut current = slot.current.lock().await;
        if let Some(found) = current.as_ref().filter(|found| !found.runner.is_gone() && found.places == places) {
            return Ok(Arc::clone(found));
        }
        *current = None;
        let exit = (self.plan.network == SandboxNetwork::Proxy).then(|| Exit::new(&self.outlet, client));
        let started = Container::start_apart(&self.engine, self.plan.clone(), common, places, exit, &self.clock);
        let container = Arc::new(started.await?);
        *current = Some(Arc::clone(&container));
        Ok(container)
    }

    /// Whether a command runs in the container of all agents.
    fn is_shared(&self, command: &Command) -> bool {
        self.plan.scope == SandboxScope::World && command.toolbox.is_none()
    }

    /// Prepares directories of the workspace, and says which they are.
    fn places(&self, command: &Command, writable: &[String]) -> Result<Vec<Place>, Refusal> {
        let root = &self.common.workspace;
        let owner = if self.is_root { DirOwner::User(User::NOBODY) } else { DirOwner::Kept };
        let own = |dir: &str| -> Result<Place, Refusal> {
            let identity = own_dirs::prepare(root, dir, owner)?;
            Ok(Place { dir: dir.trim_end_matches('/').to_owned(), identity, writable: true })
        };
        own(&command.agent_id.home())?;
        let mut places = writable.iter().map(|prefix| own(prefix)).collect::<Result<Vec<_>, _>>()?;
        let workspace = own_dirs::prepare(root, "", DirOwner::Kept)?;
        if self.is_shared(command) {
            // All agents' places, so the whole; the runner holds each command to its own.
            let writable = self.plan.workspace_access != WorkspaceAccess::ReadOnly;
            return Ok(vec![Place { dir: String::new(), identity: workspace, writable }]);
        }
        Ok(body::mounted(self.plan.workspace_access, workspace, &std::mem::take(&mut places)))
    }

    fn exec(&self, command: &Command, writable: &[String]) -> Exec {
        let own = command.agent_id.home();
        let mut paths = Vec::new();
        let read = right::READ | right::EXECUTE;
        if self.is_shared(command) && self.plan.workspace_access == WorkspaceAccess::None {
            // Only the image, and not the workspace, which this container has.
            let image = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/etc", "/proc", "/sys", "/dev"];
            paths.extend(image.map(|path| (read | right::FOLLOW | right::OPTIONAL, path.to_owned())));
        } else {
            paths.push((read, "/".to_owned()));
        }
        let all = right::READ | right::WRITE | right::EXECUTE;
        paths.extend(writable.iter().map(|prefix| (all, inside(prefix))));
        paths.extend(devices().chain(in_memory()));
        let network = match self.plan.network {
            SandboxNetwork::None => Network::None,
            // The container's network has nothing but the proxy's port.
            SandboxNetwork::Open | SandboxNetwork::Proxy => Network::Open,
        };
        Exec {
            required: self.required,
            cwd: inside(&command.dir),
            env: environment(&self.plan, WORKSPACE, &inside(&own), "/tmp", &command.env),
            paths,
            network,
            ..Exec::bounded(&self.plan, command.argv.clone(), command.timeout)
        }
    }

    /// Ends containers that have had nothing to do.
    fn end_idle(&self) {
        let now = self.clock.steady();
        self.slots().retain(|_, slot| {
            let used_at = Timestamp(slot.used_at.load(Ordering::Relaxed));
            !slot.is_idle() || now.since(used_at) < IDLE
        });
    }
}

#[async_trait]
impl Sandbox for Docker {
    async fn run(&self, command: Command, progress: Progress<'_>) -> Result<Finished, Refusal> {
        let writable = command.may_write(self.plan.workspace_access);
        let places = self.places(&command, &writable)?;
        let exec = self.exec(&command, &writable);
        let begun = self.left.begin(&self.common.workspace, &command.agent_id, &writable)?;
        let container = self.container(Share::of(&command, self.plan.scope), places).await?;
        let begun = (begun, Path::new(WORKSPACE));
        let done = container.runner.run_for(&command, &exec, begun, progress, &*self.clock).await?;
        Ok(Finished { in_force: self.in_force(done.in_force), ..done })
    }

    async fn run_alone(&self, command: Alone) -> Result<Finished, Refusal> {
        // The semaphore is never closed.
        let _place = self.alone.acquire().await.map_err(|error| unavailable(&error.to_string()))?;
        let exit = Exit::new(&self.outlet, Client::Browser(command.agent_id.clone()));
        container::run_alone(&self.engine, (&self.plan, &self.common), self.required, exit, &self.clock, command).await
    }

    fn identity(&self) -> String {
        format!("docker {}", self.common.image)
    }

    fn workspace_path(&self) -> String {
        WORKSPACE.to_owned()
    }

    fn toolbox_path(&self, toolbox: &ToolboxDir) -> Result<String, String> {
        // The engine mounts it, so no directory above it need be open to commands. But it follows links in the path, which had
        // none when the manifest was read: whoever wrote a skill could give its commands any directory by one.
        match toolbox.dir.canonicalize() {
            Ok(real) if real == toolbox.dir => Ok(body::toolbox_inside(toolbox)),
            _ => Err(format!("{} is no plain directory any more", toolbox.dir.display())),
        }
    }

    fn report(&self) -> &Report {
        &self.report
    }

    async fn close(&self) {
        self.slots().clear();
        let labels = [(BOOT, self.boot.as_str()), (DATA, self.data.as_str())];
        let result = clear(&self.engine, &*self.clock, &labels, |_| true).await;
        if let Err(why) = result {
            tracing::warn!("containers may be left, which the next start removes: {why}");
        }
    }
}

/// Removes the containers that have these labels and, by all labels, are meant. Waits until none is left: the engine
/// may be at it already, and then answers before it is done.
async fn clear(
    engine: &Engine,
    clock: &dyn Clock,
    labels: &[(&str, &str)],
    is_meant: impl Fn(&HashMap<String, String>) -> bool,
) -> Result<(), String> {
    let cleared = async {
        loop {
            let mut found = engine.labelled(labels).await?;
            found.retain(|(_, labels)| is_meant(labels));
            if found.is_empty() {
                return Ok(());
            }
            join_all(found.iter().map(|(id, _)| engine.remove(id)))
                .await
                .into_iter()
                .collect::<Result<Vec<()>, _>>()?;
            clock.sleep(AGAIN).await;
        }
    };
    let cleared = within(clock, CLEAR_MAX, cleared).await;
    cleared.unwrap_or_else(|| Err("the engine does not remove its containers".to_owned()))
}

async fn end_idle(docker: Weak<Docker>) {
    loop {
        let Some(clock) = docker.upgrade().map(|docker| Arc::clone(&docker.clock)) else { return };
        clock.sleep(IDLE / 4).await;
        let Some(docker) = docker.upgrade() else { return };
        docker.end_idle();
    }
}
