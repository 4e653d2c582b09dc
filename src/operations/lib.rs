//! The rules of the world: mail, turns, asks, tasks, chat, budgets, schedules, skills, the ledger,
//! dead letters, jobs and the event feed. Each rule is a domain rule, a store transaction and a
//! wake-up. It is written once and works on every storage backend.
//!
//! All durable state is in the store. [`OperationContext`] also holds some state in memory: the limits,
//! the chat setting, the webhooks and the check that decides which agents can run, which a reload
//! replaces; the roots of main jobs; and the agents that wait for a model. This state may be lost:
//! the daemon rebuilds it at start.
//!
//! A rule must never call a model or run a tool. Inside a transaction it must never wait for
//! anything but the store.

pub mod agents;
pub mod approvals;
pub mod artifacts;
pub mod asks;
pub mod budgets;
pub mod chat;
pub mod clock;
mod context;
pub mod conversations;
pub mod dead_letters;
pub mod declared;
pub mod droids;
pub mod feed;
pub mod grants;
pub mod jobs;
pub mod knowledge;
mod lookup;
pub mod mail;
mod prelude;
mod questions;
pub mod requests;
pub mod retention;
pub mod root_limits;
pub mod schedules;
pub mod sessions;
pub mod shared_state;
pub mod skills;
pub mod status;
pub mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod turns;

#[cfg(test)]
mod operation_tests;

pub use context::{Context as OperationContext, Fitness, PAUSED, Result, Tx, Wait};
