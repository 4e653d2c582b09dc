//! Cron jobs from start to end: own turns and the delivery of their last text, one-shot jobs,
//! recent context in reminders, waiting for a heartbeat, the limits of the run log, and the end of
//! an exchange of asks (SCHED-05..08, HB-07).

use ghost_domain::schedule::WakeMode;

use super::operation_world::*;
use super::schedule_helpers::*;

async fn delivered(world: &OperationWorld) -> Vec<Value> {
    let events = world.events_of(EventKind::ScheduleDelivered).await.into_iter();
    events.map(|event| (*event.payload).clone()).collect()
}

// covers: SCHED-05
world_test!(an_own_turn_holds_no_other_mail_and_is_announced_in_a_channel, async |world| {
    world.channel(party("ada"), new_channel("news", &["bob", "cyd"])).await.unwrap();
    let job = own_turn(&world, announce("news")).await;
    due_after(&world, HOUR).await;
    world.send("ada", "something else").await;
    let taken = world.take("ada").await;
    assert_eq!((taken.mail.len(), taken.mail[0].kind, taken.turn.source.as_str()), (1, Kind::CronTurn, "cron"));
    let body = &taken.mail[0].body;
    assert!(body.contains("a turn of its own") && body.contains("ANNOUNCE_SKIP"), "{body}");
    assert!(body.contains("posted in the chat channel news"), "{body}");
    world.finish(taken.turn.turn_id, "All is well.").await.unwrap();
    let other = world.take("ada").await;
    assert_eq!((other.mail[0].kind, other.turn.source.as_str()), (Kind::Message, "mail"));
    world.finish(other.turn.turn_id, "").await.unwrap();
    run_next_hour(&world, " ANNOUNCE_SKIP\n").await;
    let posts = read!(world, |r| r.chat_posts(&"news".parse().unwrap(), 0, 0, 9)?);
    assert_eq!((posts.len(), posts[0].content.as_str()), (1, "All is well."));
    assert!(runs(&world, &job).await.iter().all(|run| run.status == RunStatus::Done && run.note.is_none()));
    let delivered_events = delivered(&world).await;
    assert_eq!((&delivered_events[0]["silent"], &delivered_events[1]["silent"]), (&json!(false), &json!(true)));
});

world_test!(an_announcement_goes_to_the_last_conversation_and_a_failure_is_in_the_run, async |world| {
    let job = own_turn(&world, Target::Last).await;
    run_next_hour(&world, "Nobody hears this.").await;
    let run = &runs(&world, &job).await[0];
    assert_eq!(run.status, RunStatus::Done);
    assert!(run.note.as_ref().unwrap().contains("no conversation with anyone outside"), "{run:?}");
    let talk = answered_conversation(&world, "one").await;
    run_next_hour(&world, "It is noon.").await;
    run_next_hour(&world, "NO_REPLY").await;
    let ended = Ending::Failed(Refusal::new(Code::Timeout, "too slow"));
    due_after(&world, HOUR).await;
    let turn = world.take("ada").await.turn;
    run!(world, |w| turns::finish(w, turn.turn_id, ended)).unwrap();
    let said = conversations_of_ada(&world).await.remove(0).1;
    assert_eq!((said.len(), said[1].content.as_str()), (2, "It is noon."));
    own_turn(&world, Target::Conversation(talk.conversation_id)).await;
    run_next_hour(&world, "It is late.").await;
    assert_eq!(conversations_of_ada(&world).await.remove(0).1[2].content, "It is late.");
});

world_test!(the_last_conversation_is_the_one_with_the_newest_message_from_outside, async |world| {
    let first = answered_conversation(&world, "one").await.conversation_id;
    world.pass(MINUTE);
    let second = answered_conversation(&world, "two").await.conversation_id;
    world.pass(MINUTE);
    // Later messages of the agent, there or in a thread that it began, do not count.
    own_turn(&world, Target::Conversation(first)).await;
    run_next_hour(&world, "To the first.").await;
    own_turn(&world, ops("cron:ada/report")).await;
    run_next_hour(&world, "To a thread of my own.").await;
    own_turn(&world, Target::Last).await;
    run_next_hour(&world, "To the second.").await;
    let found = conversations_of_ada(&world).await;
    let said = &found.iter().find(|(talk, _)| talk.conversation_id == second).unwrap().1;
    assert_eq!(said.last().unwrap().content, "To the second.");
    assert_eq!(found.len(), 3);
});

