//! Budgets, reservations and usage.

use async_trait::async_trait;
use ghost_domain::transcript::TokenUsage;
use ghost_domain::usage::{UsageRow, UsageSum};
use ghost_domain::{Budget, Money, Scope, ScopeSort};
use sqlx::sqlite::SqliteRow;

use crate::sqlite::bit;
use crate::sqlite::nameless::Numbered;
use crate::sqlite::query::{Conditions, LIST_MAX};
use crate::sqlite::row::{Args, Keyed, Row, Shape, from_record, get_count, get_parsed, to_json};
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
    const KEPT: usize = 8_192;
    // Nearly every root has no account, and each of its model calls asks for one.
    const ABSENT_KEPT: usize = 4_096;
    const SELECT: &'static str = "SELECT record FROM budgets WHERE scope = ?";
    const BIT: u32 = bit::BUDGETS;

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

impl Row for Numbered<UsageRow> {
    const TABLE: &'static str = "usage";
    const SHAPE: Shape = Shape {
        head: "INSERT INTO usage (seq, agent_id, turn_id, root_id, provider, model, input, output, cache_read, \
               cache_write, cost, estimated, unpriced, duration_ms, at) VALUES ",
        columns: 15,
        tail: "",
    };

    fn bind(&self, args: &mut Args) -> Result<()> {
        let row = &self.row;
        args.int(self.seq)
            .text(row.agent_id.as_str())
            .id(row.turn_id.0)
            .id(row.root_id.0)
            .text(&row.provider)
            .text(&row.model)
            .count(row.tokens.input)
            .count(row.tokens.output)
            .count(row.tokens.cache_read)
            .count(row.tokens.cache_write)
            .count(row.cost.map_or(0, |cost| cost.0))
            .put(row.estimated)
            .put(row.cost.is_none())
            .count(row.duration_ms)
            .int(row.at.0);
        Ok(())
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
        self.scan(bit::USAGE).await?;
        let (mut sql, args) = Conditions::new(
            "SELECT agent_id, model, count(*), sum(input), sum(output), sum(cache_read), sum(cache_write), sum(cost), \
             sum(estimated), sum(iif(estimated, cost, 0)), sum(iif(unpriced, input + output, 0)) FROM usage",
        )
        .when(filter.agent_id.as_ref(), "agent_id = ?", |id, args| {
            args.text(id.as_str());
        })
        .when(filter.root_id, "root_id = ?", |id, args| {
            args.id(id.0);
        })
        .when(filter.provider.as_ref(), "provider = ?", |provider, args| {
            args.text(provider);
        })
        .when(filter.since, "at >= ?", |at, args| {
            args.int(at.0);
        })
        .when(filter.before, "at < ?", |at, args| {
            args.int(at.0);
        })
        .finish();
        sql.push_str(" GROUP BY agent_id, model ORDER BY agent_id, model");
        self.rows_of(sql, args).await?.iter().map(read_sum).collect()
    }
}

fn read_sum(row: &SqliteRow) -> Result<UsageSum> {
    let count = |column| get_count::<u64>("usage", row, column);
    Ok(UsageSum {
        agent_id: get_parsed("usage", row, 0)?,
        model: crate::sqlite::row::get("usage", row, 1)?,
        calls: count(2)?,
        tokens: TokenUsage { input: count(3)?, output: count(4)?, cache_read: count(5)?, cache_write: count(6)? },
        cost: Money(count(7)?),
        estimated_calls: count(8)?,
        estimated_cost: Money(count(9)?),
        unpriced_tokens: count(10)?,
    })
}

#[async_trait]
impl BudgetWrites for Session {
    async fn budget_put(&mut self, budget: &Budget) -> Result<()> {
        self.pending()?.budgets.put(budget.clone());
        Ok(())
    }

    async fn usage_append(&mut self, row: &UsageRow) -> Result<()> {
        let layers = self.pending()?;
        layers.counters.usage += 1;
        layers.usage.push(Numbered { seq: layers.counters.usage, row: row.clone() });
        Ok(())
    }
}
