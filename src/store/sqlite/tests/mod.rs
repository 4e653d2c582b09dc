//! Tests of what only this backend has (files, batches, savepoints, a full disk), and the contract over it.

mod batches;
mod broken;
mod chat;
mod contract;
mod files;
mod full_disk;
mod lost;
mod names;
mod tools;
mod upgrade;
