//! The daemon's records as JSON objects, in the form of the HTTP interface.

pub use ghost_record::*;

pub mod conversations;
pub mod knowledge;
pub mod schedules;
