//! Schedules: setting them, their limits, going off once, the records and ends of their runs, and slots that were
//! missed while the daemon was down or the clock jumped: counted exactly and never run twice (SCHED-02..09).

use ghost_domain::schedule::{Change, FileStamp};
use ghost_store::sqlite::{SqliteOptions, open_store};
use proptest::prelude::*;
use rusqlite::Connection;

use super::operation_world::*;
use super::schedule_helpers::*;

// covers: SCHED-02, SCHED-09
world_test!(a_timer_goes_off_once_in_its_chain_and_its_run_ends_with_the_turn, async |world| {
    let tea = timer(&world, "tea", MINUTE).await;
    due(&world).await;
    assert!(world.inbox("ada").await.is_empty());
    due_after(&world, MINUTE).await;
    due(&world).await;
    let mail = world.inbox("ada").await;
    assert_eq!(mail.len(), 1);
    assert_eq!((mail[0].kind, mail[0].root_id, mail[0].hop, mail[0].wake), (Kind::Timer, tea.root_id, 3, true));
    for part in ["tea", "Set by you", "look at the mail", "1m ago"] {
        assert!(mail[0].body.contains(part), "{part}: {}", mail[0].body);
    }
    assert!(find(&world, &tea).await.is_none());
    assert_eq!(runs(&world, &tea).await[0].status, RunStatus::Queued);
    world.done("ada", "done").await;
    let run = &runs(&world, &tea).await[0];
    assert_eq!((run.run, run.status, run.late), (1, RunStatus::Done, false));
    assert_eq!(world.count(EventKind::ScheduleFired).await, 1);
    // One whose chain is too long ends with a refused run.
    let tea = timer(&world, "tea", MINUTE).await;
    world.limits(|limits| limits.hops_max = 2);
    due_after(&world, MINUTE).await;
    assert!(find(&world, &tea).await.is_none());
    assert!(runs(&world, &tea).await[0].note.as_ref().unwrap().contains("hop_limit"));
});

// covers: SCHED-06
world_test!(a_cron_job_starts_new_roots_and_has_one_run_at_a_time, async |world| {
    let job = job_of_ada(&world, "mail", "* * * * *").await;
    for _ in 0..3 {
        due_after(&world, MINUTE).await;
    }
    let mail = world.inbox("ada").await;
    assert_eq!(mail.len(), 1);
    assert!(mail[0].root_id != job.root_id && mail[0].hop == 0);
    let record = runs(&world, &job).await;
    assert_eq!((record.len(), record[0].status, record[0].missed), (2, RunStatus::Skipped, 2));
    world.end(world.take("ada").await.turn.turn_id, Ending::Failed(Refusal::new(Code::Timeout, "too slow"))).await;
    let failed = &runs(&world, &job).await[1];
    assert_eq!(failed.status, RunStatus::Failed);
    assert!(failed.note.as_ref().unwrap().contains("too slow"));
    due_after(&world, MINUTE).await;
    assert_eq!(world.inbox("ada").await.len(), 1);
    let job = find(&world, &job).await.unwrap();
    assert_eq!((job.runs, job.last_status), (3, Some(RunStatus::Queued)));
    // Neither does one that is set off by hand begin a second run.
    assert_eq!(code(run_now(&world, job.schedule_id).await), Code::Conflict);
    world.done("ada", "").await;
    assert_eq!(run_now(&world, job.schedule_id).await.unwrap().status, RunStatus::Queued);
    assert_eq!(find(&world, &job).await.unwrap().next_at, job.next_at);
    assert!(world.inbox("ada").await[0].body.contains("by hand by operator:test"));
});

world_test!(setting_again_replaces_an_own_schedule_but_not_one_of_another_party, async |world| {
    let first = timer(&world, "tea", MINUTE).await;
    assert_eq!(first.schedule_id, timer(&world, "tea", MINUTE * 5).await.schedule_id);
    assert_eq!(find(&world, &first).await.unwrap().next_at, Some(world.ctx.now().plus(MINUTE * 5)));
    let job = set(&world, operator(), new(&world, ScheduleKind::Cron, "report", cron("0 9 * * *"))).await.unwrap();
    let mine = set(&world, party("ada"), new(&world, ScheduleKind::Cron, "report", cron("0 8 * * *"))).await;
    assert_eq!((code(mine), code(cancel(&world, party("ada"), &job).await)), (Code::AccessDenied, Code::AccessDenied));
    for (enabled, next_at) in [(false, None), (true, job.next_at)] {
        let changed = enable(&world, &job, enabled).await.unwrap();
        assert_eq!((changed.enabled, changed.next_at), (enabled, next_at));
    }
    cancel(&world, operator(), &job).await.unwrap();
    assert_eq!(code(cancel(&world, operator(), &job).await), Code::NotFound);
    let near = read!(world, |r| schedules::named(r, &id("ada"), ScheduleKind::Timer, "tee").unwrap_err());
    assert_eq!(near.hint.unwrap(), "did you mean `tea`?");
});

