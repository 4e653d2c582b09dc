//! Usage: rows, their sums, and totals: overall, by day (UTC, counted from 1970) and by root. A row is added to the totals
//! when some hundreds wait for it, because three totals for each model call would cost more than the row itself. A sum reads
//! the rows that wait, and single rows at the two ends of a time span, where it covers part of a day. It never reads other
//! rows that a total contains.
//!
//! A total must never overflow: it stops at the largest integer. It must never keep a row that was pruned.

use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::{UsageRow, UsageSum};
use ghost_domain::{Money, Timestamp};

use super::budgets::UsageFilter;
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

macro_rules! name {
    ($sum:literal) => {
        $sum
    };
}

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

/// The rows that wait.
macro_rules! waiting {
    () => {
        "seq > coalesce((SELECT value FROM counters WHERE name = 'usage_totals'), 0)"
    };
}

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

/// Milliseconds of a day. Days are UTC days, counted from 1970.
const DAY: i64 = 86_400_000;

/// Ends the list at the last agent of a page. The agents are the first part of the key, so that no others are read.
const LAST_AGENT: &str = concat!(
    "agent_id <= (SELECT max(agent_id) FROM (SELECT agent_id FROM (SELECT DISTINCT agent_id FROM usage_totals ",
    "WHERE agent_id >= $1 ORDER BY agent_id {limit $2}) AS summed UNION SELECT agent_id FROM usage WHERE agent_id >= $1 AND ",
    waiting!(),
    " ORDER BY agent_id {limit $2}) AS page)"
);

/// The select of single rows.
const ROWS: &str = concat!("SELECT agent_id, model, ", one!(), " FROM usage");

/// The whole days of a time span: the first one and the one after the last. `None` if the span is
/// within one day or ends before it begins.
fn whole_days(since: Option<i64>, before: Option<i64>) -> Option<(i64, i64)> {
    let first = since.map_or(i64::MIN, |since| since.div_euclid(DAY) + i64::from(since.rem_euclid(DAY) != 0));
    let end = before.map_or(i64::MAX, |before| before.div_euclid(DAY));
    (first <= end).then_some((first, end))
}

/// The query for a filter: the sums of totals, of the rows that are not in them yet, and of the rows of the two days that
/// the span covers in part.
fn query(filter: &UsageFilter) -> (Statement, Args) {
    let (since, before) = (filter.since.map(|at| at.0), filter.before.map(|at| at.0));
    let mut sums = Sums::default();
    let Some((first, end)) = whole_days(since, before) else {
        sums.rows(filter, since.unwrap_or(i64::MIN), before.unwrap_or(i64::MAX));
        return sums.end();
    };
    let table = match (filter.root_id, since.or(before)) {
        (Some(_), _) => "usage_roots",
        (None, Some(_)) => "usage_days",
        (None, None) => "usage_totals",
    };
    let days = if table == "usage_totals" { None } else { Some((first, end)) };
    sums.add(filter, &format!("SELECT agent_id, model, {} FROM {table}", each!(name)), "day >= $1 AND day < $2", days);
    let (from, to) = (first.saturating_mul(DAY), end.saturating_mul(DAY));
    // The plus keeps SQLite from the index of times: few rows wait, and it would read all of the span.
    sums.add(filter, ROWS, concat!(waiting!(), " AND +at >= $1 AND +at < $2"), Some((from, to)));
    if let Some(since) = since {
        sums.rows(filter, since, from);
    }
    if let Some(before) = before {
        sums.rows(filter, to, before);
    }
    sums.end()
}

/// The parts of such a query.
#[derive(Default)]
struct Sums {
    parts: Vec<String>,
    args: Args,
}

impl Sums {
    /// Adds the rows of a time span.
    fn rows(&mut self, filter: &UsageFilter, from: i64, to: i64) {
        self.add(filter, &format!("{ROWS}{{index usage_at}}"), "at >= $1 AND at < $2", Some((from, to)));
    }

