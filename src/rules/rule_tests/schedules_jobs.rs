//! Cron jobs from start to end: own turns and the delivery of their last text, one-shot jobs,
//! recent context in reminders, waiting for a heartbeat, the limits of the run log, and the end of
//! an exchange of asks (SCHED-05..08, HB-07).

use std::time::Duration;

use ghost_domain::schedule::{JobMode, RunStatus, Target, WakeMode, When};
use ghost_domain::{Code, Delivery, EventKind, Kind, Refusal, ScheduleKind, Timestamp};
use serde_json::{Value, json};

use super::rig::{Rig, code, id, operator, party, read, write};
use super::schedules_rig::{
    announce, answered_conversation, conversations_of_ada, due, every, find, new, ops, own_turn, run_next_hour, runs,
    set, timer,
};
use crate::chat;
use crate::mail::Chain;
use crate::schedules::{self, Beat, NewSchedule};
use crate::turns::{self, Ending};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

async fn delivered(rig: &Rig) -> Vec<Value> {
    let events = rig.events().await.into_iter().filter(|event| event.kind == EventKind::ScheduleDelivered);
    events.map(|event| (*event.payload).clone()).collect()
}

// covers: SCHED-05
#[tokio::test]
async fn an_own_turn_holds_no_other_mail_and_is_announced_in_a_channel() {
    let rig = Rig::new().await;
    let channel = chat::NewChannel {
        channel: "news".parse().unwrap(),
        members: vec![id("ada"), id("bob"), id("cyd")],
        gated: false,
        skip_creator: false,
        topic: None,
    };
    let by = chat::Speaker::from(party("ada"));
    write!(rig, |w, ctx| chat::create(w, &ctx, &by, channel).await).unwrap();
    let job = own_turn(&rig, announce("news")).await;
    rig.pass(HOUR);
    due(&rig).await;
    rig.send("ada", "something else").await;
    let taken = rig.take("ada").await;
    assert_eq!((taken.mail.len(), taken.mail[0].kind, taken.turn.source.as_str()), (1, Kind::CronTurn, "cron"));
    let body = &taken.mail[0].body;
    assert!(body.contains("a turn of its own") && body.contains("ANNOUNCE_SKIP"), "{body}");
    assert!(body.contains("posted in the chat channel news"), "{body}");
    rig.finish(taken.turn.turn_id, "All is well.").await.unwrap();
    let other = rig.take("ada").await;
    assert_eq!((other.mail[0].kind, other.turn.source.as_str()), (Kind::Message, "mail"));
    rig.finish(other.turn.turn_id, "").await.unwrap();
    run_next_hour(&rig, " ANNOUNCE_SKIP\n").await;
    let posts = read!(rig, |r| r.chat_posts(&"news".parse().unwrap(), 0, 0, 9).await?);
    assert_eq!((posts.len(), posts[0].content.as_str()), (1, "All is well."));
    assert!(runs(&rig, &job).await.iter().all(|run| run.status == RunStatus::Done && run.note.is_none()));
    let delivered_events = delivered(&rig).await;
    assert_eq!((&delivered_events[0]["silent"], &delivered_events[1]["silent"]), (&json!(false), &json!(true)));
}

#[tokio::test]
async fn an_announcement_goes_to_the_last_conversation_and_a_failure_is_in_the_run() {
    let rig = Rig::new().await;
    let job = own_turn(&rig, Target::Last).await;
    run_next_hour(&rig, "Nobody hears this.").await;
    let run = &runs(&rig, &job).await[0];
    assert_eq!(run.status, RunStatus::Done);
    assert!(run.note.as_ref().unwrap().contains("no conversation with anyone outside"), "{run:?}");
    let talk = answered_conversation(&rig, "one").await;
    run_next_hour(&rig, "It is noon.").await;
    run_next_hour(&rig, "NO_REPLY").await;
    let ended = Ending::Failed(Refusal::new(Code::Timeout, "too slow"));
    rig.pass(HOUR);
    due(&rig).await;
    let turn = rig.take("ada").await.turn;
    write!(rig, |w, ctx| turns::finish(w, &ctx, turn.turn_id, ended).await).unwrap();
    let said = conversations_of_ada(&rig).await.remove(0).1;
    assert_eq!((said.len(), said[1].content.as_str()), (2, "It is noon."));
    own_turn(&rig, Target::Conversation(talk.conversation_id)).await;
    run_next_hour(&rig, "It is late.").await;
    assert_eq!(conversations_of_ada(&rig).await.remove(0).1[2].content, "It is late.");
}

