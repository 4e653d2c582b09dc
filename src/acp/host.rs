//! What a run gets: the task, its times, the streams of the agent, and bounds that are lifted for no agent. What it asks
//! of its caller, and what it tells it.
//!
//! A host must never trust the agent's words: titles, kinds and locations are claims, and so are tokens and costs.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
pub use ghost_coding::Usage as Tokens;
use ghost_coding::text::one_line;
use serde_json::Value;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

/// The id of an agent's session. It is opaque: it is given back as it came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(pub String);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The pipes of the agent's process. They are closed when the run ends.
pub struct Streams {
    /// The agent's standard output.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// The agent's standard input.
    pub input: Box<dyn AsyncWrite + Send + Unpin>,
}

/// One task for the agent.
#[derive(Clone, Debug)]
pub struct Task {
    /// The directory of the session as the agent sees it: an absolute path.
    pub cwd: String,
    /// What to do. At most [`PROMPT_MAX`](crate::PROMPT_MAX) bytes.
    pub prompt: String,
    /// The session to go on with. Without it, the agent makes a new one.
    pub resume: Option<SessionId>,
    /// How long things may take.
    pub timeouts: Timeouts,
}

/// How long a run may take. Every wait of a run ends with one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the session is there. It includes [`Host::session`](crate::Host::session).
    pub start: Duration,
    /// Until the prompt is answered, from the beginning of the run.
    pub total: Duration,
    /// How long the agent may take to answer `session/cancel`, and terminals to end.
    pub grace: Duration,
}

impl Default for Timeouts {
    /// A minute, half an hour, and ten seconds.
    fn default() -> Self {
        Self { start: Duration::from_secs(60), total: Duration::from_secs(1800), grace: Duration::from_secs(10) }
    }
}

/// The longest line that the agent may send, in bytes. A longer one ends the run.
pub const LINE_MAX: usize = 8 * 1024 * 1024;

/// Requests of the agent without a written answer. While there are so many, no more of its output is read.
pub const OPEN_MAX: usize = 64;

/// Requests that wait for a person or for the end of a command. More get an error at once: the rest of [`OPEN_MAX`]
/// stays free for what ends them.
pub const WAITING_MAX: usize = 32;

/// Bytes of files that are written at the same time. More get an error.
pub const WRITING_MAX: usize = 16 * 1024 * 1024;

/// The longest text in an answer to the agent, in bytes: a file or the output of a command.
pub const ANSWER_MAX: usize = 1024 * 1024;

/// The longest prompt, in bytes.
pub const PROMPT_MAX: usize = 1024 * 1024;

/// The longest id of a session, in bytes.
pub const SESSION_MAX: usize = 1024;

/// Lines that are not messages of the protocol. They are skipped, and one more ends the run.
pub const GARBAGE_MAX: usize = 1000;

/// Terminals that are open at the same time.
pub const TERMINALS_MAX: usize = 16;

/// Bytes of a terminal's command with its arguments, variables and directory.
pub(crate) const COMMAND_MAX: usize = 256 * 1024;

/// The longest path in a request, in bytes.
pub(crate) const PATH_MAX: usize = 4096;

/// How much of a message of the agent is kept, in bytes.
pub const TEXT_MAX: usize = 32 * 1024;

/// How much of a call's input a permission question shows, in bytes.
pub const RAW_INPUT_MAX: usize = 16 * 1024;

/// The longest note on progress, in characters.
pub const NOTE_CHARS: usize = 120;

/// Notes on progress per second. The rest is only counted.
pub const NOTES_PER_SECOND: u32 = 32;

/// Locations of a call, and options of a permission question, that are read.
pub(crate) const ITEMS_MAX: usize = 32;

/// What is offered to the agent. What is not offered is refused without asking the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// [`Host::read_text`].
    pub read_text: bool,
    /// [`Host::write_text`].
    pub write_text: bool,
    /// [`Host::terminal`].
    pub terminal: bool,
}

