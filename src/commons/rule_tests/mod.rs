//! The rules against the store in memory, under a clock and ids that the tests own.

mod agents;
mod asks;
mod asks_ended;
mod budgets;
mod budgets_sums;
mod crashes;
mod dead_letters;
mod feed;
mod fencing;
mod mail;
mod redaction;
mod requests;
mod retention;
mod rig;
mod store_faults;
mod tasks;
mod turns;
