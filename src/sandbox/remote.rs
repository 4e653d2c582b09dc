//! The `remote` sandbox: commands run on a toolbox server, on another machine. The workspace stays with ghostd; before and after
//! each command the two copies are made to agree.
//!
//! The server is trusted with what it is sent, and with nothing else: it does not choose what is written here outside the
//! places of a running command, hold memory without a bound, or keep a call longer than the command's deadline allows. A
//! command is never sent twice.

mod exchange;
mod mirror;
pub mod node;
pub mod protocol;
mod transfer;
pub mod tree;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ghost_config::plan::{SandboxPlan, WorkspaceAccess};
use ghost_domain::{Clock, Code, Refusal};
use tokio::sync::{mpsc, watch};

use self::exchange::{Answer, Server, unavailable};
use self::mirror::Mirror;
use self::protocol::{BEAT, Bounds, Data, Exec, FromCommand, LINE_MAX, SILENCE, STDIN_MAX, ToCommand, VERSION};
use self::tree::Tree;
use crate::clock::within;
use crate::command::{Command, Finished, Progress, Protection, Report, Sandbox, ToolboxDir, lacking_protections};
use crate::docker::Owner;
use crate::own_dirs;

/// How long after a command's deadline its end may take to arrive.
const GRACE: Duration = Duration::from_secs(15);
/// How long a killed command's end may take to arrive.
const KILL_GRACE: Duration = Duration::from_secs(5);
/// How long the end of all commands may take when the sandbox is closed.
const CLOSE_GRACE: Duration = Duration::from_secs(20);
/// Pieces of output that may wait for their reader.
const PIECES: usize = 64;
/// Lines that may wait to be sent.
const LINES: usize = 16;

/// The sandbox.
pub struct Remote {
    me: Weak<Self>,
    plan: SandboxPlan,
    server: Arc<Server>,
    mirror: Mirror,
    /// The name of the workspace on the server.
    world: String,
    workspace: PathBuf,
    /// The workspace as commands see it.
    inside: String,
    identity: String,
    report: Report,
    clock: Arc<dyn Clock>,
    /// Changes when everything that runs must end.
    kill: watch::Sender<()>,
    /// Commands that run.
    running: watch::Sender<usize>,
}

/// Counts a command as long as it lives.
struct Running<'r>(&'r watch::Sender<usize>);

