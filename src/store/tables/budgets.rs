//! Budgets and the tallies of roots. The sums of usage are in `usage.rs`.

use ghost_domain::root_tally::RootTally;
use ghost_domain::{AgentId, Budget, RootId, Scope, ScopeSort, Timestamp};

use super::prelude::*;

/// Which accounts a list contains. The default is all accounts.
#[derive(Clone, Debug, Default)]
pub struct BudgetFilter {
    /// Only accounts with a limit.
    pub limited: bool,
    /// Only accounts of this sort; `None` means any.
    pub sort: Option<ScopeSort>,
    /// Omits accounts of roots, because there may be many.
    pub no_roots: bool,
    /// Only accounts whose scope comes after this one, compared as text.
    pub after: Option<Scope>,
    /// At most this many accounts.
    pub limit: u32,
}

/// Which usage rows a sum covers. `None` means any.
#[derive(Clone, Debug, Default)]
pub struct UsageFilter {
    /// Agent that made the calls.
    pub agent_id: Option<AgentId>,
    /// Root that the calls are charged to.
    pub root_id: Option<RootId>,
    /// Provider that was called.
    pub provider: Option<String>,
    /// Charged at or after this time.
    pub since: Option<Timestamp>,
    /// Charged before this time.
    pub before: Option<Timestamp>,
    /// Only this agent and those after it.
    pub from: Option<AgentId>,
    /// Only the first so many agents that have usage; 0 is all. Applies only if no filter but `from` is set.
    pub agents_max: u32,
}

impl UsageFilter {
    /// How many agents the sums are bounded to, if they are.
    pub(crate) fn bounded(&self) -> Option<u32> {
        let all = self.agent_id.is_none() && self.root_id.is_none() && self.provider.is_none();
        (all && self.since.is_none() && self.before.is_none() && self.agents_max > 0).then_some(self.agents_max)
    }
}

record! {
    budget: Budget, "budgets"; key scope: Scope;
    [root_id = root_of(&budget.scope)]
    limited = budget.limits.tokens.is_some() || budget.limits.money.is_some(),
    reserved = budget.reserved_tokens > 0 || budget.reserved_money.0 > 0,
    updated_at
}

fn root_of(scope: &Scope) -> Option<RootId> {
    match scope {
        Scope::Root(root_id) => Some(*root_id),
        _ => None,
    }
}

/// The ranges of scopes that a list reads, in order, without their ends. There may be very many
/// accounts of roots, so the lists without them do not read past them.
pub(super) fn ranges(filter: &BudgetFilter) -> &'static [(&'static str, &'static str)] {
    match filter.sort {
        Some(ScopeSort::Root) if filter.no_roots => &[],
        Some(ScopeSort::World) => &[("w", "world/")],
        Some(ScopeSort::Team) => &[("team:", "team;")],
        Some(ScopeSort::Agent) => &[("agent:", "agent;")],
        Some(ScopeSort::Root) => &[("root:", "root;")],
        Some(ScopeSort::Day) => &[("", "root:"), ("root;", "x")],
        None if filter.no_roots => &[("", "root:"), ("root;", "x")],
        None => &[("", "x")],
    }
}

/// The part of a page that lies in one range; `None` if the page begins after it or has no rows left.
pub(super) fn list(filter: &BudgetFilter, (from, to): (&str, &str), left: i64) -> Option<(Statement, Args)> {
    let after = filter.after.as_ref().map(Scope::to_string).unwrap_or_default();
    let from = after.as_str().max(from);
    if from >= to || left <= 0 {
        return None;
    }
    let days = match filter.sort {
        Some(ScopeSort::Day) => Some("substr(scope, length(scope) - 3) = '/day'"),
        Some(ScopeSort::Team | ScopeSort::Agent) => Some("substr(scope, length(scope) - 3) <> '/day'"),
        _ => None,
    };
    let query = Conditions::new("SELECT record FROM budgets")
        .and(filter.limited.then_some("limited = 1"))
        .and(days)
        .when(Some(from), "scope > $1")
        .when(Some(to), "scope < $1");
    Some(query.order("scope", left))
}

functions! {
    /// The account of this scope.
    get budget_get(scope: &Scope) -> Option<Budget>: scope;
    /// Inserts or replaces an account.
    put budget_put(budget: &Budget) -> (): budget;
}

impl Tx {
    /// Accounts in order of the scope's text.
    pub fn budget_list(&mut self, filter: &BudgetFilter) -> Result<Vec<Budget>> {
        let (limit, mut found) = (list_limit(filter.limit), Vec::new());
        for range in ranges(filter) {
            let left = limit - i64::try_from(found.len()).unwrap_or(limit);
            let Some(part) = list(filter, *range, left) else { continue };
            found.extend(self.page::<Budget>(part)?);
        }
        Ok(found)
    }
}

record! { tally: RootTally, "roots"; key root_id: RootId; messages, updated_at }

functions! {
    /// The tally of a root; `None` if nothing was counted yet.
    get root_get(root_id: RootId) -> Option<RootTally>: &root_id;
    /// Inserts or replaces a tally.
    put root_put(tally: &RootTally) -> (): tally;
}

impl Tx {
    /// Tallies with the most messages first, at most `limit`.
    pub fn root_list(&mut self, limit: u32) -> Result<Vec<RootTally>> {
        self.list(sql!("SELECT record FROM roots ORDER BY messages DESC, root_id {limit $1}"), args![list_limit(limit)])
    }
}
