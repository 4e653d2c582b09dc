//! The owner of a limit, its lifetime, the accounts that earlier spending is charged to, and how much is read to
//! find that out.

use super::operation_world::*;

async fn money_limit(world: &World, text: &str) -> Option<u64> {
    world.budget(&scope(text)).await.and_then(|budget| budget.limits.money).map(|money| money.0)
}

async fn set(world: &World, text: &str, money: Option<u64>) -> Budget {
    world.set_limits(&scope(text), NewLimits { tokens: None, money: Some(money.map(Money)) }).await.unwrap()
}

/// An agent created by `by`, without a team, whose archetype allows `daily` millionths of a dollar
/// a day.
async fn create(world: &World, by: &str, name: &str, daily: Option<u64>) {
    let new = NewAgent { team: None, daily_money: daily.map(Money), ..new_agent(&world.ctx, name) };
    create_by(world, party(by), new).await.unwrap();
}

world_test!(a_limit_of_the_archetype_ends_with_the_agent_and_one_set_by_hand_stays, async |world| {
    let today = async || money_limit(&world, "agent:dan/day").await;
    create(&world, "ada", "dan", Some(500)).await;
    assert_eq!(today().await, Some(500));
    world.spend("dan", 120).await;
    delete(&world, "dan").await;
    assert_eq!(today().await, None);
    // The next agent with this id has an archetype without a limit, the one after it has another
    // limit. Today's spending stays.
    create(&world, "ada", "dan", None).await;
    assert_eq!(today().await, None);
    delete(&world, "dan").await;
    create(&world, "ada", "dan", Some(200)).await;
    let account = world.budget(&scope("agent:dan/day")).await.unwrap();
    assert_eq!((account.limits.money, account.spent_money), (Some(Money(200)), Money(120)));
    let refused = world.model_start(world.busy("dan").await.turn_id, demand(70, 50)).await;
    assert_eq!(detail(refused, Code::BudgetExhausted, "scope"), "agent:dan/day");

    // From now on the limit is one set by hand.
    set(&world, "agent:dan/day", Some(90)).await;
    set(&world, "agent:dan", Some(7_000)).await;
    for daily in [None, Some(1_000)] {
        delete(&world, "dan").await;
        assert_eq!(today().await, Some(90));
        create(&world, "ada", "dan", daily).await;
        assert_eq!((today().await, money_limit(&world, "agent:dan").await), (Some(90), Some(7_000)), "{daily:?}");
    }
    // Lifted by hand, it does not return for this agent, however often its archetype is read. The
    // limit of the next agent counts again.
    set(&world, "agent:dan/day", None).await;
    run!(world, |w| budgets::of_archetype(w, &operator(), &id("dan"), Some(Money(1_000)))).unwrap();
    assert_eq!(today().await, None);
    delete(&world, "dan").await;
    create(&world, "ada", "dan", Some(300)).await;
    assert_eq!(today().await, Some(300));
    // A limit of tokens is independent of it.
    world.bound("agent:dan/day", 9_000).await;
    delete(&world, "dan").await;
    let left = world.budget(&scope("agent:dan/day")).await.unwrap().limits;
    assert_eq!(left, BudgetLimits { tokens: Some(9_000), money: None });
    let origins = world.told(EventKind::BudgetSet, "origin").await;
    assert!(origins.starts_with(&["archetype".into(), "archetype".into()]) && origins.contains(&"hand".into()));
});

