//! Schedules, their runs, and the snapshots of watches.

use super::tools::*;

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
        let before = move || schedule(n as u64, "a", ScheduleKind::Cron, "before");
        put!(&store, { schedule_put: before(); });
        shows!(&store, |r| { r.schedule_find(&id_of("a"), ScheduleKind::Cron, "before")? => Some(before()); });
        put!(&store, { schedule_put: full(n); });
        shows!(&store, |r| {
            r.schedule_get(schedule_id(n as u64))? => Some(full(n));
            r.schedule_find(&id_of("a"), ScheduleKind::Cron, "before")? => None;
            r.schedule_find(&id_of("a"), ScheduleKind::Cron, &full(n).name)? => Some(full(n));
        });
    }
    shows!(&store, |r| {
        r.schedule_get(schedule_id(9))? => None;
        r.schedule_find(&id_of("a"), ScheduleKind::Timer, &full(1).name)? => None;
    });
}

pub(super) async fn schedules_are_listed_and_counted(store: Bench) {
    use ScheduleKind::{Cron, Heartbeat, Timer, Watch};
    put!(&store, {
        schedule_put: schedule(1, "b", Cron, "x"), schedule(2, "a", Timer, "y"), schedule(3, "a", Timer, "x"),
            schedule(4, "a", Watch, "x"), schedule(5, "a", Heartbeat, "x"), schedule(6, "a", Cron, "x"),
            schedule(7, "aa", Timer, "x");
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
    });
    shows!(&store, |r| {
        r.schedule_count(&id_of("c"), Timer)? => 1_001;
        r.schedule_list(None, None, None)?.len() => 1_000;
        r.schedule_list(Some(&id_of("c")), Some(Timer), None)?.len() => 1_000;
        // A page can continue after a schedule that no longer exists.
        numbers(&r.schedule_list(None, None, Some(&(id_of("a"), Watch, "w".to_owned())))?)[..4] => [4, 7, 1, 100];
    });
    // Page by page, no schedule is missing and none comes twice.
    let (mut names, mut sizes) = (Vec::new(), Vec::new());
    let mut after = None;
    loop {
        let page = reading!(&store, |r| { r.schedule_list(None, Some(Timer), after.as_ref())? });
        sizes.push(page.len());
        let Some(last) = page.last() else { break };
        after = Some((last.agent_id.clone(), last.kind, last.name.clone()));
        names.extend(map_rows(&page, |found| found.name.clone()));
    }
    let mut wanted: Vec<String> = (100..=1_100).map(|n| format!("{n}")).collect();
    wanted.sort_unstable();
    wanted.splice(0..0, ["x", "y", "x"].map(str::to_owned));
    assert_eq!((sizes, names), (vec![1_000, 4, 0], wanted));
}

pub(super) async fn schedules_are_removed(store: Bench) {
    let timer_named_x = |n| schedule(n, "a", ScheduleKind::Timer, "x");
    put!(&store, { schedule_put: timer_named_x(1); schedule_run_put: run(1, 1); });
    keep!(&store, |w| {
        w.watch_snapshot_put(schedule_id(1), &snapshot(1))?;
        w.schedule_put(&schedule(2, "a", ScheduleKind::Timer, "brief"))?;
        for n in [2, 9, 1] {
            w.schedule_delete(schedule_id(n))?;
            assert_eq!(w.schedule_get(schedule_id(n))?, None);
        }
        assert_eq!((w.schedule_next_at()?, w.schedule_list(None, None, None)?), (None, vec![]));
        // The name is free at once for another schedule.
        w.schedule_put(&timer_named_x(3))?;
    });
    shows!(&store, |r| {
        r.schedule_find(&id_of("a"), ScheduleKind::Timer, "x")? => Some(timer_named_x(3));
        r.schedule_count(&id_of("a"), ScheduleKind::Timer)? => 1;
    });
    keep!(&store, |w| { w.schedule_delete(schedule_id(3))? });
    put!(&store, { schedule_put: timer_named_x(1); });
    shows!(&store, |r| {
        r.schedule_list(None, None, None)? => [timer_named_x(1)];
        r.schedule_runs(schedule_id(1), 9)? => [run(1, 1)], "runs outlive their schedule";
        r.watch_snapshot_get(schedule_id(1))? => None;
    });
}

