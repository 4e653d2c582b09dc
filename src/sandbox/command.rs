//! A command, how it ended, what keeps it inside, and the trait that every sandbox implements.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::plan::WorkspaceAccess;
use ghost_domain::ids::ConversationId;
use ghost_domain::{AgentId, Code, Refusal};
use serde::{Deserialize, Serialize};

use crate::streams::{Captured, Drain, Feed};

/// The directory of a toolbox whose files a command runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ToolboxDir {
    /// The name of the toolbox.
    pub name: String,
    /// Its directory on this machine, a canonical path.
    pub dir: PathBuf,
}

/// A command to run for an agent.
#[derive(Clone, Debug)]
pub struct Command {
    /// The agent. Its commands share a runner, and see nothing of those of other agents.
    pub agent_id: AgentId,
    /// The conversation that it belongs to; `None` for the agent's own work.
    pub conversation_id: Option<ConversationId>,
    /// Program and arguments. A program without `/` is looked up in the sandbox's `PATH`.
    pub argv: Vec<String>,
    /// Where it runs: a directory, relative to the workspace.
    pub dir: String,
    /// Variables besides those that the sandbox sets.
    pub env: Vec<(String, String)>,
    /// Its standard input.
    pub stdin: Vec<u8>,
    /// More standard input, while it runs. Without it, the input ends after `stdin`.
    pub feed: Option<Feed>,
    /// Gets the standard output instead of the result and the progress. Without bound in total.
    pub drain: Option<Drain>,
    /// The toolbox that it belongs to: it sees that directory, and shares no container with other commands.
    pub toolbox: Option<ToolboxDir>,
    /// How long it may run.
    pub timeout: Duration,
    /// The directories that it may write to, relative to the workspace. Missing ones are created.
    pub writable: Vec<String>,
    /// Bytes of standard output that are kept, from its beginning and its end.
    pub stdout_limit: usize,
    /// Bytes of standard error that are kept.
    pub stderr_limit: usize,
}

impl Command {
    /// The longest time of a command, about 49 days: that of a server, which whoever started it ends.
    pub const LONGEST: Duration = Duration::from_millis(u32::MAX as u64);

    /// The directories that it may write to where commands see so much of the workspace.
    pub(crate) fn may_write(&self, access: WorkspaceAccess) -> Vec<String> {
        match access {
            WorkspaceAccess::None => vec![self.agent_id.home()],
            WorkspaceAccess::ReadOnly => Vec::new(),
            WorkspaceAccess::ReadWrite => self.writable.clone(),
        }
    }
}

/// A command in a container of its own, which mounts nothing of the workspace, reaches the proxy's port alone, and is
/// thrown away afterwards.
#[derive(Clone, Debug)]
pub struct Alone {
    /// The agent.
    pub agent_id: AgentId,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Its standard input.
    pub stdin: Vec<u8>,
    /// How long it may run.
    pub timeout: Duration,
    /// Bytes of standard output that are kept.
    pub stdout_limit: usize,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It exited with this code.
    Exited(i32),
    /// This signal ended it.
    Signal(u8),
    /// It reached its deadline, and its whole tree was killed.
    Deadline,
    /// Its tree used more memory than allowed.
    Memory,
    /// Its tree had more tasks than allowed.
    Processes,
    /// It wrote more than allowed.
    Disk,
    /// It was killed because nobody waited for it any more.
    Killed,
    /// Its supervisor died. What it did is not known.
    Lost,
}

impl End {
    /// The word for the end in results: `ok`, `failed`, or the bound.
    #[must_use]
    pub fn status(self) -> &'static str {
        match self {
            Self::Exited(0) => "ok",
            Self::Exited(_) | Self::Signal(_) => "failed",
            Self::Deadline => "timed_out",
            Self::Memory => "memory_limit",
            Self::Processes => "process_limit",
            Self::Disk => "disk_limit",
            Self::Killed => "killed",
            Self::Lost => "lost",
        }
    }
}

/// A command that has ended. None of its processes is left.
#[derive(Clone, Debug)]
pub struct Finished {
    /// How it ended.
    pub end: End,
    /// How long it ran.
    pub duration: Duration,
    /// Processor time of its tree.
    pub cpu: Duration,
    /// Its standard output.
    pub stdout: Captured,
    /// Its standard error.
    pub stderr: Captured,
    /// The protections that were in force, as bits.
    pub in_force: u32,
}

/// Gets pieces of a command's output as they come.
pub type Progress<'p> = &'p (dyn for<'t> Fn(&'t [u8]) + Send + Sync);

