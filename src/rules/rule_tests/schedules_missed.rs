//! Slots missed while the daemon was down or the clock jumped: counted exactly, recorded, and never
//! run twice (SCHED-02).

use std::time::Duration;

use ghost_domain::schedule::{Missed, RunStatus, When};
use ghost_domain::{EventKind, ScheduleKind};
use ghost_store::sqlite::{SqliteOptions, open_store};
use proptest::prelude::*;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::rig::{Rig, party, read, write};
use super::schedules_rig::{cron, due, due_since, find, new, runs, set, timer};
use crate::schedules::{self, NewSchedule};

const HOUR: Duration = Duration::from_secs(3_600);

// covers: SCHED-02
#[tokio::test]
async fn a_timer_missed_while_down_goes_off_once_and_names_its_delay() {
    let rig = Rig::new().await;
    let tea = timer(&rig, "tea", Duration::from_secs(2)).await;
    rig.pass(Duration::from_secs(4));
    // The daemon has restarted and has checked only since now.
    due_since(&rig, rig.ctx.now()).await;
    due_since(&rig, rig.ctx.now()).await;
    let run = &runs(&rig, &tea).await[0];
    assert_eq!((run.late, run.slot_at), (true, tea.next_at.unwrap()));
    let mail = rig.inbox("ada").await;
    assert_eq!(mail.len(), 1);
    assert!(mail[0].body.contains("late by 2s"), "{}", mail[0].body);
}

// covers: SCHED-02
#[tokio::test]
async fn missed_slots_become_one_skipped_run_or_one_run_for_all() {
    let rig = Rig::new().await;
    let skip = set(&rig, party("ada"), new(&rig, ScheduleKind::Cron, "skip", cron("0 * * * *"))).await.unwrap();
    let wanted = NewSchedule { missed: Missed::RunOnce, ..new(&rig, ScheduleKind::Cron, "once", cron("0 * * * *")) };
    let once = set(&rig, party("ada"), wanted).await.unwrap();
    rig.pass(HOUR * 5);
    due(&rig).await;
    let record = runs(&rig, &skip).await;
    assert_eq!((record.len(), record[0].status, record[0].missed), (1, RunStatus::Skipped, 5));
    let record = runs(&rig, &once).await;
    assert_eq!((record[0].status, record[0].late, record[0].missed), (RunStatus::Queued, true, 4));
    assert_eq!(rig.inbox("ada").await.len(), 1);
    assert!(rig.inbox("ada").await[0].body.contains("4 earlier slots"));
    let next = find(&rig, &skip).await.unwrap().next_at.unwrap();
    assert!(next > rig.ctx.now() && next.since(rig.ctx.now()) <= HOUR);
}

#[tokio::test]
async fn a_clock_that_goes_back_sets_nothing_off_twice() {
    let rig = Rig::new().await;
    let job = set(&rig, party("ada"), new(&rig, ScheduleKind::Cron, "job", cron("0 * * * *"))).await.unwrap();
    let begin = rig.ctx.now();
    rig.pass(HOUR);
    // Exactly on time.
    let late = rig.ctx.now().since(find(&rig, &job).await.unwrap().next_at.unwrap());
    rig.set_back(late);
    due(&rig).await;
    assert_eq!(rig.count(EventKind::ScheduleFired).await, 1);
    let turn = rig.take("ada").await.turn;
    rig.finish(turn.turn_id, "").await.unwrap();
    rig.set_back(rig.ctx.now().since(begin));
    for _ in 0..3 {
        rig.pass(Duration::from_secs(1_200));
        due(&rig).await;
    }
    assert_eq!(rig.count(EventKind::ScheduleFired).await, 1);
}

#[tokio::test]
async fn a_missed_one_shot_cron_job_runs_once_and_is_deleted() {
    let rig = Rig::new().await;
    let when = When::At { at: rig.ctx.now().plus(HOUR) };
    let job = set(&rig, party("ada"), new(&rig, ScheduleKind::Cron, "once", when)).await.unwrap();
    rig.pass(HOUR * 3);
    due(&rig).await;
    let record = runs(&rig, &job).await;
    assert_eq!((record.len(), record[0].status, record[0].late), (1, RunStatus::Queued, true));
    assert_eq!(find(&rig, &job).await.unwrap().next_at, None);
    let turn = rig.take("ada").await.turn;
    rig.finish(turn.turn_id, "").await.unwrap();
    assert!(find(&rig, &job).await.is_none());
}

