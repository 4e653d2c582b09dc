//! Rows and queries of budgets. The sums of usage are in `usage.rs`.

use async_trait::async_trait;
use ghost_domain::usage::{UsageRow, UsageSum};
use ghost_domain::{Budget, Scope, ScopeSort};
use sqlx::sqlite::SqliteRow;

use crate::sqlite::internal_rows::Numbered;
use crate::sqlite::query::{Conditions, LIST_MAX};
use crate::sqlite::row::{Args, Keyed, Row, Shape, from_record, to_json};
use crate::sqlite::session::Session;
use crate::tables::{BudgetFilter, BudgetReads, BudgetWrites, Result, UsageFilter};

impl Row for Budget {
    const TABLE: &'static str = "budgets";
    const SHAPE: Shape = Shape {
        head: "INSERT INTO budgets (scope, limited, record) VALUES ",
        columns: 3,
        tail: " ON CONFLICT (scope) DO UPDATE SET limited = excluded.limited, record = excluded.record",
    };

    fn bind(&self, args: &mut Args) -> Result<()> {
        let limited = self.limits.tokens.is_some() || self.limits.money.is_some();
        args.put(self.scope.to_string()).put(limited).put(to_json(Self::TABLE, &self.scope, self)?);
        Ok(())
    }
}

impl Keyed for Budget {
    type Key = Scope;
    const SELECT: &'static str = "SELECT record FROM budgets WHERE scope = ?";

    fn key(&self) -> Scope {
        self.scope.clone()
    }

    fn bind_key(key: &Scope, args: &mut Args) {
        args.put(key.to_string());
    }

    fn read(row: &SqliteRow) -> Result<Self> {
        from_record(Self::TABLE, row)
    }
}

#[async_trait]
impl BudgetReads for Session {
    async fn budget_get(&mut self, scope: &Scope) -> Result<Option<Budget>> {
        self.get(scope).await
    }

    async fn budget_list(&mut self, filter: &BudgetFilter) -> Result<Vec<Budget>> {
        let sort = filter.sort.map(|sort| match sort {
            ScopeSort::World => "scope = 'world'",
            ScopeSort::Team => "scope > 'team:' AND scope < 'team;' AND scope NOT GLOB '*/day'",
            ScopeSort::Agent => "scope > 'agent:' AND scope < 'agent;' AND scope NOT GLOB '*/day'",
            ScopeSort::Root => "scope > 'root:' AND scope < 'root;'",
            ScopeSort::Day => "scope GLOB '*/day'",
        });
        let no_roots = "NOT (scope > 'root:' AND scope < 'root;')";
        let (sql, args) = Conditions::new("SELECT record FROM budgets")
            .when(filter.limited.then_some(()), "limited = 1", |(), _| {})
            .when(sort.map(|_| ()), sort.unwrap_or_default(), |(), _| {})
            .when(filter.no_roots.then_some(()), no_roots, |(), _| {})
            .when(filter.after.as_ref(), "scope > ?", |after, args| {
                args.put(after.to_string());
            })
            .order("scope", i64::from(LIST_MAX));
        self.list(sqlx::AssertSqlSafe(sql), args).await
    }

    async fn usage_sum(&mut self, filter: &UsageFilter) -> Result<Vec<UsageSum>> {
        self.sum_usage(filter).await
    }
}

#[async_trait]
impl BudgetWrites for Session {
    async fn budget_put(&mut self, budget: &Budget) -> Result<()> {
        self.put(budget.clone())
    }

    async fn usage_append(&mut self, row: &UsageRow) -> Result<()> {
        let buffer = self.buffer_mut()?;
        buffer.counters.usage += 1;
        buffer.tables.usage.push(Numbered { seq: buffer.counters.usage, row: row.clone() });
        Ok(())
    }
}
