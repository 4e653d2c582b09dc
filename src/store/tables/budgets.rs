//! The `budgets` and `usage` tables. The reservation of a running model call is stored in the
//! record of its turn, not here.

use ghost_domain::usage::{UsageRow, UsageSum};
use ghost_domain::{AgentId, Budget, RootId, Scope, ScopeSort, Timestamp};

use crate::error::Result;

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

/// Reads of budgets and usage.
pub trait BudgetReads {
    /// The account of this scope.
    fn budget_get(&mut self, scope: &Scope) -> Result<Option<Budget>>;

    /// Accounts in order of the scope's text.
    fn budget_list(&mut self, filter: &BudgetFilter) -> Result<Vec<Budget>>;

    /// Sums of usage for each agent and model, in that order.
    fn usage_sum(&mut self, filter: &UsageFilter) -> Result<Vec<UsageSum>>;
}

/// Writes of budgets and usage.
pub trait BudgetWrites {
    /// Inserts or replaces an account.
    fn budget_put(&mut self, budget: &Budget) -> Result<()>;

    /// Appends a usage row.
    fn usage_append(&mut self, row: &UsageRow) -> Result<()>;
}