#[tokio::test]
async fn the_last_conversation_is_the_one_with_the_newest_message_from_outside() {
    let rig = Rig::new().await;
    let first = answered_conversation(&rig, "one").await.conversation_id;
    rig.pass(MINUTE);
    let second = answered_conversation(&rig, "two").await.conversation_id;
    rig.pass(MINUTE);
    // Later messages of the agent, there or in a thread that it began, do not count.
    own_turn(&rig, Target::Conversation(first)).await;
    run_next_hour(&rig, "To the first.").await;
    own_turn(&rig, ops("cron:ada/report")).await;
    run_next_hour(&rig, "To a thread of my own.").await;
    own_turn(&rig, Target::Last).await;
    run_next_hour(&rig, "To the second.").await;
    let found = conversations_of_ada(&rig).await;
    let said = &found.iter().find(|(talk, _)| talk.conversation_id == second).unwrap().1;
    assert_eq!(said.last().unwrap().content, "To the second.");
    assert_eq!(found.len(), 3);
}

#[tokio::test]
async fn a_thread_is_not_begun_for_a_text_that_is_too_long() {
    let rig = Rig::new().await;
    let job = own_turn(&rig, ops("cron:ada/report")).await;
    rig.limits(|limits| limits.message_bytes = 400);
    run_next_hour(&rig, &"x".repeat(401)).await;
    let note = runs(&rig, &job).await[0].note.clone().unwrap();
    assert!(note.contains("not delivered") && note.contains("the limit is 400"), "{note}");
    assert!(conversations_of_ada(&rig).await.is_empty());
}

// covers: SCHED-05
#[tokio::test]
async fn a_webhook_gets_results_in_one_thread_as_conversation_deliveries() {
    let rig = Rig::new().await;
    let job = own_turn(&rig, ops("cron:ada/report")).await;
    run_next_hour(&rig, "One.").await;
    // The job is cancelled before its turn ends; its result is still delivered.
    rig.pass(HOUR);
    due(&rig).await;
    let schedule_id = job.schedule_id;
    write!(rig, |w, ctx| schedules::cancel(w, &ctx, &operator(), schedule_id).await).unwrap();
    let turn = rig.take("ada").await.turn;
    rig.finish(turn.turn_id, "Two.").await.unwrap();
    let talks = conversations_of_ada(&rig).await;
    let (conversation, said) = &talks[0];
    assert_eq!((talks.len(), conversation.adapter.as_str()), (1, "webhook:ops"));
    assert_eq!((conversation.thread.as_str(), &conversation.owner), ("cron:ada/report", &id("ada")));
    let texts: Vec<_> = said.iter().map(|entry| (entry.content.as_str(), entry.delivery)).collect();
    assert_eq!(texts, [("One.", Delivery::Pending), ("Two.", Delivery::Pending)]);
}

#[tokio::test]
async fn only_a_cron_job_has_a_turn_of_its_own() {
    let rig = Rig::new().await;
    let at = When::At { at: rig.ctx.now().plus(HOUR) };
    let wanted = NewSchedule { mode: Target::Nowhere.into(), ..new(&rig, ScheduleKind::Timer, "tea", at) };
    assert_eq!(code(set(&rig, party("ada"), wanted).await), Code::PayloadMismatch);
}

// covers: SCHED-07
#[tokio::test]
async fn a_reminder_shows_recent_messages_within_its_limits() {
    let rig = Rig::new().await;
    timer(&rig, "tea", HOUR).await;
    timer(&rig, "old", HOUR * 25).await;
    for n in 0..7 {
        rig.send("ada", &format!("question {n} {}", "x".repeat(300))).await;
        let turn = rig.take("ada").await.turn;
        rig.pass(Duration::from_secs(1));
        rig.finish(turn.turn_id, if n == 6 { "NO_REPLY" } else { "short" }).await.unwrap();
    }
    own_turn(&rig, Target::Nowhere).await;
    rig.pass(HOUR);
    due(&rig).await;
    let mail = rig.inbox("ada").await;
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
    rig.limits(|limits| (limits.reminder_messages, limits.reminder_message_chars) = (2, 20));
    rig.pass(HOUR * 24);
    due(&rig).await;
    let mail = rig.inbox("ada").await;
    let old = mail.iter().find(|mail| mail.subject.as_deref().is_some_and(|s| s.contains("old"))).unwrap();
    assert_eq!(old.body.lines().filter(|line| line.starts_with("- you ")).count(), 2, "{}", old.body);
    assert!(old.body.contains("That is long ago"), "{}", old.body);
}

