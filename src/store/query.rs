//! Builds queries from constant parts: conditions, order and limit.
//!
//! SQL text must never contain a value. Values are bound.

use crate::row::Args;

/// The largest number of rows in one page of a list.
pub const PAGE_MAX: u32 = 1_000;

/// The limit for SQL of a list's `limit`.
pub(crate) fn list_limit(limit: u32) -> i64 {
    i64::from(if limit == 0 { 100 } else { limit.min(PAGE_MAX) })
}

/// A query that is being built, with its bound values.
pub(crate) struct Conditions {
    sql: String,
    args: Args,
    any: bool,
}

impl Conditions {
    /// Starts a query with `select` and without conditions.
    pub(crate) fn new(select: &str) -> Self {
        Self { sql: select.to_owned(), args: Args::default(), any: false }
    }

    /// Adds a condition with one value, if `value` is given.
    pub(crate) fn when<T>(
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

    /// Adds groups, order and limit. Returns the SQL and the values.
    pub(crate) fn grouped(mut self, group: &'static str, order: &'static str, limit: i64) -> (String, Args) {
        self.sql.push_str(" GROUP BY ");
        self.sql.push_str(group);
        self.order(order, limit)
    }

    /// Adds order and limit. Returns the SQL and the values.
    pub(crate) fn order(mut self, order: &'static str, limit: i64) -> (String, Args) {
        self.sql.push_str(" ORDER BY ");
        self.sql.push_str(order);
        // SQLite's planner reads the value bound to a bare `LIMIT ?` and plans the query anew for
        // each value. The expression `?+0` avoids that.
        self.sql.push_str(" LIMIT ?+0");
        self.args.int(limit);
        (self.sql, self.args)
    }
}
