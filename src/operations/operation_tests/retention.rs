//! The rows of agents and accounts that retention deletes, and the rows that it must keep for later
//! agents.

use ghost_store::sqlite::{SqliteOptions, open_store};

use super::operation_world::*;
use super::schedule_helpers::*;

async fn sweep(world: &OperationWorld) {
    retention::sweep(&world.store, &world.ctx).await.unwrap();
}

async fn tombstones(world: &OperationWorld) -> Vec<String> {
    let all = read!(world, |r| r.agent_list(true)?);
    all.into_iter().filter(|agent| agent.is_deleted()).map(|agent| agent.agent_id.to_string()).collect()
}

async fn account(world: &OperationWorld, root_id: RootId) -> Option<Budget> {
    read!(world, |r| r.budget_get(&Scope::Root(root_id))?)
}

async fn limit(world: &OperationWorld, root_id: RootId) {
    let limits = NewLimits { tokens: Some(Some(1_000)), money: None };
    run!(world, |w, ctx| budgets::set(w, &ctx, &operator(), &Scope::Root(root_id), limits)).unwrap();
}

#[tokio::test]
async fn tombstones_are_deleted_when_no_record_names_their_agent_and_incarnations_never_fall() {
    let world = OperationWorld::new().await;
    // The third agent with this id.
    for incarnation in 1..=3 {
        let dan = create(&world, new_agent(&world.ctx, "dan")).await.unwrap();
        assert_eq!(dan.incarnation, incarnation);
        delete(&world, "dan").await;
    }
    world.limits(|limits| limits.usage_days = 100);
    world.pass(Limits::days(100));
    sweep(&world).await;
    assert_eq!(tombstones(&world).await, ["dan"], "a usage row as old may still name it");
    world.pass(Duration::from_millis(1));
    sweep(&world).await;
    assert!(tombstones(&world).await.is_empty());
    assert_eq!(world.agent("ada").await.incarnation, 1, "the living stay");
    assert_eq!(create(&world, new_agent(&world.ctx, "dan")).await.unwrap().incarnation, 4);
    // While a record exists, only that record counts.
    delete(&world, "dan").await;
    delete(&world, "ada").await;
    assert_eq!(create(&world, new_agent(&world.ctx, "ada")).await.unwrap().incarnation, 2);
}

#[tokio::test]
async fn a_dead_letter_older_than_a_tombstone_does_not_belong_to_a_later_agent() {
    let world = OperationWorld::new().await;
    world.limits(|limits| limits.crashes_max = 1);
    let turn = world.busy("bob").await;
    world.crash("bob", "fell").await;
    assert_eq!(world.turn(turn.turn_id).await.status, TurnStatus::Dead);
    delete(&world, "bob").await;
    world.pass(Limits::days(3_650));
    sweep(&world).await;
    let held = world.dead_letters().await.remove(0).dead_letter_id;
    assert!(tombstones(&world).await.is_empty());
    let heir = create(&world, new_agent(&world.ctx, "bob")).await.unwrap();
    assert_ne!(heir.incarnation, turn.incarnation);
    let retried = run!(world, |w, ctx| dead_letters::retry(w, &ctx, &operator(), held, false));
    assert_eq!(code(retried), Code::Conflict);
}

#[tokio::test]
async fn a_dead_letter_that_cannot_be_retried_is_deleted_after_its_agent() {
    let world = OperationWorld::new().await;
    world.limits(|limits| limits.crashes_max = 1);
    for name in ["bob", "cyd"] {
        world.busy(name).await;
        world.crash(name, "fell").await;
    }
    delete(&world, "bob").await;
    world.pass(Limits::days(399));
    sweep(&world).await;
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
}