/// The kind of an action, as the agent classifies it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// It reads files or data.
    Read,
    /// It changes files.
    Edit,
    /// It deletes files.
    Delete,
    /// It moves or renames files.
    Move,
    /// It searches.
    Search,
    /// It runs a command.
    Execute,
    /// It only thinks.
    Think,
    /// It gets data from elsewhere.
    Fetch,
    /// It changes the mode of the session.
    SwitchMode,
    /// Anything else, and everything that is not known.
    #[default]
    Other,
}

/// A question of the agent: may it do this?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermissionAsk {
    /// What it wants to do: one line of at most 200 characters.
    pub title: String,
    /// The kind of the action.
    pub kind: Action,
    /// The call that it is about, at most 256 bytes.
    pub tool_call_id: String,
    /// The files that it is about: at most 32, each one line.
    pub locations: Vec<String>,
    /// The input of the call as JSON, at most [`RAW_INPUT_MAX`](crate::RAW_INPUT_MAX) bytes.
    pub raw_input: Option<String>,
    /// Whether the middle of `raw_input` is left out. Then it does not show everything that is asked for.
    pub raw_input_cut: bool,
    /// The labels of the answers that the agent offers: at most 32, each one line of at most 120 characters.
    pub options: Vec<String>,
}

/// The answer to a question. Answers that the agent would remember do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// It may, this time. If the agent does not offer that, it is rejected.
    AllowOnce,
    /// It may not, this time. If the agent does not offer that, it is cancelled.
    RejectOnce,
    /// Nobody answers.
    Cancelled,
}

/// The kind of a note on progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateKind {
    /// A line of the agent's message.
    Message,
    /// A call of a tool began or ended.
    Tool,
    /// The agent's plan changed.
    Plan,
    /// Notes were left out, because they came too fast.
    Skipped,
}

/// A note on progress, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Its kind.
    pub kind: UpdateKind,
    /// One line of at most [`NOTE_CHARS`](crate::NOTE_CHARS) characters, without control characters.
    pub text: String,
}

/// Why a host does not do something. The agent gets the text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HostError {
    /// There is no such file.
    #[error("there is no `{0}`")]
    NotFound(String),
    /// It is not allowed.
    #[error("not allowed: {0}")]
    Refused(String),
    /// It failed.
    #[error("it failed: {0}")]
    Failed(String),
}

/// The caller of a run. All methods may be called at the same time, and any future may be dropped before its end:
/// when the run ends, and when the agent is stopped.
#[async_trait]
pub trait Host: Send + Sync + 'static {
    /// What is offered to the agent. It is read once, when the run starts.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Answers a question. It may wait for a person: the run goes on meanwhile.
    async fn permission(&self, ask: PermissionAsk) -> Permission;

    /// Reads a text file from a line (the first is 1), at most a number of lines. The path is the agent's and not checked.
    ///
    /// # Errors
    /// Why it is not read. A text of more than [`ANSWER_MAX`](crate::ANSWER_MAX) bytes is not given to the agent.
    async fn read_text(&self, path: &str, _line: Option<u32>, _limit: Option<u32>) -> Result<String, HostError> {
        Err(HostError::Refused(format!("reading `{path}`: files are not offered")))
    }

    /// Writes a text file. The path is the agent's and not checked. The future may be dropped half-way: write the
    /// file as a whole or not at all.
    ///
    /// # Errors
    /// Why it is not written.
    async fn write_text(&self, path: &str, _content: String) -> Result<(), HostError> {
        Err(HostError::Refused(format!("writing `{path}`: files are not offered")))
    }

    /// Starts a command. The command is the agent's and not checked.
    ///
    /// # Errors
    /// Why it is not started.
    async fn terminal(&self, command: TerminalCommand) -> Result<Box<dyn Terminal>, HostError> {
        Err(HostError::Refused(format!("running `{}`: terminals are not offered", command.command)))
    }

    /// The session is known. The prompt is sent only after this, so that a journal can have the id first.
    async fn session(&self, _id: &SessionId) {}

    /// A note on progress. It must not block: the agent's output is not read meanwhile. There are at most
    /// [`NOTES_PER_SECOND`](crate::NOTES_PER_SECOND), and one more per second about those that were left out.
    fn progress(&self, _update: Update) {}

    /// The agent reported its usage. It must not block. Later reports replace earlier ones.
    fn usage(&self, _usage: Usage) {}
}