// covers: SCHED-04
world_test!(exceeded_limits_and_bad_input_are_refused_without_effect, async |world| {
    world.limits(|limits| (limits.timers_max, limits.message_bytes) = (1, 100));
    timer(&world, "one", MINUTE).await;
    let at = When::At { at: world.ctx.now().plus(MINUTE) };
    let valid = || new(&world, ScheduleKind::Timer, "one", at.clone());
    let named = |name: &str| NewSchedule { name: name.into(), ..valid() };
    for (bad, why) in [
        (named("two"), Code::RateLimited),
        (named(""), Code::InvalidArguments),
        (named("a\u{7}b"), Code::InvalidArguments),
        (named("a/b"), Code::InvalidArguments),
        (named("a\nb"), Code::InvalidArguments),
        (named(&"x".repeat(65)), Code::TooLarge),
        (NewSchedule { message: "x".repeat(51), ..valid() }, Code::TooLarge),
        (NewSchedule { chain: Chain { hop: 33, ..valid().chain }, ..valid() }, Code::HopLimit),
        (NewSchedule { agent_id: id("nobody"), ..valid() }, Code::NotFound),
        (NewSchedule { when: cron("* * * * *"), ..valid() }, Code::InvalidArguments),
        (NewSchedule { when: When::At { at: Timestamp(5) }, ..valid() }, Code::InvalidArguments),
        // Only a cron job has a turn of its own.
        (NewSchedule { mode: Target::Nowhere.into(), ..valid() }, Code::PayloadMismatch),
    ] {
        let told = format!("{bad:?}");
        assert_eq!(code(set(&world, party("ada"), bad).await), why, "{told}");
    }
    assert_eq!(world.count(EventKind::ScheduleSet).await, 1);
    // A blank message gets the same refusal from timers and jobs. A timer without one reminds of its name.
    let says = |kind, message: &str| NewSchedule { kind, message: message.into(), ..named(" one") };
    for (kind, blank) in [(ScheduleKind::Timer, " \n\t"), (ScheduleKind::Cron, " \n\t"), (ScheduleKind::Cron, "")] {
        let refusal = set(&world, party("ada"), says(kind, blank)).await.unwrap_err();
        assert_eq!((refusal.code, refusal.message.as_str()), (Code::InvalidArguments, "message is empty"), "{kind}");
    }
    assert_eq!(set(&world, party("ada"), says(ScheduleKind::Timer, "")).await.unwrap().message, "one");
});

// covers: SCHED-09
world_test!(a_full_inbox_is_a_refused_run_and_a_one_shot_waits_for_a_free_one, async |world| {
    world.limits(|limits| limits.inbox_max = 1);
    world.send("ada", "work").await;
    let tea = timer(&world, "tea", MINUTE).await;
    let job = once(&world, party("ada"), MINUTE).await;
    let often = job_of_ada(&world, "mail", "* * * * *").await;
    due_after(&world, MINUTE).await;
    let refused = &runs(&world, &often).await[0];
    assert_eq!(refused.status, RunStatus::Refused);
    assert!(refused.note.as_ref().unwrap().contains("inbox_full"));
    assert_eq!(find(&world, &tea).await.unwrap().next_at, Some(world.ctx.now().plus(MINUTE / 2)));
    due(&world).await;
    for _ in 0..3 {
        due_after(&world, MINUTE / 2).await;
    }
    for schedule in [&tea, &job] {
        let record = runs(&world, schedule).await;
        assert_eq!((record.len(), record[0].status, record[0].late), (1, RunStatus::Refused, false));
        assert!(find(&world, schedule).await.unwrap().next_at > Some(world.ctx.now()));
    }
    assert_eq!(world.count(EventKind::ScheduleSkipped).await, 2 + 2, "a one-shot's at its first refusal only");
    world.limits(|limits| limits.inbox_max = 9);
    for _ in 0..3 {
        due_after(&world, MINUTE / 2).await;
    }
    assert!(find(&world, &tea).await.is_none());
    assert_eq!(find(&world, &job).await.unwrap().next_at, None, "it stays until its run has ended well");
    for schedule in [&tea, &job] {
        let record = runs(&world, schedule).await;
        assert_eq!((record.len(), record[0].status, record[0].late), (2, RunStatus::Queued, true));
        assert_eq!(record[0].slot_at, schedule.next_at.unwrap());
    }
    let mail = world.inbox("ada").await;
    assert_eq!(mail.len(), 4, "the next slot of the other job runs, too");
    let late = mail.iter().find(|mail| mail.kind == Kind::Timer).unwrap();
    assert!(late.body.contains("late by 2m: its mail was refused until now (inbox_full"), "{}", late.body);
});

