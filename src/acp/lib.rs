//! The client side of ACP (Agent Client Protocol): drives one coding agent over two byte streams.
//!
//! [`Session::run`] gives the agent one task and returns an [`Outcome`]. The caller owns the agent's process and hands
//! over its pipes. Whatever the agent wants from outside goes to the caller's [`Host`].
//!
//! What the agent sends is data. It must never grow memory without a bound, hang a run, or reach the file system, a
//! terminal or a person other than through the [`Host`].

mod calls;
mod handlers;
mod host;
mod outcome;
mod record;
mod session;
mod task;
mod wire;

pub use host::{
    Action, Capabilities, Context, Cost, Host, HostError, Permission, PermissionAsk, Terminal, TerminalCommand,
    TerminalExit, TerminalOutput, Tokens, Update, UpdateKind, Usage,
};
pub use outcome::{CannotResume, End, Outcome, StartError, Stop, StopReason, Why, Work};
pub use session::Session;
pub use task::{
    ANSWER_MAX, GARBAGE_MAX, LINE_MAX, NOTE_CHARS, NOTES_PER_SECOND, OPEN_MAX, PROMPT_MAX, RAW_INPUT_MAX, SESSION_MAX,
    SessionId, Streams, TERMINALS_MAX, TEXT_MAX, Task, Timeouts, WAITING_MAX, WRITING_MAX,
};
