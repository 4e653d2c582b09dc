//! The owner of a limit, its lifetime, and the accounts that earlier spending is charged to.

use super::operation_world::*;

async fn account(world: &OperationWorld, text: &str) -> Option<Budget> {
    world.budget(&scope(text)).await
}

async fn money_limit(world: &OperationWorld, text: &str) -> Option<u64> {
    account(world, text).await.and_then(|budget| budget.limits.money).map(|money| money.0)
}

async fn set(world: &OperationWorld, text: &str, money: Option<u64>) -> Budget {
    world.set_limits(&scope(text), NewLimits { tokens: None, money: Some(money.map(Money)) }).await.unwrap()
}

/// An agent created by `by`, without a team, whose archetype allows `daily` millionths of a dollar
/// a day.
async fn create(world: &OperationWorld, by: &str, name: &str, daily: Option<u64>) {
    let new = NewAgent { team: None, daily_money: daily.map(Money), ..new_agent(&world.ctx, name) };
    create_by(world, party(by), new).await.unwrap();
}

world_test!(a_limit_of_the_archetype_ends_with_the_agent_and_one_set_by_hand_stays, async |world| {
    create(&world, "ada", "dan", Some(500)).await;
    assert_eq!(money_limit(&world, "agent:dan/day").await, Some(500));
    world.spend("dan", 120).await;
    delete(&world, "dan").await;
    assert_eq!(money_limit(&world, "agent:dan/day").await, None);
    // The next agent with this id has an archetype without a limit, the one after it has another
    // limit. Today's spending stays.
    create(&world, "ada", "dan", None).await;
    assert_eq!(money_limit(&world, "agent:dan/day").await, None);
    delete(&world, "dan").await;
    create(&world, "ada", "dan", Some(200)).await;
    let today = account(&world, "agent:dan/day").await.unwrap();
    assert_eq!((today.limits.money, today.spent_money), (Some(Money(200)), Money(120)));
    let turn = world.busy("dan").await.turn_id;
    assert_eq!(world.model_start(turn, demand(70, 50)).await.unwrap_err().details.unwrap()["scope"], "agent:dan/day");

    // From now on the limit is one set by hand.
    set(&world, "agent:dan/day", Some(90)).await;
    set(&world, "agent:dan", Some(7_000)).await;
    for daily in [None, Some(1_000)] {
        delete(&world, "dan").await;
        assert_eq!(money_limit(&world, "agent:dan/day").await, Some(90));
        create(&world, "ada", "dan", daily).await;
        assert_eq!(money_limit(&world, "agent:dan/day").await, Some(90), "{daily:?}");
        assert_eq!(money_limit(&world, "agent:dan").await, Some(7_000));
    }
    // Lifted by hand, it does not return for this agent, however often its archetype is read. The
    // limit of the next agent counts again.
    set(&world, "agent:dan/day", None).await;
    let dan = id("dan");
    run!(world, |w| budgets::of_archetype(w, &operator(), &dan, Some(Money(1_000)))).unwrap();
    assert_eq!(money_limit(&world, "agent:dan/day").await, None);
    delete(&world, "dan").await;
    create(&world, "ada", "dan", Some(300)).await;
    assert_eq!(money_limit(&world, "agent:dan/day").await, Some(300));
    // A limit of tokens is independent of it.
    world.set_limits(&scope("agent:dan/day"), tokens(9_000)).await.unwrap();
    delete(&world, "dan").await;
    let left = account(&world, "agent:dan/day").await.unwrap().limits;
    assert_eq!(left, BudgetLimits { tokens: Some(9_000), money: None });
    let set = world.events_of(EventKind::BudgetSet).await;
    let origins: Vec<&str> = set.iter().map(|event| event.payload["origin"].as_str().unwrap()).collect();
    assert!(origins.starts_with(&["archetype", "archetype"]) && origins.contains(&"hand"), "{origins:?}");
});

world_test!(the_file_replaces_and_releases_a_limit_of_the_archetype, async |world| {
    create(&world, "ada", "dan", Some(500)).await;
    world.follow_file(vec![(scope("agent:dan/day"), BudgetLimits { tokens: None, money: Some(Money(500)) })]).await;
    delete(&world, "dan").await;
    assert_eq!(money_limit(&world, "agent:dan/day").await, Some(500), "it is the file's now");
    world.follow_file(vec![]).await;
    assert_eq!(money_limit(&world, "agent:dan/day").await, None);
});

