//! The rows that retention deletes, the rows that it must keep for later agents, and what it does when the wall clock
//! jumps.

use ghost_store::sqlite::{SqliteOptions, open_store};

use super::operation_world::*;
use super::schedule_helpers::*;

async fn tombstones(world: &World) -> Vec<String> {
    let all = read!(world, |r| r.agent_list(true)?);
    all.into_iter().filter(|agent| agent.is_deleted()).map(|agent| agent.agent_id.to_string()).collect()
}

world_test!(tombstones_are_deleted_when_no_record_names_their_agent_and_incarnations_never_fall, async |world| {
    // The third agent with this id.
    for incarnation in 1..=3 {
        let dan = create(&world, new_agent(&world.ctx, "dan")).await.unwrap();
        assert_eq!(dan.incarnation, incarnation);
        delete(&world, "dan").await;
    }
    world.limits(|limits| limits.usage_days = 100);
    world.sweep_after(Limits::days(100)).await;
    assert_eq!(tombstones(&world).await, ["dan"], "a usage row as old may still name it");
    world.sweep_after(Duration::from_millis(1)).await;
    assert!(tombstones(&world).await.is_empty());
    assert_eq!(world.agent("ada").await.incarnation, 1, "the living stay");
    assert_eq!(create(&world, new_agent(&world.ctx, "dan")).await.unwrap().incarnation, 4);
    // While a record exists, only that record counts.
    delete(&world, "dan").await;
    delete(&world, "ada").await;
    assert_eq!(create(&world, new_agent(&world.ctx, "ada")).await.unwrap().incarnation, 2);
});

world_test!(a_dead_letter_older_than_a_tombstone_does_not_belong_to_a_later_agent, async |world| {
    world.limits(|limits| limits.crashes_max = 1);
    let turn = world.busy("bob").await;
    world.crash("bob", "fell").await;
    assert_eq!(world.turn(turn.turn_id).await.status, TurnStatus::Dead);
    delete(&world, "bob").await;
    world.sweep_after(Limits::days(3_650)).await;
    let held = world.dead_letters().await.remove(0);
    assert!(tombstones(&world).await.is_empty());
    assert_ne!(create(&world, new_agent(&world.ctx, "bob")).await.unwrap().incarnation, turn.incarnation);
    assert_eq!(code(super::crashes::retry(&world, &held, false).await), Code::Conflict);
});

world_test!(a_dead_letter_that_cannot_be_retried_is_deleted_after_its_agent, async |world| {
    world.limits(|limits| limits.crashes_max = 1);
    for name in ["bob", "cyd"] {
        world.busy(name).await;
        world.crash(name, "fell").await;
    }
    delete(&world, "bob").await;
    world.sweep_after(Limits::days(399)).await;
    let held = async || world.dead_letters().await.len();
    assert_eq!(held().await, 2, "bob is remembered");
    world.pass(Limits::days(2));
    // The first sweep deletes the tombstone, the next one the dead letter without an agent, and the
    // one after it the letter's mail.
    for _ in 0..3 {
        world.sweep().await;
    }
    assert_eq!((held().await, tombstones(&world).await.len()), (1, 0), "cyd's waits for an operator");
    let turns = read!(world, |r| r.turn_list(&TurnFilter::default())?);
    assert_eq!(turns.iter().map(|turn| turn.agent_id.to_string()).collect::<Vec<_>>(), ["cyd"]);
});

