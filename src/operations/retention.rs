//! Retention: deletes old rows in small transactions, so that a world can run for months.
//!
//! Age is a reading of the wall clock, and this must never trust one reading. After a jump of the clock it
//! deletes only what is old by the time that passed since ([`Doubt`]), and no sweep deletes more of a
//! family than a share of it.

use ghost_domain::wall_clock::Doubt;

use crate::clock;
use crate::prelude::*;

/// Rows deleted in one transaction. It is small, so that pruning does not delay the agents.
const SLICE: u32 = 500;
/// Ledger rows deleted in one transaction. These are cheap to delete. The rows of an agent share
/// index pages, and a commit writes whole pages however many of their rows are deleted.
const LEDGER_SLICE: u32 = 1_000;

/// The number of rows of a family that one transaction deletes.
#[must_use]
pub fn slice_of(family: Family) -> u32 {
    if family == Family::Ledger { LEDGER_SLICE } else { SLICE }
}

/// Returns how long rows of a family are kept.
fn kept(family: Family, limits: &Limits) -> Duration {
    Limits::days(match family {
        Family::CronTurns => return Duration::from_secs(u64::from(limits.cron_turn_hours) * 3_600),
        Family::Events => limits.events_days,
        Family::Ledger => limits.ledger_days,
        Family::Usage => limits.usage_days,
        Family::Requests => limits.requests_days,
        Family::ChatPosts => limits.chat_days,
        Family::Conversations => limits.conversation_days,
        // A grant holds until its end, and its events tell of it.
        Family::Grants => 0,
        Family::ScheduleRuns => limits.schedule_run_days,
        // A tombstone is kept as long as any record may name the agent.
        Family::Agents => limits.events_days.max(limits.journal_days).max(limits.ledger_days).max(limits.usage_days),
        Family::Turns
        | Family::Messages
        | Family::Approvals
        | Family::Asks
        | Family::DeadLetters
        | Family::Tasks
        | Family::RootBudgets
        | Family::AgentBudgets
        | Family::Droids
        | Family::Roots
        // A deleted entry is kept as long as a writer may still refer to a version that it has read.
        | Family::Knowledge => limits.journal_days,
    })
}

/// The part of a family's rows that one sweep deletes at most, or one transaction's rows if that is
/// more.
const SHARE: u64 = 4;

/// Prunes every family once, slice by slice, up to its share. Returns the number of deleted rows. If one
/// family fails, the others are still pruned.
///
/// # Errors
/// The first refusal, after all families were tried.
pub async fn sweep(store: &Store, ctx: &Context) -> Result<u64> {
    let (mut gone, mut first) = (0, Ok(()));
    let (doubt, now) = doubt(store, ctx).await?;
    let limits = ctx.limits();
    let before = |age| now.minus(age);
    let aged = |family| Some(kept(family, &limits)).filter(|age| doubt.allows(*age));
    let families = Family::ALL.into_iter().filter_map(|family| Some(Slice::Family(family, before(aged(family)?))));
    let entries = aged(Family::Conversations).map(|age| Slice::Entries(before(age), limits.conversation_entries_max));
    for slice in families.chain(entries).chain([Slice::TaskEvents(limits.task_history_max)]) {
        match slice.prune_share(store).await {
            Ok(rows) => gone += rows,
            Err(refusal) => first = first.and(Err(refusal)),
        }
    }
    first.map(|()| gone)
}

/// How far the clock may be ahead, and what it shows. A jump is followed in a write transaction, so another one sees both
/// from before it or both from after it.
async fn doubt(store: &Store, ctx: &Context) -> Result<(Doubt, Timestamp)> {
    ctx.write(store, |w| Ok((clock::state(w)?.doubt, w.ctx.now()))).await
}

/// The history families that use the largest amount of storage. No running work needs these rows.
const HISTORY: [Family; 6] =
    [Family::Events, Family::CronTurns, Family::Turns, Family::Messages, Family::Ledger, Family::ScheduleRuns];