#[tokio::test]
async fn accounts_of_deleted_agents_are_deleted_and_their_payers_keep_their_sums() {
    let world = OperationWorld::new().await;
    world.limits(|limits| limits.root_tokens_max = 0);
    let set = async |scope: &str| {
        let (scope, limits): (Scope, _) =
            (scope.parse().unwrap(), NewLimits { tokens: Some(Some(100_000)), money: None });
        run!(world, |w, ctx| budgets::set(w, &ctx, &operator(), &scope, limits)).unwrap();
    };
    set("agent:ada").await;
    set("team:crew/day").await;
    // A small version of a busy month.
    for n in 0..40 {
        let name = format!("helper-{n}");
        let new = NewAgent { team: None, daily_money: Some(Money(1_000)), ..new_agent(&world.ctx, &name) };
        create(&world, new).await.unwrap();
        let turn = world.busy(&name).await.turn_id;
        world.model_call(turn, demand(20, 16), used(20, 5)).await;
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
    world.pass(Limits::days(30));
    sweep(&world).await;
    assert_eq!(scopes().await.len(), 40 + 4, "as long as journals");
    world.pass(Duration::from_millis(1));
    sweep(&world).await;
    let left = [("agent:ada", 1_000), ("agent:kept", 0), ("team:crew/day", 1_000), ("world", 1_000)];
    assert_eq!(scopes().await, left.map(|(scope, spent)| (scope.to_owned(), spent)));
    // A limit set by hand is deleted when its agent is forgotten.
    world.pass(Limits::days(371));
    sweep(&world).await;
    assert_eq!(scopes().await.len(), 3);
    let floor = read!(world, |r| r.agent_incarnation_floor()?);
    assert!(tombstones(&world).await.is_empty() && floor == 1);
}

#[tokio::test]
async fn a_payer_for_a_living_agent_is_kept() {
    let world = OperationWorld::new().await;
    let child = async |by: &str, name: &str| {
        let (by, new) = (party(by), NewAgent { team: None, ..new_agent(&world.ctx, name) });
        run!(world, |w, ctx| agents::create(w, &ctx, &by, new)).unwrap();
    };
    child("ada", "middle").await;
    child("middle", "last").await;
    delete(&world, "middle").await;
    let limits = NewLimits { tokens: Some(Some(100)), money: None };
    run!(world, |w, ctx| budgets::set(w, &ctx, &operator(), &Scope::Agent(id("ada")), limits)).unwrap();
    world.pass(Limits::days(3_650));
    sweep(&world).await;
    assert_eq!(tombstones(&world).await, ["middle"]);
    let turn = world.busy("last").await.turn_id;
    let refused = world.model_start(turn, demand(200, 16)).await.unwrap_err();
    assert_eq!(refused.details.unwrap()["scope"], "agent:ada", "ten years later it is still ada's");
    delete(&world, "last").await;
    world.pass(Limits::days(401));
    sweep(&world).await;
    assert!(tombstones(&world).await.is_empty());
}

// covers: SCHED-06
#[tokio::test]
async fn the_own_turn_of_a_cron_job_is_deleted_after_a_day_and_its_run_stays() {
    let world = OperationWorld::new().await;
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
    world.pass(Duration::from_secs(23 * 3_600));
    sweep(&world).await;
    assert!(kept(&first).await, "not before");
    world.pass(Duration::from_millis(1));
    sweep(&world).await;
    assert_eq!((kept(&first).await, kept(&second).await, kept(&said).await), (false, true, true));
    world.pass(Duration::from_secs(3_600));
    sweep(&world).await;
    assert_eq!((kept(&second).await, kept(&said).await), (false, true));
    let record = runs(&world, &job).await;
    assert!(record.len() == 2 && record.iter().all(|run| run.status == RunStatus::Done), "{record:?}");
    // The job goes on, and no run of it is in progress.
    world.limits(|limits| limits.cron_turn_hours = 48);
    let third = run_next_hour(&world, "three").await;
    world.pass(Duration::from_secs(48 * 3_600));
    sweep(&world).await;
    assert!(kept(&third).await);
    world.limits(|limits| limits.journal_days = 1);
    sweep(&world).await;
    assert!(!kept(&third).await, "never longer than other turns");
}

#[tokio::test]
async fn the_account_of_a_root_is_deleted_when_the_root_is_over() {
    let world = OperationWorld::new().await;
    let turn = world.busy("ada").await;
    limit(&world, turn.root_id).await;
    let (held, _) = world.model_start(turn.turn_id, demand(10, 20)).await.unwrap();
    world.pass(Limits::days(31));
    sweep(&world).await;
    assert_eq!(account(&world, turn.root_id).await.unwrap().reserved_tokens, 30, "work is under way");
    world.model_answer(turn.turn_id, held, used(10, 5)).await.unwrap();
    world.finish(turn.turn_id, "done").await.unwrap();
    world.pass(Limits::days(30));
    sweep(&world).await;
    assert!(account(&world, turn.root_id).await.is_some(), "as long as its journals");
    // Waiting mail may still be charged to its root, however old the account is.
    let waits = world.send("bob", "later").await;
    limit(&world, waits.root_id).await;
    world.pass(Limits::days(31));
    sweep(&world).await;
    assert_eq!(account(&world, turn.root_id).await, None);
    assert!(account(&world, waits.root_id).await.is_some());
    // The other sums are kept, and so are the usage rows of the root.
    let kept = read!(world, |r| r.budget_get(&Scope::World)?.unwrap());
    assert_eq!(kept.spent_tokens, 15);
    limit(&world, turn.root_id).await;
    assert_eq!(account(&world, turn.root_id).await.unwrap().spent_tokens, 15);
    let taken = run!(world, |w, ctx| turns::take(w, &ctx, &id("bob"), None)).unwrap().unwrap();
    assert_eq!(taken.turn.root_id, waits.root_id);
}

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
        run!(world, |w, ctx| {
            for n in 0..2_000 {
                let payload = json!({ "n": n, "text": "x".repeat(200) });
                ctx.emit(w, NewEvent::new(EventKind::WorldWarning, payload))?;
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
    let ctx = world.ctx.clone();
    let near = read!(world, |r| root_limits::near(r, &ctx, 0)?);
    let names: Vec<&str> = near.iter().map(|near| near.limit.as_str()).collect();
    assert_eq!(names, ["store_bytes_max", "store_bytes_warn"]);
    assert_eq!(retention::sweep_bytes(&world.store, &world.ctx).await.unwrap(), 2_000, "the day before");
    assert!(!retention::stored(&world.store, &world.ctx).await.unwrap().over);
    assert_eq!(events().await, 2_000);
    bounds(1);
    assert_eq!((retention::sweep_bytes(&world.store, &world.ctx).await.unwrap(), events().await), (0, 2_000));
    world.store.close().await;
}
