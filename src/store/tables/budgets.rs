//! The `budgets` and `usage` tables. What is held for a model call under way stands in the record of its turn.

use async_trait::async_trait;
use ghost_domain::usage::{UsageRow, UsageSum};
use ghost_domain::{AgentId, Budget, RootId, Scope, ScopeSort, Timestamp};

use crate::error::Result;

/// Which accounts a list has; the default is all, from the first on.
#[derive(Clone, Debug, Default)]
pub struct BudgetFilter {
    /// Only those that have a limit.
    pub limited: bool,
    /// Only those of this sort; `None` is any.
    pub sort: Option<ScopeSort>,
    /// None of roots, of which there may be many.
    pub no_roots: bool,
    /// Only those whose scope's text comes after that of this one.
    pub after: Option<Scope>,
}

/// Which usage a sum covers; `None` is any.
#[derive(Clone, Debug, Default)]
pub struct UsageFilter {
    /// Whose.
    pub agent_id: Option<AgentId>,
    /// Charged to which root.
    pub root_id: Option<RootId>,
    /// Asked of which provider.
    pub provider: Option<String>,
    /// Settled at or after this.
    pub since: Option<Timestamp>,
    /// Settled before this.
    pub before: Option<Timestamp>,
}

/// Reading budgets.
#[async_trait]
pub trait BudgetReads {
    /// The account of a scope.
    async fn budget_get(&mut self, scope: &Scope) -> Result<Option<Budget>>;

    /// Accounts in order of scope text, at most 1,000. What comes after the last of a full list is read with
    /// [`BudgetFilter::after`].
    async fn budget_list(&mut self, filter: &BudgetFilter) -> Result<Vec<Budget>>;

    /// Sums by agent and model, in order of agent and model.
    async fn usage_sum(&mut self, filter: &UsageFilter) -> Result<Vec<UsageSum>>;
}

/// Writing budgets.
#[async_trait]
pub trait BudgetWrites {
    /// Inserts or replaces an account.
    async fn budget_put(&mut self, budget: &Budget) -> Result<()>;

    /// Appends a usage row.
    async fn usage_append(&mut self, row: &UsageRow) -> Result<()>;
}
