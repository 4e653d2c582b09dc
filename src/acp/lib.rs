//! The client side of ACP (Agent Client Protocol): drives one coding agent over two byte streams.
//!
//! [`Session::run`] gives the agent one task and returns an [`Outcome`]. The caller owns the agent's process and hands
//! over its pipes. Whatever the agent wants from outside goes to the caller's [`Host`].
//!
//! What the agent sends is data. It must never grow memory without a bound, hang a run, or reach the file system, a
//! terminal or a person other than through the [`Host`].

mod bounds;
mod calls;
mod connection;
mod drive;
mod flow;
mod handlers;
mod host;
mod lines;
mod office;
mod outcome;
mod pace;
mod permission;
mod reader;
mod record;
mod report;
mod session;
mod talk;
mod task;
mod terminal;
mod terminals;
mod time;
mod updates;
mod usage;
mod wait;
mod why;
mod wire;
mod writer;

pub use bounds::{
    ANSWER_MAX, GARBAGE_MAX, LINE_MAX, NOTE_CHARS, NOTES_PER_SECOND, OPEN_MAX, PROMPT_MAX, RAW_INPUT_MAX, SESSION_MAX,
    TERMINALS_MAX, TEXT_MAX, WAITING_MAX, WRITING_MAX,
};
pub use host::{
    Action, Capabilities, Choice, ChoiceKind, Host, HostError, Permission, PermissionAsk, Update, UpdateKind,
};
pub use outcome::{End, Outcome, Stop, StopReason, Work};
pub use session::Session;
pub use task::{SessionId, Streams, Task, Timeouts};
pub use terminal::{Terminal, TerminalCommand, TerminalExit, TerminalOutput};
pub use usage::{Context, Cost, Tokens, Usage};
pub use why::{CannotResume, StartError, Why};
