use ghost_domain::budget::next_day;

use super::operation_world::*;
use crate::budgets::Taken;

world_test!(a_call_is_reserved_in_every_scope_and_charged_its_usage, async |world| {
    let turn = world.busy("ada").await;
    let scopes = [Scope::World, scope("agent:ada"), crew(), Scope::Root(turn.root_id)];
    for scope in &scopes[1..] {
        world.set_limits(scope, tokens(1_000)).await.unwrap();
    }
    let (held, most) = world.model_start(turn.turn_id, demand(100, 50)).await.unwrap();
    assert_eq!(most, 50);
    for scope in &scopes {
        assert_eq!(world.account(scope).await, (150, 0), "{scope}");
    }
    let after = world.model_answer(turn.turn_id, held, used(90, 20)).await.unwrap();
    assert_eq!((after.rounds, after.input_tokens, after.output_tokens, after.cost), (1, 90, 20, Money(110)));
    for scope in &scopes {
        assert_eq!(world.account(scope).await, (0, 110), "{scope}");
    }
    assert_eq!(world.account(&scope("agent:bob")).await, (0, 0));
    // If the provider reports no usage, the whole reservation is charged.
    let turn = world.model_call(turn.turn_id, demand(100, 50), None).await;
    assert_eq!(world.account(&Scope::World).await, (0, 260));
    assert_eq!((turn.input_tokens, turn.output_tokens, turn.cost), (190, 70, Money(260)));
});

world_test!(a_small_remainder_shrinks_the_answer_then_refuses_until_the_limit_is_raised, async |world| {
    let turn = world.busy("ada").await.turn_id;
    world.bound("team:crew", 200).await;
    let (held, most) = world.model_start(turn, demand(100, 4_096)).await.unwrap();
    assert_eq!(most, 100);
    world.model_answer(turn, held, used(100, 100)).await.unwrap();
    let bob = world.busy("bob").await.turn_id;
    assert_eq!(detail(world.model_start(bob, demand(1, 10)).await, Code::BudgetExhausted, "scope"), "team:crew");
    let names: Vec<&str> = world.journal(bob).await.iter().map(|row| row.step.name()).collect();
    assert_eq!(names, ["parked"], "a refused call leaves no more in the journal than that its turn waits");
    assert_eq!(code(world.model_start(turn, demand(1, 16)).await), Code::BudgetExhausted);
    world.bound("team:crew", 300).await;
    assert_eq!(world.model_start(turn, demand(1, 16)).await.unwrap().1, 16);
    let turn = world.turn(turn).await;
    assert_eq!((turn.status, turn.parked), (TurnStatus::Open, None), "its call is under way");
});

/// A model call that fails and is settled so.
async fn fails(world: &World, turn_id: TurnId, demand: Demand, settlement: Settlement) -> ReservationId {
    let (held, _) = world.model_start(turn_id, demand).await.unwrap();
    run!(world, |w| turns::model_failed(w, turn_id, held, "m", "it broke", settlement)).unwrap();
    held
}

fn taken(input: u64, output: u64, price: Option<Price>) -> Settlement {
    Settlement::Used(Taken { model: "m".into(), tokens: used(input, output).unwrap(), price, duration_ms: 7 })
}

/// Tries to start a model call, which may have to wait.
async fn try_start(world: &World, turn_id: TurnId, demand: Demand) -> Result<Reserved> {
    run!(world, |w| turns::model_started(w, turn_id, &demand))
}

world_test!(a_call_waits_for_reservations_of_others_and_is_signalled_when_they_end, async |world| {
    // No root has an account of its own.
    world.limits(|limits| limits.root_tokens_max = 0);
    let (ada, bob) = (world.busy("ada").await.turn_id, world.busy("bob").await.turn_id);
    world.bound("team:crew", 1_000).await;
    let own = world.bound("agent:bob", 500).await.scope;
    world.signals();
    let (held, most) = world.model_start(ada, demand(100, 800)).await.unwrap();
    assert_eq!((most, world.signals()), (800, vec![]), "that more is held is no reason to try again");
    // The second call wants less than is free now. It still waits, because the answer must not be
    // shorter than the spent amount requires.
    for output in [100, 51] {
        assert_eq!(try_start(&world, bob, demand(50, output)).await, Ok(Reserved::Waits(crew())));
        assert_eq!(world.account(&own).await, (0, 0), "who waits holds nothing");
    }
    assert!(world.journal(bob).await.is_empty());
    world.model_answer(ada, held, used(100, 20)).await.unwrap();
    assert_eq!(world.signals(), [Signal::BudgetsFreed(vec![crew()])], "the world's account has no limit");
    let (held, most) = world.model_start(bob, demand(50, 100)).await.unwrap();
    assert_eq!(most, 100);
    // However the turn ends, calls that wait for its reservation are signalled.
    assert_eq!(try_start(&world, ada, demand(700, 100)).await, Ok(Reserved::Waits(crew())));
    run!(world, |w| turns::cancel(w, &operator(), bob)).unwrap();
    assert!(world.signals().contains(&Signal::BudgetsFreed(vec![own, crew()])));
    assert_eq!(code(world.model_answer(bob, held, used(50, 10)).await), Code::Cancelled);
    // They are also signalled when a limit changes.
    world.bound("team:crew", 2_000).await;
    assert_eq!(world.signals(), [Signal::BudgetsFreed(vec![crew()]), Signal::LimitsSet]);
});

