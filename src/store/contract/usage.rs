//! The sums of usage equal the sum of the stored rows, whatever was written, undone or pruned
//! before.

use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::{UsageRow, UsageSum};

use super::random::{AGENTS, Random, one_of};
use super::tools::*;

const HOUR: i64 = 3_600_000;

/// A random row within ten days.
fn any_row(random: &mut Random) -> UsageRow {
    let mut below = |bound: u64| random.below(bound);
    let cost = (below(4) > 0).then(|| Money(below(900)));
    UsageRow {
        root_id: root_id(below(4)),
        provider: one_of(&["p", "q"], below(2)).to_owned(),
        tokens: TokenUsage { input: below(1_000), output: below(100), cache_read: below(50), cache_write: below(9) },
        cost,
        estimated: below(3) == 0,
        free: below(3) == 0,
        // Often exactly at the start of a day.
        at: Timestamp(i64::try_from(below(10 * 24)).unwrap() * HOUR - i64::try_from(below(3)).unwrap()),
        ..usage(1, one_of(&AGENTS, below(3)), one_of(&["m1", "m2"], below(2)), 0)
    }
}

/// A random filter. Each part is set with a probability of one half.
fn any_filter(random: &mut Random) -> UsageFilter {
    let mut below = |bound: u64| random.below(bound);
    let instant = |wanted: bool, hours: u64| {
        wanted.then(|| Timestamp(i64::try_from(hours).unwrap() * HOUR + i64::try_from(hours % 3).unwrap() - 1))
    };
    let from = (below(3) == 0).then(|| id_of(one_of(&AGENTS, below(3))));
    let agents_max = u32::try_from(below(3)).unwrap();
    if below(4) == 0 {
        return UsageFilter { from, agents_max, ..UsageFilter::default() };
    }
    UsageFilter {
        agent_id: (below(2) == 0).then(|| id_of(one_of(&AGENTS, below(3)))),
        root_id: (below(2) == 0).then(|| root_id(below(4))),
        provider: (below(2) == 0).then(|| one_of(&["p", "q"], below(2)).to_owned()),
        since: instant(below(2) == 0, below(10 * 24)),
        before: instant(below(2) == 0, below(10 * 24)),
        from,
        agents_max,
    }
}

fn sums(rows: &[UsageRow], filter: &UsageFilter) -> Vec<UsageSum> {
    let mut sums: BTreeMap<(AgentId, String), UsageSum> = BTreeMap::new();
    let wanted = |row: &&UsageRow| {
        filter.agent_id.as_ref().is_none_or(|agent_id| row.agent_id == *agent_id)
            && filter.root_id.is_none_or(|root_id| row.root_id == root_id)
            && filter.provider.as_ref().is_none_or(|provider| row.provider == *provider)
            && filter.from.as_ref().is_none_or(|from| row.agent_id >= *from)
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
    let mut agents: Vec<AgentId> = sums.keys().map(|(agent_id, _)| agent_id.clone()).collect();
    agents.dedup();
    agents.truncate(filter.bounded().map_or(usize::MAX, |most| usize::try_from(most).unwrap()));
    sums.into_values().filter(|sum| agents.contains(&sum.agent_id)).collect()
}

async fn agree(store: &Store, rows: &[UsageRow], random: &mut Random) {
    for turn in 0..24 {
        let filter = if turn == 0 { UsageFilter::default() } else { any_filter(random) };
        let asked = filter.clone();
        assert_eq!(reading!(store, |r| { r.usage_sum(&asked)? }), sums(rows, &filter), "{filter:?}");
    }
}

pub(super) async fn totals_equal_sums(mut store: Bench) {
    let mut random = Random::new(18);
    let mut rows: Vec<UsageRow> = Vec::new();
    for round in 0..12_u32 {
        let mut new: Vec<UsageRow> = (0..random.below(40)).map(|_| any_row(&mut random)).collect();
        // Usage rows have no key, so equal rows are counted twice.
        new.extend(new.first().cloned());
        let undone: Vec<UsageRow> = (0..random.below(5)).map(|_| any_row(&mut random)).collect();
        let (kept, filter) = (new.clone(), any_filter(&mut random));
        let asked = filter.clone();
        rows.extend(new);
        // A command sees its own rows in the sums.
        let inside = keep!(&store, |w| {
            for row in &kept {
                w.usage_append(row)?;
            }
            w.usage_sum(&asked)?
        });
        assert_eq!(inside, sums(&rows, &filter), "{filter:?}");
        refuse!(&store, |w| {
            for row in &undone {
                w.usage_append(row)?;
            }
            w.usage_sum(&UsageFilter::default())?;
            w.prune(Family::Usage, Timestamp(i64::MAX), 3)?;
        });
        agree(&store, &rows, &mut random).await;
        // The oldest rows are deleted, and subtracted from every total.
        let (before, limit) = (Timestamp(i64::try_from(random.below(72)).unwrap() * HOUR + 7), random.below(9));
        let most = u32::try_from(limit).unwrap();
        let gone = keep!(&store, |w| { w.prune(Family::Usage, before, most)? });
        let mut order: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].at < before).collect();
        order.sort_by_key(|at| (rows[*at].at, *at));
        order.truncate(usize::try_from(limit).unwrap());
        assert_eq!(gone, u64::try_from(order.len()).unwrap());
        rows = rows.into_iter().enumerate().filter(|(at, _)| !order.contains(at)).map(|(_, row)| row).collect();
        agree(&store, &rows, &mut random).await;
        if round % 4 == 3 {
            store.reopen().await;
        }
    }
    assert!(rows.len() > 100);
    // A total is deleted with its last row.
    keep!(&store, |w| { w.prune(Family::Usage, Timestamp(i64::MAX), u32::MAX)? });
    agree(&store, &[], &mut random).await;
}

/// Neither the sum of many rows nor that of two totals overflows, and what is pruned comes off.
pub(super) async fn totals_stop_at_the_largest_number(store: Bench) {
    const MOST: u64 = i64::MAX.unsigned_abs();
    for _ in 0..2 {
        // More rows than are added to the totals at once.
        keep!(&store, |w| {
            for second in 0..300 {
                w.usage_append(&UsageRow { free: true, ..usage(second, "a", "m", u64::MAX) })?;
            }
        });
        let found = reading!(&store, |r| { r.usage_sum(&UsageFilter::default())? });
        assert_eq!((found[0].tokens.input, found[0].free_tokens), (MOST, MOST));
    }
    shows!(&store, |r| { r.usage_sum(&UsageFilter::default())?[0].calls => 600; });
    put!(&store, { usage_append: usage(1_000, "b", "m", 5); });
    let sums = |sums: Vec<UsageSum>| map_rows(&sums, |sum| (sum.calls, sum.tokens.input));
    prunes!(&store, Family::Usage, |r| { sums(r.usage_sum(&UsageFilter::default())?) }, {
        (1_000, 1_000) => 600, [(1, 5)];
    });
}

/// Usage stays correct after the feed and the journals are pruned.
pub(super) async fn totals_survive_pruning_of_the_feed(store: Bench) {
    put!(&store, { usage_append: usage(1, "a", "m", 10), usage(2, "a", "m", LARGE); });
    let before = reading!(&store, |r| { r.usage_sum(&UsageFilter::default())? });
    assert_eq!((before.len(), before[0].tokens.input), (1, LARGE + 10));
    for family in Family::ALL.into_iter().filter(|family| *family != Family::Usage) {
        keep!(&store, |w| { w.prune(family, Timestamp(i64::MAX), 100)? });
    }
    shows!(&store, |r| { r.usage_sum(&UsageFilter::default())? => before; });
}
