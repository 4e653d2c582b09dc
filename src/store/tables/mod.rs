//! The tables, one file for each family: the rows, their SQL, and the functions of a transaction that read and write them.
//! Names of functions begin with the noun. A `put` inserts or replaces a row by key. An `append` adds a row whose
//! sequence number the store assigns, unless its comment says otherwise. Reads inside a command see
//! the command's own writes.
//!
//! A list that may be long is read in pages. `after` is the position of the last row of the previous
//! page; that row need not exist any more. `limit` is the largest number of rows: 0 means 100, and no
//! page has more than [`PAGE_MAX`]. Each page is read from an index, so its cost does not grow with
//! the table.
//!
//! This folder must never decide anything: the rules are in `ghost-operations`. It only limits how many rows a read returns.

mod agents;
mod approvals;
mod artifacts;
mod asks;
mod budgets;
mod chat;
mod conversations;
mod counts;
mod dead_letters;
mod droids;
mod events;
mod families;
mod functions;
mod grants;
mod ids;
mod jobs;
mod knowledge;
mod ledger;
mod mail;
mod messages;
#[cfg(test)]
mod plans;
mod prelude;
mod prune;
mod record;
mod requests;
mod roots;
mod schedules;
mod sessions;
mod shared_state;
mod skills;
mod tasks;
mod turns;
mod usage;
mod usage_totals;

pub use approvals::ApprovalFilter;
pub use artifacts::ArtifactFilter;
pub use budgets::{BudgetFilter, UsageFilter};
pub use droids::LiveDroids;
pub use families::Family;
pub use ids::IdKind;
pub use ledger::LedgerFilter;
pub use messages::{InboxState, TakenMail};
pub use schedules::SchedulePlace;
pub use sessions::SessionTurns;
pub use tasks::{TaskFilter, TaskPlace};
pub use turns::{PROMPT_USE, TurnFilter};

pub use crate::error::Result;
pub use crate::query::PAGE_MAX;
