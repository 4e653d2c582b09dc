//! The default budget of roots, and free calls.

use ghost_domain::turn::WaitMode;

use super::operation_world::*;

async fn set_tokens(world: &World, scope: &Scope, tokens: Option<u64>) {
    world.set_limits(scope, NewLimits { tokens: Some(tokens), money: None }).await.unwrap();
}

/// The price of a model that costs nothing.
fn nothing() -> Option<Price> {
    Some(Price::default())
}

world_test!(every_root_has_a_budget_that_is_raised_and_lifted_for_one, async |world| {
    world.limits(|limits| limits.root_tokens_max = 200);
    let turn = world.busy("ada").await;
    let root = Scope::Root(turn.root_id);
    let start = async |input, output| world.model_start(turn.turn_id, demand(input, output)).await;
    let (held, most) = start(100, 4_096).await.unwrap();
    assert_eq!(most, 100, "the answer shrinks to what is left");
    world.model_answer(turn.turn_id, held, used(100, 100)).await.unwrap();
    let refusal = refused(start(1, 16).await, Code::BudgetExhausted, "limits.root_tokens_max");
    assert!(refusal.hint.unwrap().contains(&format!("budget set {root} --tokens N")));
    assert_eq!(refusal.details.unwrap()["scope"], root.to_string());
    // The default is not stored in the account, so a world that raises it raises it for all roots.
    let account = world.budget(&root).await.unwrap();
    assert_eq!((account.limits.tokens, account.spent_tokens), (None, 200));
    world.limits(|limits| limits.root_tokens_max = 300);
    let (held, most) = start(1, 4_096).await.unwrap();
    assert_eq!(most, 99);
    world.model_answer(turn.turn_id, held, used(1, 99)).await.unwrap();
    // The root's own limit takes precedence, and a lifted limit means no limit.
    set_tokens(&world, &root, Some(310)).await;
    assert_eq!(start(1, 9).await.unwrap().1, 9);
    set_tokens(&world, &root, None).await;
    assert_eq!(start(1_000, 4_096).await.unwrap().1, 4_096);
    // Another root has its own account.
    let other = world.busy("bob").await.turn_id;
    assert_eq!(code(world.model_start(other, demand(300, 16)).await), Code::BudgetExhausted);
    world.limits(|limits| limits.root_tokens_max = 0);
    assert_eq!(world.model_start(other, demand(300, 16)).await.unwrap().1, 16, "0 is no bound");
});

world_test!(a_script_uses_no_budget_but_is_counted_as_usage, async |world| {
    world.limits(|limits| limits.root_tokens_max = 10);
    let turn = world.busy("ada").await;
    let scopes = [Scope::World, scope("agent:ada"), Scope::Root(turn.root_id)];
    for scope in &scopes {
        set_tokens(&world, scope, Some(10)).await;
    }
    let free = || Demand { free: true, price: nothing(), ..demand(1_000, 500) };
    for _ in 0..2 {
        let (held, most) = world.model_start(turn.turn_id, free()).await.unwrap();
        assert_eq!(most, 500);
        let result = ModelResult { price: nothing(), ..model_result(held, used(1_000, 400)) };
        world.model_result(turn.turn_id, result).await.unwrap();
    }
    // An interrupted call is counted with its worst case and still uses no budget.
    world.model_start(turn.turn_id, free()).await.unwrap();
    let mut turn = world.turn(turn.turn_id).await;
    run!(world, |w| budgets::forfeit_held(w, &mut turn)).unwrap();
    for scope in &scopes {
        assert_eq!(world.account(scope).await, (0, 0), "{scope}");
    }
    let sums = read!(world, |r| budgets::usage(r, &UsageFilter::default())?);
    assert_eq!(sums.iter().map(|sum| sum.tokens.total()).sum::<u64>(), 2 * 1_400 + 1_500);
    // An account that is opened later does not include it either.
    assert_eq!(world.bound("team:crew", 10).await.spent_tokens, 0);
});

world_test!(an_account_opened_late_equals_one_opened_at_the_start, async |world| {
    world.limits(|limits| limits.root_tokens_max = 0);
    let turn = world.busy("ada").await;
    world.bound("agent:ada", 100_000).await;
    // A model with a price of zero, and scripts: one with the same name, complete and interrupted.
    let start = async |free, demand: Demand| {
        let demand = Demand { free, price: nothing(), ..demand };
        world.model_start(turn.turn_id, demand).await.unwrap().0
    };
    let answer = async |held, used| {
        let result = ModelResult { price: nothing(), ..model_result(held, used) };
        world.model_result(turn.turn_id, result).await.unwrap();
    };
    for (free, input) in [(false, 1_000), (true, 300), (false, 20)] {
        answer(start(free, demand(5_000, 500)).await, used(input, 4)).await;
    }
    // A running call to a script reserves nothing either.
    let held = start(true, demand(70, 7)).await;
    let late = [crew(), Scope::Root(turn.root_id), scope("agent:ada/day")];
    for scope in &late {
        set_tokens(&world, scope, Some(100_000)).await;
    }
    let all_agree = async || {
        for scope in late.iter().chain(&[scope("agent:ada"), Scope::World]) {
            assert_eq!(world.account(scope).await, (0, 1_028), "{scope}");
            let account = world.budget(scope).await.unwrap();
            assert_eq!((account.spent_money, account.unpriced_tokens), (Money(0), 0), "{scope}");
        }
    };
    all_agree().await;
    answer(held, used(70, 7)).await;
    all_agree().await;
});

