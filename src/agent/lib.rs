//! One agent at work: its actor, its turns, its prompt, and the transcript rebuilt from a turn's
//! journal. A turn is a journaled loop of model calls and tool calls.
//!
//! An actor owns only the task that runs its agent's turns; everything else is in the journal, so a crash loses nothing.
//! Model and tool calls run in that task, not in the actor's message handler, so the actor can always receive a stop.

mod actor;
mod budget_queue;
mod engine;
mod images;
mod log;
pub mod prompt;
mod retry_write;
mod session;
mod stream;
mod transcript;
mod truncate;
pub mod turn;

#[cfg(test)]
mod agent_tests;

pub use actor::{AgentActor, AgentMsg, Arguments};
pub use budget_queue::BudgetQueue;
pub use engine::{ActivityPort, Engine, ModelDown};
