//! Schedules, their runs, and the snapshots of watches.

use ghost_domain::schedule::{Change, JobMode, Missed, OwnTurn, RunStatus, Target, When};
use ghost_domain::{Party, Schedule, ScheduleKind, ScheduleRun, WatchSnapshot};
use serde_json::json;

use super::tools::*;
use crate::Store;

/// One schedule time of each kind.
fn whens() -> [When; 5] {
    [
        When::At { at: at(1) },
        When::After { after_ms: LARGE, anchor: at(1) },
        When::Every { every_ms: LARGE, anchor: at(2) },
        When::Cron { expression: "0 */5 * * * *".to_owned(), zone: Some("Europe/Vienna".to_owned()) },
        When::Change {
            path: AWKWARD.to_owned(),
            recursive: true,
            changes: vec![Change::Removed, Change::Created],
            debounce_ms: u32::MAX,
        },
    ]
}

fn own_turn() -> OwnTurn {
    OwnTurn {
        target: Target::Webhook { webhook: "ops".to_owned(), thread: "a/b é".to_owned() },
        timeout_seconds: Some(u32::MAX),
        max_rounds: Some(0),
        model: Some(AWKWARD.to_owned()),
    }
}

pub(super) async fn schedules_round_trip(store: Bench) {
    let full = |n: usize| {
        with(
            schedule(n as u64, "a", ScheduleKind::Cron, &format!("{n}{AWKWARD}")),
            json!({
                "when": whens()[n], "message": AWKWARD, "missed": Missed::RunOnce, "options": JobMode::OwnTurn(own_turn()),
                "enabled": false, "root_id": root_id(9), "hop": u32::MAX, "next_at": null, "last_at": at(5),
                "last_status": RunStatus::Refused, "runs": i64::MAX, "creator": Party::Agent(id_of("b")), "created_at": at(6),
            }),
        )
    };
    for n in 0..whens().len() {
        keep!(&store, |w| {
            w.schedule_put(&schedule(n as u64, "a", ScheduleKind::Cron, "before"))?;
            assert_eq!(w.schedule_find(&id_of("a"), ScheduleKind::Cron, "before")?.map(|s| s.runs), Some(0));
            w.schedule_put(&full(n))?;
            assert_eq!(w.schedule_get(schedule_id(n as u64))?.as_ref(), Some(&full(n)));
            assert_eq!(w.schedule_find(&id_of("a"), ScheduleKind::Cron, "before")?, None);
            assert_eq!(w.schedule_find(&id_of("a"), ScheduleKind::Cron, &full(n).name)?.as_ref(), Some(&full(n)));
        });
        shows!(&store, |r| {
            r.schedule_get(schedule_id(n as u64))? => Some(full(n));
            r.schedule_find(&id_of("a"), ScheduleKind::Cron, &full(n).name)? => Some(full(n));
        });
    }
    shows!(&store, |r| {
        r.schedule_get(schedule_id(9))? => None;
        r.schedule_find(&id_of("a"), ScheduleKind::Timer, "before")? => None;
    });
}