impl<'r> Running<'r> {
    fn begin(count: &'r watch::Sender<usize>) -> Self {
        count.send_modify(|count| *count += 1);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Remote {
    /// Asks the server what it enforces. The token is the value of the variable that the plan names.
    ///
    /// # Errors
    /// Why commands cannot run there.
    pub async fn open(
        plan: &SandboxPlan,
        token: Option<&str>,
        owner: Owner<'_>,
        workspace: &Path,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, String> {
        let remote = plan.remote.as_ref().ok_or("the world file names no toolbox server (`sandbox.url`)")?;
        let token = token.filter(|token| !token.is_empty());
        let token =
            token.ok_or_else(|| format!("the variable {} with the server's token is not set", remote.token_env))?;
        ghost_domain::bearer::check_token(token).map_err(|why| format!("the token in {} {why}", remote.token_env))?;
        let unusable = |error: std::io::Error| format!("the workspace cannot be used: {error}");
        let workspace = workspace.canonicalize().map_err(unusable)?;
        let tree = Tree::open(&workspace).map_err(unusable)?;
        let world = exchange::world_name(owner.world_id, owner.data_dir)
            .map_err(|error| format!("the workspace has no name: {error}"))?;
        let server = Arc::new(Server::new(remote, token, Arc::clone(&clock))?);
        let health = server.health(&world).await.map_err(|refusal| refusal.in_words())?;
        let report = exchange::report(&health);
        let inside = exchange::inside(&health).ok_or("the toolbox server does not say where its workspace is")?;
        let required = Protection::required(&plan.require)?;
        let lacking = required & !report.in_force;
        if lacking != 0 {
            return Err(format!("on the toolbox server, {}", lacking_protections(lacking, &report.missing)));
        }
        let mirror = Mirror::new(Arc::clone(&server), world.clone(), tree, plan.disk_bytes, Arc::clone(&clock));
        Ok(Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            plan: plan.clone(),
            server,
            mirror,
            world,
            workspace,
            identity: format!("remote {}", remote.url),
            inside,
            report,
            clock,
            kill: watch::Sender::new(()),
            running: watch::Sender::new(0),
        }))
    }

    /// What is kept in agreement for a command: what it may read.
    fn scope(&self, command: &Command) -> String {
        match self.plan.workspace_access {
            WorkspaceAccess::None => command.agent_id.home(),
            WorkspaceAccess::ReadOnly | WorkspaceAccess::ReadWrite => String::new(),
        }
    }

    fn exec(&self, command: &Command) -> Exec {
        let passed = self.plan.passthrough_env.iter();
        let passed = passed.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)));
        let own = self.plan.env.iter().map(|(name, value)| (name.clone(), value.clone()));
        Exec {
            version: VERSION,
            world: self.world.clone(),
            agent_id: command.agent_id.to_string(),
            argv: command.argv.clone(),
            dir: command.dir.clone(),
            env: passed.chain(own).chain(command.env.iter().cloned()).collect(),
            stdin: Data(command.stdin.clone()),
            feeds: command.feed.is_some(),
            timeout_ms: u64::try_from(command.timeout.as_millis()).unwrap_or(u64::MAX),
            writable: command.writable.clone(),
            access: self.plan.workspace_access.into(),
            require: self.plan.require.clone(),
            bounds: Bounds {
                memory_bytes: self.plan.memory_bytes,
                processes: self.plan.processes,
                disk_bytes: self.plan.disk_bytes,
            },
            stdout_limit: command.stdout_limit,
            stderr_limit: command.stderr_limit,
        }
    }

    /// Runs a command from its first to its last file. When nobody takes its output any more, it is killed, and what it
    /// wrote until then is brought back all the same.
    async fn attend(self: Arc<Self>, command: Command, pieces: mpsc::Sender<Vec<u8>>) -> Result<Finished, Refusal> {
        let _running = Running::begin(&self.running);
        let kill = self.kill.subscribe();
        if command.stdin.len() > STDIN_MAX {
            return Err(Refusal::new(
                Code::TooLarge,
                format!("the standard input has more than {} MB", STDIN_MAX >> 20),
            )
            .hint("write it to a file of the workspace, and use the file"));
        }
        let places = command.may_write(self.plan.workspace_access);
        let own: Vec<String> = std::iter::once(command.agent_id.home()).chain(places.iter().cloned()).collect();
        for dir in &own {
            own_dirs::prepare(&self.workspace, dir, own_dirs::DirOwner::Kept)?;
        }
        let scope = self.scope(&command);
        for note in self.mirror.agree(&scope, &own).await? {
            tracing::warn!(agent = %command.agent_id, "files of the remote sandbox: {note}");
        }
        if pieces.is_closed() {
            return Err(unavailable("was not asked: nobody waits for the command any more"));
        }
        let active = self.mirror.active.begin(places);
        let ran = self.converse(&command, &pieces, kill).await;
        let agreed = self.mirror.agree(&scope, &own).await;
        drop(active);
        match (ran, agreed) {
            (Ok(mut done), Ok(notes)) => {
                exchange::add_notes(&mut done.stderr, &notes);
                Ok(done)
            }
            (Ok(done), Err(refusal)) => {
                let what = format!(
                    "the command ended ({}), but what it wrote could not be brought back: {}",
                    done.end.status(),
                    refusal.message
                );
                let hint = "its files are still on the toolbox server, and the next command there replaces them";
                Err(Refusal::new(Code::OutcomeUnknown, what).hint(hint))
            }
            (Err(refusal), Ok(_)) => Err(refusal),
            (Err(refusal), Err(second)) => {
                tracing::warn!(agent = %command.agent_id, "files of a command were not brought back: {second}");
                Err(refusal)
            }
        }
    }

    /// Runs a command, with the workspace as it is there.
    async fn converse(
        &self,
        command: &Command,
        pieces: &mpsc::Sender<Vec<u8>>,
        mut kill: watch::Receiver<()>,
    ) -> Result<Finished, Refusal> {
        let (to, body) = mpsc::channel::<Bytes>(LINES);
        let head = protocol::line(&self.exec(command)).map_err(|error| unavailable(error.to_string()))?;
        to.try_send(head.into()).map_err(|_| unavailable("was not asked"))?;
        keep_speaking(&to, &self.clock)?;
        let run = async {
            let mut answer = self.server.converse("/exec-stream", body).await?;
            let killed = tokio::select! {
                biased;
                done = listen(&mut answer, &to, command, pieces) => return done,
                () = pieces.closed() => "nobody waits for it any more",
                _ = kill.changed() => "the sandbox is being closed",
            };
            tracing::debug!(agent = %command.agent_id, "a remote command is killed: {killed}");
            tell(&to, &ToCommand::Kill).await?;
            let unheard = mpsc::channel(1).0;
            Server::within(&*self.clock, KILL_GRACE, listen(&mut answer, &to, command, &unheard)).await
        };
        let ran = within(&*self.clock, command.timeout.saturating_add(GRACE), run).await;
        ran.unwrap_or_else(|| Err(unavailable("did not answer until the command's deadline"))).map_err(lost)
    }
}