world_test!(accounts_of_deleted_agents_are_deleted_and_their_payers_keep_their_sums, async |world| {
    world.limits(|limits| limits.root_tokens_max = 0);
    world.bound("agent:ada", 100_000).await;
    world.bound("team:crew/day", 100_000).await;
    // A small version of a busy month.
    for n in 0..40 {
        let name = format!("helper-{n}");
        let new = NewAgent { team: None, daily_money: Some(Money(1_000)), ..new_agent(&world.ctx, &name) };
        create(&world, new).await.unwrap();
        world.call_of(&name, demand(20, 16), used(20, 5)).await;
        delete(&world, &name).await;
    }
    child(&world, "ada", "kept").await.unwrap();
    world.bound("agent:kept", 100_000).await;
    delete(&world, "kept").await;
    let scopes = async || {
        let all = read!(world, |r| r.budget_list(&BudgetFilter::default())?);
        all.iter().map(|budget| (budget.scope.to_string(), budget.spent_tokens)).collect::<Vec<_>>()
    };
    assert_eq!(scopes().await.len(), 40 + 4);
    world.sweep_after(Limits::days(30)).await;
    assert_eq!(scopes().await.len(), 40 + 4, "as long as journals");
    world.sweep_after(Duration::from_millis(1)).await;
    let left = [("agent:ada", 1_000), ("agent:kept", 0), ("team:crew/day", 1_000), ("world", 1_000)];
    assert_eq!(scopes().await, left.map(|(scope, spent)| (scope.to_owned(), spent)));
    // A limit set by hand is deleted when its agent is forgotten.
    world.sweep_after(Limits::days(371)).await;
    assert_eq!(scopes().await.len(), 3);
    let floor = read!(world, |r| r.agent_incarnation_floor()?);
    assert!(tombstones(&world).await.is_empty() && floor == 1);
});

world_test!(a_payer_for_a_living_agent_is_kept, async |world| {
    child(&world, "ada", "middle").await.unwrap();
    child(&world, "middle", "last").await.unwrap();
    delete(&world, "middle").await;
    world.bound("agent:ada", 100).await;
    world.sweep_after(Limits::days(3_650)).await;
    assert_eq!(tombstones(&world).await, ["middle"]);
    let refused = world.model_start(world.busy("last").await.turn_id, demand(200, 16)).await;
    assert_eq!(detail(refused, Code::BudgetExhausted, "scope"), "agent:ada", "ten years later it is still ada's");
    delete(&world, "last").await;
    world.sweep_after(Limits::days(401)).await;
    assert!(tombstones(&world).await.is_empty());
});

// covers: SCHED-06
world_test!(the_own_turn_of_a_cron_job_is_deleted_after_a_day_and_its_run_stays, async |world| {
    let said = world.busy("ada").await;
    world.finish(said.turn_id, "said").await.unwrap();
    let job = own_turn(&world, Target::Nowhere).await;
    let first = run_next_hour(&world, "one").await;
    let second = run_next_hour(&world, "two").await;
    let kept = async |turn: &Turn| {
        let turn_id = turn.turn_id;
        let turn = read!(world, |r| r.turn_get(turn_id)?.is_some());
        let mail = read!(world, |r| r.messages_of_turn(turn_id)?.len());
        assert_eq!(mail, usize::from(turn), "its mail goes with it");
        turn
    };
    world.sweep_after(Duration::from_secs(23 * 3_600)).await;
    assert!(kept(&first).await, "not before");
    world.sweep_after(Duration::from_millis(1)).await;
    assert_eq!((kept(&first).await, kept(&second).await, kept(&said).await), (false, true, true));
    world.sweep_after(Duration::from_secs(3_600)).await;
    assert_eq!((kept(&second).await, kept(&said).await), (false, true));
    let record = runs(&world, &job).await;
    assert!(record.len() == 2 && record.iter().all(|run| run.status == RunStatus::Done), "{record:?}");
    // The job goes on, and no run of it is in progress.
    world.limits(|limits| limits.cron_turn_hours = 48);
    let third = run_next_hour(&world, "three").await;
    world.sweep_after(Duration::from_secs(48 * 3_600)).await;
    assert!(kept(&third).await);
    world.limits(|limits| limits.journal_days = 1);
    world.sweep().await;
    assert!(!kept(&third).await, "never longer than other turns");
});