#[tokio::test]
async fn many_due_schedules_go_off_in_batches() {
    let rig = Rig::new().await;
    rig.limits(|limits| limits.timers_max = 100);
    for n in 0..70 {
        timer(&rig, &format!("t{n}"), Duration::from_secs(60)).await;
    }
    rig.pass(HOUR);
    let mut batches = 1;
    while due(&rig).await {
        batches += 1;
    }
    assert_eq!((batches, rig.inbox("ada").await.len()), (3, 70));
}

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
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let rig = Rig::new().await;
            let when = When::Every { every_ms: 3_600_000, anchor: rig.ctx.now() };
            let wanted = NewSchedule { missed: policy, ..new(&rig, ScheduleKind::Cron, "job", when) };
            let job = set(&rig, party("ada"), wanted).await.unwrap();
            for (seconds, restarted) in steps {
                let step = Duration::from_secs(seconds.unsigned_abs());
                if seconds < 0 { rig.set_back(step) } else { rig.pass(step) }
                let since = if restarted { rig.ctx.now() } else { ghost_domain::Timestamp(0) };
                due_since(&rig, since).await;
                if let Some(taken) = rig.try_take("ada").await.unwrap() {
                    rig.finish(taken.turn.turn_id, "").await.unwrap();
                }
            }
            let record = runs(&rig, &job).await;
            let slots: u64 = record.iter().map(|run| match run.status {
                RunStatus::Skipped => u64::from(run.missed),
                _ => u64::from(run.missed) + 1,
            }).sum();
            let next = find(&rig, &job).await.unwrap().next_at.unwrap();
            let passed = u64::try_from((next.0 - job.next_at.unwrap().0) / 3_600_000).unwrap();
            assert_eq!(slots, passed);
            assert!(record.windows(2).all(|pair| pair[0].slot_at > pair[1].slot_at));
        });
    }
}

#[tokio::test]
async fn a_schedule_with_an_invalid_rule_is_switched_off_and_recorded() {
    let rig = Rig::new().await;
    let mut job = set(&rig, party("ada"), new(&rig, ScheduleKind::Cron, "job", cron("0 * * * *"))).await.unwrap();
    job.when = When::Cron { expression: "0 * * * *".into(), zone: Some("Mars/Base".into()) };
    let broken = job.clone();
    write!(rig, |w, ctx| Ok::<_, ghost_domain::Refusal>(w.schedule_put(&broken).await?)).unwrap();
    rig.pass(HOUR);
    due(&rig).await;
    let job = find(&rig, &job).await.unwrap();
    assert_eq!((job.enabled, job.next_at, job.last_status), (false, None, Some(RunStatus::Refused)));
    let again = write!(rig, |w, ctx| schedules::enable(w, &ctx, &party("ada"), job.schedule_id, true).await);
    assert!(again.unwrap_err().message.contains("time zone"));
}

#[tokio::test]
async fn an_unreadable_schedule_is_set_aside_and_the_others_go_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ghost.db");
    let open = async || open_store(&path, SqliteOptions::default()).await.unwrap();
    let rig = Rig::with_store(open().await).await;
    let bad = timer(&rig, "bad", Duration::from_secs(1)).await;
    let before = timer(&rig, "before", Duration::from_millis(500)).await;
    let after = timer(&rig, "after", HOUR).await;
    rig.store.close().await;
    let mut conn = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let damage = "UPDATE schedules SET record = '{bad' WHERE name = 'bad'";
    assert_eq!(sqlx::query(damage).execute(&mut conn).await.unwrap().rows_affected(), 1);
    conn.close().await.unwrap();

    let rig = rig.reopened(open().await);
    rig.pass(HOUR);
    let mut rounds = 1;
    while due(&rig).await {
        rounds += 1;
        assert!(rounds < 5, "it is set aside once");
    }
    for good in [&before, &after] {
        assert_eq!(runs(&rig, good).await.len(), 1, "{}", good.name);
    }
    assert_eq!((rig.inbox("ada").await.len(), runs(&rig, &bad).await.len()), (2, 0));
    let aside: Vec<_> =
        rig.events().await.into_iter().filter(|event| event.kind == EventKind::ScheduleSetAside).collect();
    assert_eq!(aside.len(), 1);
    assert_eq!(aside[0].payload["schedule_id"], bad.schedule_id.to_string());
    assert!(aside[0].payload["error"].as_str().is_some_and(|error| !error.is_empty()));
    // The daemon does not read it again, and the row stays for repair.
    assert_eq!(read!(rig, |r| r.schedule_next_at().await?), None);
    rig.store.close().await;
    let mut conn = SqliteConnectOptions::new().filename(&path).connect().await.unwrap();
    let left: String = sqlx::query_scalar("SELECT record FROM schedules").fetch_one(&mut conn).await.unwrap();
    assert_eq!(left, "{bad");
}
