//! Figures about the whole world that come from the store, for the status and the metrics.

use crate::budgets;
use crate::prelude::*;

/// A budget is near its limit if this share of it is spent or reserved.
const NEAR: f64 = 0.8;

/// Counts over the whole world.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Open turns, including those that wait.
    pub open_turns: u32,
    /// The open turns that are parked because a model is down or a budget is spent.
    pub parked_turns: u32,
    /// Pending mail in all inboxes.
    pub inbox_total: u64,
    /// Dead letters that wait for an operator.
    pub dead_letters: u32,
    /// Calls that wait for an operator.
    pub approvals_pending: u32,
    /// The newest main job, if there is one.
    pub job: Option<Job>,
}

impl Facts {
    /// Reads all counts.
    pub fn read(r: &mut StoreTx) -> Result<Self> {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let open = r.turns_open()?;
        Ok(Self {
            open_turns: count(open.len()),
            parked_turns: count(open.iter().filter(|turn| turn.parked.is_some()).count()),
            inbox_total: r.inbox_total()?,
            dead_letters: r.dead_letter_count_held(None)?,
            approvals_pending: r.approval_count_pending()?,
            job: r.job_list(None, 1)?.pop(),
        })
    }
}

/// The accounts with a limit as they are at `now`, except accounts of roots, which may be many, and
/// of deleted agents.
pub fn bounded(r: &mut StoreTx, now: Timestamp) -> Result<Vec<Budget>> {
    limited(r, now, true, |_| true)
}

/// The accounts that are near or past a limit, including those of roots.
pub fn near(r: &mut StoreTx, now: Timestamp) -> Result<Vec<Budget>> {
    limited(r, now, false, is_near)
}

fn limited(r: &mut StoreTx, now: Timestamp, no_roots: bool, wanted: fn(&Budget) -> bool) -> Result<Vec<Budget>> {
    let mut found = Vec::new();
    let filter = BudgetFilter { limited: true, no_roots, ..BudgetFilter::default() };
    budgets::each(r, filter, |budget| found.extend(Some(budget.at(now)).filter(wanted)))?;
    let mut living = Vec::with_capacity(found.len());
    for budget in found {
        let agent = budget.scope.agent().map(|agent_id| r.agent_get(agent_id)).transpose()?;
        let lives = agent.is_none_or(|agent| agent.is_some_and(|agent| !agent.is_deleted()));
        living.extend(lives.then_some(budget));
    }
    Ok(living)
}

#[allow(clippy::cast_precision_loss)] // the value is only used for a warning
fn is_near(budget: &Budget) -> bool {
    let near = |used: u64, limit: Option<u64>| limit.is_some_and(|limit| used as f64 >= NEAR * limit as f64);
    let money = budget.spent_money.plus(budget.reserved_money).0;
    near(budget.spent_tokens.saturating_add(budget.reserved_tokens), budget.limits.tokens)
        // A money limit of 0 allows models that cost nothing, so it is reported only once money is
        // spent.
        || (money > 0 && near(money, budget.limits.money.map(|money| money.0)))
}
