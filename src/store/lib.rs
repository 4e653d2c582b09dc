//! The store keeps the world's state in relational tables. [`Store::write`] runs a command as one
//! transaction and returns after COMMIT. [`Store::read`] runs a query on one consistent snapshot.
//! The functions of [`Tx`] in [`tables`] write and read rows, one file for each family of tables. World rules
//! decide what a transaction does; they are in the `ghost-operations` crate and are written once for all
//! backends.
//!
//! The store must never acknowledge a command or publish its events before the commit is durable.
//! The refusal of one command must never undo the work of another (see `docs/design.md`, "The
//! store").

mod batch;
mod driver;
mod engine;
mod error;
mod handle;
pub mod memory;
pub mod postgres;
mod query;
mod row;
mod sql;
pub mod sqlite;
pub mod tables;
mod tx;

pub use error::{StoreError, is_away};
pub use handle::{Ack, Backend, Committed, Nack, ReadWork, Store, View, Work, for_people, in_command};
pub use tx::Tx;

#[cfg(any(test, feature = "testing"))]
pub mod contract;
