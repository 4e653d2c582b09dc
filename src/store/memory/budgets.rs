//! Budgets and usage.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::usage::{UsageRow, UsageSum};
use ghost_domain::{Budget, Money, Scope, ScopeSort};

use super::session::{Session, page};
use super::tables::next;
use crate::tables::{BudgetFilter, BudgetReads, BudgetWrites, Result, UsageFilter};

impl BudgetReads for Session<'_> {
    fn budget_get(&mut self, scope: &Scope) -> Result<Option<Budget>> {
        Ok(self.tables.budgets.get(&scope.to_string()).cloned())
    }

    fn budget_list(&mut self, filter: &BudgetFilter) -> Result<Vec<Budget>> {
        let after = filter.after.as_ref().map(Scope::to_string);
        let wanted = |(text, budget): &(&String, &Budget)| {
            let sort = budget.scope.sort();
            after.as_ref().is_none_or(|after| *text > after)
                && (!filter.limited || !budget.limits.is_none())
                && filter.sort.is_none_or(|wanted| wanted == sort)
                && !(filter.no_roots && sort == ScopeSort::Root)
        };
        Ok(page(self.tables.budgets.iter().filter(wanted).map(|(_, budget)| budget), filter.limit))
    }

    fn usage_sum(&mut self, filter: &UsageFilter) -> Result<Vec<UsageSum>> {
        let mut sums = BTreeMap::new();
        for row in self.tables.usage.values() {
            let wanted = filter.agent_id.as_ref().is_none_or(|agent_id| row.agent_id == *agent_id)
                && filter.root_id.is_none_or(|root_id| row.root_id == root_id)
                && filter.provider.as_ref().is_none_or(|provider| row.provider == *provider)
                && filter.from.as_ref().is_none_or(|from| row.agent_id >= *from)
                && filter.since.is_none_or(|since| row.at >= since)
                && filter.before.is_none_or(|before| row.at < before);
            if wanted {
                let key = (row.agent_id.clone(), row.model.clone());
                let sum = sums.entry(key).or_insert_with(|| UsageSum::new(&row.agent_id, &row.model));
                let tokens = &mut sum.tokens;
                sum.calls += 1;
                tokens.input = tokens.input.saturating_add(row.tokens.input);
                tokens.output = tokens.output.saturating_add(row.tokens.output);
                tokens.cache_read = tokens.cache_read.saturating_add(row.tokens.cache_read);
                tokens.cache_write = tokens.cache_write.saturating_add(row.tokens.cache_write);
                let cost = row.cost.unwrap_or(Money(0));
                sum.cost = sum.cost.plus(cost);
                if row.estimated {
                    sum.estimated_calls += 1;
                    sum.estimated_cost = sum.estimated_cost.plus(cost);
                }
                if row.free {
                    sum.free_tokens = sum.free_tokens.saturating_add(row.tokens.total());
                }
                if row.cost.is_none() {
                    sum.unpriced_tokens = sum.unpriced_tokens.saturating_add(row.tokens.total());
                }
            }
        }
        let mut sums: Vec<UsageSum> = sums.into_values().collect();
        if let Some(most) = filter.bounded() {
            let agents: BTreeSet<_> = sums.iter().map(|sum| sum.agent_id.clone()).collect();
            let after = agents.into_iter().nth(usize::try_from(most).unwrap_or(usize::MAX));
            sums.retain(|sum| after.as_ref().is_none_or(|after| sum.agent_id < *after));
        }
        Ok(sums)
    }
}

impl BudgetWrites for Session<'_> {
    fn budget_put(&mut self, budget: &Budget) -> Result<()> {
        self.tables.budgets.put(budget.scope.to_string(), budget.clone());
        Ok(())
    }

    fn usage_append(&mut self, row: &UsageRow) -> Result<()> {
        let seq = next(&mut self.tables.counters.usage);
        self.tables.usage.put(seq, row.clone());
        Ok(())
    }
}
