use ghost_domain::budget::next_day;

use super::operation_world::*;
use crate::budgets::Taken;

/// Reserved and spent tokens of an account.
async fn account(world: &OperationWorld, scope: &Scope) -> (u64, u64) {
    world.budget(scope).await.map_or((0, 0), |budget| (budget.reserved_tokens, budget.spent_tokens))
}

world_test!(a_call_is_reserved_in_every_scope_and_charged_its_usage, async |world| {
    let turn = world.busy("ada").await;
    let scopes = [Scope::World, Scope::Agent(id("ada")), Scope::Team("crew".into()), Scope::Root(turn.root_id)];
    for scope in &scopes[1..] {
        world.set_limits(scope, tokens(1_000)).await.unwrap();
    }
    let (held, most) = world.model_start(turn.turn_id, demand(100, 50)).await.unwrap();
    assert_eq!(most, 50);
    for scope in &scopes {
        assert_eq!(account(&world, scope).await, (150, 0), "{scope}");
    }
    let after = world.model_answer(turn.turn_id, held, used(90, 20)).await.unwrap();
    assert_eq!((after.rounds, after.input_tokens, after.output_tokens, after.cost), (1, 90, 20, Money(110)));
    for scope in &scopes {
        assert_eq!(account(&world, scope).await, (0, 110), "{scope}");
    }
    assert_eq!(account(&world, &Scope::Agent(id("bob"))).await, (0, 0));
    // If the provider reports no usage, the whole reservation is charged.
    let turn = world.model_call(turn.turn_id, demand(100, 50), None).await;
    assert_eq!(account(&world, &Scope::World).await, (0, 260));
    assert_eq!((turn.input_tokens, turn.output_tokens, turn.cost), (190, 70, Money(260)));
});

world_test!(a_small_remainder_shrinks_the_answer_then_refuses_until_the_limit_is_raised, async |world| {
    let turn = world.busy("ada").await.turn_id;
    let team = Scope::Team("crew".into());
    world.set_limits(&team, tokens(200)).await.unwrap();
    let (held, most) = world.model_start(turn, demand(100, 4_096)).await.unwrap();
    assert_eq!(most, 100);
    world.model_answer(turn, held, used(100, 100)).await.unwrap();
    let bob = world.busy("bob").await.turn_id;
    let refusal = world.model_start(bob, demand(1, 10)).await.unwrap_err();
    assert_eq!(refusal.code, Code::BudgetExhausted);
    assert_eq!(refusal.details.unwrap()["scope"], "team:crew");
    let names: Vec<&str> = world.journal(bob).await.iter().map(|row| row.step.name()).collect();
    assert_eq!(names, ["parked"], "a refused call leaves no more in the journal than that its turn waits");
    assert_eq!(code(world.model_start(turn, demand(1, 16)).await), Code::BudgetExhausted);
    world.set_limits(&team, tokens(300)).await.unwrap();
    assert_eq!(world.model_start(turn, demand(1, 16)).await.unwrap().1, 16);
    let turn = world.turn(turn).await;
    assert_eq!((turn.status, turn.parked), (TurnStatus::Open, None), "its call is under way");
});

/// A model call that fails and is settled so.
async fn fails(world: &OperationWorld, turn_id: TurnId, demand: Demand, settlement: Settlement) -> ReservationId {
    let (held, _) = world.model_start(turn_id, demand).await.unwrap();
    run!(world, |w| turns::model_failed(w, turn_id, held, "m", "it broke", settlement)).unwrap();
    held
}

fn taken(input: u64, output: u64, price: Option<Price>) -> Settlement {
    Settlement::Used(Taken { model: "m".into(), tokens: used(input, output).unwrap(), price, duration_ms: 7 })
}

/// Tries to start a model call, which may have to wait.
async fn try_start(world: &OperationWorld, turn_id: TurnId, demand: Demand) -> Result<Reserved> {
    run!(world, |w| turns::model_started(w, turn_id, &demand))
}

