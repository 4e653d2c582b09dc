//! The totals of usage: overall, by day (UTC, counted from 1970) and by root. A row is added when some hundreds wait for
//! it, because three totals for each model call would cost more than the row itself. A sum reads the rows that wait.
//!
//! A total must never overflow: it stops at the largest integer. It must never keep a row that was pruned.

use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::UsageRow;
use ghost_domain::{Money, Timestamp};

use super::prelude::*;

/// At most so many rows wait.
const WAITING_MAX: i64 = 256;

/// All sums of a total, each in the words of another macro.
#[rustfmt::skip] // one sum a line
macro_rules! each {
    ($word:ident) => {
        concat!(
            $word!("calls"), ", ",
            $word!("input"), ", ",
            $word!("output"), ", ",
            $word!("cache_read"), ", ",
            $word!("cache_write"), ", ",
            $word!("cost"), ", ",
            $word!("estimated"), ", ",
            $word!("estimated_cost"), ", ",
            $word!("unpriced"), ", ",
            $word!("free")
        )
    };
}
pub(super) use each;

macro_rules! name {
    ($sum:literal) => {
        $sum
    };
}
pub(super) use name;

/// The sum of rows, or the largest integer. Its halves are summed apart, because a sum of many rows may be too large.
#[rustfmt::skip] // the parts of one expression
macro_rules! sum {
    ($sum:literal) => {
        concat!(
            "CAST(CASE WHEN sum(", $sum, " / 4294967296) + sum(", $sum, " % 4294967296) / 4294967296 >= 2147483648 ",
            "THEN 9223372036854775807 ELSE sum(", $sum, " / 4294967296) * 4294967296 + sum(", $sum, " % 4294967296) ",
            "END AS BIGINT) AS ", $sum
        )
    };
}
pub(super) use sum;

/// Adds to the sum of a total.
#[rustfmt::skip] // as above
macro_rules! plus {
    ($sum:literal) => {
        concat!(
            $sum, " = CASE WHEN t.", $sum, " > 9223372036854775807 - excluded.", $sum,
            " THEN 9223372036854775807 ELSE t.", $sum, " + excluded.", $sum, " END"
        )
    };
}

/// Subtracts from the sum of a total.
#[rustfmt::skip] // as above
macro_rules! minus {
    ($sum:literal) => {
        concat!($sum, " = CASE WHEN t.", $sum, " < gone.", $sum, " THEN 0 ELSE t.", $sum, " - gone.", $sum, " END")
    };
}

/// What each sum has of one row.
macro_rules! one {
    () => {
        "1 AS calls, input, output, cache_read, cache_write, cost, estimated, \
         CASE WHEN estimated = 1 THEN cost ELSE 0 END AS estimated_cost, CASE WHEN unpriced = 0 THEN 0 \
         WHEN input > 9223372036854775807 - output THEN 9223372036854775807 ELSE input + output END AS unpriced, \
         CASE WHEN free = 0 THEN 0 \
         WHEN input > 9223372036854775807 - output THEN 9223372036854775807 ELSE input + output END AS free"
    };
}
pub(super) use one;

/// The rows that wait.
macro_rules! waiting {
    () => {
        "seq > coalesce((SELECT value FROM counters WHERE name = 'usage_totals'), 0)"
    };
}
pub(super) use waiting;

/// The oldest `$2` rows from before `$1`.
macro_rules! old {
    () => {
        "seq IN (SELECT seq FROM usage WHERE at < $1 ORDER BY at, seq {limit $2})"
    };
}

/// Rows, with the keys of all totals.
#[rustfmt::skip] // as above
macro_rules! rows {
    ($($which:tt)+) => {
        concat!(
            "(SELECT root_id, (at - (at % 86400000 + 86400000) % 86400000) / 86400000 AS day, agent_id, provider, model, ",
            one!(), " FROM usage WHERE ", $($which)+, ") AS one"
        )
    };
}

/// The columns of a key.
macro_rules! key {
    ($first:literal $($column:literal)*) => { concat!($first $(, ", ", $column)*) };
}

