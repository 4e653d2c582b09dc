//! The agent: its actor, its turn (a journaled loop of thinking and acting), the prompt, and the transcript that a
//! journal unfolds into.
//!
//! Must never: keep anything that a crash may not take. An actor owns its turn and nothing else; what it knows is in the
//! journal. Model and tool calls run beside the actor's handler, so that it can always be told to stop.

pub mod actor;
pub mod board;
pub mod engine;
pub mod fit;
pub mod kit;
pub mod line;
pub mod panics;
pub mod prompt;
pub mod transcript;
pub mod turn;

#[cfg(test)]
mod rule_tests;

pub use actor::{AgentActor, AgentMsg, Arguments};
pub use board::Board;
pub use engine::{Engine, ModelDown};
pub use line::Line;