world_test!(a_call_waits_for_reservations_of_others_and_is_signalled_when_they_end, async |world| {
    // No root has an account of its own.
    world.limits(|limits| limits.root_tokens_max = 0);
    let (ada, bob) = (world.busy("ada").await.turn_id, world.busy("bob").await.turn_id);
    let (team, own) = (Scope::Team("crew".into()), Scope::Agent(id("bob")));
    world.set_limits(&team, tokens(1_000)).await.unwrap();
    world.set_limits(&own, tokens(500)).await.unwrap();
    world.signals();
    let (held, most) = world.model_start(ada, demand(100, 800)).await.unwrap();
    assert_eq!((most, world.signals()), (800, vec![]), "that more is held is no reason to try again");
    assert_eq!(try_start(&world, bob, demand(50, 100)).await, Ok(Reserved::Waits(team.clone())));
    assert_eq!(account(&world, &own).await, (0, 0), "who waits holds nothing");
    assert!(world.journal(bob).await.is_empty());
    // The call wants less than is free now. It still waits, because the answer must not be shorter
    // than the spent amount requires.
    assert_eq!(try_start(&world, bob, demand(50, 51)).await, Ok(Reserved::Waits(team.clone())));
    world.model_answer(ada, held, used(100, 20)).await.unwrap();
    assert_eq!(world.signals(), [Signal::BudgetsFreed(vec![team.clone()])], "the world's account has no limit");
    let (held, most) = world.model_start(bob, demand(50, 100)).await.unwrap();
    assert_eq!(most, 100);
    // However the turn ends, calls that wait for its reservation are signalled.
    assert_eq!(try_start(&world, ada, demand(700, 100)).await, Ok(Reserved::Waits(team.clone())));
    run!(world, |w| turns::cancel(w, &operator(), bob)).unwrap();
    assert!(world.signals().contains(&Signal::BudgetsFreed(vec![own, team.clone()])));
    assert_eq!(code(world.model_answer(bob, held, used(50, 10)).await), Code::Cancelled);
    // They are also signalled when a limit changes.
    world.set_limits(&team, tokens(2_000)).await.unwrap();
    assert_eq!(world.signals(), [Signal::BudgetsFreed(vec![team]), Signal::LimitsSet]);
});

world_test!(money_needs_a_price, async |world| {
    let turn = world.busy("ada").await.turn_id;
    world.set_limits(&Scope::World, money(1_000)).await.unwrap();
    let unknown = Demand { price: None, ..demand(10, 10) };
    assert_eq!(code(world.model_start(turn, unknown).await), Code::BudgetExhausted);
    let (_, most) = world.model_start(turn, demand(900, 4_096)).await.unwrap();
    assert_eq!(most, 100, "a token costs a millionth");
    assert_eq!(PRICE.input, Money(1_000_000));
});

world_test!(a_failed_call_releases_or_forfeits_its_reservation, async |world| {
    let turn = world.busy("ada").await.turn_id;
    fails(&world, turn, demand(100, 50), Settlement::Released).await;
    assert_eq!(account(&world, &Scope::World).await, (0, 0));
    let held = fails(&world, turn, demand(100, 50), Settlement::Forfeited).await;
    assert_eq!(account(&world, &Scope::World).await, (0, 150));
    // A second settlement changes nothing.
    let again = run!(world, |w| {
        let mut turn = turns::open_turn(w, turn)?;
        budgets::settle(w, &mut turn, held, Settlement::Released)
    });
    assert_eq!(again.unwrap(), None);
    assert_eq!(account(&world, &Scope::World).await, (0, 150));
    // A turn that resumes after a crash has lost its reservation, and its usage row is marked as an
    // estimate.
    world.model_start(turn, demand(7, 3)).await.unwrap();
    world.take("ada").await;
    assert_eq!(account(&world, &Scope::World).await, (0, 160));
    let sums = read!(world, |r| r.usage_sum(&UsageFilter::default())?);
    assert_eq!(sums.iter().map(|sum| sum.tokens.total()).sum::<u64>(), 160);
});

