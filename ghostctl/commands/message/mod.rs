//! `ghostctl ask` and `ghostctl send`: mail to agents.

pub mod ask;
pub mod send;