world_test!(the_account_of_a_root_is_deleted_when_the_root_is_over, async |world| {
    let turn = world.busy("ada").await;
    let (root, limit) = (Scope::Root(turn.root_id), tokens(1_000));
    world.set_limits(&root, limit).await.unwrap();
    let (held, _) = world.model_start(turn.turn_id, demand(10, 20)).await.unwrap();
    world.sweep_after(Limits::days(31)).await;
    assert_eq!(world.account(&root).await.0, 30, "work is under way");
    world.model_answer(turn.turn_id, held, used(10, 5)).await.unwrap();
    world.finish(turn.turn_id, "done").await.unwrap();
    world.sweep_after(Limits::days(30)).await;
    assert!(world.budget(&root).await.is_some(), "as long as its journals");
    // Waiting mail may still be charged to its root, however old the account is.
    let waits = world.send("bob", "later").await;
    let waiting = world.set_limits(&Scope::Root(waits.root_id), limit).await.unwrap().scope;
    world.sweep_after(Limits::days(31)).await;
    assert_eq!(world.budget(&root).await, None);
    assert!(world.budget(&waiting).await.is_some());
    // The other sums are kept, and so are the usage rows of the root.
    assert_eq!(world.account(&Scope::World).await.1, 15);
    assert_eq!(world.set_limits(&root, limit).await.unwrap().spent_tokens, 15);
    assert_eq!(world.take("bob").await.turn.root_id, waits.root_id);
});

#[tokio::test]
async fn a_full_store_deletes_history_early_but_keeps_the_last_hour() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = World::new().await;
    world.store = open_store(&dir.path().join("ghost.db"), SqliteOptions::default()).await.unwrap();
    let bounds = |max| world.limits(|limits| (limits.store_bytes_max, limits.store_bytes_warn) = (max, max));
    bounds(0);
    let stored = async || retention::stored(&world.store, &world.ctx).await.unwrap();
    let sweep_bytes = async || {
        let swept = retention::sweep_bytes(&world.store, &world.ctx).await.unwrap();
        let (first, last) = read!(world, |r| r.event_bounds()?);
        (swept, last + 1 - first)
    };
    for day in 0..2 {
        world.pass(DAY * day);
        done!(world, |w| {
            for n in 0..2_000 {
                w.emit(NewEvent::new(EventKind::WorldWarning, json!({ "n": n, "text": "x".repeat(200) })))?;
            }
        });
    }
    let full = stored().await;
    assert!(full.bytes > 500_000 && !full.over && !full.warns, "{full:?}");
    assert_eq!(world.sweep().await, 0, "its days are not over");
    assert_eq!(sweep_bytes().await.0, 0, "nor is there a bound");
    bounds(full.bytes * 3 / 4);
    assert!(stored().await.warns);
    let near = read!(world, |r| root_limits::near(r, 0)?);
    let names: Vec<&str> = near.iter().map(|near| near.limit.as_str()).collect();
    assert_eq!(names, ["store_bytes_max", "store_bytes_warn"]);
    assert_eq!(sweep_bytes().await, (2_000, 2_000), "the day before");
    assert!(!stored().await.over);
    bounds(1);
    assert_eq!(sweep_bytes().await, (0, 2_000));
    world.store.close().await;
}

const DAY_MS: i64 = 86_400_000;

async fn emit(world: &World, count: u32) {
    done!(world, |w| {
        for n in 0..count {
            w.emit(NewEvent::new(EventKind::LimitReached, json!({ "n": n })))?;
        }
    });
}

async fn sweep(world: &World) -> usize {
    world.sweep().await;
    let events = read!(world, |r| r.event_list(0, &Default::default(), u32::MAX)?).0;
    events.iter().filter(|event| event.kind == EventKind::LimitReached).count()
}

/// The clock jumps by so many days, and the world follows it.
pub(super) async fn jump(world: &World, days: i64) {
    jump_by(world, days * DAY_MS).await;
}