world_test!(limits_of_the_file_and_warnings_work_with_more_accounts_than_one_page, async |world| {
    // The file replaces and releases a limit of the archetype.
    create(&world, "ada", "dan", Some(500)).await;
    let of_dan = BudgetLimits { tokens: None, money: Some(Money(500)) };
    world.follow_file(vec![(scope("agent:dan/day"), of_dan)]).await;
    delete(&world, "dan").await;
    assert_eq!(money_limit(&world, "agent:dan/day").await, Some(500), "it is the file's now");
    world.follow_file(vec![]).await;
    assert_eq!(money_limit(&world, "agent:dan/day").await, None);
    let file = BudgetLimits { tokens: Some(100), money: None };
    let named = ["team:crew", "agent:cyd/day", "world/day"].map(|text| (scope(text), file));
    world.follow_file(named.to_vec()).await;
    // 1,200 accounts come before them in the list.
    let now = world.ctx.now();
    done!(world, |w| {
        let ada = w.agent_get(&id("ada"))?.unwrap();
        for n in 0..1_200 {
            let agent_id = id(&format!("a{n:04}"));
            w.agent_put(&Agent { agent_id: agent_id.clone(), ..ada.clone() })?;
            let limits = BudgetLimits { tokens: Some(5), money: None };
            w.budget_put(&Budget { limits, ..Budget::open(Scope::Agent(agent_id), now) })?;
            let root = Scope::Root(RootId(Uuid::from_u128(u128::MAX - n)));
            w.budget_put(&Budget { limits, spent_tokens: 5, ..Budget::open(root, now) })?;
        }
    });
    world.spend("ada", 60).await;
    world.model_start(world.busy("ada").await.turn_id, demand(20, 16)).await.unwrap();
    let (near, bounded) = world.budgets_shown().await;
    let (roots, others): (Vec<_>, Vec<_>) = near.into_iter().partition(|near| matches!(near.scope, Scope::Root(_)));
    let others: Vec<String> = others.iter().map(|budget| budget.scope.to_string()).collect();
    assert_eq!((roots.len(), others), (1_200, vec!["team:crew".to_owned(), "world/day".to_owned()]));
    assert_eq!(bounded.len(), 1_203, "roots have no place in a list of what lasts");
    world.follow_file(vec![(scope("world/day"), file)]).await;
    for (text, left) in
        [("team:crew", None), ("agent:cyd/day", None), ("world/day", Some(100)), ("agent:a1199", Some(5))]
    {
        assert_eq!(world.budget(&scope(text)).await.unwrap().limits.tokens, left, "{text}");
    }
    // A team that has no member yet may have a budget in the file.
    world.follow_file(vec![(scope("team:empty"), file), (scope("team:empty/day"), file)]).await;
    assert_eq!(world.budget(&scope("team:empty/day")).await.unwrap().limits, file);
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
        let hint = world.suggestion(world.set_limits(&scope(text), tokens(1)).await, Code::NotFound).await;
        assert!(hint.contains(near), "{text}: {hint}");
    }
});

world_test!(accounts_warn_once_something_is_spent_but_not_those_of_deleted_agents, async |world| {
    let shown = async || {
        let (near, bounded) = world.budgets_shown().await;
        (near.len(), bounded.len())
    };
    assert_eq!(set(&world, "world", Some(0)).await.passed(), Vec::<&str>::new());
    assert_eq!(shown().await.0, 0);
    set(&world, "world", None).await;
    world.spend("ada", 20).await;
    assert_eq!((set(&world, "world", Some(0)).await.passed(), shown().await.0), (vec!["usd"], 1));
    set(&world, "world", None).await;
    create(&world, "ada", "dan", None).await;
    world.spend("dan", 90).await;
    set(&world, "agent:dan", Some(100)).await;
    set(&world, "agent:dan/day", Some(100)).await;
    assert_eq!(shown().await, (2, 2));
    delete(&world, "dan").await;
    assert_eq!(shown().await, (0, 0));
    create(&world, "ada", "dan", None).await;
    assert_eq!(shown().await, (2, 2), "a limit set for the id holds for the next agent with it");
});

world_test!(a_daily_account_from_the_future_is_corrected_when_a_limit_is_set, async |world| {
    set(&world, "world/day", Some(1_000)).await;
    world.pass(DAY * 10_000);
    world.spend("ada", 900).await;
    world.set_back(DAY * 10_000);
    let turn = world.busy("ada").await.turn_id;
    let left = async |tokens| world.model_start(turn, demand(tokens, 16)).await.is_ok();
    world.pass(DAY);
    assert!(!left(200).await, "the clock may be wrong now");
    assert_eq!(set(&world, "world/day", Some(1_000)).await.spent_tokens, 900, "what was spent is not given back");
    assert!(!left(200).await);
    world.pass(DAY);
    assert!(left(200).await);
});

