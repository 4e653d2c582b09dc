//! The tables, one file a family: how a noun becomes a row, and the queries.
//!
//! Must never: give out more rows than the bound that the trait names.

mod agents;
mod asks;
mod budgets;
mod chat;
mod conversations;
mod dead_letters;
mod events;
mod ids;
mod jobs;
mod knowledge;
mod ledger;
mod mail;
mod messages;
mod prune;
mod requests;
mod roots;
mod schedules;
mod shared_state;
mod skills;
mod tasks;
mod turns;
mod usage;