world_test!(a_thread_is_not_begun_for_a_text_that_is_too_long, async |world| {
    let job = own_turn(&world, ops("cron:ada/report")).await;
    world.limits(|limits| limits.message_bytes = 400);
    run_next_hour(&world, &"x".repeat(401)).await;
    let note = runs(&world, &job).await[0].note.clone().unwrap();
    assert!(note.contains("not delivered") && note.contains("the limit is 400"), "{note}");
    assert!(conversations_of_ada(&world).await.is_empty());
});

// covers: SCHED-05
world_test!(a_webhook_gets_results_in_one_thread_as_conversation_deliveries, async |world| {
    let job = own_turn(&world, ops("cron:ada/report")).await;
    run_next_hour(&world, "One.").await;
    // The job is cancelled before its turn ends; its result is still delivered.
    due_after(&world, HOUR).await;
    run!(world, |w| schedules::cancel(w, &operator(), job.schedule_id)).unwrap();
    world.done("ada", "Two.").await;
    let talks = conversations_of_ada(&world).await;
    let (conversation, said) = &talks[0];
    assert_eq!((talks.len(), conversation.adapter.as_str()), (1, "webhook:ops"));
    assert_eq!((conversation.thread.as_str(), &conversation.owner), ("cron:ada/report", &id("ada")));
    let texts: Vec<_> = said.iter().map(|entry| (entry.content.as_str(), entry.delivery)).collect();
    assert_eq!(texts, [("One.", Delivery::Pending), ("Two.", Delivery::Pending)]);
});

world_test!(only_a_cron_job_has_a_turn_of_its_own, async |world| {
    let at = When::At { at: world.ctx.now().plus(HOUR) };
    let wanted = NewSchedule { mode: Target::Nowhere.into(), ..new(&world, ScheduleKind::Timer, "tea", at) };
    assert_eq!(code(set(&world, party("ada"), wanted).await), Code::PayloadMismatch);
});

// covers: SCHED-07
world_test!(a_reminder_shows_recent_messages_within_its_limits, async |world| {
    timer(&world, "tea", HOUR).await;
    timer(&world, "old", HOUR * 25).await;
    for n in 0..7 {
        world.send("ada", &format!("question {n} {}", "x".repeat(300))).await;
        let turn = world.take("ada").await.turn;
        world.pass(Duration::from_secs(1));
        world.model_call(turn.turn_id, demand(1, 1), used(1, 1)).await;
        world.finish(turn.turn_id, if n == 6 { "NO_REPLY" } else { "short" }).await.unwrap();
    }
    own_turn(&world, Target::Nowhere).await;
    due_after(&world, HOUR).await;
    let mail = world.inbox("ada").await;
    let (reminder, own) = (&mail[0].body, &mail[1].body);
    let lines: Vec<&str> = reminder.lines().filter(|line| line.starts_with("- you ")).collect();
    // Three texts of 220 characters, cut and marked, and the agent's texts between them. A silent
    // reply is left out.
    let said: Vec<usize> = lines.iter().map(|line| line.split_once(": ").unwrap().1.chars().count()).collect();
    assert_eq!(said, [5, 220, 5, 220, 5, 220], "{lines:#?}");
    let heard: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("- you heard: ")?.get(..10)).collect();
    assert_eq!(heard, ["question 4", "question 5", "question 6"]);
    assert!(!own.contains("- you heard"), "a turn of its own recalls nothing");
    assert!(!reminder.contains("long ago"), "{reminder}");
    world.limits(|limits| (limits.reminder_messages, limits.reminder_message_chars) = (2, 20));
    due_after(&world, HOUR * 24).await;
    let mail = world.inbox("ada").await;
    let old = mail.iter().find(|mail| mail.subject.as_deref().is_some_and(|s| s.contains("old"))).unwrap();
    assert_eq!(old.body.lines().filter(|line| line.starts_with("- you ")).count(), 2, "{}", old.body);
    assert!(old.body.contains("That is long ago"), "{}", old.body);
});

