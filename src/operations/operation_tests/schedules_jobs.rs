//! Cron jobs from start to end: own turns, the targets of their last text and its delivery, one-shot jobs, recent
//! context in reminders, waiting for a heartbeat, and the limits of the run log (SCHED-05..08, HB-01).

use ghost_domain::schedule::WakeMode;

use super::operation_world::*;
use super::schedule_helpers::*;

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
    assert_eq!(world.told(EventKind::ScheduleDelivered, "silent").await, [false, true]);
});

world_test!(an_announcement_goes_to_the_last_conversation_and_a_failure_is_in_the_run, async |world| {
    let job = own_turn(&world, Target::Last).await;
    run_next_hour(&world, "Nobody hears this.").await;
    undelivered(&world, &job, "no conversation with anyone outside").await;
    let talk = answered_conversation(&world, "one").await;
    run_next_hour(&world, "It is noon.").await;
    run_next_hour(&world, "NO_REPLY").await;
    due_after(&world, HOUR).await;
    world.end(world.take("ada").await.turn.turn_id, Ending::Failed(Refusal::new(Code::Timeout, "too slow"))).await;
    assert_eq!(texts(&world).await, ["hello", "It is noon."]);
    own_turn(&world, Target::Conversation(talk.conversation_id)).await;
    run_next_hour(&world, "It is late.").await;
    assert_eq!(texts(&world).await[2], "It is late.");
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
    assert_eq!(world.entries(second).await.last().unwrap().content, "To the second.");
    assert_eq!(conversations_of_ada(&world).await.len(), 3);
});

// covers: SCHED-05
world_test!(a_webhook_gets_results_in_one_thread_as_conversation_deliveries, async |world| {
    let job = own_turn(&world, ops("cron:ada/report")).await;
    // A thread is not begun for a text that is too long.
    world.limits(|limits| limits.message_bytes = 400);
    run_next_hour(&world, &"x".repeat(401)).await;
    undelivered(&world, &job, "the limit is 400").await;
    assert!(conversations_of_ada(&world).await.is_empty());
    run_next_hour(&world, "One.").await;
    // The job is cancelled before its turn ends; its result is still delivered.
    due_after(&world, HOUR).await;
    cancel(&world, operator(), &job).await.unwrap();
    world.done("ada", "Two.").await;
    let talks = conversations_of_ada(&world).await;
    let (conversation, said) = &talks[0];
    assert_eq!((talks.len(), conversation.adapter.as_str()), (1, "webhook:ops"));
    assert_eq!((conversation.thread.as_str(), &conversation.owner), ("cron:ada/report", &id("ada")));
    let texts: Vec<_> = said.iter().map(|entry| (entry.content.as_str(), entry.delivery)).collect();
    assert_eq!(texts, [("One.", Delivery::Pending), ("Two.", Delivery::Pending)]);
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
    let job = once(&world, operator(), MINUTE).await;
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
    let job = once(&world, operator(), MINUTE).await;
    let run = async || run_now(&world, job.schedule_id).await;
    // Set off by hand before its time, it still goes off at its time.
    run().await.unwrap();
    world.done("ada", "").await;
    assert!(find(&world, &job).await.unwrap().next_at.is_some());
    due_after(&world, MINUTE).await;
    world.end(world.take("ada").await.turn.turn_id, Ending::Failed(Refusal::new(Code::Timeout, "too slow"))).await;
    let kept = find(&world, &job).await.unwrap();
    assert_eq!((kept.enabled, kept.next_at, kept.last_status), (false, None, Some(RunStatus::Failed)));
    assert_eq!(code(enable(&world, &job, true).await), Code::InvalidArguments);
    // Its message can still be changed, but not with a time that has passed.
    let repair = async |enabled, when| {
        let new = new(&world, ScheduleKind::Cron, "once", when);
        set(&world, operator(), NewSchedule { message: "look at the door".into(), enabled, ..new }).await
    };
    let changed = repair(false, kept.when.clone()).await.unwrap();
    assert_eq!((changed.schedule_id, changed.message.as_str()), (job.schedule_id, "look at the door"));
    assert_eq!((changed.enabled, changed.next_at), (false, None));
    let earlier = When::At { at: world.ctx.now().minus(MINUTE * 5) };
    for (enabled, when) in [(true, kept.when), (false, earlier)] {
        assert_eq!(code(repair(enabled, when).await), Code::InvalidArguments);
    }
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
    let job = for_the_heartbeat(&world).await;
    // Without a heartbeat, it would wait for ever.
    due_after(&world, MINUTE * 10).await;
    assert!(world.inbox("ada").await[0].wake);
    world.done("ada", "").await;
    heartbeat(&world, Some("none")).await;
    due_after(&world, MINUTE * 10).await;
    assert!(!world.inbox("ada").await[0].wake && world.try_take("ada").await.unwrap().is_none());
    world.pass(MINUTE * 20);
    // An empty HEARTBEAT.md asks nothing, but mail waits.
    run!(world, |w| schedules::due(w, Timestamp(0), &|_, _| Beat::Empty)).unwrap();
    let taken = world.take("ada").await;
    assert_eq!(kinds(&taken.mail), [Kind::Cron, Kind::Heartbeat]);
    world.finish(taken.turn.turn_id, "HEARTBEAT_OK").await.unwrap();
    let record = runs(&world, &job).await;
    assert_eq!(record.iter().filter(|run| run.status == RunStatus::Done).count(), 2, "{record:#?}");
    assert_eq!(world.count(EventKind::HeartbeatQuiet).await, 1);
});

