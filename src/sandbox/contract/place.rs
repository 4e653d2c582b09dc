//! A sandbox under test: its workspace, its agents, and short ways to run commands.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use ghost_config::plan::{RemotePlan, SandboxKind, SandboxPlan};
use ghost_domain::{AgentId, Refusal};
pub use ghost_sandbox::SystemClock;
use ghost_sandbox::{Client, Command, Docker, End, Finished, Local, Outlet, Owner, Remote, Sandbox};
use ghost_testkit::blackbox::ToolboxServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// Which sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Local,
    Docker,
    Remote,
}

/// An outlet that names the agent, and then says again what it hears.
struct Echo;

impl Outlet for Echo {
    fn serve(&self, client: &Client, mut stream: DuplexStream) -> BoxFuture<'static, ()> {
        let hello = match client {
            Client::Agent(agent_id) => format!("{agent_id}\n"),
            Client::Shared => "all\n".to_owned(),
            Client::Browser(agent_id) => format!("browser of {agent_id}\n"),
        };
        Box::pin(async move {
            // The other side may go away at any time.
            if stream.write_all(hello.as_bytes()).await.is_err() {
                return;
            }
            let (mut from, mut to) = tokio::io::split(stream);
            let _ = tokio::io::copy(&mut from, &mut to).await;
            let _ = to.shutdown().await;
            // Until the other side has closed.
            let _ = from.read(&mut [0]).await;
        })
    }
}

/// The outlet of the sandboxes under test.
pub fn outlet() -> Arc<dyn Outlet> {
    Arc::new(Echo)
}

/// A sandbox with a data directory and a workspace of its own.
pub struct Place {
    pub kind: Kind,
    pub sandbox: Arc<dyn Sandbox>,
    pub plan: SandboxPlan,
    pub runtime: tokio::runtime::Runtime,
    /// The toolbox server of `remote`.
    pub server: Option<ToolboxServer>,
    pub dir: tempfile::TempDir,
}

/// A plan with bounds that tests reach quickly.
pub fn plan(kind: Kind) -> SandboxPlan {
    SandboxPlan {
        kind: match kind {
            Kind::Local => SandboxKind::Local,
            Kind::Docker => SandboxKind::Docker,
            Kind::Remote => SandboxKind::Remote,
        },
        memory_bytes: 256 << 20,
        processes: 64,
        disk_bytes: 32 << 20,
        image: std::env::var("GHOST_DOCKER_IMAGE").unwrap_or_else(|_| SandboxPlan::default().image),
        ..SandboxPlan::default()
    }
}

/// A directory that the user of commands can reach, also if that is another one.
pub fn open_dir() -> tempfile::TempDir {
    // Not in `/tmp`, which commands of `local` do not see.
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir_all(dir.path().join("data/workspace")).unwrap();
    dir
}

