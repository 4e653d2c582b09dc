//! The `local` sandbox: commands run on this machine, fenced in by the kernel. Each agent has a runner of its own, started
//! with its first command and ended when it has been idle for a while. A command gets no variable of the daemon that the
//! world does not name, and sees no file but the system's programs and the workspace.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::plan::{SandboxNetwork, SandboxPlan, WorkspaceAccess};
use ghost_domain::write_acl::is_foreign;
use ghost_domain::{AgentId, Clock, Code, Refusal, Timestamp};
use tokio::process::Child;
use tokio::sync::Mutex;

use crate::cgroup::{Cgroup, Cgroups};
use crate::client::Runner;
use crate::command::{
    Command, Finished, Progress, Protection, Report, Sandbox, ToolboxDir, lacking_protections, unavailable,
};
use crate::environment::{devices, environment, in_memory};
use crate::frame::{Exec, Network, flag, right};
use crate::left::Left;
use crate::own_dirs::{DirOwner, User, Users};
use crate::tunnel::{Client, Exit, Outlet};
use crate::{own_dirs, tunnel};

/// An idle runner ends after this time.
const IDLE: Duration = Duration::from_secs(60);
/// How long a runner may take to greet.
const GREETING: Duration = Duration::from_secs(10);
/// How often a start is tried again while the program counts as being written, and the pause before each: a child that
/// another thread has forked holds the handle that wrote it, until it executes its own program.
const BUSY_TRIES: u32 = 100;
const BUSY_PAUSE: Duration = Duration::from_millis(10);
/// Directories and files of the system that commands may read and run. Node.js does not start if there is an OpenSSL
/// configuration that it may not read; no private key is in these places.
const SYSTEM: &str = "/usr /bin /sbin /lib /lib32 /lib64 /opt /etc/alternatives /etc/ca-certificates /etc/crypto-policies \
    /etc/group /etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d /etc/localtime /etc/magic /etc/mime.types \
    /etc/nsswitch.conf /etc/passwd /etc/pki/ca-trust /etc/pki/tls/openssl.cnf /etc/profile /etc/protocols \
    /etc/services /etc/ssl/certs /etc/ssl/openssl.cnf /etc/terminfo /etc/timezone";
/// The runner's program. `build.rs` compiles it.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/runner"));
/// Its name in the data directory.
const PROGRAM_NAME: &str = "sandbox-runner";
/// Other users may run it: in a container it is not the daemon's user that does.
const PROGRAM_MODE: u32 = 0o555;

/// The sandbox.
pub struct Local {
    plan: SandboxPlan,
    program: PathBuf,
    workspace: PathBuf,
    /// Protections that the runner has to give.
    required: u32,
    report: Report,
    cgroups: Option<Cgroups>,
    outlet: Arc<dyn Outlet>,
    clock: Arc<dyn Clock>,
    runners: Mutex<BTreeMap<AgentId, Started>>,
    left: Left,
    is_root: bool,
    /// The users of agents, if each has its own. Only root can become them.
    users: Option<Arc<dyn Users>>,
}

/// A runner that was started.
#[derive(Debug)]
struct Started {
    runner: Arc<Runner>,
    used_at: Timestamp,
    /// Dropped, it is killed.
    child: Option<Child>,
    cgroup: Option<Cgroup>,
}

impl Drop for Started {
    fn drop(&mut self) {
        // A group can be removed when its processes have gone. Without a runtime the daemon is ending.
        let (child, cgroup) = (self.child.take(), self.cgroup.take());
        if let (Some(mut child), Some(cgroup), Ok(runtime)) = (child, cgroup, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                // An error means that it has gone already.
                let _ = child.kill().await;
                drop(cgroup);
            });
        }
    }
}