/// A job of ada every ten minutes whose mail waits for its heartbeat.
async fn for_the_heartbeat(world: &World) -> Schedule {
    let mode = JobMode::Mail { wake: WakeMode::NextHeartbeat };
    let job = NewSchedule { mode, ..new(world, ScheduleKind::Cron, "mail", every(world, MINUTE * 10)) };
    set(world, party("ada"), job).await.unwrap()
}

/// Such a job with one waiting run.
async fn waiting(world: &World) -> Schedule {
    heartbeat(world, Some("none")).await;
    let job = for_the_heartbeat(world).await;
    due_after(world, MINUTE * 10).await;
    assert!(world.try_take("ada").await.unwrap().is_none(), "it waits");
    job
}

/// The run of a job that waited. The slot at the time of the heartbeat was skipped.
async fn waited(world: &World, job: &Schedule) -> ScheduleRun {
    runs(world, job).await.into_iter().find(|run| run.message_id.is_some()).unwrap()
}

/// Opens the turn of a heartbeat with the mail that waited for it.
async fn beat(world: &World) {
    due_after(world, MINUTE * 20).await;
    assert_eq!(kinds(&world.take("ada").await.mail), [Kind::Cron, Kind::Heartbeat]);
}

world_test!(mail_of_a_crashed_heartbeat_turn_is_tried_alone_and_its_job_goes_on, async |world| {
    let job = waiting(&world).await;
    beat(&world).await;
    world.crash("ada", "it fell over").await;
    for _ in 0..2 {
        let turn = world.take("ada").await;
        assert_eq!(turn.mail.len(), 1);
        world.finish(turn.turn.turn_id, "HEARTBEAT_OK").await.unwrap();
    }
    assert!(world.inbox("ada").await.is_empty());
    assert_eq!(waited(&world, &job).await.status, RunStatus::Done);
    due_after(&world, MINUTE * 10).await;
    assert_eq!(runs(&world, &job).await[0].status, RunStatus::Queued, "the next slot is not passed over");
});

#[tokio::test]
async fn a_waiting_run_in_a_dead_letter_runs_when_it_is_retried() {
    for fresh in [false, true] {
        let world = World::new().await;
        world.limits(|limits| limits.crashes_max = 1);
        let job = waiting(&world).await;
        beat(&world).await;
        world.crash("ada", "it fell over").await;
        let held = world.dead_letters().await;
        let quiet = waited(&world, &job).await.message_id.unwrap();
        let letter = held.iter().find(|letter| letter.messages == [quiet]).unwrap();
        super::crashes::retry(&world, letter, fresh).await.unwrap();
        let taken = world.take("ada").await;
        assert_eq!(ids(&taken.mail), [quiet], "fresh: {fresh}");
        world.finish(taken.turn.turn_id, "").await.unwrap();
        assert_eq!(waited(&world, &job).await.status, RunStatus::Done);
    }
}