/// Opens an account and returns its first balance.
async fn open(world: &World, text: &str) -> u64 {
    world.bound(text, 1_000_000).await.spent_tokens
}

world_test!(a_change_of_team_keeps_the_creator_paying_and_a_change_of_creator_the_team, async |world| {
    create(&world, "ada", "dan", None).await;
    for (name, before, after) in [("dan", 50, 7), ("cyd", 30, 8)] {
        world.spend(name, before).await;
        world.pass(MINUTE);
        assert!(run!(world, |w| agents::update(w, &id(name), "worker", name, Some("desk"))).unwrap());
        world.spend(name, after).await;
    }
    assert_eq!((open(&world, "agent:ada").await, open(&world, "team:desk/day").await), (57, 15));

    // The other way round: eve is in the crew again, and created by ada now.
    create_by(&world, party("bob"), new_agent(&world.ctx, "eve")).await.unwrap();
    world.spend("eve", 100).await;
    delete(&world, "eve").await;
    world.pass(MINUTE);
    create_by(&world, party("cyd"), new_agent(&world.ctx, "eve")).await.unwrap();
    world.spend("eve", 3).await;
    assert_eq!((open(&world, "agent:bob").await, open(&world, "agent:cyd").await), (0, 38 + 3));
    // The crew pays for ada, who also created dan, and for what bob's eve spent. Cyd has left it.
    assert_eq!(open(&world, "team:crew").await, 57 + 103);
});

world_test!(spending_of_a_pruned_agent_is_not_charged_to_the_creator_of_the_next_one, async |world| {
    // The first agent ever: no earlier agent can have had the id.
    create(&world, "ada", "dan", None).await;
    assert_eq!(world.agent("dan").await.paid_since, None);
    world.spend("dan", 100).await;
    delete(&world, "dan").await;
    world.pass(MINUTE);
    let now = world.ctx.now();
    assert_eq!(done!(world, |w| w.prune(Family::Agents, now, 9)?), 1);
    let new = NewAgent { team: Some("desk".into()), ..new_agent(&world.ctx, "dan") };
    assert_eq!(create_by(&world, party("bob"), new).await.unwrap().incarnation, 2);
    world.spend("dan", 5).await;
    for (text, tokens) in [("agent:bob", 5), ("team:desk", 5), ("agent:dan", 105), ("agent:ada", 0), ("world/day", 105)]
    {
        assert_eq!(open(&world, text).await, tokens, "{text}");
    }
});

world_test!(daily_limits_of_many_agents_are_opened_in_one_pass, async |world| {
    world.limits(|limits| limits.dynamic_agents_max = 1_000);
    done!(world, |w| {
        let ctx = w.ctx;
        for n in 0..400 {
            agents::create(w, &operator(), new_agent(ctx, &format!("d{n:03}")))?;
        }
    });
    create(&world, "d007", "child", None).await;
    world.spend("child", 5).await;
    delete(&world, "child").await;
    // Spent yesterday, so it counts for no daily budget today.
    world.spend("d000", 900).await;
    world.pass(DAY);
    create(&world, "d007", "child", None).await;
    for (name, tokens) in [("d000", 30), ("d007", 20), ("child", 4), ("d399", 1)] {
        world.spend(name, tokens).await;
    }
    world.model_start(world.busy("d001").await.turn_id, demand(20, 16)).await.unwrap();

    let all: Vec<_> = read!(world, |r| r.agent_list(false)?).into_iter().map(|agent| agent.agent_id).collect();
    scans::taken();
    let daily: Vec<_> = all.iter().map(|agent_id| (agent_id.clone(), Some(Money(5_000)))).collect();
    run!(world, |w| budgets::of_archetypes(w, &operator(), &daily)).unwrap();
    assert_eq!(scans::taken(), 2, "the agents and today's usage, however many accounts are opened");
    for (name, tokens) in [("d000", 30), ("d007", 24), ("child", 4), ("d399", 1), ("d002", 0), ("ada", 0)] {
        assert_eq!(world.account(&scope(&format!("agent:{name}/day"))).await.1, tokens, "{name}");
    }
    let held = world.budget(&scope("agent:d001/day")).await.unwrap();
    assert_eq!((held.reserved_tokens, held.limits.money), (36, Some(Money(5_000))));

    // The same applies to limits of `world-config.yaml`.
    let limits = BudgetLimits { tokens: Some(1_000_000), money: None };
    let teams = ["team:crew", "team:crew/day", "world/day"].map(scope);
    let named: Vec<_> = all.into_iter().map(Scope::Agent).chain(teams).map(|scope| (scope, limits)).collect();
    world.follow_file(named.clone()).await;
    assert_eq!(scans::taken(), 3, "the agents, the usage of all time and today's");
    for (text, tokens) in [
        ("agent:d000", 930),
        ("agent:d007", 29),
        ("agent:child", 9),
        ("team:crew", 960),
        ("team:crew/day", 55),
        ("world/day", 55),
    ] {
        assert_eq!(world.account(&scope(text)).await.1, tokens, "{text}");
    }
    // No account is opened twice.
    world.follow_file(named).await;
    assert_eq!(scans::taken(), 0);
});