world_test!(a_one_shot_due_during_a_run_by_hand_goes_off_after_it, async |world| {
    let when = When::At { at: world.ctx.now().plus(MINUTE) };
    let job = set(&world, operator(), new(&world, ScheduleKind::Cron, "once", when)).await.unwrap();
    run_now(&world, job.schedule_id).await.unwrap();
    let by_hand = world.take("ada").await.turn;
    for _ in 0..3 {
        due_after(&world, MINUTE).await;
    }
    assert!(find(&world, &job).await.unwrap().next_at.is_some());
    assert_eq!(runs(&world, &job).await.len(), 2, "its wait is recorded once");
    world.finish(by_hand.turn_id, "done by hand").await.unwrap();
    assert_eq!(find(&world, &job).await.unwrap().next_at, Some(world.ctx.now()), "and nobody waits for longer");
    due(&world).await;
    due(&world).await;
    let mail = world.inbox("ada").await;
    assert_eq!(mail.len(), 1);
    assert!(mail[0].body.contains("late by 2m: another run of it had not ended"), "{}", mail[0].body);
    world.done("ada", "done").await;
    assert!(find(&world, &job).await.is_none());
    let statuses: Vec<RunStatus> = runs(&world, &job).await.iter().map(|run| run.status).collect();
    assert_eq!(statuses, [RunStatus::Done, RunStatus::Skipped, RunStatus::Done]);
});

// covers: SCHED-06
world_test!(a_one_shot_is_deleted_after_success_and_switched_off_after_failure, async |world| {
    let when = When::At { at: world.ctx.now().plus(MINUTE) };
    let job = set(&world, operator(), new(&world, ScheduleKind::Cron, "once", when)).await.unwrap();
    let (schedule_id, run) = (job.schedule_id, async || run_now(&world, job.schedule_id).await);
    // Set off by hand before its time, it still goes off at its time.
    run().await.unwrap();
    world.done("ada", "").await;
    assert!(find(&world, &job).await.unwrap().next_at.is_some());
    due_after(&world, MINUTE).await;
    world.end(world.take("ada").await.turn.turn_id, Ending::Failed(Refusal::new(Code::Timeout, "too slow"))).await;
    let kept = find(&world, &job).await.unwrap();
    assert_eq!((kept.enabled, kept.next_at, kept.last_status), (false, None, Some(RunStatus::Failed)));
    let on = run!(world, |w| schedules::enable(w, &operator(), schedule_id, true));
    assert_eq!(code(on), Code::InvalidArguments);
    // Its message can still be changed, but not with a time that has passed.
    let repaired = || NewSchedule {
        message: "look at the door".into(),
        enabled: false,
        ..new(&world, ScheduleKind::Cron, "once", kept.when.clone())
    };
    let changed = set(&world, operator(), repaired()).await.unwrap();
    assert_eq!((changed.schedule_id, changed.message.as_str()), (schedule_id, "look at the door"));
    assert_eq!((changed.enabled, changed.next_at), (false, None));
    assert_eq!(
        code(set(&world, operator(), NewSchedule { enabled: true, ..repaired() }).await),
        Code::InvalidArguments
    );
    let earlier = When::At { at: world.ctx.now().minus(MINUTE * 5) };
    assert_eq!(
        code(set(&world, operator(), NewSchedule { when: earlier, ..repaired() }).await),
        Code::InvalidArguments
    );
    run().await.unwrap();
    world.done("ada", "").await;
    assert!(find(&world, &job).await.is_none());
});

