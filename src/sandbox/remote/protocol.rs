//! What ghostd and a toolbox server say to each other: JSON over HTTP; what streams is one object a line. `docs/remote.md`
//! describes it. Every text, number and size that comes from the other side has a bound before it is kept.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use ghost_config::plan::WorkspaceAccess;
use ghost_domain::Refusal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::node::Node;
use crate::command::{End, Finished, Protection};
use crate::streams::Captured;

/// The version of this protocol.
pub const VERSION: u32 = 1;
/// How often each side of a running command says something.
pub const BEAT: Duration = Duration::from_secs(5);
/// The silence after which the other side of a running command is given up.
pub const SILENCE: Duration = Duration::from_secs(20);
/// Bytes of a request that is not a stream, and of the first line of one that is.
pub const HEAD_MAX: usize = 16 << 20;
/// Bytes of every other line of a request.
pub const LINE_MAX: usize = 128 << 10;
/// Bytes of content in one line.
pub const PIECE: usize = 48 << 10;
/// Bytes of standard input that a command gets at its start.
pub const STDIN_MAX: usize = 8 << 20;
/// Entries of a workspace.
pub const ENTRIES_MAX: usize = 50_000;
/// Bytes of all files of a workspace.
pub const BYTES_MAX: u64 = 4 << 30;
/// Files that one request may ask for.
pub const FILES_MAX: usize = 1_000;

/// Bytes, which are base64 in JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Data(pub Vec<u8>);

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// The part of every request that is read first.
#[derive(Debug, Deserialize)]
pub struct Versioned {
    /// The version that the client speaks.
    pub version: u32,
}

/// The answer to `GET /health`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Health {
    /// The version of the protocol.
    pub version: u32,
    /// The version of the program.
    pub program: String,
    /// The protections that commands get.
    pub protections: Vec<String>,
    /// Why others are missing, one line each.
    pub missing: Vec<String>,
    /// The absolute path at which commands of the world that was asked for see the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
}

/// What a command sees of the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// The agent's own directory.
    None,
    /// All, to read.
    Ro,
    /// All to read, and the write prefixes to write.
    Rw,
}

impl From<WorkspaceAccess> for Access {
    fn from(access: WorkspaceAccess) -> Self {
        match access {
            WorkspaceAccess::None => Self::None,
            WorkspaceAccess::ReadOnly => Self::Ro,
            WorkspaceAccess::ReadWrite => Self::Rw,
        }
    }
}

impl From<Access> for WorkspaceAccess {
    fn from(access: Access) -> Self {
        match access {
            Access::None => Self::None,
            Access::Ro => Self::ReadOnly,
            Access::Rw => Self::ReadWrite,
        }
    }
}

/// The bounds of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// Memory of its tree, in bytes.
    pub memory_bytes: u64,
    /// Tasks of its tree.
    pub processes: u32,
    /// Bytes that it may add to files.
    pub disk_bytes: u64,
}

/// The body of `POST /exec`, and the first line of `POST /exec-stream`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exec {
    /// The version that the client speaks.
    pub version: u32,
    /// Whose workspace: letters, digits, `.`, `_` and `-`.
    pub world: String,
    /// The agent.
    pub agent_id: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// A directory, relative to the workspace.
    pub dir: String,
    /// Variables, besides those that every command has.
    #[serde(default)]
    pub env: Vec<(String, String)>,
    /// Standard input.
    #[serde(default)]
    pub stdin: Data,
    /// Whether more input comes. `/exec-stream` only.
    #[serde(default)]
    pub feeds: bool,
    /// How long it may run, in milliseconds.
    pub timeout_ms: u64,
    /// The directories that it may write to, relative to the workspace.
    #[serde(default)]
    pub writable: Vec<String>,
    /// What it sees of the workspace.
    pub access: Access,
    /// Protections without which it must not run, besides those that always apply.
    #[serde(default)]
    pub require: Vec<String>,
    /// Its bounds.
    pub bounds: Bounds,
    /// Bytes of standard output that are kept.
    pub stdout_limit: usize,
    /// Bytes of standard error that are kept.
    pub stderr_limit: usize,
}

/// The lines after the first one of `POST /exec-stream`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToCommand {
    /// More standard input. The next may be sent when this is taken.
    Stdin(Data),
    /// The end of standard input.
    Eof,
    /// The command must die.
    Kill,
    /// The client is there.
    Beat,
}

/// The lines of the answer to `POST /exec-stream`. The last one is `ended` or `refused`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromCommand {
    /// A piece of output.
    Output(Data),
    /// So many bytes of output were left out, because the client did not read fast enough.
    LeftOut(u64),
    /// The command has read the last input.
    Taken,
    /// The server is there.
    Beat,
    /// The command has ended.
    Ended(Ended),
    /// The command did not run, or was lost.
    Refused(Refusal),
}

/// How a command ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ended {
    /// How.
    pub end: End,
    /// How long it ran.
    pub duration_ms: u64,
    /// Processor time of its tree.
    pub cpu_ms: u64,
    /// Its standard output.
    pub stdout: Captured,
    /// Its standard error.
    pub stderr: Captured,
    /// The protections that were in force.
    pub protections: Vec<String>,
}

impl From<Finished> for Ended {
    fn from(done: Finished) -> Self {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            end: done.end,
            duration_ms: ms(done.duration),
            cpu_ms: ms(done.cpu),
            stdout: done.stdout,
            stderr: done.stderr,
            protections: Protection::names(done.in_force).into_iter().map(str::to_owned).collect(),
        }
    }
}