world_test!(a_new_agent_with_a_daily_limit_needs_no_scan_of_the_others, async |world| {
    let create = async |name: &str| {
        let new = NewAgent { daily_money: Some(Money(500)), ..new_agent(&world.ctx, name) };
        create_by(&world, party("ada"), new).await.unwrap();
    };
    let day = async |name: &str| {
        let account = world.budget(&scope(&format!("agent:{name}/day"))).await;
        account.map(|budget| (budget.limits.money, budget.spent_tokens))
    };
    scans::taken();
    create("dan").await;
    assert_eq!((scans::taken(), day("dan").await), (0, Some((Some(Money(500)), 0))));
    // An agent that is created again keeps the spending of its id today.
    self::create(&world, "ada", "eve", None).await;
    world.spend("eve", 9).await;
    delete(&world, "eve").await;
    create("eve").await;
    assert_eq!((scans::taken(), day("eve").await), (2, Some((Some(Money(500)), 9))));
});

#[tokio::test]
async fn accounts_opened_together_start_like_accounts_opened_alone() {
    let (together, alone) = (World::new().await, World::new().await);
    for world in [&together, &alone] {
        create(world, "ada", "dan", None).await;
        create(world, "dan", "eve", None).await;
        world.spend("dan", 100).await;
        world.spend("eve", 10).await;
        delete(world, "eve").await;
        delete(world, "dan").await;
        world.pass(MINUTE);
        create(world, "bob", "dan", None).await;
        world.pass(MINUTE);
        create(world, "dan", "eve", None).await;
        world.spend("dan", 30).await;
        world.pass(DAY);
        create(world, "eve", "fay", None).await;
        world.spend("eve", 3).await;
        world.spend("fay", 1).await;
        assert!(run!(world, |w| agents::update(w, &id("dan"), "w", "d", Some("desk"))).unwrap());
        world.spend("fay", 2).await;
    }
    let whole = ["agent:ada", "agent:bob", "agent:dan", "agent:eve", "agent:fay", "team:crew", "team:desk", "world"];
    let texts: Vec<String> = whole.iter().flat_map(|text| [(*text).to_owned(), format!("{text}/day")]).collect();
    let limits = BudgetLimits { tokens: Some(1_000_000), money: None };
    together.follow_file(texts.iter().map(|text| (scope(text), limits)).collect()).await;
    for text in &texts {
        assert_eq!(together.account(&scope(text)).await.1, open(&alone, text).await, "{text}");
    }
    // What an earlier agent spent is not charged to the creator of the next one with its id.
    for (text, tokens) in
        [("agent:ada", 0), ("agent:bob", 36), ("agent:dan", 146), ("agent:eve", 16), ("agent:bob/day", 6)]
    {
        assert_eq!(together.account(&scope(text)).await.1, tokens, "{text}");
    }
}
