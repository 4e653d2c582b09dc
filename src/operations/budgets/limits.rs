//! Limits of budgets: set by hand, by `world-config.yaml` and by archetypes. Opens the accounts that they need, whose first
//! balance comes from the usage rows: for any number of accounts, the agents, their usage and the open turns are read once.
//!
//! A change of a limit must never reset the spending.

use ghost_domain::budget::this_day;
use ghost_domain::usage::UsageSum;

use super::accounts::{ALWAYS, AllAgents};
use crate::prelude::*;

/// New limits for a scope. `None` leaves a limit as it is, `Some(None)` removes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewLimits {
    /// The limit of tokens.
    pub tokens: Option<Option<u64>>,
    /// The limit of money.
    pub money: Option<Option<Money>>,
}

impl NewLimits {
    fn over(self, old: BudgetLimits) -> BudgetLimits {
        BudgetLimits { tokens: self.tokens.unwrap_or(old.tokens), money: self.money.unwrap_or(old.money) }
    }
}

/// The origin of a limit: the `origin` in [`EventKind::BudgetSet`].
#[derive(Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
enum Origin {
    Hand,
    File,
    Archetype,
}

/// Sets limits by hand and returns the account. A new account starts with the spending of its
/// scope, as far back as the usage rows go. The limit of an agent belongs to its id: it outlives
/// the agent and applies to the next agent with that id. It can be set while no such agent exists,
/// if the last one still has a record.
///
/// # Errors
/// `NotFound` for an agent or a team that never existed and has no account; `InvalidArguments` if
/// no limit is given.
pub fn set(w: &mut Tx, by: &Party, scope: &Scope, limits: NewLimits) -> Result<Budget> {
    let account = w.budget_get(scope)?;
    if account.is_none() {
        names_something(w, scope)?;
    }
    if limits == NewLimits::default() {
        return Err(refusal!(InvalidArguments, "no limit was given").hint("give limit_tokens, limit_micros or both"));
    }
    let account = match account {
        Some(account) => Some(account),
        None => opened_late(w, &BTreeSet::from([scope.clone()]))?.remove(scope),
    };
    let account = account.unwrap_or_else(|| Budget::open(scope.clone(), w.ctx.now()));
    let mut budget = put_limits(w, by, account, limits, Origin::Hand)?;
    if budget.money_lifted
        && let Some(agent_id) = scope.agent()
        && w.agent_get(agent_id)?.is_none_or(|agent: Agent| agent.is_deleted())
    {
        // The removal of a limit ends with its agent, and this scope has no living agent.
        budget.money_lifted = false;
        w.budget_put(&budget)?;
    }
    Ok(budget)
}

/// Refuses a scope that names an unknown agent or team, for example because of a typing mistake.
fn names_something(w: &mut StoreTx, scope: &Scope) -> Result<()> {
    let whole = match scope {
        Scope::Day(daily) => &daily.whole(),
        whole => whole,
    };
    match whole {
        Scope::Agent(agent_id) if w.agent_get(agent_id)?.is_none() => crate::mail::agent_named(w, agent_id).map(drop),
        Scope::Team(team) => {
            let agents = w.agent_list(false)?;
            if agents.iter().any(|agent| agent.team.as_ref() == Some(team)) {
                return Ok(());
            }
            let mut names: BTreeSet<String> = agents.into_iter().filter_map(|agent| agent.team).collect();
            if team.contains('/') {
                // The mistake may be in the `/day` after a name.
                names.extend(names.iter().map(|name| format!("{name}/day")).collect::<Vec<_>>());
            }
            let near = nearest(team, names.iter().map(String::as_str));
            Err(not_among("team", team, near, "`teams:` in the world file lists the teams"))
        }
        Scope::World | Scope::Agent(_) | Scope::Root(_) | Scope::Day(_) => Ok(()),
    }
}

