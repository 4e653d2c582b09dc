//! The bounds of a run, in one place.
//!
//! No bound may be lifted for an agent that asks for more: the run ends, or the agent gets an error.

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
