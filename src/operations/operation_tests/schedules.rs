//! Schedules: setting them, their limits, going off once, and the records and ends of their runs
//! (SCHED-02..09).

use ghost_domain::schedule::{Change, FileStamp};

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
});

// covers: SCHED-06
world_test!(a_cron_job_starts_new_roots_and_has_one_run_at_a_time, async |world| {
    let job = set(&world, party("ada"), new(&world, ScheduleKind::Cron, "mail", cron("* * * * *"))).await.unwrap();
    for _ in 0..3 {
        due_after(&world, MINUTE).await;
    }
    let mail = world.inbox("ada").await;
    assert_eq!(mail.len(), 1);
    assert!(mail[0].root_id != job.root_id && mail[0].hop == 0);
    let record = runs(&world, &job).await;
    assert_eq!(record.len(), 2);
    assert_eq!((record[0].status, record[0].missed), (RunStatus::Skipped, 2));
    world.end(world.take("ada").await.turn.turn_id, Ending::Failed(Refusal::new(Code::Timeout, "too slow"))).await;
    let failed = &runs(&world, &job).await[1];
    assert_eq!(failed.status, RunStatus::Failed);
    assert!(failed.note.as_ref().unwrap().contains("too slow"));
    due_after(&world, MINUTE).await;
    assert_eq!(world.inbox("ada").await.len(), 1);
    let job = find(&world, &job).await.unwrap();
    assert_eq!((job.runs, job.last_status), (3, Some(RunStatus::Queued)));
});

world_test!(setting_again_replaces_an_own_schedule_but_not_one_of_another_party, async |world| {
    let first = timer(&world, "tea", MINUTE).await;
    assert_eq!(first.schedule_id, timer(&world, "tea", MINUTE * 5).await.schedule_id);
    assert_eq!(find(&world, &first).await.unwrap().next_at, Some(world.ctx.now().plus(MINUTE * 5)));
    let job = set(&world, operator(), new(&world, ScheduleKind::Cron, "report", cron("0 9 * * *"))).await.unwrap();
    let mine = set(&world, party("ada"), new(&world, ScheduleKind::Cron, "report", cron("0 8 * * *"))).await;
    assert_eq!(code(mine), Code::AccessDenied);
    let (schedule_id, ada) = (job.schedule_id, party("ada"));
    assert_eq!(code(run!(world, |w| schedules::cancel(w, &ada, schedule_id))), Code::AccessDenied);
    let off = run!(world, |w| schedules::enable(w, &operator(), schedule_id, false)).unwrap();
    assert_eq!((off.enabled, off.next_at), (false, None));
    let on = run!(world, |w| schedules::enable(w, &operator(), schedule_id, true)).unwrap();
    assert_eq!(on.next_at, job.next_at);
    run!(world, |w| schedules::cancel(w, &operator(), schedule_id)).unwrap();
    assert_eq!(code(run!(world, |w| schedules::cancel(w, &operator(), schedule_id))), Code::NotFound);
    let near = read!(world, |r| schedules::named(r, &id("ada"), ScheduleKind::Timer, "tee").unwrap_err());
    assert_eq!(near.hint.unwrap(), "did you mean `tea`?");
});

// covers: SCHED-04
world_test!(exceeded_limits_and_bad_input_are_refused_without_effect, async |world| {
    world.limits(|limits| (limits.timers_max, limits.message_bytes) = (1, 100));
    timer(&world, "one", MINUTE).await;
    let at = When::At { at: world.ctx.now().plus(MINUTE) };
    let try_with = async |change: &dyn Fn(&mut NewSchedule)| {
        let mut wanted = new(&world, ScheduleKind::Timer, "one", at.clone());
        change(&mut wanted);
        code(set(&world, party("ada"), wanted).await)
    };
    assert_eq!(try_with(&|new| new.name = "two".into()).await, Code::RateLimited);
    for name in ["", "a\u{7}b", "a/b", "a\nb"] {
        assert_eq!(try_with(&|new| new.name = name.to_owned()).await, Code::InvalidArguments, "{name:?}");
    }
    assert_eq!(try_with(&|new| new.name = "x".repeat(65)).await, Code::TooLarge);
    assert_eq!(try_with(&|new| new.message = "x".repeat(51)).await, Code::TooLarge);
    assert_eq!(try_with(&|new| new.chain.hop = 33).await, Code::HopLimit);
    assert_eq!(try_with(&|new| new.agent_id = id("nobody")).await, Code::NotFound);
    assert_eq!(try_with(&|new| new.when = cron("* * * * *")).await, Code::InvalidArguments);
    assert_eq!(try_with(&|new| new.when = When::At { at: Timestamp(5) }).await, Code::InvalidArguments);
    assert_eq!(world.count(EventKind::ScheduleSet).await, 1);
});

