//! Usage rows, and their totals: overall, by day and by root. Triggers update the totals when rows
//! are inserted or deleted (migration 6).
//!
//! A sum must never read rows that a total contains. Single rows are read only at the two ends of a
//! time span, where it covers part of a day.

use ghost_domain::Money;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::{UsageRow, UsageSum};

use super::budgets::UsageFilter;
use crate::error::Result;
use crate::internal_rows::Numbered;
use crate::row::{Args, ReadRow, Row, get, get_count, get_parsed};
use crate::tx::Tx;

/// Milliseconds of a day. Days are UTC days, counted from 1970.
const DAY: i64 = 86_400_000;

/// The columns of a total.
const SUMMED: &str = "calls, input, output, cache_read, cache_write, cost, estimated, estimated_cost, unpriced, free";

/// Ends the list at the last agent of a page. The agents are the first part of the key, so that no others are read.
const LAST_AGENT: &str = " AND agent_id <= (SELECT max(agent_id) FROM (SELECT DISTINCT agent_id FROM usage_totals \
    WHERE agent_id >= ?10 ORDER BY agent_id LIMIT ?11))";

/// The same columns, computed from one usage row.
const ONE: &str = "1 AS calls, input, output, cache_read, cache_write, cost, estimated, iif(estimated, cost, 0) AS \
    estimated_cost, iif(unpriced, input + output, 0) AS unpriced, iif(free, input + output, 0) AS free";

impl Row for Numbered<UsageRow> {
    const TABLE: &'static str = "usage";
    const WRITE: &str = "INSERT INTO usage (seq, agent_id, turn_id, root_id, provider, model, input, output, cache_read, \
        cache_write, cost, estimated, unpriced, free, duration_ms, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, \
        ?, ?, ?, ?, ?, ?, ?, ?)";

    fn bind(&self, args: &mut Args) -> Result<()> {
        let row = &self.row;
        args.int(self.seq)
            .text(row.agent_id.as_str())
            .id(row.turn_id.0)
            .id(row.root_id.0)
            .text(&row.provider)
            .text(&row.model)
            .count(row.tokens.input)
            .count(row.tokens.output)
            .count(row.tokens.cache_read)
            .count(row.tokens.cache_write)
            .count(row.cost.map_or(0, |cost| cost.0))
            .put(row.estimated)
            .put(row.cost.is_none())
            .put(row.free)
            .count(row.duration_ms)
            .int(row.at.0);
        Ok(())
    }
}

/// The whole days of a time span: the first one and the one after the last. `None` if the span is
/// within one day or ends before it begins.
fn whole_days(since: Option<i64>, before: Option<i64>) -> Option<(i64, i64)> {
    let first = since.map_or(i64::MIN, |since| since.div_euclid(DAY) + i64::from(since.rem_euclid(DAY) != 0));
    let end = before.map_or(i64::MAX, |before| before.div_euclid(DAY));
    (first <= end).then_some((first, end))
}

/// The query for a filter. Its parameters have fixed numbers: agent, root, provider, since, before,
/// first whole day, the day after the last, the times at which these two begin, the first agent, and the number of
/// agents.
fn query(filter: &UsageFilter, days: Option<(i64, i64)>) -> String {
    let filters = [
        (filter.agent_id.is_some(), " AND agent_id = ?1"),
        (filter.root_id.is_some(), " AND root_id = ?2"),
        (filter.provider.is_some(), " AND provider = ?3"),
        (filter.from.is_some(), " AND agent_id >= ?10"),
        (filter.bounded().is_some(), LAST_AGENT),
    ];
    let filters: String = filters.iter().filter(|(wanted, _)| *wanted).map(|(_, condition)| *condition).collect();
    let has_span = filter.since.is_some() || filter.before.is_some();
    let mut parts = Vec::new();
    let rows =
        |span: &str| format!("SELECT agent_id, model, {ONE} FROM usage INDEXED BY usage_at WHERE {span}{filters}");
    if !has_span && filter.root_id.is_none() {
        parts.push(format!("SELECT agent_id, model, {SUMMED} FROM usage_totals WHERE true{filters}"));
    } else if days.is_some() {
        let table = if filter.root_id.is_some() { "usage_roots" } else { "usage_days" };
        let span = "day >= ?6 AND day < ?7";
        parts.push(format!("SELECT agent_id, model, {SUMMED} FROM {table} WHERE {span}{filters}"));
        if filter.since.is_some() {
            parts.push(rows("at >= ?4 AND at < ?8"));
        }
        if filter.before.is_some() {
            parts.push(rows("at >= ?9 AND at < ?5"));
        }
    } else {
        parts.push(rows("at >= ?4 AND at < ?5"));
    }
    format!(
        "SELECT agent_id, model, sum(calls), sum(input), sum(output), sum(cache_read), sum(cache_write), sum(cost), \
         sum(estimated), sum(estimated_cost), sum(unpriced), sum(free) FROM ({}) GROUP BY agent_id, model ORDER BY agent_id, model",
        parts.join(" UNION ALL ")
    )
}

impl Tx {
    /// Sums of usage by agent and model.
    pub(super) fn sum_usage(&mut self, filter: &UsageFilter) -> Result<Vec<UsageSum>> {
        let (since, before) = (filter.since.map(|at| at.0), filter.before.map(|at| at.0));
        let days = whole_days(since, before);
        let (first, end) = days.unwrap_or_default();
        let mut args = Args::default();
        args.maybe_text(filter.agent_id.as_ref().map(|id| id.as_str()))
            .maybe_id(filter.root_id.map(|id| id.0))
            .maybe_text(filter.provider.as_deref())
            .put(since)
            .put(before)
            .int(first)
            .int(end)
            .int(first.saturating_mul(DAY))
            .int(end.saturating_mul(DAY))
            .text(filter.from.as_ref().map_or("", |id| id.as_str()))
            .int(i64::from(filter.agents_max));
        self.rows(query(filter, days), args, read_sum)
    }
}

fn read_sum(row: &ReadRow<'_>) -> Result<UsageSum> {
    let count = |column| get_count::<u64>("usage", row, column);
    Ok(UsageSum {
        agent_id: get_parsed("usage", row, 0)?,
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
    use ghost_domain::Timestamp;
    use rusqlite::Connection;

    use super::*;
    use crate::sqlite::schema;

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
    #[test]
    fn sums_are_read_from_totals() {
        let mut conn = Connection::open_in_memory().unwrap();
        schema::migrate(&mut conn, 0).unwrap();
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
            let days = whole_days(filter.since.map(|at| at.0), filter.before.map(|at| at.0));
            let mut explained = conn.prepare(&format!("EXPLAIN QUERY PLAN {}", query(&filter, days))).unwrap();
            // No value is bound, so each parameter is NULL. `query` would require a value for each.
            let steps = explained.raw_query().mapped(|row| row.get("detail"));
            let plan: Vec<String> = steps.collect::<rusqlite::Result<_>>().unwrap();
            assert!(!plan.iter().any(|step| step.starts_with("SCAN usage ") || *step == "SCAN usage"), "{plan:?}");
            if filter.bounded().is_some() {
                assert!(!plan.iter().any(|step| step.starts_with("SCAN usage_totals")), "{plan:?}");
            }
            let found = plan.iter().filter(|step| step.contains("USING INDEX usage_at")).count();
            assert_eq!(found, of_rows, "{filter:?}: {plan:?}");
        }
    }
}
