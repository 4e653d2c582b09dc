//! Jobs that wait for a heartbeat: after a crash of their turn, after they became a dead letter,
//! and after the heartbeat was removed (SCHED-06, HB-01).

use ghost_domain::schedule::WakeMode;

use super::operation_world::*;
use super::schedule_helpers::*;

/// Configures ada's heartbeat: every half hour, or none.
async fn heartbeat(world: &OperationWorld, beats: bool) {
    let wanted = beats.then(|| schedules::Wanted { every_ms: 1_800_000, target: "none".into() });
    run!(world, |w| schedules::follow_heartbeat(w, &id("ada"), wanted.as_ref())).unwrap();
}

/// A job of ada every ten minutes that waits for its heartbeat, with one waiting run.
async fn waiting(world: &OperationWorld) -> Schedule {
    heartbeat(world, true).await;
    let mode = JobMode::Mail { wake: WakeMode::NextHeartbeat };
    let when = When::Every { every_ms: 600_000, anchor: world.ctx.now() };
    let job = NewSchedule { mode, ..new(world, ScheduleKind::Cron, "mail", when) };
    let job = set(world, party("ada"), job).await.unwrap();
    due_after(world, MINUTE * 10).await;
    assert!(world.try_take("ada").await.unwrap().is_none(), "it waits");
    job
}

/// The run of a job that waited. The slot at the time of the heartbeat was skipped.
async fn waited(world: &OperationWorld, job: &Schedule) -> ScheduleRun {
    runs(world, job).await.into_iter().find(|run| run.message_id.is_some()).unwrap()
}

/// Opens the turn of a heartbeat with the mail that waited for it.
async fn beat(world: &OperationWorld) {
    due_after(world, MINUTE * 20).await;
    let kinds: Vec<Kind> = world.take("ada").await.mail.iter().map(|mail| mail.kind).collect();
    assert_eq!(kinds, [Kind::Cron, Kind::Heartbeat]);
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
        let world = OperationWorld::new().await;
        world.limits(|limits| limits.crashes_max = 1);
        let job = waiting(&world).await;
        beat(&world).await;
        world.crash("ada", "it fell over").await;
        let held = world.dead_letters().await;
        let quiet = waited(&world, &job).await.message_id.unwrap();
        let letter = held.iter().find(|letter| letter.messages == [quiet]).unwrap().dead_letter_id;
        run!(world, |w| dead_letters::retry(w, &operator(), letter, fresh)).unwrap();
        let taken = world.take("ada").await;
        assert_eq!(taken.mail.iter().map(|mail| mail.message_id).collect::<Vec<_>>(), [quiet], "fresh: {fresh}");
        world.finish(taken.turn.turn_id, "").await.unwrap();
        assert_eq!(waited(&world, &job).await.status, RunStatus::Done);
    }
}

#[tokio::test]
async fn waiting_mail_wakes_the_agent_when_the_heartbeat_is_removed() {
    for reloaded in [true, false] {
        let world = OperationWorld::new().await;
        waiting(&world).await;
        // Other quiet mail does not wait for the heartbeat.
        let quiet =
            mail::NewMessage::new(&id("ada"), operator(), Kind::Message, "by the way", mail::Chain::root(&world.ctx));
        let quiet = world.deliver(mail::NewMessage { wake: false, ..quiet }).await.unwrap();
        world.signals();
        if reloaded {
            heartbeat(&world, false).await;
        } else {
            let beats = read!(world, |r| r.schedule_find(&id("ada"), ScheduleKind::Heartbeat, "heartbeat")?.unwrap());
            run!(world, |w| schedules::enable(w, &operator(), beats.schedule_id, false)).unwrap();
        }
        assert!(world.signals().contains(&Signal::Wake(id("ada"))), "reloaded: {reloaded}");
        assert!(!world.message(quiet.message_id).await.wake);
        let kinds: Vec<Kind> = world.take("ada").await.mail.iter().map(|mail| mail.kind).collect();
        assert_eq!(kinds, [Kind::Cron, Kind::Message]);
    }
}
