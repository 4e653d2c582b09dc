//! The rows of agents and accounts that retention deletes, and the rows that it must keep for later
//! agents.

use ghost_store::sqlite::{SqliteOptions, open_store};

use super::operation_world::*;
use super::schedule_helpers::*;

async fn sweep(world: &OperationWorld) {
    retention::sweep(&world.store, &world.ctx).await.unwrap();
}

async fn sweep_after(world: &OperationWorld, time: Duration) {
    world.pass(time);
    sweep(world).await;
}

async fn tombstones(world: &OperationWorld) -> Vec<String> {
    let all = read!(world, |r| r.agent_list(true)?);
    all.into_iter().filter(|agent| agent.is_deleted()).map(|agent| agent.agent_id.to_string()).collect()
}

async fn account(world: &OperationWorld, root_id: RootId) -> Option<Budget> {
    world.budget(&Scope::Root(root_id)).await
}

async fn limit(world: &OperationWorld, root_id: RootId) {
    world.set_limits(&Scope::Root(root_id), tokens(1_000)).await.unwrap();
}

world_test!(tombstones_are_deleted_when_no_record_names_their_agent_and_incarnations_never_fall, async |world| {
    // The third agent with this id.
    for incarnation in 1..=3 {
        let dan = create(&world, new_agent(&world.ctx, "dan")).await.unwrap();
        assert_eq!(dan.incarnation, incarnation);
        delete(&world, "dan").await;
    }
    world.limits(|limits| limits.usage_days = 100);
    sweep_after(&world, Limits::days(100)).await;
    assert_eq!(tombstones(&world).await, ["dan"], "a usage row as old may still name it");
    sweep_after(&world, Duration::from_millis(1)).await;
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
    sweep_after(&world, Limits::days(3_650)).await;
    let held = world.dead_letters().await.remove(0).dead_letter_id;
    assert!(tombstones(&world).await.is_empty());
    assert_ne!(create(&world, new_agent(&world.ctx, "bob")).await.unwrap().incarnation, turn.incarnation);
    let retried = run!(world, |w| dead_letters::retry(w, &operator(), held, false));
    assert_eq!(code(retried), Code::Conflict);
});

world_test!(a_dead_letter_that_cannot_be_retried_is_deleted_after_its_agent, async |world| {
    world.limits(|limits| limits.crashes_max = 1);
    for name in ["bob", "cyd"] {
        world.busy(name).await;
        world.crash(name, "fell").await;
    }
    delete(&world, "bob").await;
    sweep_after(&world, Limits::days(399)).await;
    let held = async || world.dead_letters().await.len();
    assert_eq!(held().await, 2, "bob is remembered");
    world.pass(Limits::days(2));
    // The first sweep deletes the tombstone, the next one the dead letter without an agent, and the
    // one after it the letter's mail.
    for _ in 0..3 {
        sweep(&world).await;
    }
    assert_eq!((held().await, tombstones(&world).await.len()), (1, 0), "cyd's waits for an operator");
    let turns = read!(world, |r| r.turn_list(&TurnFilter::default())?);
    assert_eq!(turns.iter().map(|turn| turn.agent_id.to_string()).collect::<Vec<_>>(), ["cyd"]);
});

world_test!(accounts_of_deleted_agents_are_deleted_and_their_payers_keep_their_sums, async |world| {
    world.limits(|limits| limits.root_tokens_max = 0);
    let set = async |text: &str| drop(world.set_limits(&scope(text), tokens(100_000)).await.unwrap());
    set("agent:ada").await;
    set("team:crew/day").await;
    // A small version of a busy month.
    for n in 0..40 {
        let name = format!("helper-{n}");
        let new = NewAgent { team: None, daily_money: Some(Money(1_000)), ..new_agent(&world.ctx, &name) };
        create(&world, new).await.unwrap();
        world.model_call(world.busy(&name).await.turn_id, demand(20, 16), used(20, 5)).await;
        delete(&world, &name).await;
    }
    let new = NewAgent { team: None, ..new_agent(&world.ctx, "kept") };
    create(&world, new).await.unwrap();
    set("agent:kept").await;
    delete(&world, "kept").await;
    let scopes = async || {
        let all = read!(world, |r| r.budget_list(&BudgetFilter::default())?);
        all.iter().map(|budget| (budget.scope.to_string(), budget.spent_tokens)).collect::<Vec<_>>()
    };
    assert_eq!(scopes().await.len(), 40 + 4);
    sweep_after(&world, Limits::days(30)).await;
    assert_eq!(scopes().await.len(), 40 + 4, "as long as journals");
    sweep_after(&world, Duration::from_millis(1)).await;
    let left = [("agent:ada", 1_000), ("agent:kept", 0), ("team:crew/day", 1_000), ("world", 1_000)];
    assert_eq!(scopes().await, left.map(|(scope, spent)| (scope.to_owned(), spent)));
    // A limit set by hand is deleted when its agent is forgotten.
    sweep_after(&world, Limits::days(371)).await;
    assert_eq!(scopes().await.len(), 3);
    let floor = read!(world, |r| r.agent_incarnation_floor()?);
    assert!(tombstones(&world).await.is_empty() && floor == 1);
});

