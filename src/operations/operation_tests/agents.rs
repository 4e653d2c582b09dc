use super::operation_world::*;

// covers: BI-22, WORLD-14
world_test!(an_agent_is_created_once_and_may_get_a_first_goal, async |world| {
    let dan = create(&world, NewAgent { goal: Some("count".into()), ..new_agent(&world.ctx, "dan") }).await.unwrap();
    assert_eq!((dan.incarnation, dan.owner.as_deref()), (1, Some("agent:ada")));
    assert!(world.signals().contains(&Signal::Reconcile(id("dan"))));
    let first = world.take("dan").await;
    assert_eq!((first.mail[0].kind, first.mail[0].body.as_str()), (Kind::System, "count"));
    assert_eq!(code(create(&world, new_agent(&world.ctx, "dan")).await), Code::Conflict);
    let waits = NewAgent { desired: Desired::Stopped, ..new_agent(&world.ctx, "eve") };
    let waits = create(&world, waits).await.unwrap();
    assert_eq!((waits.status, waits.started_at), (AgentStatus::Stopped, None));
    // A new agent continues the chain of its creator, so creating agents does not evade the limit
    // on hops.
    let far = Chain { hop: 99, ..Chain::root(&world.ctx) };
    let new = NewAgent { goal: Some("on".into()), chain: far, ..new_agent(&world.ctx, "fay") };
    assert_eq!(code(create(&world, new).await), Code::HopLimit);
    world.limits(|limits| limits.dynamic_agents_max = 5);
    assert_eq!(code(create(&world, new_agent(&world.ctx, "gus")).await), Code::RateLimited);
    let named = NewAgent { kind: AgentKind::Persistent, ..new_agent(&world.ctx, "gus") };
    assert_eq!(create(&world, named).await.unwrap().owner, None);
});

// covers: BI-23, BI-24, WORLD-13
world_test!(start_and_stop_return_whether_they_changed_anything, async |world| {
    let start = async || run!(world, |w| agents::start(w, &operator(), &id("ada"))).unwrap();
    let stop = async || run!(world, |w| agents::stop(w, &operator(), &id("ada"), Some("rest"))).unwrap();
    let created = world.agent("ada").await;
    assert_eq!(created.started_at, Some(created.created_at));
    world.pass(MINUTE);
    let (running, changed) = start().await;
    assert_eq!((running.started_at, changed), (created.started_at, false), "it runs already");
    let (stopping, changed) = stop().await;
    assert_eq!((stopping.status, changed), (AgentStatus::Stopping, true));
    assert!(!stop().await.1);
    for _ in 0..2 {
        world.stopped(&id("ada")).await;
    }
    assert_eq!(world.count(EventKind::AgentStopped).await, 1);
    assert!(!stop().await.1);
    assert_eq!(world.agent("ada").await.status_reason.as_deref(), Some("by operator:test: rest"));
    // An agent that an operator stopped stays stopped after a restart of the daemon.
    let claimed = run!(world, |w| agents::claim_all(w)).unwrap();
    assert_eq!(claimed[0].status, AgentStatus::Stopped);
    let (running, changed) = start().await;
    assert_eq!((running.status, running.status_reason, changed), (AgentStatus::Running, None, true));
    assert_eq!(running.started_at, Some(world.ctx.now()));
    // A failed agent can be started again.
    run!(world, |w| agents::failed(w, &id("ada"), "too often")).unwrap();
    assert!(start().await.1);
    // A record of an earlier version has no time of the last start.
    let mut old = serde_json::to_value(&created).unwrap();
    old.as_object_mut().unwrap().remove("started_at");
    assert_eq!(serde_json::from_value::<Agent>(old).unwrap().started_at, None);
});

