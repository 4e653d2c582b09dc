//! Tests of the SQLite backend alone (files, batches, savepoints, a full disk), and the contract
//! suite on it.

mod batches;
mod broken;
mod contract;
mod damage;
mod files;
mod full_disk;
mod lost;
pub(crate) mod plans;
mod tools;
mod upgrade;
