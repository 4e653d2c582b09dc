//! Opens accounts for scopes with earlier spending. Their first balance comes from the usage rows.
//!
//! This module must never scan the world once for each account. For any number of accounts, the
//! agents, their usage and the open turns are read once.

use ghost_domain::budget::this_day;
use ghost_domain::usage::UsageSum;

use super::payers::{ALWAYS, AllAgents};
use crate::prelude::*;

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
    super::scans::count();
    Ok(r.usage_sum(filter)?)
}
