//! The store in memory, for simulation: ordered maps behind one lock, every command run in the caller, nothing left to
//! chance, so that the same calls give the same answers (DESIGN.md, promise 8).
//!
//! Must never: hold its lock while it publishes or answers, wait for anything, or keep a trace of a command that was
//! undone.

mod agents;
mod asks;
mod backend;
mod budgets;
mod chat;
mod conversations;
mod dead_letters;
mod disk;
mod events;
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