world_test!(schedules_of_a_deleted_agent_are_cancelled_and_a_stopped_agent_gets_its_mail, async |world| {
    let one = timer(&world, "one", MINUTE).await;
    let two = timer(&world, "two", MINUTE * 9).await;
    run!(world, |w| agents::stop(w, &operator(), &id("ada"), None)).unwrap();
    due_after(&world, MINUTE).await;
    assert_eq!(world.inbox("ada").await.len(), 1);
    delete(&world, "ada").await;
    assert!(find(&world, &two).await.is_none());
    assert_eq!(runs(&world, &one).await[0].status, RunStatus::Failed);
    assert_eq!(world.count(EventKind::ScheduleCancelled).await, 1);
});

/// A directory with these files.
fn holding(names: &[&str]) -> WatchSnapshot {
    let stamp = |name: &&str| FileStamp { bytes: 1, changed_ns: 1, inode: name.len() as u64 };
    WatchSnapshot { files: names.iter().map(|name| ((*name).to_owned(), stamp(name))).collect() }
}

/// A watch of ada over this directory.
async fn watch(world: &World, path: &str, changes: Vec<Change>, holds: &str) -> Schedule {
    let when = When::Change { path: path.into(), recursive: true, changes, debounce_ms: 250 };
    let new = NewSchedule { baseline: Some(holding(&[holds])), ..new(world, ScheduleKind::Watch, "box", when) };
    set(world, party("ada"), new).await.unwrap()
}

/// A check of a watch that finds these files.
async fn check(world: &World, watch: &Schedule, names: &[&str]) -> Option<ScheduleRun> {
    let (schedule_id, made, now) = (watch.schedule_id, watch.created_at, holding(names));
    run!(world, |w| schedules::changed(w, schedule_id, made, &now, false)).unwrap()
}

// covers: SCHED-03
world_test!(a_watch_reports_each_change_once_and_repeats_changes_that_a_limit_refused, async |world| {
    let watch = watch(&world, "shared", vec![Change::Created], "a").await;
    let check = async |names: &[&str]| check(&world, &watch, names).await;
    assert!(check(&["a"]).await.is_none());
    world.limits(|limits| limits.inbox_max = 1);
    world.send("ada", "work").await;
    assert_eq!(check(&["a", "bb"]).await.unwrap().status, RunStatus::Refused);
    assert_eq!(check(&["a", "bb"]).await.unwrap().run, 1);
    world.limits(|limits| limits.inbox_max = 9);
    assert_eq!(check(&["a", "bb"]).await.unwrap().status, RunStatus::Queued);
    assert!(check(&["a", "bb"]).await.is_none());
    // Changes of other kinds are noted and not reported.
    assert!(check(&["a"]).await.is_none());
    let mail = world.inbox("ada").await;
    assert!(mail[1].body.contains("- created bb"), "{}", mail[1].body);
    assert_eq!((mail[1].kind, mail[1].hop, mail[1].root_id), (Kind::Watch, 3, watch.root_id));
});

world_test!(a_check_of_a_replaced_watch_does_not_affect_the_new_watch, async |world| {
    let changes = || vec![Change::Created, Change::Removed];
    let old = watch(&world, "here", changes(), "here.md").await;
    world.pass(MINUTE);
    let new = watch(&world, "there", changes(), "there.md").await;
    assert_eq!(old.schedule_id, new.schedule_id);
    assert!(check(&world, &old, &["new.md"]).await.is_none());
    let (schedule_id, made, refusal) =
        (old.schedule_id, old.created_at, Refusal::new(Code::TooLarge, "too many files"));
    run!(world, |w| schedules::watch_refused(w, schedule_id, made, &refusal)).unwrap();
    assert!(world.inbox("ada").await.is_empty() && runs(&world, &new).await.is_empty());
    assert_eq!(read!(world, |r| r.watch_snapshot_get(schedule_id)?), Some(holding(&["there.md"])));
    assert!(check(&world, &new, &["new.md"]).await.is_some());
});

// covers: HB-04
world_test!(an_alert_in_a_channel_wakes_members_by_the_chat_setting, async |world| {
    world.channel(party("ada"), new_channel("alerts", &["bob", "cyd"])).await.unwrap();
    heartbeat(&world, Some("alerts")).await;
    for (wake, woken) in [(ChatWake::None, 0), (ChatWake::Mentions, 0), (ChatWake::All, 1)] {
        world.ctx.set_chat_wake(wake);
        due_after(&world, MINUTE * 30).await;
        world.done("ada", "The mail for @nobody is late.").await;
        let wakes = world.inbox("bob").await.iter().filter(|mail| mail.is_chat_wake()).count();
        assert_eq!(wakes, woken, "{wake:?}");
    }
    let posts = read!(world, |r| r.chat_posts(&"alerts".parse().unwrap(), 0, 0, 9)?);
    assert_eq!(posts.len(), 3);
});

