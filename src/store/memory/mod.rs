//! A store in memory, for the simulation and for tests: SQLite without a file, on the calling thread. Each command runs
//! to its end in the task that called it, and is one commit. Nothing is random, so the same calls give the same results
//! (promise 8 in `docs/design.md`).
//!
//! This backend must never hold its lock while it publishes events or calls callbacks. It must
//! never wait for anything or keep a change of an undone command.

mod backend;
mod disk;
mod opening;
mod outbox;

#[cfg(test)]
mod tests;

pub use disk::MemoryDisk;
pub use opening::MemoryStore;
