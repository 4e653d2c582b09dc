//! For tests only: whole worlds under virtual time (`sim`), and daemons as real processes (`blackbox`).
//!
//! Must never: be a dependency of anything that ships, or hold a rule that the rooms should keep themselves.

pub mod blackbox;
pub mod sim;