impl Local {
    /// Prepares the sandbox and starts a runner once, to learn what this machine can enforce. As root, commands run as
    /// the users that `users` gives their agents; without it, all as "nobody".
    ///
    /// # Errors
    /// Why commands cannot run here.
    pub async fn open(
        plan: &SandboxPlan,
        data_dir: &Path,
        workspace: &Path,
        outlet: Arc<dyn Outlet>,
        clock: Arc<dyn Clock>,
        users: Option<Arc<dyn Users>>,
    ) -> Result<Arc<Self>, String> {
        let workspace = workspace.canonicalize().map_err(|error| format!("the workspace cannot be found: {error}"))?;
        let is_root = rustix::process::geteuid().is_root();
        let program = install(data_dir)?;
        let mut required = Protection::required(&plan.require)?;
        if plan.network == SandboxNetwork::Proxy {
            // Landlock could only hold commands to the proxy's port, on whatever host.
            required |= Protection::Netns.bit();
        }
        let mut local = Self {
            plan: plan.clone(),
            program,
            workspace,
            required: required & !Protection::Cgroup.bit(),
            report: Report::default(),
            cgroups: None,
            outlet,
            clock,
            runners: Mutex::default(),
            left: Left::default(),
            is_root,
            users: users.filter(|_| is_root),
        };
        let (runner, child) = local.start(None).await?;
        let hello = runner.hello();
        let (mut in_force, mut missing) = (hello.available, hello.missing.clone());
        match Cgroups::find() {
            Ok(found) => {
                in_force |= Protection::Cgroup.bit();
                local.cgroups = Some(found);
            }
            Err(why) => missing.push(format!("cgroup: {why}")),
        }
        let lacking = required & !in_force;
        if lacking != 0 {
            return Err(lacking_protections(lacking, &missing));
        }
        local.report = Report { in_force, missing, ..Report::default() };
        if is_root {
            // Files in the data directory, such as the token, are for the daemon alone.
            own_dirs::let_others_through(data_dir)?;
            match &local.users {
                Some(_) => own_dirs::let_others_through(&local.workspace)?,
                None => own_dirs::close_to_others(&local.workspace, User::NOBODY.gid)?,
            }
            own_dirs::is_reachable(&local.workspace)?;
        }
        drop(child);
        let local = Arc::new(local);
        tokio::spawn(end_idle(Arc::downgrade(&local)));
        Ok(local)
    }

    /// Starts a runner for an agent; without one, to learn what it can enforce.
    async fn start(&self, agent_id: Option<&AgentId>) -> Result<(Arc<Runner>, Child), String> {
        #[allow(clippy::disallowed_methods, reason = "this is the room that starts processes, and the runner is ours")]
        let mut command = std::process::Command::new(&self.program);
        command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
        // A Ctrl-C in the daemon's terminal must not end commands before their turns.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut command = tokio::process::Command::from(command);
        command.kill_on_drop(true);
        let mut tries = 0;
        let mut child = loop {
            match command.spawn() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy && tries < BUSY_TRIES => {
                    tries += 1;
                    self.clock.sleep(BUSY_PAUSE).await;
                }
                spawned => break spawned.map_err(|error| format!("the runner does not start: {error}"))?,
            }
        };
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the runner has no streams".to_owned());
        };
        let exit = agent_id.map(|agent_id| Exit::new(&self.outlet, Client::Agent(agent_id.clone())));
        let runner = Runner::connect(from, to, exit, (&*self.clock, GREETING)).await?;
        Ok((Arc::new(runner), child))
    }

    /// The runner of an agent.
    async fn runner(&self, agent_id: &AgentId) -> Result<Arc<Runner>, Refusal> {
        let mut runners = self.runners.lock().await;
        if let Some(started) = runners.get_mut(agent_id).filter(|started| !started.runner.is_gone()) {
            started.used_at = self.clock.steady();
            return Ok(Arc::clone(&started.runner));
        }
        let (runner, child) = self.start(Some(agent_id)).await.map_err(|why| unavailable(&why))?;
        let in_group = |cgroups: &Cgroups| -> std::io::Result<Cgroup> {
            let cgroup = cgroups.make(&self.plan)?;
            child.id().map_or(Ok(()), |pid| cgroup.take(pid))?;
            Ok(cgroup)
        };
        let cgroup = self.cgroups.as_ref().map(in_group).transpose();
        let cgroup = cgroup.map_err(|error| unavailable(&format!("its control group cannot be made: {error}")))?;
        let used_at = self.clock.steady();
        let started = Started { runner: Arc::clone(&runner), used_at, child: Some(child), cgroup };
        runners.insert(agent_id.clone(), started);
        Ok(runner)
    }

    /// Ends runners that have had nothing to do.
    async fn end_idle_runners(&self) {
        let now = self.clock.steady();
        self.runners.lock().await.retain(|_, started| {
            // One more holder is a command under way.
            Arc::strong_count(&started.runner) > 1 || now.since(started.used_at) < IDLE
        });
    }

    /// Prepares a directory of the workspace for the command of an agent. If it has a user of its own, its home is that
    /// user's, and every other directory is shared: it belongs to the group of all agents.
    fn own(&self, dir: &str, agent_id: &AgentId, user: Option<User>) -> Result<(), Refusal> {
        let owner = match user {
            Some(user) if Path::new(dir).starts_with(agent_id.home()) => DirOwner::User(user),
            Some(_) if is_foreign(agent_id, dir) => {
                let what = format!("`{dir}` is the directory of another agent, whose user alone may write there");
                return Err(Refusal::new(Code::PathDenied, what).hint("name a directory that agents share"));
            }
            Some(user) => DirOwner::Group(user.gid),
            None if self.is_root => DirOwner::User(User::NOBODY),
            None => DirOwner::Kept,
        };
        own_dirs::prepare(&self.workspace, dir, owner).map(drop)
    }

    fn exec(&self, command: &Command, user: Option<User>) -> Exec {
        let spaces = self.report.in_force & Protection::Namespaces.bit() != 0;
        let at = |path: &str| self.workspace.join(path).display().to_string();
        let home = at(&command.agent_id.home());
        let mut paths: Vec<(u8, String)> = SYSTEM
            .split(' ')
            .map(|path| (right::READ | right::EXECUTE | right::FOLLOW | right::OPTIONAL, path.to_owned()))
            .collect();
        paths.extend(devices());
        if self.plan.workspace_access != WorkspaceAccess::None {
            paths.push((right::READ | right::EXECUTE, self.workspace.display().to_string()));
        }
        if let Some(toolbox) = &command.toolbox {
            paths.push((right::READ | right::EXECUTE, toolbox.dir.display().to_string()));
        }
        let all = right::READ | right::WRITE | right::EXECUTE;
        paths.extend(command.writable.iter().map(|prefix| (all, at(prefix))));
        let mut flags = flag::STDIN;
        let mut tmp = home.clone();
        if spaces {
            flags |= flag::NAMESPACES | flag::NETNS | flag::PRIVATE_TMP;
            paths.push((right::READ | right::FOLLOW, "/proc".to_owned()));
            paths.extend(in_memory());
            "/tmp".clone_into(&mut tmp);
        }
        let workspace = self.workspace.display().to_string();
        let env = environment(&self.plan, &workspace, &home, &tmp, &command.env);
        Exec {
            flags,
            required: self.required,
            cwd: at(&command.dir),
            env,
            paths,
            network: match self.plan.network {
                SandboxNetwork::Proxy => Network::Tunnel(tunnel::PORT),
                SandboxNetwork::None | SandboxNetwork::Open => Network::None,
            },
            user,
            ..Exec::bounded(&self.plan, command.argv.clone(), command.timeout)
        }
    }
}

