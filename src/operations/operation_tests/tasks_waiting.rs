//! Tasks that depend on one another.

use super::operation_world::*;
use super::tasks::status;

async fn create(world: &OperationWorld, owner: &str, depends_on: &[TaskId]) -> Task {
    super::tasks::create(world, party("ada"), owner, depends_on, 0).await.unwrap()
}

async fn change(world: &OperationWorld, task: &Task, change: TaskChange) -> Result<Task> {
    super::tasks::change(world, party("ada"), task, change).await
}

async fn set(world: &OperationWorld, task: &Task, status: TaskStatus) -> Result<Task> {
    super::tasks::set(world, "ada", task, status).await
}

async fn reopen(world: &OperationWorld, task: &Task) {
    let again = TaskChange {
        status: Some(TaskStatus::Pending),
        note: Some("more came".into()),
        reopen: true,
        ..TaskChange::default()
    };
    change(world, task, again).await.unwrap();
}

fn on(depends_on: &[&Task]) -> TaskChange {
    TaskChange { depends_on: Some(depends_on.iter().map(|task| task.task_id).collect()), ..TaskChange::default() }
}

// covers: TASK-06
world_test!(changed_dependencies_block_and_unblock, async |world| {
    let (first, second) = (create(&world, "ada", &[]).await, create(&world, "ada", &[]).await);
    let task = create(&world, "bob", &[]).await;
    assert_eq!(world.inbox("bob").await.len(), 1);
    let blocked = change(&world, &task, on(&[&first, &second])).await.unwrap();
    assert_eq!((blocked.status, blocked.depends_on.len()), (TaskStatus::Blocked, 2));
    set(&world, &first, TaskStatus::Done).await.unwrap();
    assert_eq!(status(&world, &task).await, TaskStatus::Blocked);
    // The remaining dependency failed; without it the task can start.
    set(&world, &second, TaskStatus::Failed).await.unwrap();
    assert_eq!(status(&world, &task).await, TaskStatus::Blocked);
    assert_eq!(change(&world, &task, on(&[&first])).await.unwrap().status, TaskStatus::Pending);
    assert_eq!(world.inbox("bob").await.len(), 3, "its owner is told of the failed dependency, then that it can start");
    let history: Vec<_> = read!(world, |r| r.task_events(task.task_id, 100)?);
    assert!(history.last().unwrap().note.as_ref().unwrap().contains(&first.task_id.to_string()));
    // A task that someone has blocked for another reason stays blocked.
    set(&world, &task, TaskStatus::Blocked).await.unwrap();
    assert_eq!(change(&world, &task, on(&[])).await.unwrap().status, TaskStatus::Blocked);
    set(&world, &task, TaskStatus::Pending).await.unwrap();
    set(&world, &task, TaskStatus::Done).await.unwrap();
    assert_eq!(code(change(&world, &task, on(&[&first])).await), Code::Conflict, "it has ended");
});

// covers: TASK-06
world_test!(no_task_waits_for_itself, async |world| {
    let a = create(&world, "ada", &[]).await;
    let b = create(&world, "ada", &[a.task_id]).await;
    let c = create(&world, "ada", &[b.task_id]).await;
    assert_eq!(code(change(&world, &a, on(&[&a])).await), Code::Conflict);
    let refusal = change(&world, &a, on(&[&c])).await.unwrap_err();
    let cycle = json!({ "cycle": [a.task_id, c.task_id, b.task_id, a.task_id] });
    assert_eq!((refusal.code, refusal.details), (Code::Conflict, Some(cycle)));
    assert_eq!(status(&world, &a).await, TaskStatus::Pending, "nothing of it was done");
    // Two paths to the same task are no cycle.
    let d = create(&world, "ada", &[a.task_id, b.task_id]).await;
    change(&world, &d, on(&[&a, &b, &c])).await.unwrap();
    let nobody = TaskChange { depends_on: Some(vec![TaskId(Uuid::nil())]), ..TaskChange::default() };
    assert_eq!(code(change(&world, &d, nobody).await), Code::NotFound);
    let many = TaskChange { depends_on: Some(vec![a.task_id; 65]), ..TaskChange::default() };
    assert_eq!(code(change(&world, &d, many).await), Code::InvalidArguments);
});

world_test!(a_reopened_task_blocks_pending_tasks_and_leaves_tasks_in_progress, async |world| {
    let first = create(&world, "ada", &[]).await;
    let (ready, begun) = (create(&world, "bob", &[first.task_id]).await, create(&world, "cyd", &[first.task_id]).await);
    set(&world, &first, TaskStatus::Done).await.unwrap();
    set(&world, &begun, TaskStatus::InProgress).await.unwrap();
    reopen(&world, &first).await;
    assert_eq!(
        (status(&world, &ready).await, status(&world, &begun).await),
        (TaskStatus::Blocked, TaskStatus::InProgress)
    );
    set(&world, &first, TaskStatus::Done).await.unwrap();
    assert_eq!(status(&world, &ready).await, TaskStatus::Pending);
    assert_eq!(world.inbox("bob").await.len(), 2);
});

world_test!(the_creator_is_notified_when_a_task_is_unblocked, async |world| {
    let first = create(&world, "bob", &[]).await;
    create(&world, "cyd", &[first.task_id]).await;
    let done = TaskChange { status: Some(TaskStatus::Done), ..TaskChange::default() };
    run!(world, |w| {
        let ctx = w.ctx;
        tasks::update(w, &party("bob"), first.task_id, done, Chain::root(ctx))
    })
    .unwrap();
    let subjects: Vec<String> = world.inbox("ada").await.into_iter().filter_map(|mail| mail.subject).collect();
    assert!(subjects.len() == 2 && subjects[0].contains("done") && subjects[1].contains("pending"), "{subjects:?}");
});
