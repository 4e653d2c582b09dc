//! Schedules in a running world with a clock that the test moves: over a restart, a pause, a clock jump and a
//! change to or from summer time (SCHED-02, SCHED-03, HB-04).

use std::sync::Arc;
use std::time::Duration;

use ghost_domain::schedule::words::instant;
use ghost_domain::schedule::{Missed, RunStatus, When};
use ghost_domain::{Event, EventKind, Party, Schedule, ScheduleKind, ScheduleRun, WatchSnapshot};
use ghost_operations::mail::Chain;
use ghost_operations::schedules::{self, NewSchedule};

use super::helpers::{TWO, TestWorld, id, mail_of, operator, read, say, settle, until, while_time_passes, write};
use crate::World;

const HOUR: Duration = Duration::from_secs(3_600);

async fn set(world: &Arc<World>, kind: ScheduleKind, name: &str, when: When) -> Schedule {
    let name = name.to_owned();
    write!(world, |w| {
        let new = NewSchedule {
            kind,
            agent_id: id("ada"),
            name,
            when,
            message: "look".into(),
            missed: Missed::Skip,
            mode: Default::default(),
            enabled: true,
            chain: Chain::root(w.ctx),
            baseline: Some(WatchSnapshot::default()),
        };
        schedules::set(w, &Party::Operator("test".into()), new)
    })
    .unwrap()
}

async fn runs(world: &World, schedule: &Schedule) -> Vec<ScheduleRun> {
    let schedule_id = schedule.schedule_id;
    read!(world, |r| r.schedule_runs(schedule_id, 100)?)
}

async fn events(world: &World, kind: EventKind) -> Vec<Event> {
    read!(world, |r| r.event_list(0, &Default::default(), 10_000)?)
        .0
        .into_iter()
        .filter(|event| event.kind == kind)
        .collect()
}

fn cron(expression: &str, zone: &str) -> When {
    When::Cron { expression: expression.into(), zone: Some(zone.into()) }
}

/// Advances time in steps. After each step, due schedules can fire.
async fn pass(test_world: &TestWorld, step: Duration, steps: u32) {
    for _ in 0..steps {
        test_world.clock.advance(step);
        settle().await;
    }
}

// covers: SCHED-02, TEST-13
#[tokio::test]
async fn a_timer_wakes_its_agent_and_a_missed_one_fires_once_and_late() {
    let test_world = TestWorld::new(TWO);
    let (world, model) = test_world.boot(|request| say(&mail_of(request))).await;
    let at = |ahead: Duration| When::At { at: world.ctx().now().plus(ahead) };
    set(&world, ScheduleKind::Timer, "soon", at(Duration::from_secs(5))).await;
    let later = set(&world, ScheduleKind::Timer, "later", at(HOUR)).await;
    while_time_passes(&test_world, until(&world, EventKind::TurnFinished, "ada")).await;
    assert_eq!(model.asked_by("ada"), 1);
    while_time_passes(&test_world, world.shutdown("test")).await;
    drop(world);
    test_world.clock.advance(HOUR * 2);
    let (world, model) = test_world.boot(|request| say(&mail_of(request))).await;
    while_time_passes(&test_world, async {
        while model.asked_by("ada") == 0 {
            tokio::task::yield_now().await
        }
    })
    .await;
    let fired = events(&world, EventKind::ScheduleFired).await;
    assert_eq!(fired.len(), 2);
    assert_eq!(fired[1].payload["late"], true);
    assert_eq!(runs(&world, &later).await.len(), 1);
    pass(&test_world, Duration::from_secs(60), 5).await;
    assert_eq!(events(&world, EventKind::ScheduleFired).await.len(), 2);
}

#[tokio::test]
async fn a_repeated_hour_has_one_slot_and_a_skipped_hour_fires_after_the_gap() {
    for (start, expected) in [
        ("2026-10-24T22:00Z", ["2026-10-25T00:30:00.000Z", "2026-10-26T01:30:00.000Z"]),
        ("2026-03-28T22:00Z", ["2026-03-29T01:00:00.000Z", "2026-03-30T00:30:00.000Z"]),
    ] {
        let test_world = TestWorld::new(TWO);
        let start = instant("t", start).unwrap();
        test_world.clock.advance(start.since(ghost_domain::Timestamp(1_000_000)));
        let (world, _) = test_world.boot(|_| say("done")).await;
        let job = set(&world, ScheduleKind::Cron, "nightly", cron("30 2 * * *", "Europe/Berlin")).await;
        settle().await;
        pass(&test_world, Duration::from_secs(600), 6 * 28).await;
        let slots: Vec<String> = runs(&world, &job).await.iter().rev().map(|run| run.slot_at.rfc3339()).collect();
        assert_eq!(slots, expected);
        assert!(runs(&world, &job).await.iter().all(|run| run.status == RunStatus::Done && !run.late));
    }
}

