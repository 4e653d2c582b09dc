//! Limits: set by hand, by the world file and by archetypes, and the accounts that come with them.
//!
//! Must never: give back what was spent. Whoever sets, lifts or leaves a limit, the sums go on.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::budget::{Budget, BudgetLimits, this_day};
use ghost_domain::event::{EventKind, NewEvent};
use ghost_domain::usage::UsageSum;
use ghost_domain::{AgentId, Code, Money, Party, Refusal, Scope, Timestamp};
use ghost_store::tables::{BudgetFilter, UsageFilter};
use ghost_store::{Reads, Writes};
use serde_json::json;

use super::payers::{EVER, Everyone};
use crate::{Cx, Result};

/// Sets the limits of a scope. `None` in a field leaves that limit as it is; an outer `Some(None)` lifts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewLimits {
    /// Tokens.
    pub tokens: Option<Option<u64>>,
    /// Money.
    pub money: Option<Option<Money>>,
}

/// Who says a limit: what [`EventKind::BudgetSet`] gives as `origin`.
#[derive(Clone, Copy)]
enum Origin {
    Hand,
    File,
    Archetype,
}

impl Origin {
    fn as_str(self) -> &'static str {
        match self {
            Self::Hand => "hand",
            Self::File => "file",
            Self::Archetype => "archetype",
        }
    }
}

/// Sets limits by hand, and gives the account. A new one starts with what its scope has spent, as far as the usage rows go
/// back. What is set for an agent is its id's: it outlives the agent, and holds for the next one of that id.
pub async fn set(w: &mut dyn Writes, cx: &Cx, by: &Party, scope: &Scope, limits: NewLimits) -> Result<Budget> {
    let whole = match scope {
        Scope::Day(daily) => &daily.whole(),
        whole => whole,
    };
    if let Scope::Agent(agent_id) = whole {
        crate::mail::agent_named(w, agent_id).await?;
    }
    if let Scope::Team(team) = whole {
        let agents = w.agent_list(false).await?;
        if !agents.iter().any(|agent| agent.team.as_ref() == Some(team)) {
            let near = ghost_domain::text::nearest(team, agents.iter().filter_map(|agent| agent.team.as_deref()));
            let refusal = Refusal::not_found("team", team, near);
            return Err(if near.is_some() { refusal } else { refusal.hint("`teams:` in the world file names them") });
        }
    }
    if limits == NewLimits::default() {
        return Err(
            Refusal::new(Code::InvalidArguments, "no limit was given").hint("give limit_tokens, limit_micros or both")
        );
    }
    put_limits(w, cx, by, scope, limits, Origin::Hand).await
}

/// Brings limits into an account, which is opened if there is none. Whatever the file or an archetype says of them does not
/// count any more.
async fn put_limits(
    w: &mut dyn Writes,
    cx: &Cx,
    by: &Party,
    scope: &Scope,
    limits: NewLimits,
    origin: Origin,
) -> Result<Budget> {
    let mut budget = match w.budget_get(scope).await? {
        Some(budget) => budget.at(cx.now()),
        None => opened_late(w, cx, scope).await?,
    };
    budget.limits = BudgetLimits {
        tokens: limits.tokens.unwrap_or(budget.limits.tokens),
        money: limits.money.unwrap_or(budget.limits.money),
    };
    budget.of_file = BudgetLimits {
        tokens: budget.of_file.tokens.filter(|_| limits.tokens.is_none()),
        money: budget.of_file.money.filter(|_| limits.money.is_none()),
    };
    budget.of_archetype = budget.of_archetype.filter(|_| limits.money.is_none());
    match origin {
        Origin::Hand => {
            budget = budget.set_right(cx.now());
            budget.money_lifted = limits.money.map_or(budget.money_lifted, |money| money.is_none());
        }
        Origin::File => {
            budget.of_file = BudgetLimits {
                tokens: limits.tokens.unwrap_or(budget.of_file.tokens),
                money: limits.money.unwrap_or(budget.of_file.money),
            }
        }
        Origin::Archetype => budget.of_archetype = limits.money.flatten(),
    }
    budget.updated_at = cx.now();
    w.budget_put(&budget).await?;
    let payload = json!({
        "scope": budget.scope, "tokens": budget.limits.tokens, "usd": budget.limits.money.map(Money::usd), "by": by,
        "origin": origin.as_str(),
    });
    cx.emit(w, NewEvent::new(EventKind::BudgetSet, payload)).await?;
    Ok(budget)
}

/// Sets what an archetype lets one of its agents cost in a day, or lifts what another archetype has set for an earlier
/// agent of the id. A limit that someone has set by hand, or the world file, goes before it and stays.
pub async fn of_archetype(
    w: &mut dyn Writes,
    cx: &Cx,
    by: &Party,
    agent_id: &AgentId,
    money: Option<Money>,
) -> Result<()> {
    let Some(day) = Scope::Agent(agent_id.clone()).daily() else { return Ok(()) };
    let account = w.budget_get(&day).await?;
    if let Some(account) = account.as_ref().filter(|account| account.money_lifted) {
        // Lifted by hand, which ends with the agent.
        if money.is_none() {
            w.budget_put(&Budget { money_lifted: false, ..account.clone() }).await?;
        }
        return Ok(());
    }
    let (limit, given) = account.map_or((None, None), |account| (account.limits.money, account.of_archetype));
    if given == money || (limit.is_some() && given.is_none()) {
        return Ok(());
    }
    let limits = NewLimits { tokens: None, money: Some(money) };
    put_limits(w, cx, by, &day, limits, Origin::Archetype).await.map(drop)
}

