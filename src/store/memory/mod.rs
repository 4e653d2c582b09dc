//! The memory backend, for simulation: ordered maps behind one lock. Each command runs to its end
//! in the calling task. Nothing is random, so the same calls give the same results (promise 8 in
//! `docs/design.md`).
//!
//! This backend must never hold its lock while it publishes events or calls callbacks. It must
//! never wait for anything or keep a change of an undone command.

mod agents;
mod approvals;
mod artifacts;
mod asks;
mod backend;
mod budgets;
mod chat;
mod conversations;
mod dead_letters;
mod disk;
mod droids;
mod events;
mod grants;
mod ids;
mod jobs;
mod knowledge;
mod ledger;
mod messages;
mod opening;
mod outbox;
mod prune;
mod requests;
mod roots;
mod schedules;
mod session;
mod sessions;
mod shared_state;
mod skills;
mod table;
mod tables;
mod tasks;
mod turns;

#[cfg(test)]
mod tests;

pub use disk::MemoryDisk;
pub use opening::MemoryStore;