world_test!(a_new_account_starts_with_the_spending_and_reservations_of_its_scope, async |world| {
    // No root has an account of its own.
    world.limits(|limits| limits.root_tokens_max = 0);
    let turn = world.busy("ada").await;
    world.model_call(turn.turn_id, demand(100, 50), used(100, 20)).await;
    let (held, _) = world.model_start(turn.turn_id, demand(100, 50)).await.unwrap();
    let scopes = [Scope::Root(turn.root_id), Scope::Agent(id("ada")), Scope::Team("crew".into())];
    for scope in &scopes {
        assert_eq!(account(&world, scope).await, (0, 0), "no account where nobody set a limit");
        world.set_limits(scope, tokens(1_000)).await.unwrap();
        assert_eq!(account(&world, scope).await, (150, 120), "{scope}");
    }
    world.set_limits(&Scope::Agent(id("bob")), tokens(1_000)).await.unwrap();
    assert_eq!(account(&world, &Scope::Agent(id("bob"))).await, (0, 0), "what others spent is theirs");
    world.model_answer(turn.turn_id, held, used(100, 30)).await.unwrap();
    for scope in &scopes {
        assert_eq!(account(&world, scope).await, (0, 250), "{scope}");
    }
    assert_eq!(account(&world, &Scope::World).await, (0, 250));
});

world_test!(a_limit_removed_from_the_file_is_lifted_and_one_set_by_hand_stays, async |world| {
    let limits = |tokens, money: Option<u64>| BudgetLimits { tokens, money: money.map(Money) };
    let of = async |scope: &Scope| world.budget(scope).await.map(|budget| budget.limits).unwrap_or_default();
    let (ada, team) = (Scope::Agent(id("ada")), Scope::Team("crew".into()));
    world.set_limits(&ada, tokens(7)).await.unwrap();
    let named = vec![(Scope::World, limits(Some(100), Some(9))), (team.clone(), limits(None, Some(5)))];
    world.follow_file(named.clone()).await;
    world.follow_file(named).await;
    // One of the world's two limits is changed by hand; ada's limit was never in the file.
    world.set_limits(&Scope::World, tokens(500)).await.unwrap();
    world.follow_file(vec![(team.clone(), limits(Some(3), None))]).await;
    assert_eq!(of(&Scope::World).await, limits(Some(500), None), "what was changed by hand is somebody's own");
    assert_eq!((of(&ada).await, of(&team).await), (limits(Some(7), None), limits(Some(3), None)));
    world.follow_file(vec![]).await;
    assert_eq!((of(&team).await, of(&ada).await), (limits(None, None), limits(Some(7), None)));
});

world_test!(limits_need_an_existing_scope_and_a_value, async |world| {
    let set = async |text: &str, limits: NewLimits| world.set_limits(&scope(text), limits).await;
    let some = tokens(5);
    let hint = hint_of(world.with_suggestion(set("agent:adda", some).await.unwrap_err()).await, Code::NotFound);
    assert!(hint.contains("`ada`"));
    assert!(hint_of(set("team:crow", some).await.unwrap_err(), Code::NotFound).contains("`crew`"));
    assert_eq!(code(set("world", NewLimits::default()).await), Code::InvalidArguments);
    set("world", some).await.unwrap();
    let kept = set("world", money(9)).await.unwrap();
    assert_eq!((kept.limits.tokens, kept.limits.money), (Some(5), Some(Money(9))));
    let lifted = set("world", NewLimits { tokens: Some(None), money: None }).await.unwrap();
    assert_eq!((lifted.limits.tokens, lifted.limits.money), (None, Some(Money(9))));
});