/// The body of `POST /workspace/read`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Read {
    /// The version that the client speaks.
    pub version: u32,
    /// Whose workspace.
    pub world: String,
    /// What is read.
    #[serde(flatten)]
    pub what: What,
}

/// What is read.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The entries below a directory.
    List {
        /// The directory; empty for the whole workspace.
        scope: String,
        /// The digest of the entries that the client believes to be there.
        known: Option<String>,
    },
    /// The contents of files of these sizes, in this order.
    Files(Vec<(String, u64)>),
}

/// The lines of the answer to `POST /workspace/read`. The last one is `end`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Comes first in a list.
    List {
        /// Changes when the server has lost the workspace.
        epoch: String,
        /// Whether the entries are those that the client knows. Then none follow.
        same: bool,
    },
    /// An entry.
    Entry(String, Node),
    /// The beginning of a file. Its content follows.
    File {
        /// Its path.
        path: String,
        /// Its bytes.
        size: u64,
    },
    /// A piece of the file.
    Data(Data),
    /// There is no such file of this size, or it changed while it was read.
    Gone(String),
    /// Nothing more.
    End,
}

/// The first line of `POST /workspace/write`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Write {
    /// The version that the client speaks.
    pub version: u32,
    /// Whose workspace.
    pub world: String,
}

/// The lines after it. The last one is `end`; without it, nothing that was begun is finished. `was` is what the client
/// believes to be there: if something else is, the change is skipped.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Removes an entry. A directory must be empty.
    Remove {
        /// Its path.
        path: String,
        /// What is there.
        was: Node,
    },
    /// Makes a directory.
    Dir {
        /// Its path.
        path: String,
        /// What is there.
        was: Option<Node>,
    },
    /// Makes a symbolic link.
    Link {
        /// Its path.
        path: String,
        /// Where it leads.
        target: String,
        /// What is there.
        was: Option<Node>,
    },
    /// Begins a file. Its content follows.
    File {
        /// Its path.
        path: String,
        /// What it becomes; a file.
        node: Node,
        /// What is there.
        was: Option<Node>,
    },
    /// A piece of the file.
    Data(Data),
    /// The file that was begun is left as it was.
    Drop,
    /// Nothing more.
    End,
}

/// The answer to `POST /workspace/write`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Written {
    /// The changes that were not made, by path, with the reason.
    pub skipped: Vec<(String, String)>,
}

/// A value as one line.
///
/// # Errors
/// Never for the types of this protocol: their maps have texts as keys.
pub fn line<T: Serialize>(value: &T) -> serde_json::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    Ok(text)
}

/// Whether a text can be the name of a world on a server.
#[must_use]
pub fn is_world(name: &str) -> bool {
    (1..=128).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// Why there is no line.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// It is longer than the reader allows.
    #[error("a line has more than {0} bytes")]
    TooLong(usize),
    /// The stream ended within a line.
    #[error("the stream ended too early")]
    Cut,
    /// The stream failed.
    #[error("{0}")]
    Broken(String),
}

/// The lines of a stream.
#[derive(Debug)]
pub struct Lines<S> {
    stream: S,
    waiting: Vec<u8>,
    /// Bytes of `waiting` that are known to have no line break.
    seen: usize,
}

impl<S, E> Lines<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::fmt::Display,
{
    /// The lines of `stream`.
    pub fn new(stream: S) -> Self {
        Self { stream, waiting: Vec::new(), seen: 0 }
    }

    /// The next line, without its end; `None` at the end of the stream. Dropping the future loses nothing.
    ///
    /// # Errors
    /// If the line has more than `max` bytes, or the stream fails or ends within it.
    pub async fn next(&mut self, max: usize) -> Result<Option<Vec<u8>>, LineError> {
        loop {
            if let Some(at) = self.waiting[self.seen..].iter().position(|byte| *byte == b'\n') {
                let rest = self.waiting.split_off(self.seen + at + 1);
                let mut line = std::mem::replace(&mut self.waiting, rest);
                self.seen = 0;
                line.pop();
                return if line.len() > max { Err(LineError::TooLong(max)) } else { Ok(Some(line)) };
            }
            self.seen = self.waiting.len();
            if self.seen > max {
                return Err(LineError::TooLong(max));
            }
            match self.stream.next().await {
                Some(Ok(piece)) => self.waiting.extend_from_slice(&piece),
                Some(Err(error)) => return Err(LineError::Broken(error.to_string())),
                None if self.waiting.is_empty() => return Ok(None),
                None => return Err(LineError::Cut),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    fn lines(pieces: &[&'static str]) -> Lines<impl Stream<Item = Result<Bytes, String>> + Unpin> {
        let pieces: Vec<Result<Bytes, String>> =
            pieces.iter().map(|piece| Ok(Bytes::from_static(piece.as_bytes()))).collect();
        Lines::new(stream::iter(pieces))
    }

    #[tokio::test]
    async fn lines_come_whole_and_long_ones_are_errors() {
        let mut whole = lines(&["a", "b\n\nc", "d\ne\n"]);
        for wanted in ["ab", "", "cd", "e"] {
            assert_eq!(whole.next(2).await.unwrap().unwrap(), wanted.as_bytes());
        }
        assert!(whole.next(2).await.unwrap().is_none());
        assert!(matches!(lines(&["abc\n"]).next(2).await, Err(LineError::TooLong(2))));
        assert!(matches!(lines(&["ab", "cd", "ef"]).next(3).await, Err(LineError::TooLong(3))));
        assert!(matches!(lines(&["ab"]).next(3).await, Err(LineError::Cut)));
        let failed = stream::iter([Err::<Bytes, _>("no")]);
        assert!(matches!(Lines::new(failed).next(3).await, Err(LineError::Broken(_))));
    }
}