/// A place where commands run.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Runs a command and waits for its end. `progress` gets pieces of its output as they come. Dropping the future
    /// kills the command's whole tree.
    ///
    /// # Errors
    /// `Unavailable` if a protection is missing or the runner cannot be started or has died; `InvalidArguments` and
    /// `NotFound` for a program or directory that is not there.
    async fn run(&self, command: Command, progress: Progress<'_>) -> Result<Finished, Refusal>;

    /// Runs a command in a container of its own and waits for its end. Dropping the future ends the container.
    ///
    /// # Errors
    /// `Unsupported` where there are no containers; else as [`run`](Self::run).
    async fn run_alone(&self, _command: Alone) -> Result<Finished, Refusal> {
        Err(Refusal::new(Code::Unsupported, "this sandbox has no containers").hint("do it without a browser"))
    }

    /// What an approval is bound to: the kind of sandbox, and its image if it has one.
    fn identity(&self) -> String;

    /// The absolute path at which commands see the workspace.
    fn workspace_path(&self) -> String;

    /// The path at which a command of a toolbox sees the toolbox's directory.
    ///
    /// # Errors
    /// Why its commands cannot see it, as the rest of a sentence about the toolbox.
    fn toolbox_path(&self, toolbox: &ToolboxDir) -> Result<String, String>;

    /// What is enforced here.
    fn report(&self) -> &Report;

    /// Kills everything that runs.
    async fn close(&self);
}

macro_rules! protections {
    ($($(#[$doc:meta])* $name:ident $bit:literal $word:literal),* $(,)?) => {
        /// One protection. The numbers are bits of the runner's protocol, which does not know that of control groups.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum Protection {
            $($(#[$doc])* $name = $bit),*
        }

        impl Protection {
            /// All, in the order of their bits.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name of the protection, as the world file and the runner write it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $word),*
                }
            }
        }
    };
}

protections! {
    /// A filter refuses dangerous system calls.
    Seccomp 1 "seccomp",
    /// Files are read, written and executed in listed places only.
    Files 2 "files",
    /// There are no sockets but those that the network mode allows.
    Network 4 "network",
    /// Nothing outside the command can be signalled.
    Signals 8 "signals",
    /// Nothing outside can be traced, nor its environment or memory read.
    Trace 16 "trace",
    /// Every process dies, even if the runner is killed.
    Tree 32 "tree",
    /// Mode, owner and times of files outside cannot be changed.
    Metadata 64 "metadata",
    /// The kernel bounds the number of tasks.
    Tasks 128 "tasks",
    /// User, PID, mount, IPC and host name are the command's own.
    Namespaces 256 "namespaces",
    /// The network is the command's own.
    Netns 512 "netns",
    /// The command runs as another user than the daemon.
    Uid 1_024 "uid",
    /// The kernel's control groups bound memory and tasks of an agent's commands together, and weigh their disk access.
    Cgroup 4_096 "cgroup",
}

impl Protection {
    /// Those without which no command runs.
    pub const ALWAYS: [Self; 5] = [Self::Seccomp, Self::Files, Self::Network, Self::Signals, Self::Trace];

    /// The bit of the protection.
    #[must_use]
    pub fn bit(self) -> u32 {
        self as u32
    }

    /// The bits of several protections.
    pub(crate) fn bits(protections: impl IntoIterator<Item = Self>) -> u32 {
        protections.into_iter().fold(0, |bits, protection| bits | protection.bit())
    }

    /// The protection of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|protection| protection.as_str() == name)
    }

    /// The bits of those that always apply and of those that the world requires, by name.
    ///
    /// # Errors
    /// If there is no protection of such a name.
    pub(crate) fn required(names: &[String]) -> Result<u32, String> {
        let mut bits = Self::bits(Self::ALWAYS);
        for name in names {
            bits |= Self::named(name).ok_or_else(|| format!("there is no protection `{name}`"))?.bit();
        }
        Ok(bits)
    }

    /// The names of the protections in `bits`.
    #[must_use]
    pub fn names(bits: u32) -> Vec<&'static str> {
        Self::ALL.iter().copied().filter(|protection| bits & protection.bit() != 0).map(Self::as_str).collect()
    }
}

/// Why there is no sandbox: these protections are required and not to be had. `reasons` are the runner's.
pub(crate) fn lacking_protections(bits: u32, reasons: &[String]) -> String {
    format!("this machine lacks the protections {}: {}", Protection::names(bits).join(", "), reasons.join("; "))
}

/// What a sandbox can enforce on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The protections that commands get, as bits.
    pub in_force: u32,
    /// Why others are missing, one line each, as the runner found it.
    pub missing: Vec<String>,
    /// The image of containers with its id; empty if there is none.
    pub image: String,
    /// The version of the browser in the image, if it has one.
    pub browser: Option<String>,
}

/// Why a command finds no sandbox.
pub(crate) fn unavailable(why: &str) -> Refusal {
    Refusal::new(Code::Unavailable, format!("there is no sandbox now: {why}")).hint("try again later")
}

/// The text of an error with its causes, which many libraries leave out of it.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = inner.source();
    }
    text
}
