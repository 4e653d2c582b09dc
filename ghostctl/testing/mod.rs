//! Tests that run whole command lines against a fake daemon.

mod answers;
mod chat;
mod events;
pub mod fake;
mod lists;
pub mod ran;
mod retries;
mod unary_answers;
