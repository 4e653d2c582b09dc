//! Queries put together from constants: their conditions, their order, the bound of a list.
//!
//! Must never: put a value into SQL text.

use super::row::Args;

/// Most rows of a list.
pub(super) const LIST_MAX: u32 = 1_000;

/// The limit of a list whose filter says `limit`: 0 means 100.
pub(super) fn list_limit(limit: u32) -> i64 {
    i64::from(if limit == 0 { 100 } else { limit.min(LIST_MAX) })
}

/// Conditions put together from constants, with their values.
pub(super) struct Conditions {
    sql: String,
    args: Args,
    any: bool,
}

impl Conditions {
    /// A query that begins with `select` and has no condition yet.
    pub(super) fn new(select: &str) -> Self {
        Self { sql: select.to_owned(), args: Args::default(), any: false }
    }

    /// Adds a condition with one value, if there is one.
    pub(super) fn when<T>(
        mut self,
        value: Option<T>,
        condition: &'static str,
        bind: impl FnOnce(T, &mut Args),
    ) -> Self {
        if let Some(value) = value {
            self.sql.push_str(if self.any { " AND " } else { " WHERE " });
            self.sql.push_str(condition);
            self.any = true;
            bind(value, &mut self.args);
        }
        self
    }

    /// Ends the query with an order and a limit.
    pub(super) fn order(mut self, order: &'static str, limit: i64) -> (String, Args) {
        self.sql.push_str(" ORDER BY ");
        self.sql.push_str(order);
        // A bare `LIMIT ?` is planned anew for every value that is bound to it, as SQLite's planner looks at the number.
        self.sql.push_str(" LIMIT ?+0");
        self.args.int(limit);
        (self.sql, self.args)
    }
}
