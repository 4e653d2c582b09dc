//! What is summed of usage is the sum of the rows that are kept, whatever was written, undone and pruned before.

use std::collections::BTreeMap;
use std::sync::Arc;

use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::{UsageRow, UsageSum};
use ghost_domain::{AgentId, Money, Timestamp};

use super::Medium;
use super::dice::{AGENTS, Dice, one_of};
use super::rows::{LARGE, root_id, usage, who};
use super::tools::{keep, open, reading, refuse};
use crate::Store;
use crate::tables::{Family, UsageFilter};

const HOUR: i64 = 3_600_000;

/// A row of some agent, root, provider and model, within ten days.
fn any_row(dice: &mut Dice) -> UsageRow {
    let mut below = |bound: u64| dice.below(bound);
    let cost = (below(4) > 0).then(|| Money(below(900)));
    UsageRow {
        root_id: root_id(below(4)),
        provider: one_of(&["p", "q"], below(2)).to_owned(),
        tokens: TokenUsage { input: below(1_000), output: below(100), cache_read: below(50), cache_write: below(9) },
        cost,
        estimated: below(3) == 0,
        free: below(3) == 0,
        // Often at the very edge of a day.
        at: Timestamp(i64::try_from(below(10 * 24)).unwrap() * HOUR - i64::try_from(below(3)).unwrap()),
        ..usage(1, one_of(&AGENTS, below(3)), one_of(&["m1", "m2"], below(2)), 0)
    }
}

/// A filter that leaves out each of its parts as often as not.
fn any_filter(dice: &mut Dice) -> UsageFilter {
    let mut below = |bound: u64| dice.below(bound);
    let instant = |wanted: bool, hours: u64| {
        wanted.then(|| Timestamp(i64::try_from(hours).unwrap() * HOUR + i64::try_from(hours % 3).unwrap() - 1))
    };
    UsageFilter {
        agent_id: (below(2) == 0).then(|| who(one_of(&AGENTS, below(3)))),
        root_id: (below(2) == 0).then(|| root_id(below(4))),
        provider: (below(2) == 0).then(|| one_of(&["p", "q"], below(2)).to_owned()),
        since: instant(below(2) == 0, below(10 * 24)),
        before: instant(below(2) == 0, below(10 * 24)),
    }
}

fn sums(rows: &[UsageRow], filter: &UsageFilter) -> Vec<UsageSum> {
    let mut sums: BTreeMap<(AgentId, String), UsageSum> = BTreeMap::new();
    let wanted = |row: &&UsageRow| {
        filter.agent_id.as_ref().is_none_or(|agent_id| row.agent_id == *agent_id)
            && filter.root_id.is_none_or(|root_id| row.root_id == root_id)
            && filter.provider.as_ref().is_none_or(|provider| row.provider == *provider)
            && filter.since.is_none_or(|since| row.at >= since)
            && filter.before.is_none_or(|before| row.at < before)
    };
    for row in rows.iter().filter(wanted) {
        let key = (row.agent_id.clone(), row.model.clone());
        let sum = sums.entry(key).or_insert_with(|| UsageSum::new(&row.agent_id, &row.model));
        let cost = row.cost.unwrap_or(Money(0));
        sum.calls += 1;
        sum.tokens.input += row.tokens.input;
        sum.tokens.output += row.tokens.output;
        sum.tokens.cache_read += row.tokens.cache_read;
        sum.tokens.cache_write += row.tokens.cache_write;
        sum.cost = sum.cost.plus(cost);
        sum.estimated_calls += u64::from(row.estimated);
        sum.estimated_cost = sum.estimated_cost.plus(if row.estimated { cost } else { Money(0) });
        sum.unpriced_tokens += if row.cost.is_none() { row.tokens.total() } else { 0 };
        sum.free_tokens += if row.free { row.tokens.total() } else { 0 };
    }
    sums.into_values().collect()
}

async fn agree(store: &Store, rows: &[UsageRow], dice: &mut Dice) {
    for turn in 0..24 {
        let filter = if turn == 0 { UsageFilter::default() } else { any_filter(dice) };
        let asked = filter.clone();
        let found = reading!(store, |r| { r.usage_sum(&asked).await? });
        assert_eq!(found, sums(rows, &filter), "{filter:?}");
    }
}

pub(super) async fn totals_equal_sums(medium: Arc<dyn Medium>) {
    let mut store = open(&medium).await;
    let mut dice = Dice::new(18);
    let mut rows: Vec<UsageRow> = Vec::new();
    for round in 0..12_u32 {
        let new: Vec<UsageRow> = (0..dice.below(40)).map(|_| any_row(&mut dice)).collect();
        let undone: Vec<UsageRow> = (0..dice.below(5)).map(|_| any_row(&mut dice)).collect();
        let (kept, filter) = (new.clone(), any_filter(&mut dice));
        let asked = filter.clone();
        rows.extend(new);
        // A command sees its own rows in the sums.
        let inside = keep!(&store, |w| {
            for row in &kept {
                w.usage_append(row).await?;
            }
            w.usage_sum(&asked).await?
        });
        assert_eq!(inside, sums(&rows, &filter), "{filter:?}");
        refuse!(&store, |w| {
            for row in &undone {
                w.usage_append(row).await?;
            }
            w.usage_sum(&UsageFilter::default()).await?;
            w.prune(Family::Usage, Timestamp(i64::MAX), 3).await?;
        });
        agree(&store, &rows, &mut dice).await;
        // The oldest go, and their part of every total with them.
        let (before, limit) = (Timestamp(i64::try_from(dice.below(72)).unwrap() * HOUR + 7), dice.below(9));
        let most = u32::try_from(limit).unwrap();
        let gone = keep!(&store, |w| { w.prune(Family::Usage, before, most).await? });
        let mut order: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].at < before).collect();
        order.sort_by_key(|at| (rows[*at].at, *at));
        order.truncate(usize::try_from(limit).unwrap());
        assert_eq!(gone, u64::try_from(order.len()).unwrap());
        rows = rows.into_iter().enumerate().filter(|(at, _)| !order.contains(at)).map(|(_, row)| row).collect();
        agree(&store, &rows, &mut dice).await;
        if round % 4 == 3 {
            store.close().await;
            store = open(&medium).await;
        }
    }
    assert!(rows.len() > 100);
    // With the last row of its kind a total is gone, too.
    keep!(&store, |w| { w.prune(Family::Usage, Timestamp(i64::MAX), u32::MAX).await? });
    agree(&store, &[], &mut dice).await;
}

/// The feed and the journals may be gone long before what was spent is forgotten.
pub(super) async fn totals_outlive_the_feed(medium: Arc<dyn Medium>) {
    let store = open(&medium).await;
    keep!(&store, |w| {
        w.usage_append(&usage(1, "a", "m", 10)).await?;
        w.usage_append(&usage(2, "a", "m", LARGE)).await?;
    });
    let before = reading!(&store, |r| { r.usage_sum(&UsageFilter::default()).await? });
    for family in Family::ALL {
        if family != Family::Usage {
            keep!(&store, |w| { w.prune(family, Timestamp(i64::MAX), 100).await? });
        }
    }
    let after = reading!(&store, |r| { r.usage_sum(&UsageFilter::default()).await? });
    assert_eq!((after.len(), after[0].tokens.input), (1, LARGE + 10));
    assert_eq!(after, before);
}
