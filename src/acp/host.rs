//! What a run asks of its caller.
//!
//! A host must never trust the agent's words: titles, kinds and locations are claims.

use async_trait::async_trait;
use thiserror::Error;

use crate::task::SessionId;
use crate::terminal::{Terminal, TerminalCommand};
use crate::usage::Usage;

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

/// The kind of an answer that the agent offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChoiceKind {
    /// Allow it this time.
    AllowOnce,
    /// Allow it from now on. It is never chosen.
    AllowAlways,
    /// Reject it this time.
    RejectOnce,
    /// Reject it from now on. It is never chosen.
    RejectAlways,
}

/// An answer that the agent offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its kind.
    pub kind: ChoiceKind,
    /// Its label: one line of at most 120 characters.
    pub name: String,
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
    /// The answers that the agent offers: at most 32.
    pub options: Vec<Choice>,
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

    /// Reads a text file from `line` (the first is 1), at most `limit` lines. The path is the agent's and not checked.
    ///
    /// # Errors
    /// Why it is not read. A text of more than [`ANSWER_MAX`](crate::ANSWER_MAX) bytes is not given to the agent.
    async fn read_text(&self, path: &str, line: Option<u32>, limit: Option<u32>) -> Result<String, HostError> {
        let _ = (line, limit);
        Err(HostError::Refused(format!("reading `{path}`: files are not offered")))
    }

    /// Writes a text file. The path is the agent's and not checked. The future may be dropped half-way: write the
    /// file as a whole or not at all.
    ///
    /// # Errors
    /// Why it is not written.
    async fn write_text(&self, path: &str, content: String) -> Result<(), HostError> {
        drop(content);
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
    async fn session(&self, id: &SessionId) {
        let _ = id;
    }

    /// A note on progress. It must not block: the agent's output is not read meanwhile. There are at most
    /// [`NOTES_PER_SECOND`](crate::NOTES_PER_SECOND), and one more per second about those that were left out.
    fn progress(&self, update: Update) {
        let _ = update;
    }

    /// The agent reported its usage. It must not block. Later reports replace earlier ones.
    fn usage(&self, usage: Usage) {
        let _ = usage;
    }
}