/// A command that the agent wants to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalCommand {
    /// The program, or a line for a shell: agents do both, and only `args` tells.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables for it.
    pub env: Vec<(String, String)>,
    /// Its directory, as the agent names it. It is not checked.
    pub cwd: Option<String>,
    /// How much output is kept, in bytes: at most [`ANSWER_MAX`](crate::ANSWER_MAX). The end counts.
    pub output_byte_limit: usize,
}

/// How a command ended. Both are missing if that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalExit {
    /// Its exit code.
    pub code: Option<u32>,
    /// The name of the signal that ended it.
    pub signal: Option<String>,
}

/// The output of a command so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TerminalOutput {
    /// The end of its output.
    pub output: String,
    /// Whether the beginning is missing.
    pub truncated: bool,
    /// How it ended; `None` while it runs.
    pub exit: Option<TerminalExit>,
}

/// A command that runs. Several methods may be called at the same time, and any future may be dropped. Dropping the
/// terminal ends the command and everything that it started.
#[async_trait]
pub trait Terminal: Send + Sync {
    /// The output so far. It does not wait for the end of the command.
    async fn output(&self) -> TerminalOutput;

    /// Waits for the end of the command.
    async fn wait(&self) -> TerminalExit;

    /// Ends the command. Its output can still be read. Does nothing if it has ended.
    async fn kill(&self);

    /// Ends the command, if it runs, and frees everything. It is the last call. A run gives it at most
    /// [`Timeouts::grace`](crate::Timeouts::grace).
    async fn release(&self);
}

/// What the agent reported last. Every part may be missing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Tokens of the turn or of the session: agents differ.
    pub tokens: Option<Tokens>,
    /// How full the context window is.
    pub context: Option<Context>,
    /// The cost of the session so far.
    pub cost: Option<Cost>,
}

/// The context window, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Tokens that are in it.
    pub used: u64,
    /// Tokens that fit.
    pub size: u64,
}

/// An amount of money.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// How much.
    pub amount: f64,
    /// The code of the currency, for example `USD`. At most 8 characters.
    pub currency: String,
}

impl Cost {
    pub(crate) fn new(amount: f64, currency: &str) -> Self {
        Self { amount, currency: one_line(currency, 8) }
    }
}

impl Usage {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The tokens in a `usage` object, if it has any of the known fields.
pub(crate) fn tokens_in(usage: &Value) -> Option<Tokens> {
    let field = |names: &[&str]| names.iter().find_map(|name| usage.get(name)?.as_u64());
    let found = [
        field(&["inputTokens", "input_tokens"]),
        field(&["outputTokens", "output_tokens"]),
        field(&["cachedReadTokens", "cached_read_tokens", "cacheReadTokens"]),
        field(&["cachedWriteTokens", "cached_write_tokens", "cacheWriteTokens"]),
    ];
    let [input, output, cache_read, cache_write] = found.map(Option::unwrap_or_default);
    found.iter().any(Option::is_some).then_some(Tokens { input, output, cache_read, cache_write })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_are_read_under_both_spellings_and_nonsense_is_no_usage() {
        let expected = Some(Tokens { input: 1, output: 2, cache_read: 3, cache_write: 0 });
        assert_eq!(tokens_in(&json!({"inputTokens": 1, "outputTokens": 2, "cachedReadTokens": 3})), expected);
        assert_eq!(tokens_in(&json!({"input_tokens": 1, "output_tokens": 2, "cached_read_tokens": 3})), expected);
        for nonsense in [json!(null), json!(7), json!([]), json!({"outputTokens": -1}), json!({"outputTokens": "2"})] {
            assert_eq!(tokens_in(&nonsense), None);
        }
    }
}
