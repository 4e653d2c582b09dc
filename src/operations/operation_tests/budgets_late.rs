//! Accounts that are opened after their scope has spent something: whose spending it was, and how
//! much is read to find out.

use super::operation_world::*;

async fn spent(world: &OperationWorld, text: &str) -> u64 {
    world.budget(&scope(text)).await.map_or(0, |budget| budget.spent_tokens)
}

/// Opens an account and returns its first balance.
async fn open(world: &OperationWorld, text: &str) -> u64 {
    world.set_limits(&scope(text), tokens(1_000_000)).await.unwrap().spent_tokens
}

async fn create(world: &OperationWorld, by: Party, name: &str) {
    create_by(world, by, NewAgent { team: None, ..new_agent(&world.ctx, name) }).await.unwrap();
}

world_test!(a_change_of_team_keeps_the_creator_paying_and_a_change_of_creator_the_team, async |world| {
    create(&world, party("ada"), "dan").await;
    world.spend("dan", 50).await;
    world.pass(Duration::from_secs(60));
    assert!(run!(world, |w| agents::update(w, &id("dan"), "worker", "dan", Some("desk"))).unwrap());
    world.spend("dan", 7).await;
    assert_eq!((open(&world, "agent:ada").await, open(&world, "team:desk").await), (57, 7));

    // The other way round: eve is in the crew again, and created by ada now.
    create_by(&world, party("bob"), new_agent(&world.ctx, "eve")).await.unwrap();
    world.spend("eve", 100).await;
    delete(&world, "eve").await;
    world.pass(Duration::from_secs(60));
    create_by(&world, party("cyd"), new_agent(&world.ctx, "eve")).await.unwrap();
    world.spend("eve", 3).await;
    assert_eq!((open(&world, "agent:bob").await, open(&world, "agent:cyd").await), (0, 3));
    // The crew pays for ada, who also created dan.
    assert_eq!(open(&world, "team:crew").await, 57 + 103);
});

world_test!(spending_of_a_pruned_agent_is_not_charged_to_the_creator_of_the_next_one, async |world| {
    // The first agent ever: no earlier agent can have had the id.
    create(&world, party("ada"), "dan").await;
    assert_eq!(world.agent("dan").await.paid_since, None);
    world.spend("dan", 100).await;
    delete(&world, "dan").await;
    world.pass(Duration::from_secs(60));
    let now: Timestamp = world.ctx.now();
    assert_eq!(run!(world, |w| Ok::<_, Refusal>(w.prune(Family::Agents, now, 9)?)).unwrap(), 1);
    let new = NewAgent { team: Some("desk".into()), ..new_agent(&world.ctx, "dan") };
    create_by(&world, party("bob"), new).await.unwrap();
    assert_eq!(world.agent("dan").await.incarnation, 2);
    world.spend("dan", 5).await;
    let begins = async |text| (text, open(&world, text).await);
    for (text, tokens) in [("agent:bob", 5), ("team:desk", 5), ("agent:dan", 105), ("agent:ada", 0), ("world/day", 105)]
    {
        assert_eq!(begins(text).await, (text, tokens));
    }
});