// covers: LOOP-09
world_test!(a_daily_budget_starts_again_at_midnight, async |world| {
    let ada = world.busy("ada").await.turn_id;
    let bob = world.busy("bob").await.turn_id;
    let (day, team, whole) = ("agent:ada/day", "team:crew/day", "world/day");
    // Today's spending is included, whenever the limit is set.
    world.model_call(ada, demand(50, 50), used(40, 10)).await;
    world.set_limits(&scope(day), tokens(200)).await.unwrap();
    world.set_limits(&scope(team), tokens(1_000)).await.unwrap();
    assert_eq!((account(&world, &scope(day)).await, account(&world, &scope(team)).await), ((0, 50), (0, 50)));
    let (held, most) = world.model_start(ada, demand(100, 500)).await.unwrap();
    assert_eq!(most, 50);
    world.model_answer(ada, held, used(90, 20)).await.unwrap();
    let refusal = world.model_start(ada, demand(100, 50)).await.unwrap_err();
    assert_eq!((refusal.code, &refusal.details.unwrap()["scope"]), (Code::BudgetExhausted, &day.into()));
    assert!(refusal.hint.unwrap().contains("00:00 UTC"));
    world.model_start(bob, demand(100, 50)).await.unwrap();

    // A call in progress at midnight is charged to the day on which it ends.
    let (held, _) = world.model_start(ada, demand(20, 20)).await.unwrap();
    world.pass(next_day(world.ctx.now()).since(world.ctx.now()));
    world.model_answer(ada, held, used(90, 20)).await.unwrap();
    assert_eq!(account(&world, &scope(day)).await, (0, 110));
    let tomorrow = next_day(world.ctx.now());
    let listed = read!(world, |r| status::bounded(r, tomorrow)?);
    let shown = listed.iter().find(|budget| budget.scope == scope(day)).unwrap();
    assert_eq!((shown.spent_tokens, shown.limits.tokens), (0, Some(200)));
    assert_eq!(world.model_start(ada, demand(50, 500)).await.unwrap().1, 40);

    // A limit set later counts spending since midnight, not before.
    world.set_limits(&scope(whole), tokens(1_000)).await.unwrap();
    assert_eq!(account(&world, &scope(whole)).await.1, 110);
    let root = world.turn(ada).await.root_id;
    assert!(format!("root:{root}/day").parse::<Scope>().is_err(), "a root is shorter than a day");
});

world_test!(a_failed_call_with_known_usage_is_charged_that_usage, async |world| {
    let turn = world.busy("ada").await.turn_id;
    for _ in 0..3 {
        fails(&world, turn, demand(100, 4_096), taken(100, 5, Some(PRICE))).await;
    }
    assert_eq!(account(&world, &Scope::World).await, (0, 315));
    let sums = read!(world, |r| r.usage_sum(&UsageFilter::default())?);
    assert_eq!((sums[0].calls, sums[0].estimated_calls, sums[0].cost), (3, 0, Money(315)));
    let turn = world.turn(turn).await;
    assert_eq!((turn.input_tokens, turn.output_tokens, turn.cost), (300, 15, Money(315)));
});

world_test!(an_answer_with_partly_estimated_usage_is_charged_and_marked, async |world| {
    let turn = world.busy("ada").await.turn_id;
    let (held, _) = world.model_start(turn, demand(100, 4_096)).await.unwrap();
    let result = ModelResult {
        reservation_id: held,
        provider: "p".into(),
        model: "m".into(),
        blocks: Vec::new(),
        stop: None,
        usage: used(100, 5),
        estimated: true,
        price: Some(PRICE),
        duration_ms: 7,
    };
    run!(world, |w| turns::model_answered(w, turn, result)).unwrap();
    assert_eq!(account(&world, &Scope::World).await, (0, 105));
    let sums = read!(world, |r| r.usage_sum(&UsageFilter::default())?);
    assert_eq!((sums[0].calls, sums[0].estimated_calls, sums[0].estimated_cost), (1, 1, Money(105)));
    let finished = world.event(EventKind::ModelFinished).await;
    assert_eq!((&finished.payload["input_tokens"], &finished.payload["estimated"]), (&100.into(), &true.into()));
});