world_test!(deletion_leaves_a_tombstone_and_nothing_for_a_later_agent, async |world| {
    let turn = world.busy("ada").await.turn_id;
    let beside = run!(world, |w| operator_turn(w, &id("ada"))).unwrap().turn_id;
    let unread = world.send("ada", "unread").await;
    run!(world, |w| skills::acquire(w, &id("ada"), "git")).unwrap();
    let gone = delete(&world, "ada").await;
    assert!(gone.agent.is_deleted());
    assert_eq!(gone.left, agents::Left { mail_dropped: 1, tasks_left: 0 });
    for turn in [turn, beside] {
        assert_eq!(world.turn(turn).await.status, TurnStatus::Cancelled);
    }
    assert_eq!(world.message(unread.message_id).await.state, MailState::Consumed);
    assert_eq!(code(world.try_take("ada").await), Code::NotFound);
    let again = run!(world, |w| agents::delete(w, &operator(), &id("ada")));
    assert_eq!(code(again), Code::NotFound);
    let next = create(&world, new_agent(&world.ctx, "ada")).await.unwrap();
    assert_eq!((next.incarnation, next.deleted_at), (2, None));
    assert!(world.try_take("ada").await.unwrap().is_none() && read!(world, |r| r.skills_held(&id("ada"))?).is_empty());
});

// covers: WORLD-12
world_test!(a_crash_is_followed_by_one_restart_unless_the_agent_was_stopped, async |world| {
    run!(world, |w| agents::crashed(w, &id("ada"), "fell")).unwrap();
    let ada = world.agent("ada").await;
    assert_eq!((ada.status, ada.status_reason.as_deref()), (AgentStatus::Restarting, Some("fell")));
    assert!(world.try_take("ada").await.unwrap().is_none(), "not during the back-off");
    assert!(!run!(world, |w| agents::start(w, &operator(), &id("ada"))).unwrap().1);
    world.pass(MINUTE);
    for _ in 0..2 {
        run!(world, |w| agents::restarted(w, &id("ada"))).unwrap();
    }
    let ada = world.agent("ada").await;
    assert_eq!((ada.restarts, ada.started_at), (1, Some(world.ctx.now())));
    run!(world, |w| agents::stop(w, &operator(), &id("ada"), None)).unwrap();
    run!(world, |w| agents::crashed(w, &id("ada"), "fell")).unwrap();
    assert_eq!(world.agent("ada").await.status, AgentStatus::Stopping);
});

world_test!(held_skills_are_counted_once, async |world| {
    let acquire = async |skill: String| run!(world, |w| skills::acquire(w, &id("ada"), &skill));
    let drop_skill = async || run!(world, |w| skills::drop_skill(w, &id("ada"), "git"));
    assert!(acquire("git".into()).await.unwrap());
    assert!(!acquire("git".into()).await.unwrap());
    for _ in 0..2 {
        run!(world, |w| skills::activate(w, &id("ada"), "git")).unwrap();
    }
    assert_eq!(world.count(EventKind::SkillActivated).await, 1);
    for n in 1..skills::HELD_MAX {
        acquire(format!("s{n}")).await.unwrap();
    }
    assert_eq!(code(acquire("more".into()).await), Code::RateLimited);
    drop_skill().await.unwrap();
    assert_eq!(code(drop_skill().await), Code::NotFound);
});

async fn free_id(world: &World, archetype: &str) -> Result<String> {
    let archetype = archetype.to_owned();
    run!(world, |w| agents::free_id(w, &archetype).map(|agent_id| agent_id.to_string()))
}

world_test!(a_free_id_is_new_even_after_earlier_records_were_pruned, async |world| {
    let next = async |archetype: &str| free_id(&world, archetype).await.unwrap();
    assert_eq!(next("worker").await, "worker-1");
    // An id is given out only once.
    assert_eq!(next("worker").await, "worker-2");
    // An id that someone chose by hand is skipped, whether its agent lives or not.
    for name in ["worker-3", "worker-4"] {
        create(&world, new_agent(&world.ctx, name)).await.unwrap();
    }
    delete(&world, "worker-4").await;
    assert_eq!(next("worker").await, "worker-5");
    // Each archetype has its own count, and every archetype name yields a valid id.
    for (archetype, free) in [("Ünder Writer", "nder-writer-1"), ("über", "ber-1"), ("日本", "agent-1")] {
        assert_eq!(next(archetype).await, free);
    }
    assert!(next(&"long".repeat(100)).await.ends_with("-1"));
    // A refused command uses up no id.
    let refused: Result<()> = run!(world, |w| {
        agents::free_id(w, "worker")?;
        Err(Refusal::new(Code::Cancelled, "no"))
    });
    assert_eq!(code(refused), Code::Cancelled);
    assert_eq!(next("worker").await, "worker-6");
});

