//! Toolboxes: the tools that come from outside ghostd, as their manifests describe them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use ghost_coding::Format;
use serde_json::Value;

use super::sandbox::RemotePlan;

/// A toolbox whose manifest was read.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolboxPlan {
    /// The first part of its tools' names.
    pub name: String,
    /// The path of the manifest as the world file or the skill has it.
    pub source: String,
    /// What it is for; may be empty.
    pub description: String,
    /// The skill that brings it; `None` if the world file lists it.
    pub skill: Option<String>,
    /// The directory of the manifest, canonical. Commands see it, read only.
    pub dir: PathBuf,
    /// Variables that its commands get.
    pub env: BTreeMap<String, String>,
    /// Variables of the daemon that its commands get.
    pub passthrough_env: Vec<String>,
    /// Where its tools come from.
    pub kind: ToolboxKind,
    /// Short names of the tools that the world allows; `None` means all.
    pub allowed: Option<BTreeSet<String>>,
}

/// Where the tools of a toolbox come from.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolboxKind {
    /// Programs: one tool is one command.
    Commands {
        /// Where they run.
        runtime: ToolboxRuntime,
        /// The tools.
        tools: Vec<CommandTool>,
    },
    /// An MCP server, and the tools of it that an operator has trusted.
    Mcp(McpPlan),
}

/// Where the commands of a toolbox run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolboxRuntime {
    /// In the sandbox of the world.
    Sandbox,
    /// On a toolbox server of its own.
    Remote(RemotePlan),
}

/// A tool that is a command.
#[derive(Clone, Debug, PartialEq)]
pub struct CommandTool {
    /// Its short name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The program and its first arguments, which no call can change.
    pub command: Vec<String>,
    /// Whether the program is a file of the toolbox's `bin_dir`, relative to the toolbox's directory.
    pub program: Program,
    /// The schema of its arguments.
    pub parameters: Value,
    /// The arguments of the program.
    pub args: Vec<Argument>,
    /// What the program reads from its standard input.
    pub stdin: Stdin,
    /// Where it runs.
    pub cwd: Cwd,
    /// How long it may run.
    pub timeout: Duration,
    /// How its output becomes progress.
    pub stream: Stream,
    /// How its output becomes the result.
    pub result: ResultForm,
    /// Bytes of its standard output that are kept.
    pub output_limit: usize,
    /// Programs of the sandbox without which it is absent.
    pub bins: Vec<String>,
    /// Programs of the sandbox of which it needs one.
    pub any_bins: Vec<String>,
    /// Variables of the daemon without which it is absent.
    pub needs_env: Vec<String>,
    /// Variables of the daemon that its command gets, besides those that every tool of the toolbox gets.
    pub passthrough_env: Vec<String>,
    /// What it may do with the workspace.
    pub access: ToolboxAccess,
    /// What becomes of a call that the daemon's death cut off.
    pub idempotency: Idempotency,
}

/// How a call that the daemon's death cut off is settled (promise 2). The program or server gets the id of the call, the
/// same one each time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Idempotency {
    /// Not at all: its outcome is unknown.
    #[default]
    None,
    /// It is made again. A second call with the same id has no second effect and gives the first one's result.
    Key,
    /// The tool with this short name, of the same toolbox, is asked whether it happened. If not, it is made.
    Ask(String),
    /// The turn waits until a person says whether it happened.
    Person,
}

/// Where a program is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A file of the toolbox, relative to its directory.
    Own(PathBuf),
    /// A program of the sandbox.
    OfSandbox(String),
}

/// An argument of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// One argument. It is left out if a parameter in it is absent.
    One(Vec<Piece>),
    /// One argument for each entry of a list parameter; none if it is absent.
    Spread(String),
    /// Several arguments, which are left out together.
    Together(Vec<Argument>),
}

/// A piece of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// As written.
    Text(String),
    /// The value of a parameter.
    Parameter(String),
    /// The path of a directory.
    Place(Place),
}

/// A directory that arguments and `cwd` can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The workspace of all agents.
    Workspace,
    /// The agent's own directory.
    Home,
    /// The directory of the toolbox.
    Toolbox,
}

