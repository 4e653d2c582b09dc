//! Paging through long lists reaches their end.

use ghost_domain::{
    Budget, DeadLetter, DeadLetterId, DeadLetterStatus, Refusal, RootId, Schedule, ScheduleKind, Scope, Task, TaskId,
    TaskStatus, Timestamp, TurnId,
};
use ghost_proto::v1;
use uuid::Uuid;

use super::{conversations, cost, messages, schedules, tasks};
use crate::convert::input::seal;

fn number(id: &str) -> u128 {
    id.parse::<Uuid>().unwrap().as_u128()
}

#[tokio::test]
async fn paging_through_schedules_and_conversations_reaches_the_end() {
    use ghost_domain::schedule::{JobMode, Missed, When};
    use ghost_domain::{Conversation, ConversationId, Party, ScheduleId};

    let test = crate::testing::TestControl::new().await;
    let write = test.world.store().write(|w| {
        for n in 1..=1_700 {
            let schedule = Schedule {
                schedule_id: ScheduleId(Uuid::from_u128(n)),
                kind: ScheduleKind::Timer,
                agent_id: "ada".parse()?,
                name: format!("{n}"),
                when: When::At { at: Timestamp(9) },
                message: String::new(),
                missed: Missed::Skip,
                mode: JobMode::default(),
                enabled: true,
                root_id: RootId(Uuid::nil()),
                hop: 0,
                conversation_id: None,
                next_at: None,
                last_at: None,
                last_status: None,
                runs: 0,
                creator: Party::System,
                created_at: Timestamp(0),
            };
            w.schedule_put(&schedule)?;
            let (conversation_id, thread) = (ConversationId(Uuid::from_u128(n)), format!("{n}"));
            let place = ("control".into(), thread);
            let conversation = Conversation::new(conversation_id, place, "ada".parse()?, Party::System, Timestamp(5));
            w.conversation_put(&conversation)?;
        }
        Ok::<_, Refusal>(())
    });
    write.await.unwrap();
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let request = v1::ListSchedulesRequest { kind: Some("timer".into()), cursor, limit: 500, ..Default::default() };
        let page = schedules::list(test.query(), request).await.unwrap();
        names.extend(page.schedules.into_iter().map(|row| row.name));
        cursor = page.next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
    let mut all: Vec<String> = (1..=1_700).map(|n| format!("{n}")).collect();
    all.sort_unstable();
    assert_eq!(names, all);
    let mut ids = Vec::new();
    loop {
        let request = v1::ListConversationsRequest { cursor, limit: 500, ..Default::default() };
        let page = conversations::list(test.query(), request).await.unwrap();
        ids.extend(page.conversations.iter().map(|row| number(&row.conversation_id)));
        cursor = page.next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
    assert_eq!(ids, (1..=1_700).rev().collect::<Vec<u128>>());
    for cursor in ["ada", "ada\u{1}timer", "a da\u{1}timer\u{1}x", "ada\u{1}tea\u{1}x"] {
        let request = v1::ListSchedulesRequest { cursor: seal("schedules", cursor), ..Default::default() };
        let refused = schedules::list(test.query(), request).await.unwrap_err();
        assert_eq!(refused.code, ghost_domain::Code::InvalidArguments, "{cursor}");
    }
}

#[tokio::test]
async fn paging_reaches_every_dead_letter_task_and_budget() {
    use ghost_domain::Party;

    const ROWS: u128 = 1_700;
    let test = crate::testing::TestControl::new().await;
    let write = test.world.store().write(|w| {
        for n in 1..=ROWS {
            let letter = DeadLetter {
                dead_letter_id: DeadLetterId(Uuid::from_u128(n)),
                agent_id: "ada".parse()?,
                turn_id: TurnId(Uuid::from_u128(n)),
                messages: Vec::new(),
                reason: "test".into(),
                crashes: 3,
                status: DeadLetterStatus::Held,
                created_at: Timestamp(5),
                resolved_at: None,
            };
            w.dead_letter_put(&letter)?;
            let (task_id, root_id) = (TaskId(Uuid::from_u128(n)), RootId(Uuid::nil()));
            let people = ("ada".parse()?, Party::System);
            let blank = Task::new(task_id, "test".into(), people, root_id, Timestamp(5));
            let task = Task { status: TaskStatus::Done, priority: if n > 900 { 1 } else { 0 }, ..blank };
            w.task_put(&task)?;
            w.budget_put(&Budget::open(Scope::Root(RootId(Uuid::from_u128(n))), Timestamp(0)))?;
        }
        w.budget_put(&Budget::open(Scope::World.daily().unwrap(), Timestamp(0)))?;
        Ok::<_, Refusal>(())
    });
    write.await.unwrap();
    let (mut letters, mut cursor) = (Vec::new(), String::new());
    loop {
        let request = v1::ListDeadRequest { cursor, limit: 500, ..Default::default() };
        let page = messages::list_dead(test.query(), request).await.unwrap();
        letters.extend(page.dead_letters.iter().map(|row| number(&row.dead_letter_id)));
        cursor = page.next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
    assert_eq!(letters, (1..=ROWS).rev().collect::<Vec<u128>>());
    let mut found = Vec::new();
    loop {
        let request = v1::ListTasksRequest { cursor, limit: 500, ..Default::default() };
        let page = tasks::list(test.query(), request).await.unwrap();
        found.extend(page.tasks.iter().map(|row| number(&row.task_id)));
        cursor = page.next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
    assert_eq!(found, (901..=ROWS).chain(1..=900).collect::<Vec<u128>>());
    let mut roots = Vec::new();
    loop {
        let request = v1::ListBudgetsRequest { sort: Some("root".into()), cursor, limit: 500 };
        let page = cost::list_budgets(test.query(), request).await.unwrap();
        roots.extend(page.budgets.into_iter().map(|row| row.scope));
        cursor = page.next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
    assert_eq!(roots, (1..=ROWS).map(|n| Scope::Root(RootId(Uuid::from_u128(n))).to_string()).collect::<Vec<_>>());
    // Behind many roots, the world and its day are still found.
    let request = v1::ListBudgetsRequest { limit: 500, ..Default::default() };
    let others = cost::list_budgets(test.query(), request).await.unwrap().budgets;
    assert!(others.iter().any(|budget| budget.scope == "world/day"), "{others:?}");
}
