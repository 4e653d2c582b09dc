//! Facts about the whole world that only the store knows, for status and reflection (CP-12).

use ghost_domain::{Budget, Job, Timestamp};
use ghost_store::Reads;

use crate::{Result, budgets};

/// A budget with this share spent or held is near its bound.
const NEAR: f64 = 0.8;

/// The facts.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Turns under way.
    pub open_turns: u32,
    /// Pending mail in all inboxes.
    pub inbox_total: u64,
    /// Dead letters that wait for an operator.
    pub dead_letters: u32,
    /// Budgets with a limit.
    pub budgets: Vec<Budget>,
    /// The newest job.
    pub job: Option<Job>,
}

impl Facts {
    /// Reads them, as they are at `now`.
    pub async fn read(r: &mut dyn Reads, now: Timestamp) -> Result<Self> {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        Ok(Self {
            open_turns: count(r.turns_open().await?.len()),
            inbox_total: r.inbox_total().await?,
            dead_letters: r.dead_letter_count_held(None).await?,
            budgets: budgets::list(r, now, false).await?,
            job: r.job_list().await?.into_iter().next(),
        })
    }

    /// The budgets that are near or past a bound.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // a share, for a warning
    pub fn near(&self) -> Vec<&Budget> {
        let near = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used as f64 >= NEAR * limit as f64);
        self.budgets
            .iter()
            .filter(|budget| {
                near(budget.spent_tokens.saturating_add(budget.reserved_tokens), budget.limits.tokens)
                    || near(budget.spent_money.plus(budget.reserved_money).0, budget.limits.money.map(|money| money.0))
            })
            .collect()
    }
}
