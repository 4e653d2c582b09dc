//! The rules against the store in memory, under a clock and ids that the tests own.

mod agents;
mod asks;
mod asks_ended;
mod budgets;
mod budgets_sums;
mod chat;
mod conversations;
mod crashes;
mod dead_letters;
mod feed;
mod fencing;
mod knowledge;
mod mail;
mod redaction;
mod requests;
mod retention;
mod rig;
mod schedules;
mod schedules_missed;
mod shared_state;
mod store_faults;
mod storms;
mod tasks;
mod tasks_waiting;
mod turns;
