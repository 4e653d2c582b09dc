//! The store: relational state behind one handle. [`Store::write`] runs a command as one transaction and returns after
//! COMMIT; [`Store::read`] runs over a consistent snapshot. The traits under [`tables`] are rows in and rows out, one
//! file a family; what a transaction means is decided by the rooms below, written once for all backends.
//!
//! Must never: acknowledge before the commit is durable, publish an event before that, or let one command's refusal undo
//! another's work (DESIGN.md section 2, "Writing").

mod error;
mod failing;
mod handle;
pub mod memory;
pub mod sqlite;
pub mod tables;

pub use error::StoreError;
pub use handle::{Ack, Backend, Committed, Nack, ReadWork, Store, View, Work, in_command};
pub use tables::{Reads, Writes};

#[cfg(any(test, feature = "testing"))]
pub mod contract;