world_test!(a_free_id_takes_few_lookups_however_many_are_taken, async |world| {
    world.limits(|limits| limits.dynamic_agents_max = 10_000);
    for number in 1..=400 {
        create(&world, new_agent(&world.ctx, &format!("worker-{number}"))).await.unwrap();
    }
    let number = |id: String| id.rsplit_once('-').unwrap().1.parse::<u32>().unwrap();
    let first = number(free_id(&world, "worker").await.unwrap());
    assert!((401..2_000).contains(&first), "{first}");
    assert_eq!(number(free_id(&world, "worker").await.unwrap()), first + 1);
    // Every id that would be tried is taken: a refusal with a hint, and no endless search.
    let (mut next, mut step) = (0_u64, 1);
    for tries in 0..48 {
        next += step;
        step *= if tries >= 16 { 2 } else { 1 };
        create(&world, new_agent(&world.ctx, &format!("helper-{next}"))).await.unwrap();
    }
    assert!(hint_of(free_id(&world, "helper").await, Code::Conflict).contains("agent_id"));
});

/// An agent that ada creates in one of its turns.
async fn helper(world: &World, name: &str) -> Turn {
    let turn = world.busy("ada").await;
    create(world, NewAgent { chain: at_hop(turn.root_id, 1), ..new_agent(&world.ctx, name) }).await.unwrap();
    turn
}

world_test!(only_the_creator_of_an_agent_can_delete_it, async |world| {
    helper(&world, "dan").await;
    for (by, who) in [("bob", "dan"), ("ada", "bob"), ("ada", "ada")] {
        let denied = run!(world, |w| agents::delete_own(w, &party(by), &id(who), None));
        assert_eq!(denied.unwrap_err().code, Code::AccessDenied, "{by} {who}");
    }
    let gone = run!(world, |w| agents::delete_own(w, &party("ada"), &id("dan"), Some("done"))).unwrap();
    assert!(gone.agent.status_reason.unwrap().ends_with("agent:ada: done"));
});

world_test!(an_agent_stopped_by_its_creator_is_deleted_when_its_root_is_over, async |world| {
    let turn = helper(&world, "dan").await;
    let end = async || agents::end_helpers(&world.store, &world.ctx, vec![id("dan"), id("bob")]).await.unwrap();
    let stop = async |by: Party| {
        run!(world, |w| agents::stop(w, &by, &id("dan"), None)).unwrap();
        world.stopped(&id("dan")).await;
    };
    assert_eq!(end().await, 0, "it runs");
    stop(party("ada")).await;
    assert_eq!(end().await, 0, "its root goes on");
    world.finish(turn.turn_id, "done").await.unwrap();
    let late = world.send("dan", "one more thing").await;
    assert_eq!(end().await, 0, "it has mail");
    run!(world, |w| w.message_mark(&[late.message_id], MailState::Consumed, None, 0)).unwrap();
    stop(operator()).await;
    assert_eq!(end().await, 0, "an operator keeps it");
    stop(party("ada")).await;
    assert_eq!(end().await, 1);
    assert!(world.agent("dan").await.is_deleted());
    assert_eq!(end().await, 0);
});

world_test!(creating_the_same_agent_again_returns_the_existing_one, async |world| {
    let once = async |by: Party, new: NewAgent| run!(world, |w| agents::create_once(w, &by, new));
    let dan = || new_agent(&world.ctx, "dan");
    let (first, new) = once(party("ada"), dan()).await.unwrap();
    assert!(new);
    for by in [party("ada"), operator()] {
        let (again, new) = once(by, dan()).await.unwrap();
        assert_eq!((again.incarnation, new), (first.incarnation, false));
    }
    // An agent of another creator, a different one, or one with a goal is not the same.
    assert_eq!(detail(once(party("cyd"), dan()).await, Code::Conflict, "status"), "running");
    for other in [
        NewAgent { archetype: "boss".into(), ..dan() },
        NewAgent { goal: Some("count".into()), ..dan() },
        NewAgent { overrides: json!({ "max_tokens": 5 }), ..dan() },
    ] {
        assert_eq!(code(once(party("ada"), other).await), Code::Conflict);
    }
    // Reserved names are refused.
    for name in ["system", "all"] {
        assert_eq!(code(once(operator(), new_agent(&world.ctx, name)).await), Code::InvalidArguments);
    }
});