impl Place {
    /// The places by the word that stands for them.
    pub const ALL: [(&'static str, Self); 3] =
        [("workspace", Self::Workspace), ("home", Self::Home), ("toolbox", Self::Toolbox)];
}

/// What a command reads from its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing.
    Empty,
    /// All arguments of the call, as one JSON object.
    Json,
    /// The text of a parameter.
    Parameter(String),
}

/// Where a command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cwd {
    /// In the agent's own directory.
    Home,
    /// In the workspace's root.
    Workspace,
    /// In the directory of the workspace that a parameter names; in the agent's own if it is absent.
    Parameter(String),
}

/// How the output of a command becomes progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stream {
    /// Not at all.
    None,
    /// Each line is shown.
    #[default]
    Lines,
}

/// How the output of a command becomes the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ResultForm {
    /// As text.
    #[default]
    Raw,
    /// As JSON; output that is no JSON is an error of the tool.
    Json,
    /// As the summary of a coding agent's stream; output that is none is text.
    CodingAgent(Format),
    /// As the summary of a run of an agent that speaks ACP, whose task is in this parameter.
    Acp(String),
}

/// What the commands of a tool may do with the workspace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, schemars::JsonSchema)]
pub enum ToolboxAccess {
    /// Read it, and write nothing.
    #[serde(rename = "ro")]
    Read,
    /// Read it, and write where the agent may.
    #[serde(rename = "rw")]
    #[default]
    Write,
}

/// An MCP server.
#[derive(Clone, Debug, PartialEq)]
pub struct McpPlan {
    /// How it is reached.
    pub transport: McpTransport,
    /// How long a call may take.
    pub timeout: Duration,
    /// Bytes of a result that are kept.
    pub output_limit: usize,
    /// The tools that an operator has trusted.
    pub trusted: Vec<TrustedTool>,
    /// What becomes of calls that the daemon's death cut off, by the short names of tools; of the others, nothing.
    pub idempotency: BTreeMap<String, Idempotency>,
}

/// How an MCP server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpTransport {
    /// A program in the sandbox, over its standard streams.
    Stdio {
        /// Program and arguments.
        command: Vec<Vec<Piece>>,
    },
    /// Streamable HTTP.
    Http {
        /// The address.
        url: String,
        /// The variable with the token that goes into `Authorization`.
        token_env: Option<String>,
    },
}

/// A tool of an MCP server as an operator has trusted it (`mcp.lock`).
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedTool {
    /// The short name that agents use: the server's, in the form of tool names.
    pub tool: String,
    /// The name that the server gives it.
    pub name: String,
    /// The hash of its definition; name, description and schema, as the server sent them.
    pub hash: String,
    /// The description.
    pub description: String,
    /// The schema of its arguments.
    pub parameters: Value,
}

impl ToolboxPlan {
    /// The full name of a tool.
    #[must_use]
    pub fn full(&self, tool: &str) -> String {
        format!("{}.{tool}", self.name)
    }

    /// Names of the daemon's variables whose values reach the toolbox or its server.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        let token = match &self.kind {
            ToolboxKind::Commands { runtime: ToolboxRuntime::Remote(remote), .. } => Some(&remote.token_env),
            ToolboxKind::Mcp(McpPlan { transport: McpTransport::Http { token_env, .. }, .. }) => token_env.as_ref(),
            _ => None,
        };
        let tools = match &self.kind {
            ToolboxKind::Commands { tools, .. } => tools.as_slice(),
            ToolboxKind::Mcp(_) => &[],
        };
        let of_tools = tools.iter().flat_map(|tool| &tool.passthrough_env);
        self.passthrough_env.iter().chain(of_tools).chain(token).map(String::as_str)
    }

    /// Whether the world allows the tool with this short name.
    #[must_use]
    pub fn allows(&self, tool: &str) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.contains(tool))
    }

    /// Short names of the tools that are known without asking anyone.
    pub fn tool_names(&self) -> impl Iterator<Item = &str> {
        let (commands, trusted) = match &self.kind {
            ToolboxKind::Commands { tools, .. } => (tools.as_slice(), [].as_slice()),
            ToolboxKind::Mcp(mcp) => ([].as_slice(), mcp.trusted.as_slice()),
        };
        let commands = commands.iter().map(|tool| tool.name.as_str());
        commands.chain(trusted.iter().map(|tool| tool.tool.as_str()))
    }
}
