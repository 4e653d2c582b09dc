//! The commands: one folder for each noun, one file for each verb. A file defines the options, builds the request
//! and formats the answer.
//!
//! A command must never make a decision that belongs to the daemon.

pub mod agent;
pub mod approval;
pub mod artifact;
pub mod budget;
pub mod chat;
pub mod config;
pub mod conversation;
pub mod cron;
pub mod dead;
pub mod droid;
pub mod events;
pub mod grant;
pub mod knowledge;
pub mod ledger;
pub mod message;
pub mod schedule;
pub mod session;
mod since;
pub mod skill;
pub mod state;
pub mod talk;
pub mod task;
pub mod timer;
pub mod tool;
pub mod toolbox;
pub mod turn;
pub mod watch;
pub mod world;
