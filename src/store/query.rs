//! Builds queries from constant parts: conditions, order and limit.
//!
//! SQL text must never contain a value. Values are bound.

use crate::error::Result;
use crate::row::{Args, Bind, Keyed};
use crate::sql::{Sql, Statement};
use crate::tx::Tx;

/// The largest number of rows in one page of a list.
pub const PAGE_MAX: u32 = 1_000;

/// The limit for SQL of a list's `limit`.
pub(crate) fn list_limit(limit: u32) -> i64 {
    i64::from(if limit == 0 { 100 } else { limit.min(PAGE_MAX) })
}

/// A query that is being built, with its bound values. The text has the marks of [`crate::sql`].
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

    /// Starts a part of a query, after the values of the parts before it.
    pub(crate) fn after(select: &str, args: Args) -> Self {
        Self { args, ..Self::new(select) }
    }

    /// The text and the values, without order and limit.
    pub(crate) fn unordered(self) -> (String, Args) {
        (self.sql, self.args)
    }

    /// Adds a condition, if its values are given. The condition numbers them from `$1`.
    pub(crate) fn when(mut self, values: Option<impl Bind>, condition: &'static str) -> Self {
        if let Some(values) = values {
            self.sql.push_str(if self.any { " AND " } else { " WHERE " });
            self.part(condition);
            self.any = true;
            values.bind(&mut self.args);
        }
        self
    }

    /// Adds a condition without values, if it is given.
    pub(crate) fn and(self, condition: Option<&'static str>) -> Self {
        match condition {
            Some(condition) => self.when(Some(()), condition),
            None => self,
        }
    }

    /// Adds groups, order and limit. Returns the statement and the values.
    pub(crate) fn grouped(mut self, group: &'static str, order: &'static str, limit: i64) -> (Statement, Args) {
        self.sql.push_str(" GROUP BY ");
        self.sql.push_str(group);
        self.order(order, limit)
    }

    /// Adds order and limit. Returns the statement and the values.
    pub(crate) fn order(mut self, order: &'static str, limit: i64) -> (Statement, Args) {
        self.sql.push_str(" ORDER BY ");
        self.sql.push_str(order);
        self.part(" {limit $1}");
        self.args.push(limit);
        (Statement::Built(self.sql), self.args)
    }

    /// Adds a part, whose values follow those that are bound.
    fn part(&mut self, part: &str) {
        let mut pieces = part.split('$');
        self.sql.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            // A part has less than ten values.
            let (number, rest) = piece.split_at(piece.len().min(1));
            match number.parse::<usize>() {
                Ok(number) => self.sql.push_str(&format!("${}{rest}", number + self.args.len())),
                Err(_) => self.sql.push_str(&format!("${piece}")),
            }
        }
    }
}

impl Tx {
    /// Runs a query and decodes its first row.
    pub(crate) fn first<R: Keyed>(&mut self, sql: Sql, args: Args) -> Result<Option<R>> {
        self.row(sql, args, R::read)
    }

    /// Runs a query that was built and decodes its rows.
    pub(crate) fn page<R: Keyed>(&mut self, (sql, args): (Statement, Args)) -> Result<Vec<R>> {
        self.list(sql, args)
    }
}