/// The engine that tests use.
pub fn engine_host() -> Option<String> {
    std::env::var("DOCKER_HOST").ok()
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Says that a case is skipped, or fails if it must not be.
pub fn skipped(kind: Kind, why: &str) {
    let variable = if kind == Kind::Docker { "GHOST_DOCKER" } else { "GHOST_SANDBOX" };
    assert!(std::env::var(variable).is_err(), "{variable}=required: {why}");
    eprintln!("skipped: {why}");
}

impl Place {
    /// `None`, with the reason on standard error, if this machine has no such sandbox and none is required.
    pub fn new(kind: Kind) -> Option<Self> {
        Self::with(kind, |_| {})
    }

    /// The same with a changed plan.
    pub fn with(kind: Kind, change: impl FnOnce(&mut SandboxPlan)) -> Option<Self> {
        let mut plan = plan(kind);
        change(&mut plan);
        Self::at(kind, plan, engine_host().as_deref())
    }

    /// The same at a certain engine.
    pub fn at(kind: Kind, plan: SandboxPlan, host: Option<&str>) -> Option<Self> {
        let (runtime, dir, mut plan) = (runtime(), open_dir(), plan);
        let server = match (kind == Kind::Remote).then(|| server_in(dir.path())).transpose() {
            Ok(server) => server,
            Err(why) => {
                skipped(kind, &why);
                return None;
            }
        };
        plan.remote = server.as_ref().map(|server| remote_plan(&server.url));
        match runtime.block_on(open(kind, &plan, dir.path().join("data"), host)) {
            Ok(sandbox) => Some(Self { kind, sandbox, plan, runtime, server, dir }),
            Err(why) => {
                skipped(kind, &why);
                None
            }
        }
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("data")
    }

    pub fn workspace(&self) -> PathBuf {
        self.data().join("workspace")
    }

    /// The path of the workspace as commands see it.
    pub fn inside(&self) -> String {
        match self.kind {
            Kind::Local => self.workspace().canonicalize().unwrap().display().to_string(),
            Kind::Docker => "/workspace".to_owned(),
            Kind::Remote => self.sandbox.workspace_path(),
        }
    }

    /// The number of the user that commands of an agent run as.
    pub fn user(&self, agent: &str) -> u32 {
        let own = rustix::process::geteuid();
        match self.kind {
            _ if !own.is_root() => own.as_raw(),
            Kind::Local | Kind::Docker => 65_534,
            Kind::Remote => {
                let known = std::fs::read_to_string(self.dir.path().join("toolbox/server/users")).unwrap();
                let lines = known.lines().map(|line| line.split(' ').collect::<Vec<_>>());
                let of_agent = lines.filter(|line| line[2] == agent).map(|line| line[0].parse().unwrap());
                let found: Vec<u32> = of_agent.collect();
                assert_eq!(found.len(), 1, "{agent} has one user in {known}");
                found[0]
            }
        }
    }

    pub fn command(&self, agent: &str, argv: &[&str]) -> Command {
        command(agent, argv)
    }

    pub fn run(&self, command: Command) -> Result<Finished, Refusal> {
        self.runtime.block_on(self.sandbox.run(command, &|_| {}))
    }

    /// Runs a shell script of an agent that must begin.
    pub fn sh(&self, agent: &str, script: &str) -> Finished {
        self.run(sh(agent, script)).unwrap_or_else(|refusal| panic!("{script}: {refusal}"))
    }

    /// Runs Python code of an agent, after some definitions for attempts. Returns the attempts' results: `ok`, or the
    /// name of the error.
    pub fn attempts(&self, agent: &str, code: &str) -> std::collections::BTreeMap<String, String> {
        let code = format!("{ATTEMPTS}\n{code}");
        let mut command = self.command(agent, &["python3", "-I", "-"]);
        command.stdin = code.into_bytes();
        command.stdout_limit = 500_000;
        let done = self.run(command).unwrap();
        assert_eq!(done.end, End::Exited(0), "{} {}", done.stdout.text, done.stderr.text);
        let lines = done.stdout.text.lines().filter_map(|line| line.strip_prefix("RESULT ")?.split_once('='));
        lines.map(|(name, result)| (name.to_owned(), result.to_owned())).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.runtime.block_on(self.sandbox.close());
    }
}

/// What Python needs to make an attempt and to tell how it ended.
pub const ATTEMPTS: &str = "\
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def t(name, f):
    try: f(); result = 'ok'
    except OSError as e: result = errno.errorcode.get(e.errno, str(e.errno))
    except BaseException as e: result = type(e).__name__
    print(f'RESULT {name}={result}', flush=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    if result < 0: raise OSError(ctypes.get_errno(), 'call')
    return result
";

/// Starts a toolbox server with its files in a directory of `dir`.
pub fn server_in(dir: &std::path::Path) -> Result<ToolboxServer, String> {
    let own = dir.join("toolbox");
    std::fs::create_dir_all(&own).unwrap();
    ToolboxServer::start(&own, "127.0.0.1:0", None)
}

/// The plan for a server.
pub fn remote_plan(url: &str) -> RemotePlan {
    RemotePlan { url: url.to_owned(), token_env: "GHOST_TOOLBOX_TOKEN".to_owned(), ca_file: None }
}

/// Opens a sandbox.
pub async fn open(
    kind: Kind,
    plan: &SandboxPlan,
    data: PathBuf,
    host: Option<&str>,
) -> Result<Arc<dyn Sandbox>, String> {
    let workspace = data.join("workspace");
    let (clock, outlet) = (Arc::new(SystemClock), outlet());
    Ok(match kind {
        Kind::Local => Local::open(plan, &data, &workspace, outlet, clock, None).await? as Arc<dyn Sandbox>,
        Kind::Docker => {
            let owner = Owner { world_id: "contract", data_dir: &data };
            Docker::open(plan, host, owner, &workspace, outlet, clock).await? as Arc<dyn Sandbox>
        }
        Kind::Remote => {
            let owner = Owner { world_id: "contract", data_dir: &data };
            Remote::open(plan, Some(ToolboxServer::TOKEN), owner, &workspace, clock).await? as Arc<dyn Sandbox>
        }
    })
}

/// A command of an agent that may write its own directory and `output/`.
pub fn command(agent: &str, argv: &[&str]) -> Command {
    Command {
        agent_id: agent.parse::<AgentId>().unwrap(),
        conversation_id: None,
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        dir: format!("agents/{agent}"),
        env: Vec::new(),
        stdin: Vec::new(),
        feed: None,
        drain: None,
        toolbox: None,
        timeout: Duration::from_secs(20),
        writable: vec![format!("agents/{agent}/"), "output/".to_owned()],
        stdout_limit: 50_000,
        stderr_limit: 10_000,
    }
}

/// A shell script of an agent.
pub fn sh(agent: &str, script: &str) -> Command {
    command(agent, &["/bin/sh", "-c", script])
}
