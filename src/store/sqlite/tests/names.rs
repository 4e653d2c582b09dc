//! Unique names that are taken, released and taken again in one batch.

use ghost_domain::schedule::{Missed, When};
use ghost_domain::{
    Conversation, ConversationId, Party, RootId, Schedule, ScheduleId, ScheduleKind, Timestamp, WatchSnapshot,
};
use uuid::Uuid;

use super::tools::{dir, id_of, open, together};
use crate::{Store, StoreError};

fn conversation(n: u128, thread: &str) -> Conversation {
    Conversation {
        conversation_id: ConversationId(Uuid::from_u128(n)),
        adapter: "control".to_owned(),
        thread: thread.to_owned(),
        owner: id_of("a"),
        party: Party::System,
        last_seq: 0,
        created_at: Timestamp(1),
        updated_at: Timestamp(1),
        heard: 0,
        heard_at: None,
        reacted: None,
        passed_on: Vec::new(),
        ended_at: None,
    }
}

fn schedule(n: u128, name: &str) -> Schedule {
    Schedule {
        schedule_id: ScheduleId(Uuid::from_u128(n)),
        kind: ScheduleKind::Timer,
        agent_id: id_of("a"),
        name: name.to_owned(),
        when: When::At { at: Timestamp(9) },
        message: "wake up".to_owned(),
        missed: Missed::RunOnce,
        mode: ghost_domain::schedule::JobMode::default(),
        enabled: true,
        root_id: RootId(Uuid::from_u128(7)),
        hop: 0,
        conversation_id: None,
        next_at: Some(Timestamp(9)),
        last_at: None,
        last_status: None,
        runs: 0,
        creator: Party::System,
        created_at: Timestamp(1),
    }
}

/// Runs a command that gives names to rows; `None` deletes the schedule instead. Returns whether it
/// was accepted.
async fn give(store: &Store, given: Vec<(u128, Option<&'static str>)>) -> bool {
    let result = store
        .write::<_, StoreError, _>(move |w| {
            for (n, name) in given {
                match name {
                    Some(name) => {
                        w.conversation_put(&conversation(n, name))?;
                        w.schedule_put(&schedule(n, name))?;
                        w.watch_snapshot_put(ScheduleId(Uuid::from_u128(n)), &WatchSnapshot::default())?;
                    }
                    None => w.schedule_delete(ScheduleId(Uuid::from_u128(n)))?,
                }
            }
            Ok(())
        })
        .await;
    match result {
        Ok(()) => true,
        Err(StoreError::Row { table: "conversations" | "schedules", .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// The row number that has each name, for conversations and schedules.
async fn names(store: &Store) -> Vec<(Option<u128>, Option<u128>)> {
    store
        .read::<_, StoreError, _>(|r| {
            let mut found = Vec::new();
            for name in ["x", "y", "z"] {
                let conversation = r.conversation_find("control", name)?;
                let schedule = r.schedule_find(&id_of("a"), ScheduleKind::Timer, name)?;
                found.push((
                    conversation.map(|found| found.conversation_id.0.as_u128()),
                    schedule.map(|found| found.schedule_id.0.as_u128()),
                ));
            }
            Ok(found)
        })
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_move_between_rows_in_one_batch() {
    let dir = dir();
    let store = open(&dir.path().join("ghost.db")).await;
    assert!(give(&store, vec![(1, Some("x")), (2, Some("y"))]).await);
    let commands = [
        // The older row is first in the batch, and takes a name that another row has in SQL.
        vec![(2, Some("y"))],
        vec![(1, Some("x")), (1, Some("z"))],
        vec![(2, Some("x"))],
        // The name is taken.
        vec![(3, Some("z"))],
        vec![(1, Some("y")), (3, Some("z"))],
    ];
    let results = together(&store, commands.map(|given| give(&store, given)).into()).await;
    assert_eq!(results, [true, true, true, false, true]);
    assert_eq!(names(&store).await, [(Some(2), Some(2)), (Some(1), Some(1)), (Some(3), Some(3))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_name_of_a_deleted_schedule_is_free_at_once() {
    let dir = dir();
    let path = dir.path().join("ghost.db");
    let store = open(&path).await;
    assert!(give(&store, vec![(1, Some("x"))]).await);
    let command = store.write::<_, StoreError, _>(|w| {
        let (first, second) = (ScheduleId(Uuid::from_u128(1)), ScheduleId(Uuid::from_u128(2)));
        w.schedule_put(&Schedule { runs: 1, ..schedule(1, "x") })?;
        w.schedule_delete(first)?;
        assert_eq!(w.schedule_get(first)?, None);
        assert_eq!(w.watch_snapshot_get(first)?, None);
        w.schedule_put(&schedule(2, "x"))?;
        assert_eq!(w.schedule_find(&id_of("a"), ScheduleKind::Timer, "x")?, Some(schedule(2, "x")));
        assert_eq!(w.schedule_next_at()?, Some(Timestamp(9)));
        w.schedule_delete(second)?;
        w.schedule_delete(second)?;
        assert_eq!(w.schedule_next_at()?, None);
        w.schedule_put(&schedule(1, "x"))
    });
    command.await.unwrap();
    assert_eq!(names(&store).await[0], (Some(1), Some(1)));
    // A refusal restores what the command deleted.
    assert!(!give(&store, vec![(1, None), (4, Some("x"))]).await);
    store.close().await;
    assert_eq!(names(&open(&path).await).await[0], (Some(1), Some(1)));
}