pub(super) async fn schedules_are_listed_and_counted(store: Bench) {
    use ScheduleKind::{Cron, Heartbeat, Timer, Watch};
    keep!(&store, |w| {
        for (n, agent, kind, name) in [
            (1, "b", Cron, "x"),
            (2, "a", Timer, "y"),
            (3, "a", Timer, "x"),
            (4, "a", Watch, "x"),
            (5, "a", Heartbeat, "x"),
            (6, "a", Cron, "x"),
            (7, "aa", Timer, "x"),
        ] {
            w.schedule_put(&schedule(n, agent, kind, name))?;
        }
        assert_eq!((w.schedule_list(None, None, None)?.len(), w.schedule_count(&id_of("a"), Timer)?), (7, 2));
    });
    let numbers = |found: &[Schedule]| map_rows(found, |schedule| schedule.schedule_id.0.as_u128());
    shows!(&store, |r| {
        numbers(&r.schedule_list(None, None, None)?) => [6, 5, 3, 2, 4, 7, 1];
        numbers(&r.schedule_list(Some(&id_of("a")), None, None)?) => [6, 5, 3, 2, 4];
        numbers(&r.schedule_list(None, Some(Timer), None)?) => [3, 2, 7];
        numbers(&r.schedule_list(Some(&id_of("a")), Some(Timer), None)?) => [3, 2];
        r.schedule_list(Some(&id_of("b")), Some(Timer), None)? => [];
        r.schedule_count(&id_of("a"), Timer)? => 2;
        r.schedule_count(&id_of("b"), Cron)? => 1;
        r.schedule_count(&id_of("b"), Timer)? => 0;
    });
    keep!(&store, |w| {
        for n in 100..=1_100 {
            w.schedule_put(&schedule(n, "c", Timer, &format!("{n}")))?;
        }
        assert_eq!(w.schedule_count(&id_of("c"), Timer)?, 1_001);
    });
    shows!(&store, |r| {
        r.schedule_list(None, None, None)?.len() => 1_000;
        r.schedule_list(Some(&id_of("c")), Some(Timer), None)?.len() => 1_000;
    });
    // Page by page, no schedule is missing and none comes twice. A page can continue after a
    // schedule that no longer exists.
    let place = |last: &Schedule| (last.agent_id.clone(), last.kind, last.name.clone());
    let (first, rest, end, of_b) = reading!(&store, |r| {
        let first = r.schedule_list(None, Some(Timer), None)?;
        let after = first.last().map(place);
        let rest = r.schedule_list(None, Some(Timer), after.as_ref())?;
        let after = rest.last().map(place);
        (
            first,
            rest,
            r.schedule_list(None, Some(Timer), after.as_ref())?,
            r.schedule_list(None, None, Some(&(id_of("a"), Watch, "w".to_owned())))?,
        )
    });
    assert_eq!((first.len(), rest.len(), end), (1_000, 4, vec![]));
    let mut names: Vec<String> = (100..=1_100).map(|n| format!("{n}")).collect();
    names.sort_unstable();
    let all: Vec<String> = ["x", "y", "x"].map(str::to_owned).into_iter().chain(names).collect();
    assert_eq!(map_rows(&[first, rest].concat(), |found| found.name.clone()), all);
    assert_eq!(numbers(&of_b)[..4], [4, 7, 1, 100]);
}

pub(super) async fn schedules_are_removed(mut store: Bench) {
    let timer_named_x = |n| schedule(n, "a", ScheduleKind::Timer, "x");
    keep!(&store, |w| {
        w.schedule_put(&timer_named_x(1))?;
        w.watch_snapshot_put(schedule_id(1), &snapshot(1))?;
        w.schedule_run_put(&run(1, 1))?;
        w.schedule_put(&schedule(2, "a", ScheduleKind::Timer, "brief"))?;
        w.schedule_delete(schedule_id(2))?;
        assert_eq!(w.schedule_get(schedule_id(2))?, None);
        w.schedule_delete(schedule_id(9))?;
    });
    refuse!(&store, |w| {
        w.schedule_delete(schedule_id(1))?;
        assert_eq!((w.schedule_get(schedule_id(1))?, w.watch_snapshot_get(schedule_id(1))?), (None, None));
        assert_eq!((w.schedule_next_at()?, w.schedule_list(None, None, None)?), (None, vec![]));
    });
    keep!(&store, |w| {
        assert_eq!(w.schedule_get(schedule_id(1))?, Some(timer_named_x(1)));
        assert_eq!(w.watch_snapshot_get(schedule_id(1))?, Some(snapshot(1)));
        assert_eq!(w.schedule_next_at()?, Some(at(1)));
    });
    // The name is free at once for another schedule.
    keep!(&store, |w| {
        w.schedule_delete(schedule_id(1))?;
        w.schedule_put(&timer_named_x(3))?;
        assert_eq!(w.schedule_find(&id_of("a"), ScheduleKind::Timer, "x")?, Some(timer_named_x(3)));
        assert_eq!(w.schedule_count(&id_of("a"), ScheduleKind::Timer)?, 1);
    });
    keep!(&store, |w| {
        assert_eq!(w.schedule_get(schedule_id(1))?, None);
        assert_eq!(w.watch_snapshot_get(schedule_id(1))?, None);
    });
    keep!(&store, |w| { w.schedule_delete(schedule_id(3))? });
    keep!(&store, |w| { w.schedule_put(&timer_named_x(1))? });
    store.reopen().await;
    shows!(&store, |r| {
        r.schedule_list(None, None, None)? => vec![timer_named_x(1)];
        r.schedule_runs(schedule_id(1), 9)? => vec![run(1, 1)];
        r.watch_snapshot_get(schedule_id(1))? => None, "runs outlive their schedule";
    });
}