world_test!(forfeited_usage_is_in_the_turn_and_marked, async |world| {
    let turn = world.busy("ada").await.turn_id;
    world.model_call(turn, demand(100, 50), used(90, 20)).await;
    // A crash during one call, and a cancellation during another.
    world.model_start(turn, demand(7, 3)).await.unwrap();
    world.take("ada").await;
    world.model_start(turn, demand(700, 300)).await.unwrap();
    let ended = run!(world, |w| turns::cancel(w, &operator(), turn)).unwrap();
    assert_eq!((ended.input_tokens, ended.output_tokens, ended.cost), (797, 323, Money(1_120)));
    let sums = read!(world, |r| r.usage_sum(&UsageFilter::default())?);
    assert_eq!((sums[0].tokens.input, sums[0].tokens.output, sums[0].cost), (797, 323, Money(1_120)));
    assert_eq!((sums[0].calls, sums[0].estimated_calls, sums[0].estimated_cost), (3, 2, Money(1_010)));
    let finished = world.event(EventKind::TurnFinished).await;
    assert_eq!((&finished.payload["output_tokens"], &finished.payload["cost_usd"]), (&323.into(), &0.001_12.into()));
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
    let sums = read!(world, |r| r.usage_sum(&UsageFilter::default())?);
    assert_eq!((sums[0].unpriced_tokens, sums[0].cost, sums[0].tokens.total()), (260, Money(0), 270));
    assert_eq!(world.turn(turn).await.unpriced_tokens, 260);
    for scope in [Scope::World, Scope::Agent(id("ada")), Scope::Team("crew".into())] {
        let set = world.set_limits(&scope, money(9)).await.unwrap();
        assert_eq!((set.unpriced_tokens, set.spent_money, set.spent_tokens), (260, Money(0), 270));
    }
});

/// An agent that `by` creates, without a team.
async fn child(world: &OperationWorld, by: &str, name: &str) -> Result<Agent> {
    create_by(world, party(by), NewAgent { team: None, ..new_agent(&world.ctx, name) }).await
}

world_test!(an_agent_pays_for_those_that_it_creates, async |world| {
    child(&world, "ada", "helper").await.unwrap();
    child(&world, "helper", "under-helper").await.unwrap();
    let (ada, crew, helper) = (Scope::Agent(id("ada")), Scope::Team("crew".into()), Scope::Agent(id("helper")));
    world.set_limits(&ada, tokens(1_000)).await.unwrap();
    world.set_limits(&crew, tokens(2_000)).await.unwrap();
    world.set_limits(&ada.daily().unwrap(), tokens(3_000)).await.unwrap();
    let turn = world.busy("under-helper").await.turn_id;
    world.model_call(turn, demand(500, 100), used(500, 100)).await;
    for scope in [&ada, &crew, &ada.daily().unwrap()] {
        assert_eq!(account(&world, scope).await, (0, 600), "{scope}");
    }
    // An account that is opened now starts with their spending and their reservations.
    let (held, _) = world.model_start(turn, demand(100, 100)).await.unwrap();
    world.set_limits(&helper, tokens(5_000)).await.unwrap();
    assert_eq!(account(&world, &helper).await, (200, 600));
    world.model_answer(turn, held, used(100, 100)).await.unwrap();
    assert_eq!(account(&world, &helper).await, (0, 800));
    // Spending counts for all of them.
    for who in ["ada", "helper", "under-helper"] {
        let turn = if who == "under-helper" { turn } else { world.busy(who).await.turn_id };
        let refusal = world.model_start(turn, demand(250, 100)).await.unwrap_err();
        assert_eq!(refusal.details.unwrap()["scope"], "agent:ada", "{who}");
    }
    // It also stays when they are deleted.
    delete(&world, "under-helper").await;
    let other = Scope::Team("crew".into()).daily().unwrap();
    world.set_limits(&other, tokens(9_000)).await.unwrap();
    assert_eq!(account(&world, &other).await, (0, 800));
    assert_eq!(account(&world, &Scope::Agent(id("bob"))).await, (0, 0));
});

