//! Test support: whole worlds under virtual time (`sim`), daemons as real processes (`blackbox`),
//! and databases of worlds that seem to have run for a long time (`aged`).
//!
//! This crate must never be a dependency of a shipped program, or enforce a rule that the shipped
//! crates must enforce.

pub mod aged;
pub mod blackbox;
pub mod sim;
