//! Slots missed while the daemon was down or the clock jumped: counted exactly, recorded, and never
//! run twice (SCHED-02).

use ghost_store::sqlite::{SqliteOptions, open_store};
use proptest::prelude::*;
use rusqlite::Connection;

use super::operation_world::*;
use super::schedule_helpers::*;

// covers: SCHED-02
world_test!(a_timer_missed_while_down_goes_off_once_and_names_its_delay, async |world| {
    let tea = timer(&world, "tea", Duration::from_secs(2)).await;
    world.pass(Duration::from_secs(4));
    // The daemon has restarted and has checked only since now.
    due_since(&world, world.ctx.now()).await;
    due_since(&world, world.ctx.now()).await;
    let run = &runs(&world, &tea).await[0];
    assert_eq!((run.late, run.slot_at), (true, tea.next_at.unwrap()));
    let mail = world.inbox("ada").await;
    assert_eq!(mail.len(), 1);
    assert!(mail[0].body.contains("late by 2s"), "{}", mail[0].body);
});

// covers: SCHED-02
world_test!(missed_slots_become_one_skipped_run_or_one_run_for_all, async |world| {
    let skip = set(&world, party("ada"), new(&world, ScheduleKind::Cron, "skip", cron("0 * * * *"))).await.unwrap();
    let wanted = NewSchedule { missed: Missed::RunOnce, ..new(&world, ScheduleKind::Cron, "once", cron("0 * * * *")) };
    let once = set(&world, party("ada"), wanted).await.unwrap();
    due_after(&world, HOUR * 5).await;
    let record = runs(&world, &skip).await;
    assert_eq!((record.len(), record[0].status, record[0].missed), (1, RunStatus::Skipped, 5));
    let record = runs(&world, &once).await;
    assert_eq!((record[0].status, record[0].late, record[0].missed), (RunStatus::Queued, true, 4));
    assert_eq!(world.inbox("ada").await.len(), 1);
    assert!(world.inbox("ada").await[0].body.contains("4 earlier slots"));
    let next = find(&world, &skip).await.unwrap().next_at.unwrap();
    assert!(next > world.ctx.now() && next.since(world.ctx.now()) <= HOUR);
});

world_test!(a_clock_that_goes_back_sets_nothing_off_twice, async |world| {
    let job = set(&world, party("ada"), new(&world, ScheduleKind::Cron, "job", cron("0 * * * *"))).await.unwrap();
    let begin = world.ctx.now();
    world.pass(HOUR);
    // Exactly on time.
    world.set_back(world.ctx.now().since(find(&world, &job).await.unwrap().next_at.unwrap()));
    due(&world).await;
    assert_eq!(world.count(EventKind::ScheduleFired).await, 1);
    world.done("ada", "").await;
    world.set_back(world.ctx.now().since(begin));
    for _ in 0..3 {
        due_after(&world, Duration::from_secs(1_200)).await;
    }
    assert_eq!(world.count(EventKind::ScheduleFired).await, 1);
});

world_test!(a_missed_one_shot_cron_job_runs_once_and_is_deleted, async |world| {
    let when = When::At { at: world.ctx.now().plus(HOUR) };
    let job = set(&world, party("ada"), new(&world, ScheduleKind::Cron, "once", when)).await.unwrap();
    due_after(&world, HOUR * 3).await;
    let record = runs(&world, &job).await;
    assert_eq!((record.len(), record[0].status, record[0].late), (1, RunStatus::Queued, true));
    assert_eq!(find(&world, &job).await.unwrap().next_at, None);
    world.done("ada", "").await;
    assert!(find(&world, &job).await.is_none());
});