/// The agents whose turns are retried after `world-config.yaml` has set a new default limit for
/// roots.
async fn followed(world: &World, tokens: u64) -> Vec<AgentId> {
    world.limits(|limits| limits.root_tokens_max = tokens);
    world.signals();
    run!(world, |w| turns::follow_root_default(w)).unwrap();
    let retried = world.signals().into_iter().filter_map(|signal| match signal {
        Signal::TurnRetry { agent_id, .. } => Some(agent_id),
        _ => None,
    });
    retried.collect()
}

world_test!(a_higher_default_limit_of_roots_continues_parked_turns, async |world| {
    assert_eq!(followed(&world, 100).await, []);
    let spent = async |name: &str| {
        let turn = world.busy(name).await;
        aside(&world, &turn).await;
        turn
    };
    let (ada, bob) = (spent("ada").await, spent("bob").await);
    let wait_mode = async |turn: &Turn| world.turn(turn.turn_id).await.parked.map(|parked| parked.wait_mode);
    // The root's own limit takes precedence, however the default changes.
    set_tokens(&world, &Scope::Root(bob.root_id), Some(120)).await;
    aside(&world, &bob).await;
    // The same or a lower default continues no turn.
    for tokens in [100, 50] {
        assert_eq!(followed(&world, tokens).await, [], "{tokens}");
    }
    assert_eq!(wait_mode(&ada).await, Some(WaitMode::Background));
    assert_eq!(followed(&world, 500).await, [id("ada")]);
    assert_eq!((wait_mode(&ada).await, wait_mode(&bob).await), (Some(WaitMode::Ready), Some(WaitMode::Background)));
    world.model_start(ada.turn_id, demand(150, 16)).await.unwrap();
    // No limit is treated as higher than any limit.
    let cyd = world.busy("cyd").await;
    assert_eq!(code(world.model_start(cyd.turn_id, demand(600, 16)).await), Code::BudgetExhausted);
    assert_eq!(followed(&world, 0).await, [id("cyd")]);
});

/// Parks a turn because the budget of its root is spent.
async fn aside(world: &World, turn: &Turn) {
    assert_eq!(code(world.model_start(turn.turn_id, demand(150, 16)).await), Code::BudgetExhausted);
    assert!(world.turn(turn.turn_id).await.is_in_background());
}

world_test!(a_turn_of_a_spent_root_returns_mail_of_other_roots, async |world| {
    world.limits(|limits| limits.root_tokens_max = 100);
    let (first, second) = (world.send("ada", "one").await, world.send("ada", "two").await);
    let turn = world.take("ada").await.turn;
    assert_eq!((turn.root_id, turn.other_roots.as_slice()), (first.root_id, [second.root_id].as_slice()));
    world.signals();
    aside(&world, &turn).await;
    assert_eq!(world.turn(turn.turn_id).await.other_roots, []);
    assert_eq!(ids(&world.inbox("ada").await), [second.message_id]);
    assert!(world.signals().contains(&Signal::Wake(id("ada"))), "its actor has seen that mail as taken");
    let next = world.take("ada").await;
    assert_eq!((ids(&next.mail), next.turn.root_id), (vec![second.message_id], second.root_id));
    world.finish(next.turn.turn_id, "done").await.unwrap();
    // The turn goes on with the rest of its mail.
    set_tokens(&world, &Scope::Root(first.root_id), None).await;
    let resumed = world.take("ada").await;
    assert_eq!((resumed.turn.turn_id, ids(&resumed.mail)), (turn.turn_id, vec![first.message_id]));
});

world_test!(a_turn_that_called_a_model_keeps_its_mail, async |world| {
    world.limits(|limits| limits.root_tokens_max = 100);
    world.send("ada", "one").await;
    world.send("ada", "two").await;
    let turn = world.take("ada").await.turn;
    world.model_call(turn.turn_id, demand(10, 16), used(10, 16)).await;
    aside(&world, &turn).await;
    assert_eq!(world.inbox("ada").await, []);
    assert!(world.try_take("ada").await.unwrap().is_none());
});

world_test!(mail_of_a_spent_root_waits_for_the_parked_turn_of_that_root, async |world| {
    world.limits(|limits| limits.root_tokens_max = 100);
    let turn = world.busy("ada").await;
    aside(&world, &turn).await;
    let more = NewMessage::new(&id("ada"), operator(), Kind::Message, "more of it", at_hop(turn.root_id, 1));
    let more = world.deliver(more).await.unwrap();
    let opened = world.count(EventKind::TurnStarted).await;
    assert!(world.try_take("ada").await.unwrap().is_none());
    let other = world.send("ada", "other work").await;
    let next = world.take("ada").await;
    assert_eq!(ids(&next.mail), [other.message_id]);
    world.finish(next.turn.turn_id, "done").await.unwrap();
    assert_eq!(world.count(EventKind::TurnStarted).await, opened + 1);
    assert_eq!(ids(&world.inbox("ada").await), [more.message_id]);
    // When it is cancelled, the mail is released and the agent is woken.
    world.signals();
    run!(world, |w| turns::cancel(w, &operator(), turn.turn_id)).unwrap();
    assert!(world.signals().contains(&Signal::Wake(id("ada"))));
    assert_eq!(ids(&world.take("ada").await.mail), [more.message_id]);
});