/// History younger than this is never deleted to free storage.
const HISTORY_MIN: Duration = Duration::from_secs(3_600);

/// The size of the storage compared with its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Bytes that the data use.
    pub bytes: u64,
    /// Whether the size is over `limits.store_bytes_warn`.
    pub warns: bool,
    /// Whether the size is over `limits.store_bytes_max`, and deleting would make it smaller.
    pub over: bool,
}

/// Reads the size of the storage.
pub async fn stored(store: &Store, ctx: &Context) -> Result<Stored> {
    let read = store.read_latest(|r| Ok::<_, Refusal>((r.store_bytes()?, r.frees_space())));
    let (bytes, frees) = read.await?;
    let limits = ctx.limits();
    let over = |bound: u64| bound > 0 && bytes > bound;
    Ok(Stored { bytes, warns: over(limits.store_bytes_warn), over: frees && over(limits.store_bytes_max) })
}

/// Prunes history earlier than its retention says, until the data are no larger than
/// `limits.store_bytes_max`. Each round halves the retention time. Rows younger than an hour are
/// kept. Returns the number of deleted rows.
pub async fn sweep_bytes(store: &Store, ctx: &Context) -> Result<u64> {
    let (mut gone, mut halves) = (0, 0);
    while stored(store, ctx).await?.over {
        halves += 1;
        let (doubt, now) = doubt(store, ctx).await?;
        let mut shortened = false;
        for family in HISTORY {
            let full = kept(family, &ctx.limits());
            let short = full.checked_div(1 << halves).unwrap_or_default().max(HISTORY_MIN);
            shortened |= short > HISTORY_MIN;
            if doubt.allows(short) {
                gone += Slice::Family(family, now.minus(short)).prune(store, u64::MAX).await?;
            }
            if !stored(store, ctx).await?.over {
                return Ok(gone);
            }
        }
        if !shortened {
            break;
        }
    }
    Ok(gone)
}

/// A kind of row that one prune command deletes.
#[derive(Clone, Copy)]
enum Slice {
    Family(Family, Timestamp),
    Entries(Timestamp, u32),
    TaskEvents(u32),
}

impl Slice {
    /// The number of rows that one command deletes.
    fn rows(self) -> u32 {
        match self {
            Self::Family(family, _) => slice_of(family),
            Self::Entries(..) | Self::TaskEvents(_) => SLICE,
        }
    }

    /// Deletes up to the family's share.
    async fn prune_share(self, store: &Store) -> Result<u64> {
        let slice = u64::from(self.rows());
        let Self::Family(family, _) = self else { return self.prune(store, u64::MAX).await };
        let gone = self.prune(store, slice).await?;
        if gone < slice {
            return Ok(gone);
        }
        let left: u64 = store.read_latest(move |r| r.prune_rows(family)).await.map_err(Refusal::from)?;
        let most = left.saturating_add(gone) / SHARE;
        Ok(gone + self.prune(store, most.saturating_sub(gone)).await?)
    }

    /// Deletes at most `most` rows, slice by slice.
    async fn prune(self, store: &Store, most: u64) -> Result<u64> {
        let mut gone = 0;
        loop {
            let rows = u32::try_from(most - gone).unwrap_or(u32::MAX).min(self.rows());
            if rows == 0 {
                return Ok(gone);
            }
            let slice: u64 = store
                .write(move |w| match self {
                    Self::Family(family, before) => w.prune(family, before, rows),
                    Self::Entries(before, keep) => w.prune_conversation_entries(before, keep, rows),
                    Self::TaskEvents(keep) => w.prune_task_events(keep, rows),
                })
                .await
                .map_err(Refusal::from)?;
            gone = gone.saturating_add(slice).min(most);
            if slice < u64::from(rows) {
                return Ok(gone);
            }
        }
    }
}
