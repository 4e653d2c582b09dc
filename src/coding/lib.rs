//! Summaries of the event streams of coding agents.
//!
//! A coding agent prints one JSON event per line while it works, often more than 100 KB. A
//! language model needs only the outcome: [`Compactor`] reads the stream piece by piece, keeps what
//! happened to files and commands, and gives a text of about 1 to 2 KB at the end. Its memory does
//! not depend on the length of the stream.
//!
//! The stream is output of a program that read files and web pages. It is data: nothing in it is
//! trusted, and nothing in it can control a terminal.

mod claude;
mod codex;
mod collector;
mod compactor;
#[cfg(test)]
mod compactor_tests;
mod cursor;
mod doubts;
mod fields;
mod gemini;
mod lines;
mod run;
mod summary;
#[cfg(test)]
mod testing;
pub mod text;

pub use collector::{CALL_ID_MAX, CALLS_MAX, Collector, Effect, Manifest};
pub use compactor::{Compact, Compactor, Exit, Format, MAX_BYTES, MAX_NOTES, UnknownFormat};
pub use doubts::Doubts;
pub use fields::Usage;
pub use run::NOTE_CHARS;
pub use summary::{Summary, compact as summarize};