// covers: SCHED-09
world_test!(a_full_inbox_is_a_refused_run_and_the_next_slot_runs, async |world| {
    world.limits(|limits| limits.inbox_max = 1);
    world.send("ada", "work").await;
    let job = set(&world, party("ada"), new(&world, ScheduleKind::Cron, "mail", cron("* * * * *"))).await.unwrap();
    due_after(&world, MINUTE).await;
    let refused = &runs(&world, &job).await[0];
    assert_eq!(refused.status, RunStatus::Refused);
    assert!(refused.note.as_ref().unwrap().contains("inbox_full"));
    world.done("ada", "").await;
    due_after(&world, MINUTE).await;
    assert_eq!(world.inbox("ada").await.len(), 1);
});

world_test!(a_one_shot_waits_for_a_free_inbox_and_goes_off_once, async |world| {
    world.limits(|limits| limits.inbox_max = 1);
    world.send("ada", "work").await;
    let tea = timer(&world, "tea", MINUTE).await;
    let when = When::At { at: world.ctx.now().plus(MINUTE) };
    let job = set(&world, party("ada"), new(&world, ScheduleKind::Cron, "once", when)).await.unwrap();
    due_after(&world, MINUTE).await;
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
    assert_eq!(world.count(EventKind::ScheduleSkipped).await, 2, "recorded at the first refusal only");
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
    assert_eq!(mail.len(), 3);
    assert!(mail[1].body.contains("late by 2m: its mail was refused until now (inbox_full"), "{}", mail[1].body);
});

world_test!(a_timer_whose_chain_is_too_long_ends_with_a_refused_run, async |world| {
    let tea = timer(&world, "tea", MINUTE).await;
    world.limits(|limits| limits.hops_max = 2);
    due_after(&world, MINUTE).await;
    assert!(find(&world, &tea).await.is_none());
    assert!(runs(&world, &tea).await[0].note.as_ref().unwrap().contains("hop_limit"));
});

// covers: SCHED-06
world_test!(a_schedule_set_off_by_hand_has_one_run_at_a_time, async |world| {
    let job = set(&world, operator(), new(&world, ScheduleKind::Cron, "mail", cron("0 9 * * *"))).await.unwrap();
    let schedule_id = job.schedule_id;
    let run = async || run_now(&world, schedule_id).await;
    assert_eq!(run().await.unwrap().status, RunStatus::Queued);
    assert_eq!(code(run().await), Code::Conflict);
    assert_eq!(find(&world, &job).await.unwrap().next_at, job.next_at);
    assert!(world.inbox("ada").await[0].body.contains("by hand by operator:test"));
});

world_test!(schedules_of_a_deleted_agent_are_cancelled_and_a_stopped_agent_gets_its_mail, async |world| {
    let one = timer(&world, "one", MINUTE).await;
    let two = timer(&world, "two", MINUTE * 9).await;
    let ada = id("ada");
    run!(world, |w| agents::stop(w, &operator(), &ada, None)).unwrap();
    due_after(&world, MINUTE).await;
    assert_eq!(world.inbox("ada").await.len(), 1);
    let ada = id("ada");
    run!(world, |w| agents::delete(w, &operator(), &ada)).unwrap();
    assert!(find(&world, &two).await.is_none());
    assert_eq!(runs(&world, &one).await[0].status, RunStatus::Failed);
    assert_eq!(world.count(EventKind::ScheduleCancelled).await, 1);
});

