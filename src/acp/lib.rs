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
mod wire;

pub use host::{
    ANSWER_MAX, Action, Capabilities, Context, Cost, GARBAGE_MAX, Host, HostError, LINE_MAX, NOTE_CHARS,
    NOTES_PER_SECOND, OPEN_MAX, PROMPT_MAX, Permission, PermissionAsk, RAW_INPUT_MAX, SESSION_MAX, SessionId, Streams,
    TERMINALS_MAX, TEXT_MAX, Task, Terminal, TerminalCommand, TerminalExit, TerminalOutput, Timeouts, Tokens, Update,
    UpdateKind, Usage, WAITING_MAX, WRITING_MAX,
};
pub use outcome::{CannotResume, End, Outcome, StartError, Stop, StopReason, Why, Work};
pub use session::Session;