#[async_trait]
impl Sandbox for Local {
    async fn run(&self, command: Command, progress: Progress<'_>) -> Result<Finished, Refusal> {
        // Few system calls on directories that are in memory: cheaper than another thread.
        let user = self.users.as_ref().map(|users| users.user_of(&command.agent_id)).transpose()?;
        let command = Command { writable: command.may_write(self.plan.workspace_access), ..command };
        let home = command.agent_id.home();
        for dir in std::iter::once(&home).chain(&command.writable) {
            self.own(dir, &command.agent_id, user)?;
        }
        let exec = self.exec(&command, user);
        let begun = self.left.begin(&self.workspace, &command.agent_id, &command.writable)?;
        let runner = self.runner(&command.agent_id).await?;
        let begun = (begun, self.workspace.as_path());
        let done = runner.run_for(&command, &exec, begun, progress, &*self.clock).await?;
        let cgroup = if self.cgroups.is_some() { Protection::Cgroup.bit() } else { 0 };
        Ok(Finished { in_force: done.in_force | cgroup, ..done })
    }

    fn identity(&self) -> String {
        "local".to_owned()
    }

    fn workspace_path(&self) -> String {
        self.workspace.to_string_lossy().into_owned()
    }

    fn toolbox_path(&self, toolbox: &ToolboxDir) -> Result<String, String> {
        own_dirs::is_within_reach(&toolbox.dir)?;
        Ok(toolbox.dir.display().to_string())
    }

    fn report(&self) -> &Report {
        &self.report
    }

    async fn close(&self) {
        self.runners.lock().await.clear();
    }
}

async fn end_idle(local: Weak<Local>) {
    loop {
        let Some(clock) = local.upgrade().map(|local| Arc::clone(&local.clock)) else { return };
        clock.sleep(IDLE / 2).await;
        let Some(local) = local.upgrade() else { return };
        local.end_idle_runners().await;
    }
}

/// Writes the runner's program to `data_dir`, unless it is there already. Returns its path.
///
/// # Errors
/// Why it cannot be written.
pub(crate) fn install(data_dir: &Path) -> Result<PathBuf, String> {
    installed(data_dir).map_err(|error| format!("the runner's program cannot be written: {error}"))
}

fn installed(data_dir: &Path) -> std::io::Result<PathBuf> {
    let program = data_dir.join(PROGRAM_NAME);
    if std::fs::read(&program).is_ok_and(|found| found == PROGRAM) {
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(PROGRAM_MODE))?;
        return Ok(program);
    }
    let new = program.with_extension("new");
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(PROGRAM_MODE).open(&new)?;
    file.write_all(PROGRAM)?;
    // The daemon's umask may have taken bits away.
    file.set_permissions(std::fs::Permissions::from_mode(PROGRAM_MODE))?;
    file.sync_all()?;
    drop(file);
    std::fs::rename(new, &program)?;
    Ok(program)
}