async fn due(store: &Store, now: u64, limit: u32) -> Vec<u128> {
    let due = reading!(store, |r| { r.schedules_due(at(now), limit)? });
    map_rows(&due, |schedule| schedule.schedule_id.0.as_u128())
}

pub(super) async fn schedules_fall_due(mut store: Bench) {
    let until = |n: u64, second: u64| Schedule {
        next_at: Some(at(second)),
        ..schedule(n, "a", ScheduleKind::Cron, &format!("{n}"))
    };
    assert_eq!(reading!(&store, |r| { (r.schedule_next_at()?, r.schedules_due(at(99), 9)?) }), (None, vec![]));
    keep!(&store, |w| {
        w.schedule_put(&until(1, 30))?;
        w.schedule_put(&until(4, 20))?;
        w.schedule_put(&until(3, 20))?;
        w.schedule_put(&until(2, 10))?;
        w.schedule_put(&schedule(5, "a", ScheduleKind::Watch, "never"))?;
        assert_eq!(w.schedules_due(at(10), 9)?, [until(2, 10)]);
        assert_eq!(w.schedule_next_at()?, Some(at(10)));
    });
    assert_eq!((due(&store, 9, 9).await, due(&store, 99, 0).await), (vec![], vec![]));
    assert_eq!((due(&store, 20, 9).await, due(&store, 99, 2).await), (vec![2, 3, 4], vec![2, 3]));
    keep!(&store, |w| {
        w.schedule_put(&until(2, 40))?;
        w.schedule_put(&Schedule { next_at: None, enabled: false, ..until(3, 20) })?;
        assert_eq!(w.schedule_next_at()?, Some(at(20)));
    });
    refuse!(&store, |w| {
        w.schedule_put(&until(4, 50))?;
        w.schedule_put(&until(1, 50))?;
        assert_eq!(w.schedule_next_at()?, Some(at(40)));
    });
    store.reopen().await;
    assert_eq!(due(&store, 99, 9).await, [4, 1, 2]);
    assert_eq!(reading!(&store, |r| { r.schedule_next_at()? }), Some(at(20)));
}

pub(super) async fn runs_are_newest_first(mut store: Bench) {
    let full = || ScheduleRun {
        slot_at: at(40),
        late: true,
        missed: u32::MAX,
        status: RunStatus::Failed,
        message_id: Some(message_id(7)),
        note: Some(AWKWARD.to_owned()),
        own_turn: Some(own_turn()),
        ..run(1, 2)
    };
    let quiet = |n, number| ScheduleRun { message_id: None, status: RunStatus::Skipped, ..run(n, number) };
    keep!(&store, |w| {
        for number in [3, 1, 2] {
            w.schedule_run_put(&quiet(1, number))?;
            w.schedule_run_put(&run(2, number))?;
        }
        assert_eq!(w.schedule_run_of(message_id(7))?, None);
        w.schedule_run_put(&full())?;
        assert_eq!(w.schedule_run_of(message_id(7))?.as_ref(), Some(&full()));
        assert_eq!(w.schedule_runs(schedule_id(1), 9)?, [quiet(1, 3), full(), quiet(1, 1)]);
    });
    shows!(&store, |r| {
        r.schedule_runs(schedule_id(1), u32::MAX)? => vec![quiet(1, 3), full(), quiet(1, 1)];
        r.schedule_runs(schedule_id(2), 2)? => vec![run(2, 3), run(2, 2)];
        r.schedule_runs(schedule_id(2), 0)? => vec![];
        r.schedule_runs(schedule_id(3), 9)? => vec![];
    });
    refuse!(&store, |w| {
        w.schedule_run_put(&quiet(1, 2))?;
        w.schedule_run_put(&run(1, 4))?;
        assert_eq!(w.schedule_run_of(message_id(7))?, None);
    });
    keep!(&store, |w| {
        assert_eq!(w.schedule_run_of(message_id(7))?, Some(full()));
        assert_eq!(w.schedule_run_of(message_id(1_004))?, None);
    });
    keep!(&store, |w| { w.schedule_run_put(&ScheduleRun { status: RunStatus::Done, ..run(2, 1) })? });
    store.reopen().await;
    shows!(&store, |r| {
        r.schedule_run_of(message_id(7))? => Some(full());
        r.schedule_run_of(message_id(2_001))?.map(|run| run.status) => Some(RunStatus::Done);
    });
}

