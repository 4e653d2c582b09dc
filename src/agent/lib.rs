//! One agent at work: its actor, its turns, its prompt, and the transcript rebuilt from a turn's
//! journal. A turn is a journaled loop of model calls and tool calls.
//!
//! This crate must never hold state that a crash must not lose. An actor owns only the task that
//! runs its agent's turns; everything else is in the journal. Model and tool calls run in that
//! task, not in the actor's message handler, so the actor can always receive a stop.

pub mod activity_port;
pub mod actor;
pub mod budget_queue;
pub mod engine;
pub mod images;
pub mod log;
pub mod profile;
pub mod prompt;
mod retry_write;
mod session;
mod session_log;
mod stream;
pub mod transcript;
pub mod truncate;
pub mod turn;

#[cfg(test)]
mod agent_tests;

pub use activity_port::ActivityPort;
pub use actor::{AgentActor, AgentMsg, Arguments};
pub use budget_queue::BudgetQueue;
pub use engine::{Engine, ModelDown};
