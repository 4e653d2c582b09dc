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
mod budgets;
mod calls;
mod counts;
mod events;
mod families;
mod messages;
#[cfg(test)]
mod plans_tests;
mod prelude;
mod prune;
mod schedules;
mod shared;
mod talk;
mod tasks;
mod turns;
mod usage;

pub use agents::LiveDroids;
pub use budgets::{BudgetFilter, UsageFilter};
pub use calls::{ApprovalFilter, LedgerFilter};
pub use counts::IdKind;
pub use families::Family;
pub use messages::{InboxState, TakenMail};
pub use schedules::SchedulePlace;
pub use shared::ArtifactFilter;
pub use tasks::{TaskFilter, TaskPlace};
pub use turns::{PROMPT_USE, SessionTurns, TurnFilter};

pub use crate::error::Result;
pub use crate::query::PAGE_MAX;