world_test!(daily_limits_of_many_agents_are_opened_in_one_pass, async |world| {
    world.limits(|limits| limits.dynamic_agents_max = 1_000);
    let names: Vec<AgentId> = (0..400).map(|n| id(&format!("d{n:03}"))).collect();
    run!(world, |w| {
        for agent_id in &names {
            let new = NewAgent { agent_id: agent_id.clone(), ..new_agent(w.ctx, "x") };
            agents::create(w, &operator(), new)?;
        }
        Ok::<_, Refusal>(names)
    })
    .unwrap();
    create(&world, party("d007"), "child").await;
    world.spend("child", 5).await;
    delete(&world, "child").await;
    // Spent yesterday, so it counts for no daily budget today.
    world.spend("d000", 900).await;
    world.pass(Duration::from_secs(86_400));
    create(&world, party("d007"), "child").await;
    for (name, tokens) in [("d000", 30), ("d007", 20), ("child", 4), ("d399", 1)] {
        world.spend(name, tokens).await;
    }
    world.model_start(world.busy("d001").await.turn_id, demand(20, 16)).await.unwrap();

    let all: Vec<(AgentId, Option<Money>)> =
        read!(world, |r| r.agent_list(false)?).into_iter().map(|agent| (agent.agent_id, Some(Money(5_000)))).collect();
    scans::taken();
    let daily = all.clone();
    run!(world, |w| budgets::of_archetypes(w, &operator(), &daily)).unwrap();
    assert_eq!(scans::taken(), 2, "the agents and today's usage, however many accounts are opened");
    for (name, tokens) in [("d000", 30), ("d007", 24), ("child", 4), ("d399", 1), ("d002", 0), ("ada", 0)] {
        assert_eq!(spent(&world, &format!("agent:{name}/day")).await, tokens, "{name}");
    }
    let held = world.budget(&scope("agent:d001/day")).await.unwrap();
    assert_eq!((held.reserved_tokens, held.limits.money), (36, Some(Money(5_000))));

    // The same applies to limits of `world-config.yaml`.
    let limits = BudgetLimits { tokens: Some(1_000_000), money: None };
    let teams = ["team:crew", "team:crew/day", "world/day"].map(scope);
    let agents = all.iter().map(|(agent_id, _)| Scope::Agent(agent_id.clone()));
    let named: Vec<(Scope, BudgetLimits)> = agents.chain(teams).map(|scope| (scope, limits)).collect();
    let follow = async |named: Vec<(Scope, BudgetLimits)>| {
        world.follow_file(named).await;
        scans::taken()
    };
    assert_eq!(follow(named.clone()).await, 3, "the agents, the usage of all time and today's");
    for (text, tokens) in [
        ("agent:d000", 930),
        ("agent:d007", 29),
        ("agent:child", 9),
        ("team:crew", 960),
        ("team:crew/day", 55),
        ("world/day", 55),
    ] {
        assert_eq!(spent(&world, text).await, tokens, "{text}");
    }
    // No account is opened twice.
    assert_eq!(follow(named).await, 0);
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
    self::create(&world, party("ada"), "eve").await;
    world.spend("eve", 9).await;
    delete(&world, "eve").await;
    create("eve").await;
    assert_eq!((scans::taken(), day("eve").await), (2, Some((Some(Money(500)), 9))));
});

#[tokio::test]
async fn accounts_opened_together_start_like_accounts_opened_alone() {
    let (together, alone) = (OperationWorld::new().await, OperationWorld::new().await);
    for world in [&together, &alone] {
        create(world, party("ada"), "dan").await;
        create(world, party("dan"), "eve").await;
        world.spend("dan", 100).await;
        world.spend("eve", 10).await;
        delete(world, "eve").await;
        delete(world, "dan").await;
        world.pass(Duration::from_secs(60));
        create(world, party("bob"), "dan").await;
        world.pass(Duration::from_secs(60));
        create(world, party("dan"), "eve").await;
        world.spend("dan", 30).await;
        world.pass(Duration::from_secs(86_400));
        create(world, party("eve"), "fay").await;
        world.spend("eve", 3).await;
        world.spend("fay", 1).await;
        assert!(run!(world, |w| agents::update(w, &id("dan"), "w", "d", Some("desk"))).unwrap());
        world.spend("fay", 2).await;
    }
    let whole = ["agent:ada", "agent:bob", "agent:dan", "agent:eve", "agent:fay", "team:crew", "team:desk"];
    let texts: Vec<String> = whole.iter().flat_map(|text| [(*text).to_owned(), format!("{text}/day")]).collect();
    let limits = BudgetLimits { tokens: Some(1_000_000), money: None };
    let named: Vec<(Scope, BudgetLimits)> = texts.iter().map(|text| (scope(text), limits)).collect();
    together.follow_file(named).await;
    for text in &texts {
        assert_eq!(spent(&together, text).await, open(&alone, text).await, "{text}");
    }
    for (text, tokens) in [("agent:ada", 0), ("agent:bob", 36), ("agent:dan", 146), ("agent:bob/day", 6)] {
        assert_eq!(spent(&together, text).await, tokens, "{text}");
    }
}
