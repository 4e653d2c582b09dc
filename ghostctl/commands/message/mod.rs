//! `ghostctl ask` and `ghostctl send`: messages to agents.

pub mod ask;
pub mod send;
