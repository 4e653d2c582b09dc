//! Retention: what is kept how long, so that a world runs for months (issue 2, 4).

use std::time::Duration;

use ghost_domain::{Limits, Refusal, Timestamp};
use ghost_store::Store;
use ghost_store::tables::Family;

use crate::{Result, RuleContext};

/// Rows deleted in one transaction: few, so that pruning never holds up the agents.
const SLICE: u32 = 500;
/// The same of ledger rows, which go fast; each agent's lie on index pages of their own, which a commit writes as a whole
/// however many of their rows go.
const LEDGER_SLICE: u32 = 1_000;

/// Rows of a family that one transaction deletes.
#[must_use]
pub fn slice_of(family: Family) -> u32 {
    if family == Family::Ledger { LEDGER_SLICE } else { SLICE }
}

/// How long rows of a family are kept.
fn kept(family: Family, limits: &Limits) -> Duration {
    Limits::days(match family {
        Family::CronTurns => return Duration::from_secs(u64::from(limits.cron_turn_hours) * 3_600),
        Family::Events => limits.events_days,
        Family::Turns
        | Family::Messages
        | Family::Asks
        | Family::DeadLetters
        | Family::Tasks
        | Family::RootBudgets
        | Family::AgentBudgets => limits.journal_days,
        // As long as someone may still come with the version that he had seen.
        Family::Knowledge => limits.journal_days,
        Family::Ledger => limits.ledger_days,
        Family::Usage => limits.usage_days,
        Family::Requests => limits.requests_days,
        Family::ChatPosts => limits.chat_days,
        Family::Conversations => limits.conversation_days,
        Family::ScheduleRuns => limits.schedule_run_days,
        Family::Roots => limits.journal_days,
        // As long as anything may name the agent: whoever looks for what it did finds that there was one.
        Family::Agents => limits.events_days.max(limits.journal_days).max(limits.ledger_days).max(limits.usage_days),
    })
}

/// Prunes every family once, slice by slice. Gives how many rows went. A family that cannot be pruned keeps no other from it.
///
/// # Errors
/// The first refusal, after all were tried.
pub async fn sweep(store: &Store, ctx: &RuleContext) -> Result<u64> {
    let (mut gone, mut first) = (0, Ok(()));
    let before = |family| ctx.now().minus(kept(family, &ctx.limits()));
    let families = Family::ALL.into_iter().map(|family| Slice::Family(family, before(family)));
    let entries = Slice::Entries(before(Family::Conversations), ctx.limits().conversation_entries_max);
    for slice in families.chain([entries, Slice::TaskEvents(ctx.limits().task_history_max)]) {
        match slice.prune_all(store).await {
            Ok(rows) => gone += rows,
            Err(refusal) => first = first.and(Err(refusal)),
        }
    }
    first.map(|()| gone)
}

/// What is past, and takes the most room. Nobody waits for any of it.
const PAST: [Family; 6] =
    [Family::Events, Family::CronTurns, Family::Turns, Family::Messages, Family::Ledger, Family::ScheduleRuns];

/// Of what is past, this much is kept however much room it takes.
const LEAST: Duration = Duration::from_secs(3_600);

/// How the storage stands to its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Bytes in use.
    pub bytes: u64,
    /// Whether they are more than `limits.store_bytes_warn`.
    pub warns: bool,
    /// Whether they are more than `limits.store_bytes_max`.
    pub over: bool,
}

/// How much room the data take.
pub async fn stored(store: &Store, ctx: &RuleContext) -> Result<Stored> {
    let bytes = store.read_latest(|r| Box::pin(async move { r.store_bytes().await })).await.map_err(Refusal::from)?;
    let limits = ctx.limits();
    let over = |bound: u64| bound > 0 && bytes > bound;
    Ok(Stored { bytes, warns: over(limits.store_bytes_warn), over: over(limits.store_bytes_max) })
}

/// Prunes what is past sooner than its days say, half of its time after half, until the data take no more room than
/// `limits.store_bytes_max`. Gives how many rows went; what is younger than an hour stays.
pub async fn sweep_bytes(store: &Store, ctx: &RuleContext) -> Result<u64> {
    let (mut gone, mut halves) = (0, 0);
    while stored(store, ctx).await?.over {
        halves += 1;
        let mut shortened = false;
        for family in PAST {
            let full = kept(family, &ctx.limits());
            let short = full.checked_div(1 << halves).unwrap_or_default().max(LEAST);
            shortened |= short > LEAST;
            gone += Slice::Family(family, ctx.now().minus(short)).prune_all(store).await?;
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

/// What is pruned by one kind of command.
#[derive(Clone, Copy)]
enum Slice {
    Family(Family, Timestamp),
    Entries(Timestamp, u32),
    TaskEvents(u32),
}

impl Slice {
    /// Rows that one command deletes.
    fn rows(self) -> u32 {
        match self {
            Self::Family(family, _) => slice_of(family),
            Self::Entries(..) | Self::TaskEvents(_) => SLICE,
        }
    }

    async fn prune_all(self, store: &Store) -> Result<u64> {
        let (mut gone, rows) = (0, self.rows());
        loop {
            let slice: u64 = store
                .write(move |w| {
                    Box::pin(async move {
                        match self {
                            Self::Family(family, before) => w.prune(family, before, rows).await,
                            Self::Entries(before, keep) => w.prune_conversation_entries(before, keep, rows).await,
                            Self::TaskEvents(keep) => w.prune_task_events(keep, rows).await,
                        }
                    })
                })
                .await
                .map_err(Refusal::from)?;
            gone += slice;
            if slice < u64::from(rows) {
                return Ok(gone);
            }
        }
    }
}