// covers: SCHED-02
#[tokio::test]
async fn slots_missed_by_a_jump_or_a_pause_are_one_skipped_run_each() {
    let test_world = TestWorld::new(TWO);
    let (world, _) = test_world.boot(|_| say("done")).await;
    let job = set(&world, ScheduleKind::Cron, "hourly", cron("0 * * * *", "UTC")).await;
    let timer = set(&world, ScheduleKind::Timer, "tea", When::At { at: world.ctx().now().plus(HOUR * 8) }).await;
    settle().await;
    test_world.clock.advance(HOUR * 5);
    settle().await;
    let jumped = runs(&world, &job).await;
    assert_eq!((jumped.len(), jumped[0].status, jumped[0].missed), (1, RunStatus::Skipped, 5));
    let by = operator();
    world.set_paused(&by, true).await.unwrap();
    pass(&test_world, HOUR, 4).await;
    assert_eq!((runs(&world, &job).await.len(), runs(&world, &timer).await.len()), (1, 0));
    world.set_paused(&by, false).await.unwrap();
    settle().await;
    let paused = runs(&world, &job).await;
    assert_eq!((paused.len(), paused[0].status, paused[0].missed), (2, RunStatus::Skipped, 4));
    assert!(runs(&world, &timer).await[0].late);
}

// covers: SCHED-03, TEST-13
#[tokio::test]
async fn a_watch_reports_changes_also_from_a_downtime() {
    let test_world = TestWorld::new(TWO);
    let (world, _) = test_world.boot(|request| say(&mail_of(request))).await;
    let when = When::Change { path: "shared".into(), recursive: true, changes: vec![], debounce_ms: 250 };
    let watch = set(&world, ScheduleKind::Watch, "box", when).await;
    settle().await;
    std::fs::write(test_world.workspace("shared/a"), "1").unwrap();
    pass(&test_world, Duration::from_secs(10), 4).await;
    assert_eq!(runs(&world, &watch).await.len(), 1);
    pass(&test_world, Duration::from_secs(10), 10).await;
    assert_eq!(runs(&world, &watch).await.len(), 1);
    while_time_passes(&test_world, world.shutdown("test")).await;
    drop(world);
    std::fs::rename(test_world.workspace("shared/a"), test_world.workspace("shared/b")).unwrap();
    std::fs::write(test_world.workspace("shared/c"), "1").unwrap();
    let (world, _) = test_world.boot(|request| say(&mail_of(request))).await;
    settle().await;
    let found = runs(&world, &watch).await;
    assert_eq!((found.len(), found[0].late), (2, true));
    let message_id = found[0].message_id.unwrap();
    let mail = read!(world, |r| r.message_get(message_id)?);
    let body = mail.unwrap().body;
    assert!(body.contains("- renamed shared/b (was shared/a)\n- created shared/c"), "{body}");
}

// covers: HB-01, HB-04
#[tokio::test]
async fn heartbeats_fire_in_their_hours_and_follow_the_configuration() {
    let heart = format!("{TWO}heartbeat: {{ every: 1h, target: none, active_hours: '08:00-10:00' }}\n");
    let test_world = TestWorld::new(&heart);
    // The clock starts at midnight of 2 January 1970.
    test_world.clock.advance(Duration::from_millis(86_400_000 - 1_000_000));
    let (world, model) = test_world.boot(|_| say("HEARTBEAT_OK")).await;
    settle().await;
    pass(&test_world, Duration::from_secs(1_800), 24).await;
    // At 08:00 and at 09:00, for each agent.
    assert_eq!((model.asked_by("ada"), model.asked_by("ben")), (2, 2));
    assert_eq!(events(&world, EventKind::HeartbeatQuiet).await.len(), 4);
    while_time_passes(&test_world, world.shutdown("test")).await;
    drop(world);
    test_world.plan(TWO);
    let (world, _) = test_world.boot(|_| say("HEARTBEAT_OK")).await;
    let left = read!(world, |r| r.schedule_list(None, None, None)?);
    assert!(left.is_empty());
}
