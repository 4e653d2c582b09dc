//! The wall clock jumps: what retention deletes after it, and what a start finds.

use ghost_domain::grant::NewGrant;

use super::operation_world::*;

const DAY_MS: i64 = 86_400_000;

async fn emit(world: &OperationWorld, count: u32) {
    run!(world, |w| {
        for n in 0..count {
            w.emit(NewEvent::new(EventKind::LimitReached, json!({ "n": n })))?;
        }
        Ok::<_, Refusal>(())
    })
    .unwrap();
}

async fn left(world: &OperationWorld) -> usize {
    let events = read!(world, |r| r.event_list(0, &Default::default(), u32::MAX)?).0;
    events.iter().filter(|event| event.kind == EventKind::LimitReached).count()
}

async fn sweep(world: &OperationWorld) -> usize {
    retention::sweep(&world.store, &world.ctx).await.unwrap();
    left(world).await
}

/// The clock jumps, and the world follows it.
async fn jump(world: &OperationWorld, by_ms: i64) {
    world.clock.jump(by_ms);
    run!(world, |w| {
        let jump = w.ctx.clock.jump().unwrap();
        w.ctx.clock.follow(jump.by_ms());
        clock::jumped(w, jump)
    })
    .unwrap();
}

/// The daemon runs for some time.
async fn run(world: &OperationWorld, time: Duration) {
    world.pass(time);
    let now = world.ctx.now();
    run!(world, |w| clock::ran(w, now, time)).unwrap();
}

async fn start(world: &OperationWorld) {
    run!(world, |w| clock::at_start(w)).unwrap();
}

world_test!(retention_waits_after_a_jump_until_it_has_run_as_long_or_an_operator_confirms, async |world| {
    emit(&world, 10).await;
    jump(&world, 40 * DAY_MS).await;
    assert_eq!(sweep(&world).await, 10);
    run(&world, Limits::days(3)).await;
    assert_eq!(sweep(&world).await, 10, "they are three days old");
    start(&world).await;
    assert_eq!(sweep(&world).await, 10, "over a restart, too");
    assert!(read!(world, |r| clock::state(r)?).warning().unwrap().contains("37 d"));
    assert!(run!(world, |w| clock::confirm(w, &operator())).unwrap());
    assert_eq!(sweep(&world).await, 0);
    assert_eq!(world.count(EventKind::WorldClockConfirmed).await, 1);
    assert!(!run!(world, |w| clock::confirm(w, &operator())).unwrap());

    // Nobody confirms: they go when they are old by the time that has passed.
    emit(&world, 10).await;
    jump(&world, 40 * DAY_MS).await;
    run(&world, Limits::days(6)).await;
    assert_eq!(sweep(&world).await, 10);
    run(&world, Limits::days(1)).await;
    assert_eq!(sweep(&world).await, 0);

    // What was recorded while the clock was behind is not old when it is right again.
    jump(&world, -4_000 * DAY_MS).await;
    emit(&world, 10).await;
    jump(&world, 4_000 * DAY_MS).await;
    run(&world, Limits::days(2)).await;
    assert_eq!(sweep(&world).await, 10);
    // The clock was ahead for a moment, and nothing is in doubt.
    let before = read!(world, |r| clock::state(r)?).doubt;
    jump(&world, 40 * DAY_MS).await;
    jump(&world, -40 * DAY_MS).await;
    assert_eq!(read!(world, |r| clock::state(r)?).doubt.ahead_ms, before.ahead_ms);
});

#[tokio::test]
async fn a_start_far_ahead_of_the_newest_record_deletes_nothing() {
    for (days, doubted) in [(6, false), (40, true), (4_000, true)] {
        let world = OperationWorld::new().await;
        start(&world).await;
        emit(&world, 10).await;
        world.pass(Limits::days(days));
        start(&world).await;
        assert_eq!(world.count(EventKind::WorldClockJumped).await, usize::from(doubted));
        assert_eq!(sweep(&world).await, 10, "{days} days");
        world.pass(Duration::from_secs(60));
        start(&world).await;
        assert_eq!(world.count(EventKind::WorldClockJumped).await, usize::from(doubted), "once");
        let warning = read!(world, |r| clock::state(r)?).warning();
        assert_eq!(warning.is_some_and(|warning| warning.contains("confirm-clock")), doubted);
    }
}

world_test!(one_sweep_deletes_no_more_than_a_share, async |world| {
    emit(&world, 6_000).await;
    world.pass(Limits::days(30));
    let mut left = 6_000;
    while left > 2_000 {
        let after = sweep(&world).await;
        assert!(after < left && after >= left * 3 / 4 - 10, "{left} to {after}");
        left = after;
    }
    for _ in 0..5 {
        left = sweep(&world).await;
    }
    assert_eq!(left, 0, "a slice is never too much");
});

world_test!(a_warning_ends_after_a_day_and_clocks_at_the_ends_of_time_harm_nothing, async |world| {
    start(&world).await;
    jump(&world, -400 * DAY_MS).await;
    assert!(read!(world, |r| clock::state(r)?).warning().unwrap().contains("back by 400 d"));
    run(&world, Limits::days(1)).await;
    assert_eq!(read!(world, |r| clock::state(r)?).warning(), None);
    emit(&world, 10).await;
    for by in [i64::MAX / 2, -i64::MAX, i64::MAX, i64::MIN / 2, Timestamp(5).0 * DAY_MS] {
        jump(&world, by).await;
        start(&world).await;
        assert_eq!(sweep(&world).await, 10, "by {by}");
    }
});

world_test!(a_grant_that_is_over_stays_over_when_the_clock_goes_back, async |world| {
    let new = NewGrant {
        agent_id: id("ada"),
        prefix: "shared/".into(),
        source: GrantSource::Manual,
        reason: None,
        lasts: Duration::from_secs(60),
    };
    let grant = run!(world, |w| grants::add(w, &operator(), new)).unwrap();
    world.pass(Duration::from_secs(61));
    jump(&world, -4_000 * DAY_MS).await;
    let grant = read!(world, |r| r.grant_get(grant.grant_id)?).unwrap();
    assert!(!grant.is_live(world.ctx.now()), "{grant:?}");
});
