//! Accounts that are opened for scopes which have spent already: they begin with what the usage rows say of them.
//!
//! Must never: read the world once for each account. However many are opened together, its agents, their usage and the open
//! turns are gone through once.

use std::collections::{BTreeMap, BTreeSet};

use ghost_domain::budget::{Budget, this_day};
use ghost_domain::usage::UsageSum;
use ghost_domain::{AgentId, Money, Scope, Timestamp};
use ghost_store::tables::UsageFilter;
use ghost_store::{Reads, Writes};

use super::payers::{EVER, Everyone};
use crate::{Result, RuleContext};

/// New accounts for these scopes, by scope, none of them written yet. The calls under way are charged to them too: their usage
/// rows are not there yet.
pub(super) async fn opened_late(
    w: &mut dyn Writes,
    ctx: &RuleContext,
    scopes: &BTreeSet<Scope>,
) -> Result<BTreeMap<Scope, Budget>> {
    let open = |scope: &Scope| (scope.clone(), Budget::open(scope.clone(), ctx.now()));
    let mut accounts: BTreeMap<Scope, Budget> = scopes.iter().map(open).collect();
    if accounts.is_empty() {
        return Ok(accounts);
    }
    let everyone = Everyone::read(w).await?;
    // From what is spent within the period to the account that counts it.
    let (mut ever, mut today) = (BTreeMap::new(), BTreeMap::new());
    for scope in scopes {
        match scope {
            Scope::Day(daily) => drop(today.insert(daily.whole(), scope.clone())),
            Scope::Root(root_id) => {
                let filter = UsageFilter { root_id: Some(*root_id), ..UsageFilter::default() };
                let sums = sums(w, &filter).await?;
                sums.iter().for_each(|sum| add(&mut accounts, scope, sum));
            }
            whole => drop(ever.insert(whole.clone(), whole.clone())),
        }
    }
    spent(w, &everyone, None, &ever, &mut accounts).await?;
    spent(w, &everyone, Some(this_day(ctx.now())), &today, &mut accounts).await?;
    for mut turn in w.turns_open().await? {
        // A call that no account holds anything for is free.
        let Some(held) = turn.held.as_mut().filter(|held| !held.scopes.is_empty()) else { continue };
        let mut paying = everyone.payers(&turn.agent_id);
        paying.push((Scope::World, EVER));
        paying.push((Scope::Root(turn.root_id), EVER));
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
            w.turn_put(&turn).await?;
        }
    }
    Ok(accounts)
}

/// Adds what was spent since `since` to the accounts that are in `wanted` under the scope which it was charged to. What an id
/// spent before it was charged to a scope was somebody else's. So the time is cut where someone began to pay, and every row
/// of usage is summed in one piece of it.
async fn spent(
    r: &mut dyn Reads,
    everyone: &Everyone,
    since: Option<Timestamp>,
    wanted: &BTreeMap<Scope, Scope>,
    accounts: &mut BTreeMap<Scope, Budget>,
) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let payers = |agent_id: &AgentId| -> Vec<(Scope, Timestamp)> {
        let all = everyone.payers(agent_id).into_iter().chain([(Scope::World, EVER)]);
        all.filter_map(|(whole, from)| wanted.get(&whole).map(|scope| (scope.clone(), from))).collect()
    };
    let mut charged: BTreeMap<AgentId, Vec<(Scope, Timestamp)>> =
        everyone.ids().map(|agent_id| (agent_id.clone(), payers(agent_id))).collect();
    let start = since.unwrap_or(EVER);
    let later = charged.values().flatten().map(|(_, from)| *from).filter(|from| *from > start);
    let cuts: BTreeSet<Timestamp> = later.chain([start]).collect();
    let cuts: Vec<Timestamp> = cuts.into_iter().collect();
    for (at, cut) in cuts.iter().enumerate() {
        // The first piece of all time has no beginning.
        let from = if at == 0 { since } else { Some(*cut) };
        let filter = UsageFilter { since: from, before: cuts.get(at + 1).copied(), ..UsageFilter::default() };
        for sum in sums(r, &filter).await? {
            // Of one that has no record any more, not even a tombstone, its own account is all that is known.
            let paying = charged.entry(sum.agent_id.clone()).or_insert_with(|| payers(&sum.agent_id));
            for (scope, _) in paying.iter().filter(|(_, from)| from <= cut) {
                add(accounts, scope, &sum);
            }
        }
    }
    Ok(())
}

fn add(accounts: &mut BTreeMap<Scope, Budget>, scope: &Scope, sum: &UsageSum) {
    // What was free used up no budget; what was priced at nothing did.
    let tokens = sum.tokens.total().saturating_sub(sum.free_tokens);
    if let Some(account) = accounts.get_mut(scope) {
        account.unpriced_tokens = account.unpriced_tokens.saturating_add(sum.unpriced_tokens);
        account.spent_tokens = account.spent_tokens.saturating_add(tokens);
        account.spent_money = account.spent_money.plus(sum.cost);
    }
}

async fn sums(r: &mut dyn Reads, filter: &UsageFilter) -> Result<Vec<UsageSum>> {
    #[cfg(test)]
    super::looks::count();
    Ok(r.usage_sum(filter).await?)
}