world_test!(limits_of_the_file_and_warnings_work_with_more_accounts_than_one_page, async |world| {
    let team = scope("team:crew");
    let file = BudgetLimits { tokens: Some(100), money: None };
    world.follow_file(vec![(team.clone(), file), (scope("agent:cyd/day"), file), (scope("world/day"), file)]).await;
    // 1,200 accounts come before them in the list.
    run!(world, |w| {
        let ctx = w.ctx;
        let ada = w.agent_get(&id("ada"))?.unwrap();
        for n in 0..1_200 {
            let agent_id = format!("a{n:04}").parse()?;
            w.agent_put(&Agent { agent_id, ..ada.clone() })?;
            let limits = BudgetLimits { tokens: Some(5), money: None };
            let scope = Scope::Agent(format!("a{n:04}").parse()?);
            w.budget_put(&Budget { limits, ..Budget::open(scope, ctx.now()) })?;
            let root = Scope::Root(RootId(Uuid::from_u128(u128::MAX - n)));
            w.budget_put(&Budget { limits, spent_tokens: 5, ..Budget::open(root, ctx.now()) })?;
        }
        Ok::<_, Refusal>(())
    })
    .unwrap();
    world.spend("ada", 60).await;
    world.model_start(world.busy("ada").await.turn_id, demand(20, 16)).await.unwrap();
    let (near, bounded) = world.budgets_shown().await;
    let roots = near.iter().filter(|budget| matches!(budget.scope, Scope::Root(_))).count();
    let others: Vec<String> =
        near.iter().map(|budget| budget.scope.to_string()).filter(|text| !text.starts_with("root:")).collect();
    assert_eq!((roots, others), (1_200, vec!["team:crew".to_owned(), "world/day".to_owned()]));
    assert_eq!(bounded.len(), 1_203, "roots have no place in a list of what lasts");
    world.follow_file(vec![(scope("world/day"), file)]).await;
    for (text, left) in
        [("team:crew", None), ("agent:cyd/day", None), ("world/day", Some(100)), ("agent:a1199", Some(5))]
    {
        assert_eq!(account(&world, text).await.unwrap().limits.tokens, left, "{text}");
    }
});

world_test!(a_limit_can_be_set_for_every_listed_account_and_for_a_deleted_agent, async |world| {
    create(&world, "ada", "dan", Some(500)).await;
    create(&world, "ada", "eve", None).await;
    world.spend("dan", 30).await;
    set(&world, "team:crew", Some(9_000)).await;
    for name in ["dan", "eve", "ada", "bob", "cyd"] {
        delete(&world, name).await;
    }
    assert_eq!(set(&world, "agent:dan", Some(70)).await.spent_tokens, 30);
    assert_eq!(set(&world, "agent:eve", Some(40)).await.limits.money, Some(Money(40)), "it never had an account");
    assert_eq!(set(&world, "team:crew", None).await.limits.money, None);
    // It holds for the next agent with this id. A limit lifted while there is no agent leaves
    // nothing for the next one.
    assert!(!set(&world, "agent:dan/day", None).await.money_lifted);
    world.add_agent(new_agent(&world.ctx, "ada")).await;
    create(&world, "ada", "dan", Some(200)).await;
    assert_eq!(money_limit(&world, "agent:dan").await, Some(70));
    assert_eq!(money_limit(&world, "agent:dan/day").await, Some(200));
    // A scope that never existed is a typing mistake.
    for (text, near) in [
        ("agent:dann", "`dan`"),
        ("agent:dann/day", "`dan`"),
        ("team:crww", "`crew`"),
        ("team:crew/dya", "`crew/day`"),
        ("team:desk", "`teams:`"),
    ] {
        let refusal = world.with_suggestion(world.set_limits(&scope(text), tokens(1)).await.unwrap_err()).await;
        assert_eq!(refusal.code, Code::NotFound, "{text}");
        assert!(refusal.hint.as_ref().unwrap().contains(near), "{text}: {refusal:?}");
    }
});