// covers: HB-01, HB-02, HB-04
world_test!(heartbeats_follow_the_configuration_and_are_skipped_when_there_is_nothing_to_ask, async |world| {
    heartbeat(&world, Some("last")).await;
    heartbeat(&world, Some("last")).await;
    assert_eq!(world.count(EventKind::ScheduleSet).await, 1);
    let beat = async |text: &str| {
        due_after(&world, MINUTE * 30).await;
        let taken = world.take("ada").await;
        let (kind, body) = (taken.mail[0].kind, taken.mail[0].body.as_str());
        assert!(kind == Kind::Heartbeat && body.starts_with("Look.\n") && body.contains("HEARTBEAT_OK"), "{body}");
        world.finish(taken.turn.turn_id, text).await.unwrap();
    };
    beat("HEARTBEAT_OK all well").await;
    beat("The mail is late.").await;
    // Nobody outside has written to ada yet.
    let alert = world.event(EventKind::HeartbeatAlert).await.payload;
    assert_eq!((&alert["text"], &alert["target"]), (&json!("The mail is late."), &json!("last")));
    assert_eq!(world.count(EventKind::HeartbeatQuiet).await, 1);
    assert!(alert["not_delivered"].as_str().unwrap().contains("no conversation"));
    answered_conversation(&world, "t").await;
    beat("It is still late.").await;
    assert_eq!(texts(&world).await.last().unwrap(), "It is still late.");
    world.busy("ada").await;
    due_after(&world, MINUTE * 30).await;
    assert_eq!(world.count(EventKind::HeartbeatSkipped).await, 1);
    heartbeat(&world, None).await;
    due_after(&world, MINUTE * 60).await;
    assert_eq!(world.count(EventKind::HeartbeatSkipped).await, 1);
});

// covers: SCHED-02
world_test!(missed_slots_become_one_skipped_run_or_one_run_for_all, async |world| {
    let skip = job_of_ada(&world, "skip", "0 * * * *").await;
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
    #![proptest_config(ProptestConfig::with_cases(cases(24)))]

    /// For any clock changes, every slot belongs to exactly one run: fired, skipped, or counted as
    /// missed by another run.
    // covers: SCHED-09
    #[test]
    fn every_slot_is_accounted_for_once(
        steps in prop::collection::vec((-7_200i64..20_000, any::<bool>()), 1..12),
        policy in prop::sample::select(vec![Missed::Skip, Missed::RunOnce]),
    ) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            let world = World::new().await;
            let wanted = NewSchedule { missed: policy, ..new(&world, ScheduleKind::Cron, "job", every(&world, HOUR)) };
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
    let mut job = job_of_ada(&world, "job", "0 * * * *").await;
    job.when = When::Cron { expression: "0 * * * *".into(), zone: Some("Mars/Base".into()) };
    let broken = job.clone();
    done!(world, |w| w.schedule_put(&broken)?);
    due_after(&world, HOUR).await;
    let job = find(&world, &job).await.unwrap();
    assert_eq!((job.enabled, job.next_at, job.last_status), (false, None, Some(RunStatus::Refused)));
    assert!(enable(&world, &job, true).await.unwrap_err().message.contains("time zone"));
});

#[tokio::test]
async fn an_unreadable_schedule_is_set_aside_and_the_others_go_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ghost.db");
    let open = async || open_store(&path, SqliteOptions::default()).await.unwrap();
    let world = World::with_store(open().await).await;
    let bad = timer(&world, "bad", Duration::from_secs(1)).await;
    let before = timer(&world, "before", Duration::from_millis(500)).await;
    let after = timer(&world, "after", HOUR).await;
    world.store.close().await;
    let conn = Connection::open(&path).unwrap();
    assert_eq!(conn.execute("UPDATE schedules SET record = '{bad' WHERE name = 'bad'", []).unwrap(), 1);
    conn.close().unwrap();

    let world = World { store: open().await, ..world };
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
    let aside = world.payloads(EventKind::ScheduleSetAside).await;
    assert_eq!((aside.len(), &aside[0]["schedule_id"]), (1, &json!(bad.schedule_id)));
    assert!(aside[0]["error"].as_str().is_some_and(|error| !error.is_empty()));
    // The daemon does not read it again, and the row stays for repair.
    assert_eq!(read!(world, |r| r.schedule_next_at()?), None);
    world.store.close().await;
    let conn = Connection::open(&path).unwrap();
    let left: String = conn.query_row("SELECT record FROM schedules", [], |row| row.get(0)).unwrap();
    assert_eq!(left, "{bad");
}