world_test!(a_payer_for_a_living_agent_is_kept, async |world| {
    let child = async |by: &str, name: &str| {
        create_by(&world, party(by), NewAgent { team: None, ..new_agent(&world.ctx, name) }).await.unwrap();
    };
    child("ada", "middle").await;
    child("middle", "last").await;
    delete(&world, "middle").await;
    world.set_limits(&Scope::Agent(id("ada")), tokens(100)).await.unwrap();
    sweep_after(&world, Limits::days(3_650)).await;
    assert_eq!(tombstones(&world).await, ["middle"]);
    let refused = world.model_start(world.busy("last").await.turn_id, demand(200, 16)).await.unwrap_err();
    assert_eq!(refused.details.unwrap()["scope"], "agent:ada", "ten years later it is still ada's");
    delete(&world, "last").await;
    sweep_after(&world, Limits::days(401)).await;
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
    sweep_after(&world, Duration::from_secs(23 * 3_600)).await;
    assert!(kept(&first).await, "not before");
    sweep_after(&world, Duration::from_millis(1)).await;
    assert_eq!((kept(&first).await, kept(&second).await, kept(&said).await), (false, true, true));
    sweep_after(&world, Duration::from_secs(3_600)).await;
    assert_eq!((kept(&second).await, kept(&said).await), (false, true));
    let record = runs(&world, &job).await;
    assert!(record.len() == 2 && record.iter().all(|run| run.status == RunStatus::Done), "{record:?}");
    // The job goes on, and no run of it is in progress.
    world.limits(|limits| limits.cron_turn_hours = 48);
    let third = run_next_hour(&world, "three").await;
    sweep_after(&world, Duration::from_secs(48 * 3_600)).await;
    assert!(kept(&third).await);
    world.limits(|limits| limits.journal_days = 1);
    sweep(&world).await;
    assert!(!kept(&third).await, "never longer than other turns");
});

world_test!(the_account_of_a_root_is_deleted_when_the_root_is_over, async |world| {
    let turn = world.busy("ada").await;
    limit(&world, turn.root_id).await;
    let (held, _) = world.model_start(turn.turn_id, demand(10, 20)).await.unwrap();
    sweep_after(&world, Limits::days(31)).await;
    assert_eq!(account(&world, turn.root_id).await.unwrap().reserved_tokens, 30, "work is under way");
    world.model_answer(turn.turn_id, held, used(10, 5)).await.unwrap();
    world.finish(turn.turn_id, "done").await.unwrap();
    sweep_after(&world, Limits::days(30)).await;
    assert!(account(&world, turn.root_id).await.is_some(), "as long as its journals");
    // Waiting mail may still be charged to its root, however old the account is.
    let waits = world.send("bob", "later").await;
    limit(&world, waits.root_id).await;
    sweep_after(&world, Limits::days(31)).await;
    assert_eq!(account(&world, turn.root_id).await, None);
    assert!(account(&world, waits.root_id).await.is_some());
    // The other sums are kept, and so are the usage rows of the root.
    assert_eq!(world.budget(&Scope::World).await.unwrap().spent_tokens, 15);
    limit(&world, turn.root_id).await;
    assert_eq!(account(&world, turn.root_id).await.unwrap().spent_tokens, 15);
    let taken = run!(world, |w| turns::take(w, &id("bob"), None)).unwrap().unwrap();
    assert_eq!(taken.turn.root_id, waits.root_id);
});

#[tokio::test]
async fn a_full_store_deletes_history_early_but_keeps_the_last_hour() {
    let dir = tempfile::tempdir().unwrap();
    let mut world = OperationWorld::new().await;
    world.store = open_store(&dir.path().join("ghost.db"), SqliteOptions::default()).await.unwrap();
    let bounds = |max| {
        world.limits(|limits| {
            limits.store_bytes_max = max;
            limits.store_bytes_warn = max;
        });
    };
    bounds(0);
    let fill = async || {
        run!(world, |w| {
            for n in 0..2_000 {
                w.emit(NewEvent::new(EventKind::WorldWarning, json!({ "n": n, "text": "x".repeat(200) })))?;
            }
            Ok::<_, Refusal>(())
        })
        .unwrap();
    };
    let events = async || {
        let (first, last) = read!(world, |r| r.event_bounds()?);
        last + 1 - first
    };
    fill().await;
    world.pass(Duration::from_secs(86_400));
    fill().await;
    let full = retention::stored(&world.store, &world.ctx).await.unwrap();
    assert!(full.bytes > 500_000 && !full.over && !full.warns, "{full:?}");
    assert_eq!(retention::sweep(&world.store, &world.ctx).await.unwrap(), 0, "its days are not over");
    assert_eq!(retention::sweep_bytes(&world.store, &world.ctx).await.unwrap(), 0, "nor is there a bound");
    bounds(full.bytes * 3 / 4);
    assert!(retention::stored(&world.store, &world.ctx).await.unwrap().warns);
    let near = read!(world, |r| root_limits::near(r, 0)?);
    let names: Vec<&str> = near.iter().map(|near| near.limit.as_str()).collect();
    assert_eq!(names, ["store_bytes_max", "store_bytes_warn"]);
    assert_eq!(retention::sweep_bytes(&world.store, &world.ctx).await.unwrap(), 2_000, "the day before");
    assert!(!retention::stored(&world.store, &world.ctx).await.unwrap().over);
    assert_eq!(events().await, 2_000);
    bounds(1);
    assert_eq!((retention::sweep_bytes(&world.store, &world.ctx).await.unwrap(), events().await), (0, 2_000));
    world.store.close().await;
}