world_test!(a_money_limit_of_zero_warns_once_money_is_spent, async |world| {
    assert_eq!(set(&world, "world", Some(0)).await.passed(), Vec::<&str>::new());
    let near = async || world.budgets_shown().await.0.len();
    assert_eq!(near().await, 0);
    set(&world, "world", None).await;
    world.spend("ada", 20).await;
    assert_eq!((set(&world, "world", Some(0)).await.passed(), near().await), (vec!["usd"], 1));
});

world_test!(accounts_of_deleted_agents_give_no_warning, async |world| {
    create(&world, "ada", "dan", None).await;
    world.spend("dan", 90).await;
    set(&world, "agent:dan", Some(100)).await;
    set(&world, "agent:dan/day", Some(100)).await;
    let warned = async || {
        let (near, bounded) = world.budgets_shown().await;
        (near.len(), bounded.len())
    };
    assert_eq!(warned().await, (2, 2));
    delete(&world, "dan").await;
    assert_eq!(warned().await, (0, 0));
    create(&world, "ada", "dan", None).await;
    assert_eq!(warned().await, (2, 2), "a limit set for the id holds for the next agent with it");
});

world_test!(a_team_that_has_no_member_yet_may_have_a_budget_in_the_file, async |world| {
    let limits = BudgetLimits { tokens: Some(5), money: None };
    world.follow_file(vec![(scope("team:empty"), limits), (scope("team:empty/day"), limits)]).await;
    assert_eq!(account(&world, "team:empty/day").await.unwrap().limits, limits);
});

world_test!(spending_of_an_earlier_agent_is_not_charged_to_the_creator_of_the_next_one, async |world| {
    create(&world, "ada", "dan", None).await;
    create(&world, "dan", "eve", None).await;
    world.spend("dan", 100).await;
    world.spend("eve", 10).await;
    delete(&world, "eve").await;
    delete(&world, "dan").await;
    world.pass(Duration::from_secs(60));
    create(&world, "bob", "dan", None).await;
    create(&world, "dan", "eve", None).await;
    world.spend("dan", 30).await;
    world.spend("eve", 3).await;
    for (text, spent) in
        [("agent:bob", 33), ("agent:bob/day", 33), ("agent:dan", 143), ("agent:eve", 13), ("world/day", 143)]
    {
        assert_eq!(set(&world, text, Some(9_000)).await.spent_tokens, spent, "{text}");
    }
});

world_test!(a_new_team_member_brings_no_spending_but_one_created_again_in_the_team_does, async |world| {
    world.spend("cyd", 50).await;
    world.pass(Duration::from_secs(60));
    let moved = run!(world, |w| agents::update(w, &id("cyd"), "worker", "cyd", Some("desk"))).unwrap();
    assert!(moved);
    world.spend("cyd", 7).await;
    world.spend("bob", 4).await;
    assert_eq!(set(&world, "team:desk/day", Some(9_000)).await.spent_tokens, 7);
    delete(&world, "bob").await;
    world.pass(Duration::from_secs(60));
    world.add_agent(new_agent(&world.ctx, "bob")).await;
    assert_eq!(set(&world, "team:crew", Some(9_000)).await.spent_tokens, 4);
    let all = read!(world, |r| r.budget_list(&BudgetFilter::default())?);
    assert_eq!(all.iter().find(|budget| budget.scope == Scope::World).unwrap().spent_tokens, 61);
});

world_test!(a_daily_account_from_the_future_is_corrected_when_a_limit_is_set, async |world| {
    set(&world, "world/day", Some(1_000)).await;
    world.pass(Duration::from_secs(86_400 * 10_000));
    world.spend("ada", 900).await;
    world.set_back(Duration::from_secs(86_400 * 10_000));
    let turn = world.busy("ada").await.turn_id;
    let left = async |tokens| world.model_start(turn, demand(tokens, 16)).await.is_ok();
    world.pass(Duration::from_secs(86_400));
    assert!(!left(200).await, "the clock may be wrong now");
    assert_eq!(set(&world, "world/day", Some(1_000)).await.spent_tokens, 900, "what was spent is not given back");
    assert!(!left(200).await);
    world.pass(Duration::from_secs(86_400));
    assert!(left(200).await);
});
