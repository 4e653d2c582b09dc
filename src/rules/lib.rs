//! What agents share: mailboxes, turns, asks, the task board, budgets, held skills, the ledger, dead letters, jobs and
//! the event feed. Each is a domain rule, a store transaction and a wake-up, written once for all backends.
//!
//! Must never: call a model, run a tool, hold state of its own between calls, or wait for anything inside a transaction
//! but its rows.

mod agent_lookup;
pub mod agents;
pub mod asks;
pub mod budgets;
mod chain;
pub mod chat;
mod context;
pub mod conversations;
pub mod dead_letters;
pub mod declared;
pub mod feed;
pub mod jobs;
pub mod knowledge;
pub mod mail;
pub mod requests;
mod result;
pub mod retention;
pub mod root_limits;
pub mod schedules;
pub mod shared_state;
pub mod skills;
pub mod status;
mod suggestion;
pub mod tasks;
pub mod turns;

#[cfg(test)]
mod rule_tests;

pub use context::{Fitness, PAUSED, RuleContext};
pub use result::Result;
