//! Retention: what is kept how long, so that a world runs for months (issue 2, 4).

use std::time::Duration;

use ghost_domain::Limits;
use ghost_store::Store;
use ghost_store::tables::Family;

use crate::{Cx, Result};

/// Rows deleted in one transaction: small, so that pruning never holds up the agents.
const SLICE: u32 = 500;

/// How long rows of a family are kept.
fn kept(family: Family, limits: &Limits) -> Duration {
    Limits::days(match family {
        Family::CronTurns => return Duration::from_secs(u64::from(limits.cron_turn_hours) * 3_600),
        Family::Events => limits.events_days,
        Family::Turns | Family::Messages | Family::Asks | Family::DeadLetters | Family::Tasks | Family::RootBudgets => {
            limits.journal_days
        }
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

/// Prunes every family once, slice by slice. Gives how many rows went.
pub async fn sweep(store: &Store, cx: &Cx) -> Result<u64> {
    let mut gone = 0;
    for family in Family::ALL {
        let before = cx.now().minus(kept(family, &cx.limits()));
        loop {
            let slice = store
                .write(move |w| Box::pin(async move { w.prune(family, before, SLICE).await }))
                .await
                .map_err(ghost_domain::Refusal::from);
            let slice: u64 = slice?;
            gone += slice;
            if slice < u64::from(SLICE) {
                break;
            }
        }
    }
    loop {
        let (before, keep) =
            (cx.now().minus(kept(Family::Conversations, &cx.limits())), cx.limits().conversation_entries_max);
        let slice = store
            .write(move |w| Box::pin(async move { w.prune_conversation_entries(before, keep, SLICE).await }))
            .await
            .map_err(ghost_domain::Refusal::from);
        let slice: u64 = slice?;
        gone += slice;
        if slice < u64::from(SLICE) {
            return Ok(gone);
        }
    }
}
