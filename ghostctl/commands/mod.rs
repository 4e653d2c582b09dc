//! The commands, a folder for each noun and a file for each verb: the options, the request, and the answer's form.
//!
//! Must never: decide anything that the daemon decides.

pub mod agent;
pub mod budget;
pub mod chat;
pub mod conversation;
pub mod cron;
pub mod dead;
pub mod events;
pub mod knowledge;
pub mod ledger;
pub mod message;
pub mod schedule;
pub mod state;
pub mod talk;
pub mod task;
pub mod timer;
pub mod tool;
pub mod turn;
pub mod watch;
pub mod world;

use crate::failure::Failure;

/// A part of an answer that the contract promises and the wire format cannot.
pub fn required<T>(part: Option<T>, what: &str) -> Result<T, Failure> {
    part.ok_or_else(|| {
        Failure::new("internal", format!("the daemon's answer has no {what}"))
            .hint("this daemon and this ghostctl are of different versions")
    })
}