/// Applies limits to an account and writes it. Limits of `world-config.yaml` or of an archetype are
/// replaced.
fn put_limits(w: &mut Tx, by: &Party, account: Budget, limits: NewLimits, origin: Origin) -> Result<Budget> {
    let mut budget = account.at(w.ctx.now());
    budget.limits = limits.over(budget.limits);
    budget.of_file = BudgetLimits {
        tokens: budget.of_file.tokens.filter(|_| limits.tokens.is_none()),
        money: budget.of_file.money.filter(|_| limits.money.is_none()),
    };
    budget.of_archetype = budget.of_archetype.filter(|_| limits.money.is_none());
    match origin {
        Origin::Hand => {
            budget = budget.set_right(w.ctx.now());
            budget.money_lifted = limits.money.map_or(budget.money_lifted, |money| money.is_none());
            if matches!(budget.scope, Scope::Root(_)) {
                budget.tokens_lifted = limits.tokens.map_or(budget.tokens_lifted, |tokens| tokens.is_none());
            }
        }
        Origin::File => budget.of_file = limits.over(budget.of_file),
        Origin::Archetype => budget.of_archetype = limits.money.flatten(),
    }
    budget.updated_at = w.ctx.now();
    w.budget_put(&budget)?;
    w.signal(Signal::BudgetsFreed(vec![budget.scope.clone()]));
    w.signal(Signal::LimitsSet);
    if let Scope::Root(root_id) = budget.scope {
        crate::turns::parking::root_changed(w, root_id)?;
    }
    let BudgetLimits { tokens, money } = budget.limits;
    let usd = money.map(Money::usd);
    let payload = json!({ "scope": budget.scope, "tokens": tokens, "usd": usd, "by": by, "origin": origin });
    w.emit(NewEvent::new(EventKind::BudgetSet, payload))?;
    Ok(budget)
}

/// Sets the daily money limit that an archetype gives to one of its agents. `None` removes the
/// limit that an archetype set for an earlier agent of the id. A limit set by hand or by
/// `world-config.yaml` takes precedence and stays.
pub fn of_archetype(w: &mut Tx, by: &Party, agent_id: &AgentId, money: Option<Money>) -> Result<()> {
    of_archetypes(w, by, &[(agent_id.clone(), money)])
}

/// Like [`of_archetype`], for many agents. New accounts are opened together.
pub fn of_archetypes(w: &mut Tx, by: &Party, wanted: &[(AgentId, Option<Money>)]) -> Result<()> {
    let day = |agent_id: &AgentId| Scope::Agent(agent_id.clone()).daily();
    let mut fresh = BTreeSet::new();
    for scope in wanted.iter().filter(|(_, money)| money.is_some()).filter_map(|(agent_id, _)| day(agent_id)) {
        if w.budget_get(&scope)?.is_none() {
            fresh.insert(scope);
        }
    }
    let mut fresh = opened_late(w, &fresh)?;
    for (agent_id, money) in wanted {
        let Some(day) = day(agent_id) else { continue };
        let account = match fresh.remove(&day) {
            Some(account) => Some(account),
            None => w.budget_get(&day)?,
        };
        if let Some(account) = account {
            one_of_archetype(w, by, account, *money)?;
        }
    }
    Ok(())
}

/// Like [`of_archetype`], for a new agent whose id has no record. Nothing was spent under it today,
/// so no usage is read.
pub(crate) fn of_first_archetype(w: &mut Tx, by: &Party, agent_id: &AgentId, money: Option<Money>) -> Result<()> {
    let Some(day) = Scope::Agent(agent_id.clone()).daily() else { return Ok(()) };
    let account = w.budget_get(&day)?.or_else(|| money.map(|_| Budget::open(day, w.ctx.now())));
    account.map_or(Ok(()), |account| one_of_archetype(w, by, account, money))
}

