//! The table traits on SQLite, one file for each family: the encoding of domain types as rows, and
//! the queries.
//!
//! A query must never return more rows than the limit in the trait's comment.

mod agents;
mod approvals;
mod artifacts;
mod asks;
mod budgets;
mod chat;
mod conversations;
mod dead_letters;
mod droids;
mod events;
mod grants;
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
mod sessions;
mod shared_state;
mod skills;
mod tasks;
mod turns;
mod usage;
