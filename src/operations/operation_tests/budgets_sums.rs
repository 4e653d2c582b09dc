//! Property test: for any order of concurrent calls, no account exceeds its limit, and accounts and
//! usage rows agree.

use proptest::prelude::*;

use super::operation_world::*;

#[derive(Clone, Debug)]
enum Action {
    /// Agent, input tokens, most output tokens.
    Start(usize, u64, u64),
    /// Index of the open call, and how it ends: answered with a share of the reservation, without
    /// reported usage, released, forfeited or interrupted.
    End(usize, u8, u64),
    /// A root gets its own account.
    Root(usize),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let one = prop_oneof![
        4 => (0usize..2, 0u64..300, 16u64..300).prop_map(|(who, input, most)| Action::Start(who, input, most)),
        4 => (any::<usize>(), 0u8..5, 0u64..=100).prop_map(|(which, how, share)| Action::End(which, how, share)),
        1 => (0usize..2).prop_map(Action::Root),
    ];
    proptest::collection::vec(one, 1..40)
}

async fn check(world: &OperationWorld, held: &[(usize, ReservationId, u64, u64)]) {
    let accounts: Vec<Budget> = read!(world, |r| r.budget_list(&BudgetFilter::default())?);
    for account in &accounts {
        let used = account.spent_tokens + account.reserved_tokens;
        assert!(account.limits.tokens.is_none_or(|limit| used <= limit), "{account:?}");
        let money = account.spent_money.plus(account.reserved_money);
        // Input and output are rounded up separately when the call is allowed, and together when it
        // is priced.
        assert!(account.limits.money.is_none_or(|limit| money <= limit.plus(Money(1))), "{account:?}");
    }
    let sums = read!(world, |r| r.usage_sum(&UsageFilter::default())?);
    let whole = accounts.iter().find(|account| account.scope == Scope::World).unwrap();
    assert_eq!(whole.spent_tokens, sums.iter().map(|sum| sum.tokens.total()).sum::<u64>());
    assert_eq!(whole.spent_money, Money(sums.iter().map(|sum| sum.cost.0).sum()));
    assert_eq!(whole.reserved_tokens, held.iter().map(|(_, _, input, most)| input + most).sum::<u64>());
    let agents: Vec<&Budget> = accounts.iter().filter(|a| matches!(a.scope, Scope::Agent(_))).collect();
    assert_eq!(whole.spent_tokens, agents.iter().map(|account| account.spent_tokens).sum::<u64>());
    assert_eq!(whole.reserved_tokens, agents.iter().map(|account| account.reserved_tokens).sum::<u64>());
    for account in accounts.iter().filter(|a| matches!(a.scope, Scope::Root(_))) {
        let Scope::Root(root_id) = account.scope else { unreachable!() };
        let filter = UsageFilter { root_id: Some(root_id), ..UsageFilter::default() };
        let spent = read!(world, |r| r.usage_sum(&filter)?);
        assert_eq!(account.spent_tokens, spent.iter().map(|sum| sum.tokens.total()).sum::<u64>(), "{account:?}");
    }
}

async fn run(actions: Vec<Action>, tokens: u64, money: u64) {
    let world = OperationWorld::new().await;
    for (scope, limits) in [
        (Scope::World, NewLimits { tokens: Some(Some(tokens)), money: Some(Some(Money(money))) }),
        (Scope::Agent(id("ada")), NewLimits { tokens: Some(Some(tokens / 2)), money: None }),
        (Scope::Agent(id("bob")), NewLimits { tokens: Some(None), money: None }),
    ] {
        world.set_limits(&scope, limits).await.unwrap();
    }
    let turns = [world.busy("ada").await, world.busy("bob").await];
    let mut held: Vec<(usize, ReservationId, u64, u64)> = Vec::new();
    for step in actions {
        match step {
            Action::Start(who, input, most) => {
                let started = world.model_start(turns[who].turn_id, demand(input, most)).await;
                // A turn has at most one reservation, and none while it waits or is parked; the
                // earlier one was lost.
                held.retain(|(other, ..)| *other != who);
                if let Ok((reservation, most)) = started {
                    held.push((who, reservation, input, most));
                }
            }
            Action::End(which, how, share) if !held.is_empty() => {
                let at = which % held.len();
                let (who, reservation, input, most) = held[at];
                let turn = turns[who].turn_id;
                match how {
                    0 => drop(world.model_answer(turn, reservation, used(input, most * share / 100)).await.unwrap()),
                    1 => drop(world.model_answer(turn, reservation, None).await.unwrap()),
                    2 | 3 => {
                        let settlement = if how == 2 { Settlement::Released } else { Settlement::Forfeited };
                        run!(world, |w| turns::model_failed(w, turn, reservation, "m", "x", settlement)).unwrap();
                    }
                    _ => drop(world.take(["ada", "bob"][who]).await),
                }
                if how < 3 {
                    held.remove(at);
                } else {
                    held.retain(|(other, ..)| *other != who);
                }
            }
            Action::End(..) => {}
            Action::Root(who) => {
                let scope = Scope::Root(turns[who].root_id);
                world.set_limits(&scope, NewLimits { tokens: Some(None), money: None }).await.unwrap();
            }
        }
        check(&world, &held).await;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn no_account_passes_its_limit_and_all_agree(actions in actions(), tokens in 0u64..3_000, money in 0u64..3_000) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run(actions, tokens, money));
    }
}
