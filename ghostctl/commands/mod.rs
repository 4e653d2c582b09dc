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
mod since;
pub mod state;
pub mod talk;
pub mod task;
pub mod timer;
pub mod tool;
pub mod turn;
pub mod watch;
pub mod world;