/// What a command did whose end did not arrive is not known. A refusal of the server itself is no such loss.
fn lost(refusal: Refusal) -> Refusal {
    if refusal.code == Code::Unavailable {
        return refusal.hint("check what the command did before you repeat it");
    }
    refusal
}

async fn tell(to: &mpsc::Sender<Bytes>, what: &ToCommand) -> Result<(), Refusal> {
    let line = protocol::line(what).map_err(|error| unavailable(error.to_string()))?;
    to.send(line.into()).await.map_err(|_| unavailable("broke off"))
}

/// Says now and then that ghostd is there, as long as the request is open.
fn keep_speaking(to: &mpsc::Sender<Bytes>, clock: &Arc<dyn Clock>) -> Result<(), Refusal> {
    let beat = Bytes::from(protocol::line(&ToCommand::Beat).map_err(|error| unavailable(error.to_string()))?);
    let (to, clock) = (to.downgrade(), Arc::clone(clock));
    tokio::spawn(async move {
        loop {
            clock.sleep(BEAT).await;
            let Some(to) = to.upgrade() else { return };
            // A full queue means that enough is said already, or that nobody reads.
            if to.try_send(beat.clone()).is_err_and(|error| matches!(error, mpsc::error::TrySendError::Closed(_))) {
                return;
            }
        }
    });
    Ok(())
}

/// Takes what a command says until its end, and feeds it.
async fn listen(
    answer: &mut Answer,
    to: &mpsc::Sender<Bytes>,
    command: &Command,
    pieces: &mpsc::Sender<Vec<u8>>,
) -> Result<Finished, Refusal> {
    // The last line holds both outputs. In JSON a byte takes at most six.
    let most = LINE_MAX + 6 * (command.stdout_limit + command.stderr_limit);
    // Whether the command has read what it was given last.
    let (mut feed, mut taken) = (command.feed.as_ref(), true);
    loop {
        let more = async {
            match feed {
                Some(feed) if taken => feed.next().await,
                _ => std::future::pending().await,
            }
        };
        let line = tokio::select! {
            biased;
            line = answer.next::<FromCommand>(most, SILENCE) => line?,
            more = more => {
                match more {
                    Some(bytes) => {
                        taken = false;
                        tell(to, &ToCommand::Stdin(Data(bytes))).await?;
                    }
                    None => {
                        feed = None;
                        tell(to, &ToCommand::Eof).await?;
                    }
                }
                continue;
            }
        };
        match line.ok_or_else(|| unavailable("broke off"))? {
            FromCommand::Output(Data(bytes)) => drop(pieces.send(bytes).await),
            FromCommand::LeftOut(bytes) => {
                drop(pieces.send(format!("\n[… {bytes} bytes left out …]\n").into_bytes()).await);
            }
            FromCommand::Taken => taken = true,
            FromCommand::Beat => {}
            FromCommand::Ended(ended) => {
                return exchange::finished(ended, command).ok_or_else(|| unavailable("garbled a result"));
            }
            FromCommand::Refused(refusal) => return Err(exchange::cleaned(refusal)),
        }
    }
}

#[async_trait]
impl Sandbox for Remote {
    async fn run(&self, command: Command, progress: Progress<'_>) -> Result<Finished, Refusal> {
        let me = self.me.upgrade().ok_or_else(|| unavailable("is not connected any more"))?;
        let (sender, mut pieces) = mpsc::channel(PIECES);
        // In a task of its own: a caller that goes away kills the command, but its files still come back.
        let task = tokio::spawn(me.attend(command, sender));
        while let Some(piece) = pieces.recv().await {
            progress(&piece);
        }
        task.await.map_err(|error| Refusal::new(Code::Internal, format!("the command's task failed: {error}")))?
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn workspace_path(&self) -> String {
        self.inside.clone()
    }

    fn toolbox_path(&self, _: &ToolboxDir) -> Result<String, String> {
        Err("its files are on this machine, and commands of this world run on a toolbox server; give it \
             `runtime: { kind: remote, … }` and install it there"
            .to_owned())
    }

    fn report(&self) -> &Report {
        &self.report
    }

    async fn close(&self) {
        self.kill.send_replace(());
        let mut running = self.running.subscribe();
        // The sender lives as long as this sandbox.
        if within(&*self.clock, CLOSE_GRACE, running.wait_for(|count| *count == 0)).await.is_none() {
            tracing::warn!("remote commands have not ended");
        }
    }
}