// covers: SCHED-03
world_test!(a_watch_reports_each_change_once_and_repeats_changes_that_a_limit_refused, async |world| {
    let seen = |names: &[&str]| WatchSnapshot {
        files: names
            .iter()
            .map(|name| ((*name).to_owned(), FileStamp { bytes: 1, changed_ns: 1, inode: name.len() as u64 }))
            .collect(),
    };
    let when =
        When::Change { path: "shared".into(), recursive: true, changes: vec![Change::Created], debounce_ms: 250 };
    let wanted = NewSchedule { baseline: Some(seen(&["a"])), ..new(&world, ScheduleKind::Watch, "box", when) };
    let watch = set(&world, party("ada"), wanted).await.unwrap();
    let (schedule_id, made) = (watch.schedule_id, watch.created_at);
    let check = async |names: &[&str]| {
        let now = seen(names);
        run!(world, |w| schedules::changed(w, schedule_id, made, &now, false)).unwrap()
    };
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
    let seen = |name: &str| WatchSnapshot {
        files: [(name.to_owned(), FileStamp { bytes: 1, changed_ns: 1, inode: name.len() as u64 })]
            .into_iter()
            .collect(),
    };
    let watch = async |path: &str, holds: &str| {
        let changes = vec![Change::Created, Change::Removed];
        let when = When::Change { path: path.into(), recursive: true, changes, debounce_ms: 250 };
        let wanted = NewSchedule { baseline: Some(seen(holds)), ..new(&world, ScheduleKind::Watch, "box", when) };
        set(&world, party("ada"), wanted).await.unwrap()
    };
    let old = watch("here", "here.md").await;
    world.pass(MINUTE);
    let new = watch("there", "there.md").await;
    assert_eq!(old.schedule_id, new.schedule_id);
    let (schedule_id, made, now) = (old.schedule_id, old.created_at, seen("new.md"));
    assert!(run!(world, |w| schedules::changed(w, schedule_id, made, &now, false)).unwrap().is_none());
    let refusal = Refusal::new(Code::TooLarge, "too many files");
    run!(world, |w| schedules::watch_refused(w, schedule_id, made, &refusal)).unwrap();
    assert!(world.inbox("ada").await.is_empty() && runs(&world, &new).await.is_empty());
    assert_eq!(read!(world, |r| r.watch_snapshot_get(schedule_id)?), Some(seen("there.md")));
    let (made, now) = (new.created_at, seen("new.md"));
    assert!(run!(world, |w| schedules::changed(w, schedule_id, made, &now, false)).unwrap().is_some());
});

// covers: HB-04
world_test!(an_alert_in_a_channel_wakes_members_by_the_chat_setting, async |world| {
    world.channel(party("ada"), new_channel("alerts", &["bob", "cyd"])).await.unwrap();
    let wanted = schedules::Wanted { every_ms: 1_800_000, target: "alerts".into() };
    run!(world, |w| schedules::follow_heartbeat(w, &id("ada"), Some(&wanted))).unwrap();
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
    let want = async |every_ms: Option<u64>| {
        let wanted = every_ms.map(|every_ms| schedules::Wanted { every_ms, target: "last".into() });
        run!(world, |w| schedules::follow_heartbeat(w, &id("ada"), wanted.as_ref())).unwrap();
    };
    want(Some(1_800_000)).await;
    want(Some(1_800_000)).await;
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
    let alert = world.event(EventKind::HeartbeatAlert).await;
    assert_eq!(
        (alert.payload["text"].as_str(), alert.payload["target"].as_str()),
        (Some("The mail is late."), Some("last"))
    );
    assert_eq!(world.count(EventKind::HeartbeatQuiet).await, 1);
    assert!(alert.payload["not_delivered"].as_str().unwrap().contains("no conversation"));
    let talk = answered_conversation(&world, "t").await;
    beat("It is still late.").await;
    let entries = read!(world, |r| r.conversation_entries(talk.conversation_id, 0, 10)?);
    assert_eq!(entries.last().unwrap().content, "It is still late.");
    world.busy("ada").await;
    due_after(&world, MINUTE * 30).await;
    assert_eq!(world.count(EventKind::HeartbeatSkipped).await, 1);
    want(None).await;
    due_after(&world, MINUTE * 60).await;
    assert_eq!(world.count(EventKind::HeartbeatSkipped).await, 1);
});
