//! Usage rows, and their sums. The totals are in `usage_totals.rs`.
//!
//! A sum must never read rows that a total contains. Single rows are read only while they wait for the totals, and at the
//! two ends of a time span, where it covers part of a day.

use ghost_domain::Money;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::UsageSum;

use super::budgets::UsageFilter;
use super::prelude::*;
use super::usage_totals::{each, name, one, sum, waiting};

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
    use ghost_domain::Timestamp;

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