fn one_of_archetype(w: &mut Tx, by: &Party, account: Budget, money: Option<Money>) -> Result<()> {
    if account.money_lifted {
        // The limit was removed by hand. That removal ends with the agent.
        if money.is_none() {
            w.budget_put(&Budget { money_lifted: false, ..account })?;
        }
        return Ok(());
    }
    let (limit, given) = (account.limits.money, account.of_archetype);
    if given == money || (limit.is_some() && given.is_none()) {
        return Ok(());
    }
    let limits = NewLimits { tokens: None, money: Some(money) };
    put_limits(w, by, account, limits, Origin::Archetype).map(drop)
}

/// Sets the limits in `world-config.yaml`, and removes limits that the file set earlier and no
/// longer has. A limit that an operator has set in the meantime stays. Team names are not checked,
/// because a team of the file may have no member yet.
pub fn follow_file(w: &mut Tx, by: &Party, named: &[(Scope, BudgetLimits)]) -> Result<()> {
    let mut fresh = BTreeSet::new();
    for (scope, _) in named {
        if let Some(agent_id) = scope.agent() {
            crate::mail::agent_named(w, agent_id)?;
        }
        if w.budget_get(scope)?.is_none() {
            fresh.insert(scope.clone());
        }
    }
    let mut fresh = opened_late(w, &fresh)?;
    for (scope, limits) in named {
        match w.budget_get(scope)? {
            Some(budget) if budget.limits == *limits => {
                // Only the origin of the limit may have changed.
                if budget.of_file != *limits || budget.of_archetype.is_some() {
                    w.budget_put(&Budget { of_file: *limits, of_archetype: None, ..budget })?;
                }
            }
            before => {
                let account = before.or_else(|| fresh.remove(scope));
                let account = account.unwrap_or_else(|| Budget::open(scope.clone(), w.ctx.now()));
                let limits = NewLimits { tokens: Some(limits.tokens), money: Some(limits.money) };
                put_limits(w, by, account, limits, Origin::File)?;
            }
        }
    }
    let named: BTreeSet<&Scope> = named.iter().map(|(scope, _)| scope).collect();
    let mut set = Vec::new();
    let filter = BudgetFilter { limited: true, no_roots: true, ..BudgetFilter::default() };
    each(w, filter, |budget| set.extend(Some(budget).filter(|budget| !budget.of_file.is_none())))?;
    for budget in set.into_iter().filter(|budget| !named.contains(&budget.scope)) {
        let of_file = budget.of_file;
        let limits = NewLimits { tokens: of_file.tokens.map(|_| None), money: of_file.money.map(|_| None) };
        put_limits(w, by, budget, limits, Origin::File)?;
    }
    Ok(())
}

/// Passes every account that `filter` finds to `take`, page by page, ordered by scope text.
pub fn each(r: &mut StoreTx, mut filter: BudgetFilter, mut take: impl FnMut(Budget) + Send) -> Result<()> {
    filter.limit = PAGE_MAX;
    loop {
        let page = r.budget_list(&filter)?;
        let Some(last) = page.last() else { return Ok(()) };
        filter.after = Some(last.scope.clone());
        page.into_iter().for_each(&mut take);
    }
}

