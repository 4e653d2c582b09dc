//! Mail to agents.

pub mod ask;
pub mod send;
