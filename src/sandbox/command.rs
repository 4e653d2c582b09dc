//! A command, how it ended, and the trait that every sandbox implements (SBX-05).

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use ghost_config::plan::WorkspaceAccess;
use ghost_domain::ids::ConversationId;
use ghost_domain::{AgentId, Code, Refusal};
use serde::{Deserialize, Serialize};

use crate::capture::Captured;
use crate::drain::Drain;
use crate::feed::Feed;
use crate::protection::Report;

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