#[tokio::test]
async fn waiting_mail_wakes_the_agent_when_the_heartbeat_is_removed() {
    for reloaded in [true, false] {
        let world = World::new().await;
        waiting(&world).await;
        // Other quiet mail does not wait for the heartbeat.
        let quiet = NewMessage::new(&id("ada"), operator(), Kind::Message, "by the way", Chain::root(&world.ctx));
        let quiet = world.deliver(NewMessage { wake: false, ..quiet }).await.unwrap();
        world.signals();
        if reloaded {
            heartbeat(&world, None).await;
        } else {
            let beats = read!(world, |r| r.schedule_find(&id("ada"), ScheduleKind::Heartbeat, "heartbeat")?.unwrap());
            enable(&world, &beats, false).await.unwrap();
        }
        assert!(world.signals().contains(&Signal::Wake(id("ada"))), "reloaded: {reloaded}");
        assert!(!world.message(quiet.message_id).await.wake);
        assert_eq!(kinds(&world.take("ada").await.mail), [Kind::Cron, Kind::Message]);
    }
}

fn job(world: &World, target: Target) -> NewSchedule {
    NewSchedule { mode: target.into(), ..new(world, ScheduleKind::Cron, "report", every(world, HOUR)) }
}

/// A message from outside over the webhook, whose conversations belong to bob.
async fn arrives(world: &World, thread: &str) -> Result<Received> {
    arrive(world, "bob", "webhook:ops", thread, said(Party::Outside("caller".into()), "hello")).await
}

/// The note of the newest run.
async fn note(world: &World, job: &Schedule) -> Option<String> {
    let run = runs(world, job).await.remove(0);
    assert_eq!(run.status, RunStatus::Done);
    run.note
}

/// The newest run was done, and its text not delivered because of this.
async fn undelivered(world: &World, job: &Schedule, why: &str) {
    let note = note(world, job).await.unwrap();
    assert!(note.starts_with("not delivered: ") && note.contains(why), "{note}");
}

fn webhook_of(world: &World, agent: &str) {
    world.ctx.set_webhooks([("ops".to_owned(), id(agent))].into());
}

world_test!(a_target_must_exist_when_a_job_is_set_or_changed, async |world| {
    world.channel(party("ada"), new_channel("news", &["bob"])).await.unwrap();
    let talk = answered_conversation(&world, "one").await.conversation_id.to_string();
    for (to, hint) in [
        ("newz", "did you mean `news`?"),
        ("lsat", "did you mean `last`?"),
        ("quite-another-thing", "give last, the name of a chat channel or the id of a conversation"),
        ("00000000-0000-0000-0000-00000000ffff", "see `ghostctl conversation list`"),
    ] {
        let refusal = set(&world, party("ada"), job(&world, announce(to))).await.unwrap_err();
        assert_eq!((refusal.code, refusal.hint.as_deref()), (Code::NotFound, Some(hint)), "{to}");
        assert_eq!(refusal.details, Some(json!({ "field": "to" })), "{to}");
    }
    for to in ["news", "last", talk.as_str()] {
        set(&world, party("ada"), job(&world, announce(to))).await.unwrap();
    }
    assert_eq!(code(set(&world, operator(), job(&world, announce("newss"))).await), Code::NotFound);
    // A job whose target is gone can be switched off, but not on.
    let conversation = set(&world, operator(), job(&world, announce(&talk))).await.unwrap();
    world.limits(|limits| limits.conversation_days = 1);
    world.sweep_after(DAY * 2).await;
    assert_eq!(code(set(&world, operator(), job(&world, announce(&talk))).await), Code::NotFound);
    let off = NewSchedule { enabled: false, ..job(&world, announce(&talk)) };
    let off = set(&world, operator(), off).await.unwrap();
    assert_eq!((off.schedule_id, off.enabled), (conversation.schedule_id, false));
    assert_eq!(detail(enable(&world, &off, true).await, Code::NotFound, "field"), "to");
    assert_eq!(find(&world, &off).await.unwrap().next_at, None);
    // A working job can be switched off and on while its target exists.
    let on = set(&world, operator(), job(&world, announce("news"))).await.unwrap();
    for enabled in [false, true] {
        assert_eq!(enable(&world, &on, enabled).await.unwrap().enabled, enabled);
    }
});