/// Adds the rows after `$1` to a total.
#[rustfmt::skip] // as above
macro_rules! add {
    ($table:literal, $($key:literal)+) => {
        sql!(
            "INSERT INTO ", $table, " AS t (", key!($($key)+), ", ", each!(name), ") SELECT ", key!($($key)+), ", ",
            each!(sum), " FROM ", rows!("seq > $1"), " GROUP BY ", key!($($key)+), " ON CONFLICT (", key!($($key)+),
            ") DO UPDATE SET ", each!(plus)
        )
    };
}

/// Subtracts the old rows from a total.
#[rustfmt::skip] // as above
macro_rules! subtract {
    ($table:literal, $first:literal $($key:literal)*) => {
        sql!(
            "UPDATE ", $table, " AS t SET ", each!(minus), " FROM (SELECT ", key!($first $($key)*), ", ", each!(sum),
            " FROM ", rows!(old!()), " GROUP BY ", key!($first $($key)*), ") AS gone WHERE t.", $first, " = gone.", $first
            $(, " AND t.", $key, " = gone.", $key)*
        )
    };
}

/// Deletes the totals that the old rows leave empty.
#[rustfmt::skip] // as above
macro_rules! clear {
    ($table:literal, $($key:literal)+) => {
        sql!(
            "DELETE FROM ", $table, " WHERE calls < 1 AND (", key!($($key)+), ") IN (SELECT ", key!($($key)+), " FROM ",
            rows!(old!()), ")"
        )
    };
}

/// The statements for all totals.
macro_rules! totals {
    ($word:ident) => {
        [
            $word!("usage_totals", "agent_id" "provider" "model"),
            $word!("usage_days", "day" "agent_id" "provider" "model"),
            $word!("usage_roots", "root_id" "day" "agent_id" "provider" "model"),
        ]
    };
}

const ADD: [Sql; 3] = totals!(add);
const SUBTRACT: [Sql; 3] = totals!(subtract);
const CLEAR: [Sql; 3] = totals!(clear);

impl Tx {
    /// Appends a usage row.
    pub fn usage_append(&mut self, row: &UsageRow) -> Result<()> {
        let seq = self.next(|counters| &mut counters.usage)?;
        let sql = sql!(
            "INSERT INTO usage (seq, agent_id, turn_id, root_id, provider, model, input, output, cache_read, cache_write, \
            cost, estimated, unpriced, free, duration_ms, at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
            $13, $14, $15, $16)"
        );
        let UsageRow { agent_id, turn_id, root_id, provider, model, tokens, cost, estimated, free, duration_ms, at } =
            row;
        let TokenUsage { input, output, cache_read, cache_write } = tokens;
        let (unpriced, cost) = (cost.is_none(), cost.unwrap_or(Money(0)));
        #[rustfmt::skip] // in the order of the columns
        let args = args![
            seq, agent_id, turn_id, root_id, provider, model, input, output, cache_read, cache_write,
            cost, estimated, unpriced, free, duration_ms, at
        ];
        self.execute(sql, args)?;
        if seq % WAITING_MAX == 0 { self.usage_add() } else { Ok(()) }
    }

    /// Adds the rows that wait to the totals.
    fn usage_add(&mut self) -> Result<()> {
        let sql = sql!("SELECT value FROM counters WHERE name = 'usage_totals'");
        let (last, added): (_, i64) = (self.batch()?.counters.usage, self.count("counters", sql, args![])?);
        if last == added {
            return Ok(());
        }
        for sql in ADD {
            self.execute(sql, args![added])?;
        }
        self.keep_counter("usage_totals", last)
    }

    /// Deletes old rows, also from the totals. Returns their number.
    pub(super) fn usage_prune(&mut self, before: Timestamp, limit: u32) -> Result<u64> {
        self.usage_add()?;
        for sql in SUBTRACT.into_iter().chain(CLEAR) {
            self.execute(sql, args![before, limit])?;
        }
        self.execute(sql!("DELETE FROM usage WHERE ", old!()), args![before, limit])
    }
}