world_test!(a_call_is_charged_by_how_it_ends_and_what_is_guessed_is_marked, async |world| {
    let turn = world.busy("ada").await.turn_id;
    let charged = async || world.account(&Scope::World).await;
    fails(&world, turn, demand(100, 50), Settlement::Released).await;
    assert_eq!(charged().await, (0, 0));
    let held = fails(&world, turn, demand(100, 50), Settlement::Forfeited).await;
    assert_eq!(charged().await, (0, 150));
    // A second settlement changes nothing.
    let again = run!(world, |w| {
        let mut turn = turns::open_turn(w, turn)?;
        budgets::settle(w, &mut turn, held, Settlement::Released)
    });
    assert_eq!((again.unwrap(), charged().await), (None, (0, 150)));
    // A turn that resumes after a crash has lost its reservation.
    world.model_start(turn, demand(7, 3)).await.unwrap();
    world.take("ada").await;
    assert_eq!(charged().await, (0, 160));
    fails(&world, turn, demand(100, 4_096), taken(100, 5, Some(PRICE))).await;
    assert_eq!(charged().await, (0, 265), "a failed call with known usage");
    let (held, _) = world.model_start(turn, demand(100, 4_096)).await.unwrap();
    let estimated = ModelResult { estimated: true, ..model_result(held, used(100, 5)) };
    world.model_result(turn, estimated).await.unwrap();
    assert_eq!(charged().await, (0, 370));
    let finished = world.payloads(EventKind::ModelFinished).await.pop().unwrap();
    assert_eq!((&finished["input_tokens"], &finished["estimated"]), (&json!(100), &json!(true)));
    // It is cancelled during a call. What was forfeited is in the turn.
    world.model_start(turn, demand(700, 300)).await.unwrap();
    let ended = run!(world, |w| turns::cancel(w, &operator(), turn)).unwrap();
    assert_eq!((ended.input_tokens, ended.output_tokens, ended.cost), (1_007, 363, Money(1_370)));
    let sums = world.usage().await;
    assert_eq!((sums[0].tokens.input, sums[0].tokens.output, sums[0].cost), (1_007, 363, Money(1_370)));
    assert_eq!((sums[0].calls, sums[0].estimated_calls, sums[0].estimated_cost), (5, 4, Money(1_265)));
    let finished = world.event(EventKind::TurnFinished).await.payload;
    assert_eq!((&finished["output_tokens"], &finished["cost_usd"]), (&json!(363), &json!(0.001_37)));
});

world_test!(a_new_account_starts_with_the_spending_and_reservations_of_its_scope, async |world| {
    // No root has an account of its own.
    world.limits(|limits| limits.root_tokens_max = 0);
    let turn = world.busy("ada").await;
    world.model_call(turn.turn_id, demand(100, 50), used(100, 20)).await;
    let (held, _) = world.model_start(turn.turn_id, demand(100, 50)).await.unwrap();
    let scopes = [Scope::Root(turn.root_id), scope("agent:ada"), crew()];
    for scope in &scopes {
        assert_eq!(world.account(scope).await, (0, 0), "no account where nobody set a limit");
        world.set_limits(scope, tokens(1_000)).await.unwrap();
        assert_eq!(world.account(scope).await, (150, 120), "{scope}");
    }
    assert_eq!(world.bound("agent:bob", 1_000).await.spent_tokens, 0, "what others spent is theirs");
    world.model_answer(turn.turn_id, held, used(100, 30)).await.unwrap();
    for scope in scopes.iter().chain([&Scope::World]) {
        assert_eq!(world.account(scope).await, (0, 250), "{scope}");
    }
});

world_test!(a_limit_removed_from_the_file_is_lifted_and_one_set_by_hand_stays, async |world| {
    let limits = |tokens, money: Option<u64>| BudgetLimits { tokens, money: money.map(Money) };
    let of = async |scope: &Scope| world.budget(scope).await.map(|budget| budget.limits).unwrap_or_default();
    let ada = world.bound("agent:ada", 7).await.scope;
    let named = vec![(Scope::World, limits(Some(100), Some(9))), (crew(), limits(None, Some(5)))];
    world.follow_file(named.clone()).await;
    world.follow_file(named).await;
    // One of the world's two limits is changed by hand; ada's limit was never in the file.
    world.bound("world", 500).await;
    world.follow_file(vec![(crew(), limits(Some(3), None))]).await;
    assert_eq!(of(&Scope::World).await, limits(Some(500), None), "what was changed by hand is somebody's own");
    assert_eq!((of(&ada).await, of(&crew()).await), (limits(Some(7), None), limits(Some(3), None)));
    world.follow_file(vec![]).await;
    assert_eq!((of(&crew()).await, of(&ada).await), (limits(None, None), limits(Some(7), None)));
});