async fn jump_by(world: &World, by_ms: i64) {
    world.clock.jump(by_ms);
    run!(world, |w| {
        let jump = w.ctx.clock.jump().unwrap();
        w.ctx.clock.follow(jump.by_ms());
        clock::jumped(w, jump)
    })
    .unwrap();
}

/// The daemon runs for some time.
async fn run(world: &World, time: Duration) {
    world.pass(time);
    let now = world.ctx.now();
    run!(world, |w| clock::ran(w, now, time)).unwrap();
}

async fn start(world: &World) {
    run!(world, |w| clock::at_start(w)).unwrap();
}

async fn warning(world: &World) -> Option<String> {
    read!(world, |r| clock::state(r)?).warning()
}

world_test!(retention_waits_after_a_jump_until_it_has_run_as_long_or_an_operator_confirms, async |world| {
    emit(&world, 10).await;
    jump(&world, 40).await;
    assert_eq!(sweep(&world).await, 10);
    run(&world, Limits::days(3)).await;
    assert_eq!(sweep(&world).await, 10, "they are three days old");
    start(&world).await;
    assert_eq!(sweep(&world).await, 10, "over a restart, too");
    assert!(warning(&world).await.unwrap().contains("37 d"));
    assert!(run!(world, |w| clock::confirm(w, &operator())).unwrap());
    assert_eq!((sweep(&world).await, world.count(EventKind::WorldClockConfirmed).await), (0, 1));
    assert!(!run!(world, |w| clock::confirm(w, &operator())).unwrap());

    // Nobody confirms: they go when they are old by the time that has passed.
    emit(&world, 10).await;
    jump(&world, 40).await;
    run(&world, Limits::days(6)).await;
    assert_eq!(sweep(&world).await, 10);
    run(&world, Limits::days(1)).await;
    assert_eq!(sweep(&world).await, 0);

    // What was recorded while the clock was behind is not old when it is right again.
    jump(&world, -4_000).await;
    emit(&world, 10).await;
    jump(&world, 4_000).await;
    run(&world, Limits::days(2)).await;
    assert_eq!(sweep(&world).await, 10);
    // The clock was ahead for a moment, and nothing is in doubt.
    let before = read!(world, |r| clock::state(r)?).doubt;
    jump(&world, 40).await;
    jump(&world, -40).await;
    assert_eq!(read!(world, |r| clock::state(r)?).doubt.ahead_ms, before.ahead_ms);
});

#[tokio::test]
async fn a_start_far_ahead_of_the_newest_record_deletes_nothing() {
    for (days, doubted) in [(6, false), (40, true), (4_000, true)] {
        let world = World::new().await;
        start(&world).await;
        emit(&world, 10).await;
        world.pass(Limits::days(days));
        start(&world).await;
        assert_eq!(world.count(EventKind::WorldClockJumped).await, usize::from(doubted));
        assert_eq!(sweep(&world).await, 10, "{days} days");
        world.pass(MINUTE);
        start(&world).await;
        assert_eq!(world.count(EventKind::WorldClockJumped).await, usize::from(doubted), "once");
        assert_eq!(warning(&world).await.is_some_and(|warning| warning.contains("confirm-clock")), doubted);
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
    for _ in 0..4 {
        world.sweep().await;
    }
    assert_eq!(sweep(&world).await, 0, "a slice is never too much");
});

world_test!(a_warning_ends_after_a_day_and_clocks_at_the_ends_of_time_harm_nothing, async |world| {
    start(&world).await;
    jump(&world, -400).await;
    assert!(warning(&world).await.unwrap().contains("back by 400 d"));
    run(&world, Limits::days(1)).await;
    assert_eq!(warning(&world).await, None);
    emit(&world, 10).await;
    for by in [i64::MAX / 2, -i64::MAX, i64::MAX, i64::MIN / 2, Timestamp(5).0 * DAY_MS] {
        jump_by(&world, by).await;
        start(&world).await;
        assert_eq!(sweep(&world).await, 10, "by {by}");
    }
});