world_test!(spending_of_deleted_team_members_still_counts, async |world| {
    world.model_call(world.busy("bob").await.turn_id, demand(100, 50), used(100, 20)).await;
    delete(&world, "bob").await;
    world.set_limits(&Scope::Team("crew".into()), tokens(1_000)).await.unwrap();
    assert_eq!(account(&world, &Scope::Team("crew".into())).await, (0, 120));
});

world_test!(the_chain_of_creators_has_a_limit, async |world| {
    let mut last = "ada".to_owned();
    for n in 2..=OWNERS_MAX {
        let next = format!("n{n}");
        child(&world, &last, &next).await.unwrap();
        last = next;
    }
    let refusal = child(&world, &last, "one-too-many").await.unwrap_err();
    assert!(refusal.code == Code::RateLimited && refusal.message.contains(&last), "{refusal}");
    // The first agent pays for the last one, and for an agent that has created its own creator
    // again.
    world.set_limits(&Scope::Agent(id("ada")), tokens(100)).await.unwrap();
    let turn = world.busy(&last).await.turn_id;
    assert_eq!(code(world.model_start(turn, demand(100, 100)).await), Code::BudgetExhausted);
    // An agent cannot evade this by creating its creator again, or by having another agent pay for
    // it.
    delete(&world, "n2").await;
    for by in ["n3", "bob"] {
        let refusal = child(&world, by, "n2").await.unwrap_err();
        assert!(refusal.code == Code::Conflict && refusal.message.contains("`n3`"), "{by}: {refusal}");
    }
    let turn = world.busy("n3").await.turn_id;
    assert_eq!(code(world.model_start(turn, demand(100, 100)).await), Code::BudgetExhausted);
    child(&world, "ada", "n2").await.unwrap();
    assert_eq!(code(world.model_start(turn, demand(100, 100)).await), Code::BudgetExhausted);
    // An operator may create it again; then no other agent pays.
    delete(&world, "n2").await;
    world.add_agent(new_agent(&world.ctx, "n2")).await;
    assert!(world.model_start(turn, demand(100, 100)).await.is_ok());
});

world_test!(agents_that_created_one_another_pay_for_one_another_once, async |world| {
    child(&world, "ada", "bud").await.unwrap();
    // A database of an earlier version may contain this.
    run!(world, |w| {
        let ada = w.agent_get(&id("ada"))?.unwrap();
        w.agent_put(&Agent { owner: Some("agent:bud".into()), ..ada }).map_err(Refusal::from)
    })
    .unwrap();
    world.set_limits(&Scope::Agent(id("ada")), tokens(1_000)).await.unwrap();
    world.model_call(world.busy("bud").await.turn_id, demand(100, 100), used(100, 0)).await;
    assert_eq!(account(&world, &Scope::Agent(id("ada"))).await, (0, 100));
});

world_test!(a_call_does_not_overtake_others_that_wait_for_the_same_account, async |world| {
    let turn = world.busy("ada").await.turn_id;
    let waits = async |scope: Scope| {
        let demand = Demand { behind: [scope].into(), ..demand(10, 10) };
        try_start(&world, turn, demand).await.unwrap() == Reserved::Waits(Scope::World)
    };
    assert!(!waits(Scope::World).await, "where nothing is limited nobody waits any more");
    world.set_limits(&Scope::World, tokens(1_000_000)).await.unwrap();
    assert!(waits(Scope::World).await);
    assert_eq!(account(&world, &Scope::World).await.0, 0, "who waits holds nothing");
    assert!(!waits(Scope::Agent(id("bob"))).await, "somebody else's");
});