world_test!(the_outside_cannot_begin_the_thread_of_a_job_but_can_answer_in_it, async |world| {
    webhook_of(&world, "bob");
    for thread in ["cron:ada/report", "cron:", "cron:nobody/x"] {
        let refusal = refused(arrives(&world, thread).await, Code::AccessDenied, "belongs to a cron job");
        assert!(refusal.hint.is_some() && refusal.details.unwrap()["field"] == "thread", "{thread}");
    }
    arrives(&world, "cronicle").await.unwrap();
    let job = own_turn(&world, ops("cron:ada/report")).await;
    run_next_hour(&world, "One.").await;
    assert_eq!(note(&world, &job).await, None);
    // Now it is an ordinary conversation of ada.
    assert_eq!(arrives(&world, "cron:ada/report").await.unwrap().conversation.owner, id("ada"));
    world.done("ada", "Thanks.").await;
    assert_eq!(texts(&world).await, ["One.", "hello", "Thanks."]);
});

world_test!(a_webhook_given_to_another_agent_fails_the_delivery_unless_the_thread_is_the_jobs_own, async |world| {
    let free = own_turn(&world, ops("free")).await;
    run_next_hour(&world, "One.").await;
    assert_eq!(note(&world, &free).await, None);
    webhook_of(&world, "bob");
    run_next_hour(&world, "Two.").await;
    undelivered(&world, &free, "access_denied").await;
    assert_eq!(texts(&world).await, ["One."], "no further message is in it");
    // A job may always use its own thread, and an operator may use any thread.
    let own = own_turn(&world, ops("cron:ada/report")).await;
    run_next_hour(&world, "Three.").await;
    assert_eq!(note(&world, &own).await, None);
    let any = set(&world, operator(), job(&world, ops("another"))).await.unwrap();
    run_next_hour(&world, "Four.").await;
    assert_eq!(note(&world, &any).await, None);
    // The world file no longer has the webhook.
    world.ctx.set_webhooks(std::collections::BTreeMap::new());
    run_next_hour(&world, "Five.").await;
    undelivered(&world, &any, "there is no webhook `ops`").await;
    assert_eq!(conversations_of_ada(&world).await.len(), 3);
});

world_test!(a_job_set_to_another_jobs_thread_is_not_delivered_and_its_run_has_a_note, async |world| {
    for foreign in ["cron:ada/other", "cron:bob/report"] {
        let job = set(&world, operator(), job(&world, ops(foreign))).await.unwrap();
        run_next_hour(&world, "One.").await;
        undelivered(&world, &job, "is not this job's own").await;
    }
    assert_eq!(conversations_of_ada(&world).await.len(), 0);
    // The own thread of a job that ends with this run, and of a job that was cancelled meanwhile.
    let at = When::At { at: world.ctx.now().plus(HOUR) };
    let own = || job(&world, ops("cron:ada/report"));
    let once = set(&world, operator(), NewSchedule { when: at, ..own() }).await.unwrap();
    run_next_hour(&world, "Two.").await;
    assert_eq!((note(&world, &once).await, find(&world, &once).await), (None, None));
    let cancelled = set(&world, operator(), own()).await.unwrap();
    due_after(&world, HOUR).await;
    let turn = world.take("ada").await.turn;
    cancel(&world, operator(), &cancelled).await.unwrap();
    world.finish(turn.turn_id, "Three.").await.unwrap();
    assert_eq!(note(&world, &cancelled).await, None);
    assert_eq!(texts(&world).await, ["Two.", "Three."]);
});