pub(super) async fn schedules_fall_due(store: Bench) {
    let until = |n: u64, second: u64| Schedule {
        next_at: Some(at(second)),
        ..schedule(n, "a", ScheduleKind::Cron, &format!("{n}"))
    };
    let due = |r: &mut Tx, now, limit| -> Result<_> {
        Ok(map_rows(&r.schedules_due(at(now), limit)?, |schedule| schedule.schedule_id.0.as_u128()))
    };
    shows!(&store, |r| { (r.schedule_next_at()?, due(r, 99, 9)?) => (None, vec![]); });
    let watch = schedule(5, "a", ScheduleKind::Watch, "never");
    put!(&store, { schedule_put: until(1, 30), until(4, 20), until(3, 20), until(2, 10), watch; });
    shows!(&store, |r| {
        r.schedules_due(at(10), 9)? => [until(2, 10)];
        r.schedule_next_at()? => Some(at(10));
        due(r, 9, 9)? => [];
        due(r, 99, 0)? => [];
        due(r, 20, 9)? => [2, 3, 4];
        due(r, 99, 2)? => [2, 3];
    });
    put!(&store, { schedule_put: until(2, 40), Schedule { next_at: None, enabled: false, ..until(3, 20) }; });
    shows!(&store, |r| {
        due(r, 99, 9)? => [4, 1, 2];
        r.schedule_next_at()? => Some(at(20));
    });
}

pub(super) async fn runs_are_newest_first(store: Bench) {
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
    let quiet = |number| ScheduleRun { message_id: None, status: RunStatus::Skipped, ..run(1, number) };
    put!(&store, { schedule_run_put: quiet(3), run(2, 3), quiet(1), run(2, 1), quiet(2), run(2, 2); });
    shows!(&store, |r| { r.schedule_run_of(message_id(7))? => None; });
    put!(&store, { schedule_run_put: full(), ScheduleRun { status: RunStatus::Done, ..run(2, 1) }; });
    shows!(&store, |r| {
        r.schedule_runs(schedule_id(1), u32::MAX)? => [quiet(3), full(), quiet(1)];
        r.schedule_runs(schedule_id(2), 2)? => [run(2, 3), run(2, 2)];
        r.schedule_runs(schedule_id(2), 0)? => [];
        r.schedule_runs(schedule_id(3), 9)? => [];
        r.schedule_run_of(message_id(7))? => Some(full());
        r.schedule_run_of(message_id(1_004))? => None;
        r.schedule_run_of(message_id(2_001))?.map(|run| run.status) => Some(RunStatus::Done);
    });
}

pub(super) async fn runs_are_trimmed(store: Bench) {
    let left = |r: &mut Tx, n| -> Result<_> { Ok(map_rows(&r.schedule_runs(schedule_id(n), 99)?, |run| run.run)) };
    keep!(&store, |w| {
        for number in 1..=9 {
            w.schedule_run_put(&run(1, number))?;
            w.schedule_run_put(&run(2, number))?;
        }
        assert_eq!(w.schedule_runs_trim(schedule_id(1), 9, u64::MAX)?, 0);
        assert_eq!(w.schedule_runs_trim(schedule_id(3), 0, 0)?, 0);
        assert_eq!(w.schedule_runs_trim(schedule_id(1), 7, u64::MAX)?, 2);
    });
    shows!(&store, |r| {
        (left(r, 1)?, left(r, 2)?.len()) => (vec![9, 8, 7, 6, 5, 4, 3], 9);
        r.schedule_run_of(message_id(1_002))? => None;
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
    shows!(&store, |r| { (left(r, 1)?, left(r, 2)?) => (vec![9, 8], vec![]); });
}

pub(super) async fn snapshots_are_replaced(store: Bench) {
    keep!(&store, |w| {
        for (n, files) in [(1, 5), (2, 0), (1, 3)] {
            w.watch_snapshot_put(schedule_id(n), &snapshot(files))?;
            assert_eq!(w.watch_snapshot_get(schedule_id(n))?, Some(snapshot(files)));
        }
    });
    shows!(&store, |r| {
        r.watch_snapshot_get(schedule_id(1))? => Some(snapshot(3));
        r.watch_snapshot_get(schedule_id(2))? => Some(snapshot(0));
        r.watch_snapshot_get(schedule_id(3))? => None;
    });
}