// covers: SCHED-06
world_test!(the_run_log_stays_within_its_limits, async |world| {
    world.limits(|limits| limits.schedule_run_lines = 96);
    let job = own_turn(&world, Target::Nowhere).await;
    let mut most = 0;
    for _ in 0..120 {
        run_next_hour(&world, "").await;
        most = most.max(read!(world, |r| r.schedule_runs(job.schedule_id, 1_000)?).len());
    }
    assert!((90..=96).contains(&most), "{most}");
    let record = runs(&world, &job).await;
    assert_eq!((record[0].run, record[0].status), (120, RunStatus::Done));
    world.limits(|limits| limits.schedule_run_bytes = 4_000);
    for _ in 0..12 {
        run_next_hour(&world, "").await;
    }
    let bytes: usize = runs(&world, &job).await.iter().map(|run| serde_json::to_vec(run).unwrap().len()).sum();
    assert!((1_500..=4_000).contains(&bytes), "{bytes}");
});

// covers: SCHED-06
world_test!(mail_for_the_next_heartbeat_is_taken_with_it, async |world| {
    let mode = JobMode::Mail { wake: WakeMode::NextHeartbeat };
    let job = NewSchedule { mode, ..new(&world, ScheduleKind::Cron, "mail", every(&world, MINUTE * 10)) };
    let job = set(&world, party("ada"), job).await.unwrap();
    // Without a heartbeat, it would wait for ever.
    due_after(&world, MINUTE * 10).await;
    assert!(world.inbox("ada").await[0].wake);
    world.done("ada", "").await;
    let wanted = schedules::Wanted { every_ms: 1_800_000, target: "none".into() };
    run!(world, |w| schedules::follow_heartbeat(w, &id("ada"), Some(&wanted))).unwrap();
    due_after(&world, MINUTE * 10).await;
    assert!(!world.inbox("ada").await[0].wake && world.try_take("ada").await.unwrap().is_none());
    world.pass(MINUTE * 20);
    // An empty HEARTBEAT.md asks nothing, but mail waits.
    run!(world, |w| schedules::due(w, Timestamp(0), &|_, _| Beat::Empty)).unwrap();
    let taken = world.take("ada").await;
    let kinds: Vec<Kind> = taken.mail.iter().map(|mail| mail.kind).collect();
    assert_eq!(kinds, [Kind::Cron, Kind::Heartbeat]);
    world.finish(taken.turn.turn_id, "HEARTBEAT_OK").await.unwrap();
    let record = runs(&world, &job).await;
    let done = record.iter().filter(|run| run.status == RunStatus::Done).count();
    assert_eq!(done, 2, "{record:#?}");
    assert_eq!(world.count(EventKind::HeartbeatQuiet).await, 1);
});

// covers: HB-07
world_test!(an_exchange_of_asks_ends_at_its_limit_or_when_the_other_agent_ends_it, async |world| {
    let ada = world.busy("ada").await;
    let round = async |target: &str, words: &str| {
        let (ask, call_id) = world.ask_by(&ada, target, "syscall.ask").await?;
        world.finish(world.take(target).await.turn.turn_id, words).await?;
        let (_, content, _) = world.outcome(ada.turn_id, call_id).await.unwrap();
        assert_eq!(content["message_id"], json!(ask.message_id));
        Ok::<Value, Refusal>(content)
    };
    for _ in 0..5 {
        assert_eq!(round("bob", "go on").await.unwrap()["reply"], "go on");
    }
    let over = round("bob", "go on").await.unwrap_err();
    assert_eq!((over.code, &over.details.unwrap()["limit"]), (Code::LoopGuard, &json!("reply_rounds_max")));
    assert_eq!(world.count(EventKind::LimitReached).await, 1);
    // Alternating asks are no loop.
    for _ in 0..4 {
        round("cyd", "yes").await.unwrap();
        round("bob", "yes").await.unwrap();
    }
    let ended = round("bob", " REPLY_SKIP\n").await.unwrap();
    assert_eq!((&ended["reply"], &ended["ended"]), (&json!(""), &json!(true)));
    let refusal = round("bob", "more").await.unwrap_err();
    assert!(refusal.code == Code::LoopGuard && refusal.message.contains("bob has ended"), "{refusal}");
    assert!(world.inbox("bob").await.is_empty());
});
