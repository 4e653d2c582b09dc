//! The default budget of roots, and free calls.

use ghost_domain::turn::WaitMode;

use super::operation_world::*;

async fn set_tokens(world: &OperationWorld, scope: &Scope, tokens: Option<u64>) {
    world.set_limits(scope, NewLimits { tokens: Some(tokens), money: None }).await.unwrap();
}

world_test!(every_root_has_a_budget_that_is_raised_and_lifted_for_one, async |world| {
    world.limits(|limits| limits.root_tokens_max = 200);
    let turn = world.busy("ada").await;
    let root = Scope::Root(turn.root_id);
    let (held, most) = world.model_start(turn.turn_id, demand(100, 4_096)).await.unwrap();
    assert_eq!(most, 100, "the answer shrinks to what is left");
    world.model_answer(turn.turn_id, held, used(100, 100)).await.unwrap();
    let refusal = world.model_start(turn.turn_id, demand(1, 16)).await.unwrap_err();
    assert_eq!((refusal.code, &refusal.details.unwrap()["scope"]), (Code::BudgetExhausted, &root.to_string().into()));
    let hint = refusal.hint.unwrap();
    for words in [format!("budget set {root} --tokens N"), "limits.root_tokens_max".to_owned()] {
        assert!(hint.contains(&words), "{hint}");
    }
    // The default is not stored in the account, so a world that raises it raises it for all roots.
    let account = world.budget(&root).await.unwrap();
    assert_eq!((account.limits.tokens, account.spent_tokens), (None, 200));
    world.limits(|limits| limits.root_tokens_max = 300);
    let (held, most) = world.model_start(turn.turn_id, demand(1, 4_096)).await.unwrap();
    assert_eq!(most, 99);
    world.model_answer(turn.turn_id, held, used(1, 99)).await.unwrap();
    // The root's own limit takes precedence, and a lifted limit means no limit.
    set_tokens(&world, &root, Some(310)).await;
    assert_eq!(world.model_start(turn.turn_id, demand(1, 9)).await.unwrap().1, 9);
    set_tokens(&world, &root, None).await;
    assert_eq!(world.model_start(turn.turn_id, demand(1_000, 4_096)).await.unwrap().1, 4_096);
    // Another root has its own account.
    let other = world.busy("bob").await;
    assert_eq!(code(world.model_start(other.turn_id, demand(300, 16)).await), Code::BudgetExhausted);
    world.limits(|limits| limits.root_tokens_max = 0);
    assert_eq!(world.model_start(other.turn_id, demand(300, 16)).await.unwrap().1, 16, "0 is no bound");
});

world_test!(a_script_uses_no_budget_but_is_counted_as_usage, async |world| {
    world.limits(|limits| limits.root_tokens_max = 10);
    let turn = world.busy("ada").await;
    let scopes = [Scope::World, Scope::Agent(id("ada")), Scope::Root(turn.root_id)];
    for scope in &scopes {
        set_tokens(&world, scope, Some(10)).await;
    }
    let free = || Demand { free: true, price: Some(Default::default()), ..demand(1_000, 500) };
    for _ in 0..2 {
        let (held, most) = world.model_start(turn.turn_id, free()).await.unwrap();
        assert_eq!(most, 500);
        world.model_answer_at(turn.turn_id, held, used(1_000, 400), Some(Default::default())).await.unwrap();
    }
    // An interrupted call is counted with its worst case and still uses no budget.
    world.model_start(turn.turn_id, free()).await.unwrap();
    let mut turn = world.turn(turn.turn_id).await;
    run!(world, |w| budgets::forfeit_held(w, &mut turn)).unwrap();
    for scope in scopes {
        let account = world.budget(&scope).await.unwrap();
        assert_eq!((account.spent_tokens, account.reserved_tokens), (0, 0), "{}", account.scope);
    }
    let sums = read!(world, |r| budgets::usage(r, &UsageFilter::default())?);
    let tokens: u64 = sums.iter().map(|sum| sum.tokens.total()).sum();
    assert_eq!(tokens, 2 * 1_400 + 1_500);
    // An account that is opened later does not include it either.
    set_tokens(&world, &Scope::Team("crew".into()), Some(10)).await;
    assert_eq!(world.budget(&Scope::Team("crew".into())).await.unwrap().spent_tokens, 0);
});

