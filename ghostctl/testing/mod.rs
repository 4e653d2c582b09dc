//! Whole command lines against a daemon that only acts a part.

mod answers;
mod chat;
mod events;
pub mod fake;
mod lists;
mod part;
pub mod ran;
mod retries;