/// Sets the limits that the world file names, and lifts those that it has set before and names no longer. What someone
/// has set since for a scope that the file names no longer stays. Of teams the file itself says that they are there: one may
/// have no member yet.
pub async fn follow_file(w: &mut dyn Writes, cx: &Cx, by: &Party, named: &[(Scope, BudgetLimits)]) -> Result<()> {
    for (scope, limits) in named {
        if let Some(agent_id) = scope.agent() {
            crate::mail::agent_named(w, agent_id).await?;
        }
        let before = w.budget_get(scope).await?;
        let same = before.as_ref().is_some_and(|budget| budget.limits == *limits);
        match before {
            Some(budget) if same => {
                // Only who says it may have changed.
                if budget.of_file != *limits || budget.of_archetype.is_some() {
                    w.budget_put(&Budget { of_file: *limits, of_archetype: None, ..budget }).await?;
                }
            }
            _ => {
                let limits = NewLimits { tokens: Some(limits.tokens), money: Some(limits.money) };
                put_limits(w, cx, by, scope, limits, Origin::File).await?;
            }
        }
    }
    let named: BTreeSet<&Scope> = named.iter().map(|(scope, _)| scope).collect();
    let mut lifted = Vec::new();
    each(w, BudgetFilter { limited: true, no_roots: true, ..BudgetFilter::default() }, |budget| {
        if !budget.of_file.is_none() && !named.contains(&budget.scope) {
            lifted.push((budget.scope, budget.of_file));
        }
    })
    .await?;
    for (scope, of_file) in lifted {
        let limits = NewLimits { tokens: of_file.tokens.map(|_| None), money: of_file.money.map(|_| None) };
        put_limits(w, cx, by, &scope, limits, Origin::File).await?;
    }
    Ok(())
}

/// Hands every account that `filter` finds to `take`, in order of scope text, however many there are.
pub async fn each(r: &mut dyn Reads, mut filter: BudgetFilter, mut take: impl FnMut(Budget) + Send) -> Result<()> {
    loop {
        let page = r.budget_list(&filter).await?;
        let Some(last) = page.last() else { return Ok(()) };
        filter.after = Some(last.scope.clone());
        page.into_iter().for_each(&mut take);
    }
}

/// An account for a scope that has spent already. The calls under way are charged to it too: their usage rows are not there
/// yet.
async fn opened_late(w: &mut dyn Writes, cx: &Cx, scope: &Scope) -> Result<Budget> {
    let mut budget = Budget::open(scope.clone(), cx.now());
    let everyone = Everyone::read(w).await?;
    let (whole, since) = match scope {
        Scope::Day(daily) => (daily.whole(), Some(this_day(cx.now()))),
        whole => (whole.clone(), None),
    };
    let mut filter = UsageFilter { since, ..UsageFilter::default() };
    if let Scope::Root(root_id) = &whole {
        filter.root_id = Some(*root_id);
    }
    let paid_since = |agent_id: &AgentId| match &whole {
        Scope::Agent(_) | Scope::Team(_) => everyone.paid_since(&whole, agent_id),
        Scope::World | Scope::Root(_) | Scope::Day(_) => Some(EVER),
    };
    let mut add = |sum: &UsageSum| {
        budget.unpriced_tokens = budget.unpriced_tokens.saturating_add(sum.unpriced_tokens);
        budget.spent_tokens = budget.spent_tokens.saturating_add(sum.tokens.total());
        budget.spent_money = budget.spent_money.plus(sum.cost);
    };
    // What an id spent before it was charged to this scope was somebody else's: the rest of it is summed apart.
    let mut later: BTreeMap<Timestamp, BTreeSet<AgentId>> = BTreeMap::new();
    for sum in w.usage_sum(&filter).await? {
        match paid_since(&sum.agent_id) {
            None => {}
            Some(from) if since.unwrap_or(EVER) >= from => add(&sum),
            Some(from) => drop(later.entry(from).or_default().insert(sum.agent_id)),
        }
    }
    for (from, agents) in later {
        let sums = w.usage_sum(&UsageFilter { since: Some(from), ..filter.clone() }).await?;
        sums.iter().filter(|sum| agents.contains(&sum.agent_id)).for_each(&mut add);
    }
    for mut turn in w.turns_open().await? {
        let charged = match &whole {
            Scope::World | Scope::Day(_) => true,
            Scope::Team(_) | Scope::Agent(_) => everyone.paid_since(&whole, &turn.agent_id).is_some(),
            Scope::Root(root_id) => turn.root_id == *root_id,
        };
        if charged && let Some(held) = &mut turn.held {
            budget.reserved_tokens = budget.reserved_tokens.saturating_add(held.tokens);
            budget.reserved_money = budget.reserved_money.plus(held.money.unwrap_or(Money(0)));
            held.scopes.push(scope.clone());
            w.turn_put(&turn).await?;
        }
    }
    Ok(budget)
}