/// Returns new accounts for these scopes, not yet written. Running calls are added to their
/// reservations, because these calls have no usage rows yet.
pub(super) fn opened_late(w: &mut Tx, scopes: &BTreeSet<Scope>) -> Result<BTreeMap<Scope, Budget>> {
    let ctx = w.ctx;
    let open = |scope: &Scope| (scope.clone(), Budget::open(scope.clone(), ctx.now()));
    let mut accounts: BTreeMap<Scope, Budget> = scopes.iter().map(open).collect();
    if accounts.is_empty() {
        return Ok(accounts);
    }
    let agents = AllAgents::read(w)?;
    // Maps the scope that usage is charged to onto its account: over all time, and for today.
    let (mut ever, mut today) = (BTreeMap::new(), BTreeMap::new());
    for scope in scopes {
        match scope {
            Scope::Day(daily) => drop(today.insert(daily.whole(), scope.clone())),
            Scope::Root(root_id) => {
                let filter = UsageFilter { root_id: Some(*root_id), ..UsageFilter::default() };
                sums(w, &filter)?.iter().for_each(|sum| add(&mut accounts, scope, sum));
            }
            whole => drop(ever.insert(whole.clone(), whole.clone())),
        }
    }
    spent(w, &agents, None, &ever, &mut accounts)?;
    spent(w, &agents, Some(this_day(ctx.now())), &today, &mut accounts)?;
    for mut turn in w.turns_open()? {
        // A call without accounts is free.
        let Some(held) = turn.held.as_mut().filter(|held| !held.scopes.is_empty()) else { continue };
        let mut paying = agents.payers(&turn.agent_id);
        paying.extend([(Scope::World, ALWAYS), (Scope::Root(turn.root_id), ALWAYS)]);
        let before = held.scopes.len();
        for (whole, _) in paying {
            for scope in whole.daily().into_iter().chain([whole]) {
                let Some(account) = accounts.get_mut(&scope) else { continue };
                account.reserved_tokens = account.reserved_tokens.saturating_add(held.tokens);
                account.reserved_money = account.reserved_money.plus(held.money.unwrap_or(Money(0)));
                held.scopes.push(scope);
            }
        }
        if held.scopes.len() > before {
            w.turn_put(&turn)?;
        }
    }
    Ok(accounts)
}

/// Adds the spending since `since` to the wanted accounts. `wanted` maps a charged scope to its
/// account.
///
/// Spending of an id before a scope began to pay for it was charged to others. So the time is split
/// at each moment when a scope began to pay, and each usage row falls into exactly one interval.
fn spent(
    r: &mut StoreTx,
    agents: &AllAgents,
    since: Option<Timestamp>,
    wanted: &BTreeMap<Scope, Scope>,
    accounts: &mut BTreeMap<Scope, Budget>,
) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let payers = |agent_id: &AgentId| -> Vec<(Scope, Timestamp)> {
        let all = agents.payers(agent_id).into_iter().chain([(Scope::World, ALWAYS)]);
        all.filter_map(|(whole, from)| wanted.get(&whole).map(|scope| (scope.clone(), from))).collect()
    };
    let mut charged: BTreeMap<AgentId, Vec<(Scope, Timestamp)>> =
        agents.ids().map(|agent_id| (agent_id.clone(), payers(agent_id))).collect();
    let start = since.unwrap_or(ALWAYS);
    let later = charged.values().flatten().map(|(_, from)| *from).filter(|from| *from > start);
    let cuts: Vec<Timestamp> = later.chain([start]).collect::<BTreeSet<_>>().into_iter().collect();
    for (at, cut) in cuts.iter().enumerate() {
        // The first interval of all time has no start.
        let from = if at == 0 { since } else { Some(*cut) };
        let filter = UsageFilter { since: from, before: cuts.get(at + 1).copied(), ..UsageFilter::default() };
        for sum in sums(r, &filter)? {
            // For an agent without any record, only its own account is known.
            let paying = charged.entry(sum.agent_id.clone()).or_insert_with(|| payers(&sum.agent_id));
            for (scope, _) in paying.iter().filter(|(_, from)| from <= cut) {
                add(accounts, scope, &sum);
            }
        }
    }
    Ok(())
}

fn add(accounts: &mut BTreeMap<Scope, Budget>, scope: &Scope, sum: &UsageSum) {
    // Free tokens use no budget. Tokens at a price of zero do.
    let tokens = sum.tokens.total().saturating_sub(sum.free_tokens);
    if let Some(account) = accounts.get_mut(scope) {
        account.unpriced_tokens = account.unpriced_tokens.saturating_add(sum.unpriced_tokens);
        account.spent_tokens = account.spent_tokens.saturating_add(tokens);
        account.spent_money = account.spent_money.plus(sum.cost);
    }
}

fn sums(r: &mut StoreTx, filter: &UsageFilter) -> Result<Vec<UsageSum>> {
    #[cfg(test)]
    super::accounts::scans::count();
    Ok(r.usage_sum(filter)?)
}
