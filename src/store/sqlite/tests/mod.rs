//! Tests of the SQLite backend alone (files, batches, savepoints, a full disk), and the contract
//! suite on it.

mod batches;
mod broken;
mod chat;
mod contract;
mod damage;
mod files;
mod full_disk;
mod lost;
mod names;
pub(crate) mod plans;
mod tools;
mod upgrade;