world_test!(limits_need_an_existing_scope_and_a_value, async |world| {
    let set = async |text: &str, limits: NewLimits| world.set_limits(&scope(text), limits).await;
    assert!(world.suggestion(set("agent:adda", tokens(5)).await, Code::NotFound).await.contains("`ada`"));
    assert!(hint_of(set("team:crow", tokens(5)).await, Code::NotFound).contains("`crew`"));
    assert_eq!(code(set("world", NewLimits::default()).await), Code::InvalidArguments);
    let lifted = NewLimits { tokens: Some(None), money: None };
    for (new, left) in
        [(tokens(5), (Some(5), None)), (money(9), (Some(5), Some(Money(9)))), (lifted, (None, Some(Money(9))))]
    {
        let limits = set("world", new).await.unwrap().limits;
        assert_eq!((limits.tokens, limits.money), left);
    }
});

// covers: LOOP-09
world_test!(a_daily_budget_starts_again_at_midnight, async |world| {
    let ada = world.busy("ada").await.turn_id;
    let (day, team) = (scope("agent:ada/day"), scope("team:crew/day"));
    // Today's spending is included, whenever the limit is set.
    world.model_call(ada, demand(50, 50), used(40, 10)).await;
    world.set_limits(&day, tokens(200)).await.unwrap();
    world.set_limits(&team, tokens(1_000)).await.unwrap();
    assert_eq!((world.account(&day).await, world.account(&team).await), ((0, 50), (0, 50)));
    let (held, most) = world.model_start(ada, demand(100, 500)).await.unwrap();
    assert_eq!(most, 50);
    world.model_answer(ada, held, used(90, 20)).await.unwrap();
    let refusal = refused(world.model_start(ada, demand(100, 50)).await, Code::BudgetExhausted, "00:00 UTC");
    assert_eq!(refusal.details.unwrap()["scope"], "agent:ada/day");
    world.model_start(world.busy("bob").await.turn_id, demand(100, 50)).await.unwrap();

    // A call in progress at midnight is charged to the day on which it ends.
    let (held, _) = world.model_start(ada, demand(20, 20)).await.unwrap();
    world.pass(next_day(world.ctx.now()).since(world.ctx.now()));
    world.model_answer(ada, held, used(90, 20)).await.unwrap();
    assert_eq!(world.account(&day).await, (0, 110));
    let tomorrow = next_day(world.ctx.now());
    let listed = read!(world, |r| status::bounded(r, tomorrow)?);
    let shown = listed.iter().find(|budget| budget.scope == day).unwrap();
    assert_eq!((shown.spent_tokens, shown.limits.tokens), (0, Some(200)));
    assert_eq!(world.model_start(ada, demand(50, 500)).await.unwrap().1, 40);

    // A limit set later counts spending since midnight, not before.
    assert_eq!(world.bound("world/day", 1_000).await.spent_tokens, 110);
    let root = world.turn(ada).await.root_id;
    assert!(format!("root:{root}/day").parse::<Scope>().is_err(), "a root is shorter than a day");
});

world_test!(tokens_without_a_price_are_counted_separately, async |world| {
    let turn = world.busy("ada").await.turn_id;
    let unknown = || Demand { price: None, ..demand(100, 50) };
    fails(&world, turn, unknown(), taken(90, 20, None)).await;
    world.model_start(turn, unknown()).await.unwrap();
    world.take("ada").await;
    // A price of zero is a price.
    let nothing = Some(Price::default());
    fails(&world, turn, Demand { price: nothing, ..demand(100, 50) }, taken(8, 2, nothing)).await;
    let sums = world.usage().await;
    assert_eq!((sums[0].unpriced_tokens, sums[0].cost, sums[0].tokens.total()), (260, Money(0), 270));
    assert_eq!(world.turn(turn).await.unpriced_tokens, 260);
    for scope in [Scope::World, scope("agent:ada"), crew()] {
        let set = world.set_limits(&scope, money(1_000)).await.unwrap();
        assert_eq!((set.unpriced_tokens, set.spent_money, set.spent_tokens), (260, Money(0), 270));
    }
    // A limit of money needs a price.
    assert_eq!(code(world.model_start(turn, unknown()).await), Code::BudgetExhausted);
    let (_, most) = world.model_start(turn, demand(900, 4_096)).await.unwrap();
    assert_eq!(most, 100, "a token costs a millionth");
    assert_eq!(PRICE.input, Money(1_000_000));
});