#[tokio::test]
async fn a_one_shot_due_during_a_run_by_hand_goes_off_after_it() {
    let rig = Rig::new().await;
    let when = When::At { at: rig.ctx.now().plus(MINUTE) };
    let job = set(&rig, operator(), new(&rig, ScheduleKind::Cron, "once", when)).await.unwrap();
    let schedule_id = job.schedule_id;
    write!(rig, |w, ctx| {
        let chain = Chain::root(&ctx);
        schedules::run_now(w, &ctx, &operator(), schedule_id, chain).await
    })
    .unwrap();
    let by_hand = rig.take("ada").await.turn;
    for _ in 0..3 {
        rig.pass(MINUTE);
        due(&rig).await;
    }
    assert!(find(&rig, &job).await.unwrap().next_at.is_some());
    assert_eq!(runs(&rig, &job).await.len(), 2, "its wait is recorded once");
    rig.finish(by_hand.turn_id, "done by hand").await.unwrap();
    assert_eq!(find(&rig, &job).await.unwrap().next_at, Some(rig.ctx.now()), "and nobody waits for longer");
    due(&rig).await;
    due(&rig).await;
    let mail = rig.inbox("ada").await;
    assert_eq!(mail.len(), 1);
    assert!(mail[0].body.contains("late by 2m: another run of it had not ended"), "{}", mail[0].body);
    let turn = rig.take("ada").await.turn;
    rig.finish(turn.turn_id, "done").await.unwrap();
    assert!(find(&rig, &job).await.is_none());
    let statuses: Vec<RunStatus> = runs(&rig, &job).await.iter().map(|run| run.status).collect();
    assert_eq!(statuses, [RunStatus::Done, RunStatus::Skipped, RunStatus::Done]);
}

// covers: SCHED-06
#[tokio::test]
async fn a_one_shot_is_deleted_after_success_and_switched_off_after_failure() {
    let rig = Rig::new().await;
    let when = When::At { at: rig.ctx.now().plus(MINUTE) };
    let job = set(&rig, operator(), new(&rig, ScheduleKind::Cron, "once", when)).await.unwrap();
    let (schedule_id, run) = (job.schedule_id, async || {
        write!(rig, |w, ctx| {
            let chain = Chain::root(&ctx);
            schedules::run_now(w, &ctx, &operator(), job.schedule_id, chain).await
        })
    });
    // Set off by hand before its time, it still goes off at its time.
    run().await.unwrap();
    let turn = rig.take("ada").await.turn;
    rig.finish(turn.turn_id, "").await.unwrap();
    assert!(find(&rig, &job).await.unwrap().next_at.is_some());
    rig.pass(MINUTE);
    due(&rig).await;
    let turn = rig.take("ada").await.turn;
    let ended = Ending::Failed(Refusal::new(Code::Timeout, "too slow"));
    write!(rig, |w, ctx| turns::finish(w, &ctx, turn.turn_id, ended).await).unwrap();
    let kept = find(&rig, &job).await.unwrap();
    assert_eq!((kept.enabled, kept.next_at, kept.last_status), (false, None, Some(RunStatus::Failed)));
    let on = write!(rig, |w, ctx| schedules::enable(w, &ctx, &operator(), schedule_id, true).await);
    assert_eq!(code(on), Code::InvalidArguments);
    // Its message can still be changed, but not with a time that has passed.
    let repaired = || NewSchedule {
        message: "look at the door".into(),
        enabled: false,
        ..new(&rig, ScheduleKind::Cron, "once", kept.when.clone())
    };
    let changed = set(&rig, operator(), repaired()).await.unwrap();
    assert_eq!((changed.schedule_id, changed.message.as_str()), (schedule_id, "look at the door"));
    assert_eq!((changed.enabled, changed.next_at), (false, None));
    assert_eq!(code(set(&rig, operator(), NewSchedule { enabled: true, ..repaired() }).await), Code::InvalidArguments);
    let earlier = When::At { at: rig.ctx.now().minus(MINUTE * 5) };
    assert_eq!(code(set(&rig, operator(), NewSchedule { when: earlier, ..repaired() }).await), Code::InvalidArguments);
    run().await.unwrap();
    let turn = rig.take("ada").await.turn;
    rig.finish(turn.turn_id, "").await.unwrap();
    assert!(find(&rig, &job).await.is_none());
}

