//! Whole command lines against a daemon that only acts a part.

mod answers;
mod chat;
mod events;
mod fake;
mod lists;
mod part;
mod ran;
mod retries;
