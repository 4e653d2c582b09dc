//! The daemon's records as JSON objects, as the daemon's own HTTP side writes them.

pub use ghost_record::*;

pub mod conversations;
pub mod knowledge;
pub mod schedules;
