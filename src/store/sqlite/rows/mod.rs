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

pub(super) use agents::Meta;
pub(super) use budgets::Numbered;
pub(super) use mail::Head;
pub(super) use schedules::Seen;
pub(super) use tasks::TaskHistory;
pub(super) use turns::Prompt;

use super::row::Args;

/// Most rows of a list.
const LIST_MAX: u32 = 1_000;

/// The limit of a list whose filter says `limit`: 0 means 100.
fn list_limit(limit: u32) -> i64 {
    i64::from(if limit == 0 { 100 } else { limit.min(LIST_MAX) })
}

/// Conditions put together from constants, with their values.
struct Conditions {
    sql: String,
    args: Args,
    any: bool,
}

impl Conditions {
    /// A query that begins with `select` and has no condition yet.
    fn new(select: &str) -> Self {
        Self { sql: select.to_owned(), args: Args::default(), any: false }
    }

    /// Adds a condition with one value, if there is one.
    fn when<T>(mut self, value: Option<T>, condition: &'static str, bind: impl FnOnce(T, &mut Args)) -> Self {
        if let Some(value) = value {
            self.sql.push_str(if self.any { " AND " } else { " WHERE " });
            self.sql.push_str(condition);
            self.any = true;
            bind(value, &mut self.args);
        }
        self
    }

    /// The query as it stands.
    fn finish(self) -> (String, Args) {
        (self.sql, self.args)
    }

    /// Ends the query with an order and a limit.
    fn order(mut self, order: &'static str, limit: i64) -> (String, Args) {
        self.sql.push_str(" ORDER BY ");
        self.sql.push_str(order);
        // A bare `LIMIT ?` is planned anew for every value that is bound to it, as SQLite's planner looks at the number.
        self.sql.push_str(" LIMIT ?+0");
        self.args.int(limit);
        (self.sql, self.args)
    }
}

/// The plumbing of a [`Keyed`](super::row::Keyed) table that every one of them needs alike.
macro_rules! shelf {
    ($field:ident, $bit:ident) => {
        const BIT: u32 = crate::sqlite::flush::bit::$bit;

        fn shelf(layers: &crate::sqlite::layers::Layers) -> &crate::sqlite::shelf::Shelf<Self> {
            &layers.$field
        }

        fn shelf_mut(layers: &mut crate::sqlite::layers::Layers) -> &mut crate::sqlite::shelf::Shelf<Self> {
            &mut layers.$field
        }
    };
}
use shelf;