// covers: SCHED-06
#[tokio::test]
async fn the_run_log_stays_within_its_limits() {
    let rig = Rig::new().await;
    rig.limits(|limits| limits.schedule_run_lines = 96);
    let job = own_turn(&rig, Target::Nowhere).await;
    let mut most = 0;
    for _ in 0..120 {
        run_next_hour(&rig, "").await;
        let schedule_id = job.schedule_id;
        most = most.max(read!(rig, |r| r.schedule_runs(schedule_id, 1_000).await?).len());
    }
    assert!((90..=96).contains(&most), "{most}");
    let record = runs(&rig, &job).await;
    assert_eq!((record[0].run, record[0].status), (120, RunStatus::Done));
    rig.limits(|limits| limits.schedule_run_bytes = 4_000);
    for _ in 0..12 {
        run_next_hour(&rig, "").await;
    }
    let bytes: usize = runs(&rig, &job).await.iter().map(|run| serde_json::to_vec(run).unwrap().len()).sum();
    assert!((1_500..=4_000).contains(&bytes), "{bytes}");
}

// covers: SCHED-06
#[tokio::test]
async fn mail_for_the_next_heartbeat_is_taken_with_it() {
    let rig = Rig::new().await;
    let mode = JobMode::Mail { wake: WakeMode::NextHeartbeat };
    let job = NewSchedule { mode, ..new(&rig, ScheduleKind::Cron, "mail", every(&rig, MINUTE * 10)) };
    let job = set(&rig, party("ada"), job).await.unwrap();
    // Without a heartbeat, it would wait for ever.
    rig.pass(MINUTE * 10);
    due(&rig).await;
    assert!(rig.inbox("ada").await[0].wake);
    let turn = rig.take("ada").await.turn;
    rig.finish(turn.turn_id, "").await.unwrap();
    let wanted = [(id("ada"), schedules::Wanted { every_ms: 1_800_000, target: "none".into() })].into_iter().collect();
    write!(rig, |w, ctx| schedules::heartbeats(w, &ctx, &wanted).await).unwrap();
    rig.pass(MINUTE * 10);
    due(&rig).await;
    assert!(!rig.inbox("ada").await[0].wake && rig.try_take("ada").await.unwrap().is_none());
    rig.pass(MINUTE * 20);
    // An empty HEARTBEAT.md asks nothing, but mail waits.
    write!(rig, |w, ctx| schedules::due(w, &ctx, Timestamp(0), &|_, _| Beat::Empty).await).unwrap();
    let taken = rig.take("ada").await;
    let kinds: Vec<Kind> = taken.mail.iter().map(|mail| mail.kind).collect();
    assert_eq!(kinds, [Kind::Cron, Kind::Heartbeat]);
    rig.finish(taken.turn.turn_id, "HEARTBEAT_OK").await.unwrap();
    let record = runs(&rig, &job).await;
    let done = record.iter().filter(|run| run.status == RunStatus::Done).count();
    assert_eq!(done, 2, "{record:#?}");
    assert_eq!(rig.count(EventKind::HeartbeatQuiet).await, 1);
}

// covers: HB-07
#[tokio::test]
async fn an_exchange_of_asks_ends_at_its_limit_or_when_the_other_agent_ends_it() {
    let rig = Rig::new().await;
    let ada = rig.busy("ada").await;
    let round = async |target: &str, words: &str| {
        let (ask, call_id) = rig.ask_by(&ada, target, "syscall.ask").await?;
        let turn = rig.take(target).await.turn;
        rig.finish(turn.turn_id, words).await?;
        let (_, content, _) = rig.outcome(ada.turn_id, call_id).await.unwrap();
        assert_eq!(content["message_id"], json!(ask.message_id));
        Ok::<Value, Refusal>(content)
    };
    for _ in 0..5 {
        assert_eq!(round("bob", "go on").await.unwrap()["reply"], "go on");
    }
    let over = round("bob", "go on").await.unwrap_err();
    assert_eq!((over.code, &over.details.unwrap()["limit"]), (Code::LoopGuard, &json!("reply_rounds_max")));
    assert_eq!(rig.count(EventKind::LimitReached).await, 1);
    // Alternating asks are no loop.
    for _ in 0..4 {
        round("cyd", "yes").await.unwrap();
        round("bob", "yes").await.unwrap();
    }
    let ended = round("bob", " REPLY_SKIP\n").await.unwrap();
    assert_eq!((&ended["reply"], &ended["ended"]), (&json!(""), &json!(true)));
    let refusal = round("bob", "more").await.unwrap_err();
    assert!(refusal.code == Code::LoopGuard && refusal.message.contains("bob has ended"), "{refusal}");
    assert!(rig.inbox("bob").await.is_empty());
}