world_test!(an_agent_pays_for_those_that_it_creates, async |world| {
    child(&world, "ada", "helper").await.unwrap();
    child(&world, "helper", "under-helper").await.unwrap();
    let scopes = ["agent:ada", "team:crew", "agent:ada/day"].map(scope);
    for (scope, most) in scopes.iter().zip([1_000, 2_000, 3_000]) {
        world.set_limits(scope, tokens(most)).await.unwrap();
    }
    let turn = world.busy("under-helper").await.turn_id;
    world.model_call(turn, demand(500, 100), used(500, 100)).await;
    for scope in &scopes {
        assert_eq!(world.account(scope).await, (0, 600), "{scope}");
    }
    // An account that is opened now starts with their spending and their reservations.
    let (held, _) = world.model_start(turn, demand(100, 100)).await.unwrap();
    let helper = world.bound("agent:helper", 5_000).await.scope;
    assert_eq!(world.account(&helper).await, (200, 600));
    world.model_answer(turn, held, used(100, 100)).await.unwrap();
    assert_eq!(world.account(&helper).await, (0, 800));
    // Spending counts for all of them.
    for who in ["ada", "helper", "under-helper"] {
        let turn = if who == "under-helper" { turn } else { world.busy(who).await.turn_id };
        let refused = world.model_start(turn, demand(250, 100)).await;
        assert_eq!(detail(refused, Code::BudgetExhausted, "scope"), "agent:ada", "{who}");
    }
    // It also stays when they are deleted.
    delete(&world, "under-helper").await;
    assert_eq!(world.bound("team:crew/day", 9_000).await.spent_tokens, 800);
    assert_eq!(world.account(&scope("agent:bob")).await, (0, 0));
});

world_test!(spending_of_deleted_team_members_still_counts, async |world| {
    world.call_of("bob", demand(100, 50), used(100, 20)).await;
    delete(&world, "bob").await;
    assert_eq!(world.bound("team:crew", 1_000).await.spent_tokens, 120);
});

world_test!(the_chain_of_creators_has_a_limit, async |world| {
    let mut last = "ada".to_owned();
    for n in 2..=OWNERS_MAX {
        let next = format!("n{n}");
        child(&world, &last, &next).await.unwrap();
        last = next;
    }
    refused(child(&world, &last, "one-too-many").await, Code::RateLimited, &last);
    // The first agent pays for the last one, and for an agent that has created its own creator
    // again.
    world.bound("agent:ada", 100).await;
    let start = async |turn| world.model_start(turn, demand(100, 100)).await;
    assert_eq!(code(start(world.busy(&last).await.turn_id).await), Code::BudgetExhausted);
    // An agent cannot evade this by creating its creator again, or by having another agent pay for
    // it.
    delete(&world, "n2").await;
    for by in ["n3", "bob"] {
        refused(child(&world, by, "n2").await, Code::Conflict, "`n3`");
    }
    let turn = world.busy("n3").await.turn_id;
    assert_eq!(code(start(turn).await), Code::BudgetExhausted);
    child(&world, "ada", "n2").await.unwrap();
    assert_eq!(code(start(turn).await), Code::BudgetExhausted);
    // An operator may create it again; then no other agent pays.
    delete(&world, "n2").await;
    world.add_agent(new_agent(&world.ctx, "n2")).await;
    assert!(start(turn).await.is_ok());
});

world_test!(agents_that_created_one_another_pay_for_one_another_once, async |world| {
    child(&world, "ada", "bud").await.unwrap();
    // A database of an earlier version may contain this.
    done!(world, |w| {
        let ada = w.agent_get(&id("ada"))?.unwrap();
        w.agent_put(&Agent { owner: Some("agent:bud".into()), ..ada })?
    });
    world.bound("agent:ada", 1_000).await;
    world.call_of("bud", demand(100, 100), used(100, 0)).await;
    assert_eq!(world.account(&scope("agent:ada")).await, (0, 100));
});

world_test!(a_call_does_not_overtake_others_that_wait_for_the_same_account, async |world| {
    let turn = world.busy("ada").await.turn_id;
    let waits = async |text: &str| {
        let demand = Demand { behind: [scope(text)].into(), ..demand(10, 10) };
        try_start(&world, turn, demand).await.unwrap() == Reserved::Waits(Scope::World)
    };
    assert!(!waits("world").await, "where nothing is limited nobody waits any more");
    world.bound("world", 1_000_000).await;
    assert!(waits("world").await);
    assert_eq!(world.account(&Scope::World).await.0, 0, "who waits holds nothing");
    assert!(!waits("agent:bob").await, "somebody else's");
});