world_test!(many_due_schedules_go_off_in_batches, async |world| {
    world.limits(|limits| limits.timers_max = 100);
    for n in 0..70 {
        timer(&world, &format!("t{n}"), Duration::from_secs(60)).await;
    }
    world.pass(HOUR);
    let mut batches = 1;
    while due(&world).await {
        batches += 1;
    }
    assert_eq!((batches, world.inbox("ada").await.len()), (3, 70));
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// For any clock changes, every slot belongs to exactly one run: fired, skipped, or counted as
    /// missed by another run.
    // covers: SCHED-09
    #[test]
    fn every_slot_is_accounted_for_once(
        steps in prop::collection::vec((-7_200i64..20_000, any::<bool>()), 1..12),
        policy in prop::sample::select(vec![Missed::Skip, Missed::RunOnce]),
    ) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let world = OperationWorld::new().await;
            let when = When::Every { every_ms: 3_600_000, anchor: world.ctx.now() };
            let wanted = NewSchedule { missed: policy, ..new(&world, ScheduleKind::Cron, "job", when) };
            let job = set(&world, party("ada"), wanted).await.unwrap();
            for (seconds, restarted) in steps {
                let step = Duration::from_secs(seconds.unsigned_abs());
                if seconds < 0 { world.set_back(step) } else { world.pass(step) }
                due_since(&world, if restarted { world.ctx.now() } else { Timestamp(0) }).await;
                if let Some(taken) = world.try_take("ada").await.unwrap() {
                    world.finish(taken.turn.turn_id, "").await.unwrap();
                }
            }
            let record = runs(&world, &job).await;
            let slots: u64 = record.iter().map(|run| match run.status {
                RunStatus::Skipped => u64::from(run.missed),
                _ => u64::from(run.missed) + 1,
            }).sum();
            let next = find(&world, &job).await.unwrap().next_at.unwrap();
            let passed = u64::try_from((next.0 - job.next_at.unwrap().0) / 3_600_000).unwrap();
            assert_eq!(slots, passed);
            assert!(record.windows(2).all(|pair| pair[0].slot_at > pair[1].slot_at));
        });
    }
}

world_test!(a_schedule_with_an_invalid_rule_is_switched_off_and_recorded, async |world| {
    let mut job = set(&world, party("ada"), new(&world, ScheduleKind::Cron, "job", cron("0 * * * *"))).await.unwrap();
    job.when = When::Cron { expression: "0 * * * *".into(), zone: Some("Mars/Base".into()) };
    let broken = job.clone();
    run!(world, |w| Ok::<_, Refusal>(w.schedule_put(&broken)?)).unwrap();
    due_after(&world, HOUR).await;
    let job = find(&world, &job).await.unwrap();
    assert_eq!((job.enabled, job.next_at, job.last_status), (false, None, Some(RunStatus::Refused)));
    let again = run!(world, |w| schedules::enable(w, &party("ada"), job.schedule_id, true));
    assert!(again.unwrap_err().message.contains("time zone"));
});

#[tokio::test]
async fn an_unreadable_schedule_is_set_aside_and_the_others_go_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ghost.db");
    let open = async || open_store(&path, SqliteOptions::default()).await.unwrap();
    let world = OperationWorld::with_store(open().await).await;
    let bad = timer(&world, "bad", Duration::from_secs(1)).await;
    let before = timer(&world, "before", Duration::from_millis(500)).await;
    let after = timer(&world, "after", HOUR).await;
    world.store.close().await;
    let conn = Connection::open(&path).unwrap();
    assert_eq!(conn.execute("UPDATE schedules SET record = '{bad' WHERE name = 'bad'", []).unwrap(), 1);
    conn.close().unwrap();

    let world = world.reopened(open().await);
    // The start compares all slots with the clock, and does not fail because of one that it cannot read.
    run!(world, |w| clock::at_start(w)).unwrap();
    world.pass(HOUR);
    let mut rounds = 1;
    while due(&world).await {
        rounds += 1;
        assert!(rounds < 5, "it is set aside once");
    }
    for good in [&before, &after] {
        assert_eq!(runs(&world, good).await.len(), 1, "{}", good.name);
    }
    assert_eq!((world.inbox("ada").await.len(), runs(&world, &bad).await.len()), (2, 0));
    let aside: Vec<_> = world.events_of(EventKind::ScheduleSetAside).await;
    assert_eq!(aside.len(), 1);
    assert_eq!(aside[0].payload["schedule_id"], bad.schedule_id.to_string());
    assert!(aside[0].payload["error"].as_str().is_some_and(|error| !error.is_empty()));
    // The daemon does not read it again, and the row stays for repair.
    assert_eq!(read!(world, |r| r.schedule_next_at()?), None);
    world.store.close().await;
    let conn = Connection::open(&path).unwrap();
    let left: String = conn.query_row("SELECT record FROM schedules", [], |row| row.get(0)).unwrap();
    assert_eq!(left, "{bad");
}
