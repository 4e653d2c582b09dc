//! The agent: its actor, its turn (a journaled loop of thinking and acting), the prompt, and the transcript that a
//! journal unfolds into.
//!
//! Must never: keep anything that a crash may not take. An actor owns its turn and nothing else; what it knows is in the
//! journal. Model and tool calls run beside the actor's handler, so that it can always be told to stop.

pub mod activity_port;
pub mod actor;
pub mod budget_queue;
pub mod engine;
pub mod panics;
pub mod profile;
pub mod prompt;
pub mod transcript;
pub mod truncate;
pub mod turn;

#[cfg(test)]
mod rule_tests;

pub use activity_port::ActivityPort;
pub use actor::{AgentActor, AgentMsg, Arguments};
pub use budget_queue::BudgetQueue;
pub use engine::{Engine, ModelDown};