world_test!(an_account_opened_late_equals_one_opened_at_the_start, async |world| {
    world.limits(|limits| limits.root_tokens_max = 0);
    let turn = world.busy("ada").await;
    let ada = Scope::Agent(id("ada"));
    set_tokens(&world, &ada, Some(100_000)).await;
    // A model with a price of zero, and scripts: one with the same name, complete and interrupted.
    let nothing = || Some(Default::default());
    for (free, input) in [(false, 1_000), (true, 300), (false, 20)] {
        let demand = Demand { free, price: nothing(), ..demand(5_000, 500) };
        let (held, _) = world.model_start(turn.turn_id, demand).await.unwrap();
        world.model_answer_at(turn.turn_id, held, used(input, 4), nothing()).await.unwrap();
    }
    let late = [Scope::Team("crew".into()), Scope::Root(turn.root_id), "agent:ada/day".parse().unwrap()];
    let account = async |scope: &Scope| {
        let account = world.budget(scope).await.unwrap();
        (account.spent_tokens, account.reserved_tokens, account.spent_money, account.unpriced_tokens)
    };
    // A running call to a script reserves nothing either.
    let script = Demand { free: true, price: nothing(), ..demand(70, 7) };
    let (held, _) = world.model_start(turn.turn_id, script).await.unwrap();
    for scope in &late {
        set_tokens(&world, scope, Some(100_000)).await;
    }
    for scope in late.iter().chain([&ada, &Scope::World]) {
        assert_eq!(account(scope).await, (1_028, 0, Default::default(), 0), "{scope}");
    }
    world.model_answer_at(turn.turn_id, held, used(70, 7), nothing()).await.unwrap();
    for scope in late.iter().chain([&ada, &Scope::World]) {
        assert_eq!(account(scope).await, (1_028, 0, Default::default(), 0), "{scope}");
    }
});

/// The agents whose turns are retried after `world-config.yaml` has set a new default limit for
/// roots.
async fn followed(world: &OperationWorld, tokens: u64) -> Vec<String> {
    world.limits(|limits| limits.root_tokens_max = tokens);
    world.signals();
    run!(world, |w| turns::follow_root_default(w)).unwrap();
    let retried = world.signals().into_iter().filter_map(|signal| match signal {
        Signal::TurnRetry { agent_id, .. } => Some(agent_id.to_string()),
        _ => None,
    });
    retried.collect()
}

world_test!(a_higher_default_limit_of_roots_continues_parked_turns, async |world| {
    assert_eq!(followed(&world, 100).await, [""; 0]);
    let spent = async |name: &str| {
        let turn = world.busy(name).await;
        assert_eq!(code(world.model_start(turn.turn_id, demand(150, 16)).await), Code::BudgetExhausted);
        turn
    };
    let (ada, bob) = (spent("ada").await, spent("bob").await);
    let wait_mode = async |turn: &Turn| world.turn(turn.turn_id).await.parked.map(|parked| parked.wait_mode);
    // The root's own limit takes precedence, however the default changes.
    set_tokens(&world, &Scope::Root(bob.root_id), Some(120)).await;
    assert_eq!(code(world.model_start(bob.turn_id, demand(150, 16)).await), Code::BudgetExhausted);
    // The same or a lower default continues no turn.
    for tokens in [100, 50] {
        assert_eq!(followed(&world, tokens).await, [""; 0], "{tokens}");
    }
    assert_eq!(wait_mode(&ada).await, Some(WaitMode::Background));
    assert_eq!(followed(&world, 500).await, ["ada"]);
    assert_eq!((wait_mode(&ada).await, wait_mode(&bob).await), (Some(WaitMode::Ready), Some(WaitMode::Background)));
    world.model_start(ada.turn_id, demand(150, 16)).await.unwrap();
    // No limit is treated as higher than any limit.
    let cyd = world.busy("cyd").await;
    assert_eq!(code(world.model_start(cyd.turn_id, demand(600, 16)).await), Code::BudgetExhausted);
    assert_eq!(followed(&world, 0).await, ["cyd"]);
});

/// Parks a turn because the budget of its root is spent.
async fn aside(world: &OperationWorld, turn: &Turn) {
    assert_eq!(code(world.model_start(turn.turn_id, demand(150, 16)).await), Code::BudgetExhausted);
    assert!(world.turn(turn.turn_id).await.is_in_background());
}

fn ids(mail: &[Envelope]) -> Vec<MessageId> {
    mail.iter().map(|envelope| envelope.message_id).collect()
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
    let chain = at_hop(turn.root_id, 1);
    let more =
        world.deliver(NewMessage::new(&id("ada"), operator(), Kind::Message, "more of it", chain)).await.unwrap();
    let opened = world.count(EventKind::TurnStarted).await;
    assert!(world.try_take("ada").await.unwrap().is_none());
    let other = world.send("ada", "other work").await;
    let next = world.take("ada").await;
    assert_eq!(ids(&next.mail), [other.message_id]);
    world.finish(next.turn.turn_id, "done").await.unwrap();
    assert_eq!(
        (world.count(EventKind::TurnStarted).await, ids(&world.inbox("ada").await)),
        (opened + 1, vec![more.message_id])
    );
    // When it is cancelled, the mail is released and the agent is woken.
    world.signals();
    run!(world, |w| turns::cancel(w, &operator(), turn.turn_id)).unwrap();
    assert!(world.signals().contains(&Signal::Wake(id("ada"))));
    assert_eq!(ids(&world.take("ada").await.mail), [more.message_id]);
});