    /// Adds a part: those of the selected rows that are within the span, and that the filter lets through.
    fn add(&mut self, filter: &UsageFilter, select: &str, within: &'static str, span: Option<(i64, i64)>) {
        let first = filter.from.as_ref().map_or("", |id| id.as_str());
        let part = Conditions::after(select, std::mem::take(&mut self.args))
            .when(span, within)
            .when(filter.agent_id.as_ref(), "agent_id = $1")
            .when(filter.root_id, "root_id = $1")
            .when(filter.provider.as_deref(), "provider = $1")
            .when(filter.from.as_ref(), "agent_id >= $1")
            .when(filter.bounded().map(|agents| (first, agents)), LAST_AGENT);
        let (text, args) = part.unordered();
        self.parts.push(text);
        self.args = args;
    }

    /// The statement and its values.
    fn end(self) -> (Statement, Args) {
        let sql = format!(
            "SELECT agent_id, model, {} FROM ({}) AS parts GROUP BY agent_id, model ORDER BY agent_id, model",
            each!(sum),
            self.parts.join(" UNION ALL ")
        );
        (Statement::Built(sql), self.args)
    }
}

impl Tx {
    /// Sums of usage for each agent and model, in that order.
    pub fn usage_sum(&mut self, filter: &UsageFilter) -> Result<Vec<UsageSum>> {
        let (sql, args) = query(filter);
        self.rows(sql, args, read_sum)
    }
}

fn read_sum(row: &ReadRow<'_>) -> Result<UsageSum> {
    let count = |column| get::<u64>("usage", row, column);
    Ok(UsageSum {
        agent_id: get("usage", row, 0)?,
        model: get("usage", row, 1)?,
        calls: count(2)?,
        tokens: TokenUsage { input: count(3)?, output: count(4)?, cache_read: count(5)?, cache_write: count(6)? },
        cost: Money(count(7)?),
        estimated_calls: count(8)?,
        estimated_cost: Money(count(9)?),
        unpriced_tokens: count(10)?,
        free_tokens: count(11)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::tests::plans::plan;

    #[test]
    fn a_span_is_whole_days_and_two_ends() {
        assert_eq!(whole_days(None, None), Some((i64::MIN, i64::MAX)));
        assert_eq!(whole_days(Some(0), Some(DAY)), Some((0, 1)));
        assert_eq!(whole_days(Some(1), Some(DAY)), Some((1, 1)));
        assert_eq!(whole_days(Some(1), Some(DAY - 1)), None);
        assert_eq!(whole_days(Some(-1), Some(3 * DAY + 1)), Some((0, 3)));
        assert_eq!(whole_days(Some(9), Some(5)), None);
    }

    /// Rows are read by the index of their time, and only at the two ends of the span.
    #[tokio::test]
    async fn sums_are_read_from_totals() {
        let any = UsageFilter::default;
        let root = Some(ghost_domain::RootId(uuid::Uuid::from_u128(1)));
        let since = Some(Timestamp(DAY / 2));
        for (filter, of_rows) in [
            (any(), 0),
            (UsageFilter { from: Some("a".parse().unwrap()), agents_max: 9, ..any() }, 0),
            (UsageFilter { agent_id: Some("a".parse().unwrap()), ..any() }, 0),
            (UsageFilter { provider: Some("p".to_owned()), ..any() }, 0),
            (UsageFilter { root_id: root, ..any() }, 0),
            (UsageFilter { since, ..any() }, 1),
            (UsageFilter { since, before: Some(Timestamp(9 * DAY + 1)), ..any() }, 2),
            (UsageFilter { root_id: root, since, before: Some(Timestamp(DAY / 2 + 1)), ..any() }, 1),
        ] {
            let plan = plan(query(&filter)).await;
            assert!(!plan.iter().any(|step| step.starts_with("SCAN usage ") || *step == "SCAN usage"), "{plan:?}");
            if filter.bounded().is_some() {
                assert!(!plan.iter().any(|step| step.starts_with("SCAN usage_totals")), "{plan:?}");
            }
            let found = plan.iter().filter(|step| step.contains("USING INDEX usage_at")).count();
            assert_eq!(found, of_rows, "{filter:?}: {plan:?}");
        }
    }
}