pub(super) async fn runs_are_trimmed(mut store: Bench) {
    let left = async |n| {
        let runs = reading!(&store, |r| { r.schedule_runs(schedule_id(n), 99)? });
        map_rows(&runs, |run| run.run)
    };
    keep!(&store, |w| {
        for number in 1..=9 {
            w.schedule_run_put(&run(1, number))?;
            w.schedule_run_put(&run(2, number))?;
        }
        assert_eq!(w.schedule_runs_trim(schedule_id(1), 9, u64::MAX)?, 0);
        assert_eq!(w.schedule_runs_trim(schedule_id(3), 0, 0)?, 0);
        assert_eq!(w.schedule_runs_trim(schedule_id(1), 7, u64::MAX)?, 2);
        assert_eq!(w.schedule_run_of(message_id(1_002))?, None);
    });
    assert_eq!((left(1).await, left(2).await.len()), (vec![9, 8, 7, 6, 5, 4, 3], 9));
    refuse!(&store, |w| {
        w.schedule_run_put(&run(1, 10))?;
        assert_eq!(w.schedule_runs_trim(schedule_id(1), 1, u64::MAX)?, 7);
        assert_eq!(w.schedule_runs(schedule_id(1), 9)?, [run(1, 10)]);
    });
    // Two records of this length fit, three do not. A longer one between them takes the space of
    // two.
    let each_has = serde_json::to_vec(&run(2, 9)).unwrap().len() as u64;
    let long = ScheduleRun { note: Some("é".repeat(400)), ..run(2, 8) };
    keep!(&store, |w| {
        assert_eq!(w.schedule_runs_trim(schedule_id(1), 99, each_has * 2)?, 5);
        w.schedule_run_put(&long)?;
        assert_eq!(w.schedule_runs_trim(schedule_id(2), 99, each_has * 3)?, 8);
        assert_eq!(w.schedule_runs_trim(schedule_id(2), 0, 0)?, 1);
    });
    store.reopen().await;
    let (one, two) =
        reading!(&store, |r| { (r.schedule_runs(schedule_id(1), 9)?, r.schedule_runs(schedule_id(2), 9)?) });
    assert_eq!((map_rows(&one, |run| run.run), two), (vec![9, 8], vec![]));
}

async fn seen(store: &Store, n: u64) -> Option<WatchSnapshot> {
    reading!(store, |r| { r.watch_snapshot_get(schedule_id(n))? })
}

pub(super) async fn snapshots_are_replaced(mut store: Bench) {
    keep!(&store, |w| {
        w.watch_snapshot_put(schedule_id(1), &snapshot(3))?;
        w.watch_snapshot_put(schedule_id(2), &snapshot(0))?;
        assert_eq!(w.watch_snapshot_get(schedule_id(1))?, Some(snapshot(3)));
    });
    assert_eq!((seen(&store, 1).await, seen(&store, 2).await), (Some(snapshot(3)), Some(snapshot(0))));
    refuse!(&store, |w| { w.watch_snapshot_put(schedule_id(1), &snapshot(5))? });
    assert_eq!(keep!(&store, |w| { w.watch_snapshot_get(schedule_id(1))? }), Some(snapshot(3)));
    keep!(&store, |w| { w.watch_snapshot_put(schedule_id(1), &snapshot(2))? });
    store.reopen().await;
    assert_eq!((seen(&store, 1).await, seen(&store, 3).await), (Some(snapshot(2)), None));
}
